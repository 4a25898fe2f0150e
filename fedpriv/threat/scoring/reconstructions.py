"""How much of scrubbed fields an attack brought back: where `FieldGuesses` meet the truth.

One-shot (CDMI, §5.2): the first attempt at each field, against the first of the baseline.
Multi-shot (§5.3): of each field the attempt with the highest confidence, and the fields sorted by
it; of the baseline likewise. `fedpriv.threat.scoring.fields` says what each number is.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.threat.access import ScrubbedField, ScrubbedFields
from fedpriv.threat.claims import PUBLIC, Attempt, FieldGuesses, Reconstruction
from fedpriv.threat.results import Result
from fedpriv.threat.scoring.fields import (
    Shots,
    Similarity,
    area_intervals,
    improvement_factor,
    ipf_interval,
)
from fedpriv.threat.scoring.reconstruction_tables import figures, headline, tables
from fedpriv.threat.scoring.registry import Scoring, scorer
from fedpriv.threat.scoring.verdicts import number, verdict
from fedpriv.threat.settings import AttackSettings
from fedpriv.threat.statistics import Estimate, jackknife
from fedpriv.threat.truth import TrueField

SHARES = (0.01, 0.05, 1.0)
"""At which AccAt and HamAt are told, as in CDMI's Table 5."""

MOST_PERFECT = 50
"""Perfect reconstructions that are listed."""

MOST_POINTS = 200
"""Of a curve."""

MOST_LOG = 700.0
"""Beyond which exp is more than a float holds."""

WORTH = 1.2
"""Improvement factor whose absence is worth telling."""

IN_SERIES = ("round", "ipf", "ipf_interval", "pr", "acc_auc", "ham_aac", "acc_at", "loss", "score")
"""Numbers of each model of a series."""

Texts = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Case:
    """A field with what stood in it and what was made of it."""

    field: ScrubbedField
    truth: TrueField
    found: Reconstruction

    def similarity(self, attempt: Attempt) -> Similarity:
        """Compares an attempt with the truth."""
        return Similarity.of(self.truth.tokens, attempt.tokens)

    def perfect(self, attempt: Attempt) -> bool:
        """Says whether an attempt has all tokens right."""
        return tuple(attempt.tokens) == tuple(self.truth.tokens)

    def kept(self, by: str) -> Attempt:
        """Returns the attempt with the highest confidence; of equal ones the first.

        Args:
            by: the confidence; `PUBLIC` chooses among the attempts of the baseline.
        """
        attempts = self.found.baseline if by == PUBLIC else self.found.attempts
        return max(attempts, key=lambda attempt: attempt.confidence[by])


@scorer(FieldGuesses, reads=("epsilon", "confidence", "resamples"))
def score_guesses(claims: Sequence[FieldGuesses], scoring: Scoring) -> Result:
    """Scores what was made of the fields with each model.

    Numbers, tables and files are of the last model: those of `one_shot` and `multi_shot`, and

    * `fields`, `documents`, `attempts`: how many; `membership`: what the attack chose by.
    * `target`: the model; `details`: further numbers of the attack.
    * `perfect`: see `perfect`.
    * `series`: with target=series, `IN_SERIES` of each model.

    `curves.json` holds AccAt and HamAt over p, and `fields.json` what was made of each field.
    """
    scrubbed: ScrubbedFields = scoring.granted[ScrubbedFields]
    settings, truths, series = scoring.settings, scoring.truth.fields(), []
    for claim in claims:
        cases = cases_of(claim, scrubbed, truths, scoring.remarks.left_out)
        rng = copy.deepcopy(scoring.rng)  # each model is scored as it would be alone
        numbers = {
            **one_shot(cases, rng, settings),
            **multi_shot(cases, claim.membership, rng, settings),
            "fields": len(cases),
            "documents": len({case.field.document for case in cases}),
            "attempts": max(len(case.found.attempts) for case in cases),
            "membership": claim.membership,
            "perfect": list(perfect(cases, claim.membership)),
            "target": claim.model,
            "details": dict(claim.details),
        }
        measured = {**numbers, "round": claim.round, **claim.measured}
        series.append({name: measured[name] for name in IN_SERIES if name in measured})
    numbers["series"] = series if settings.target == "series" else []
    factor = number(_improvement(cases, settings.epsilon), "document", Estimate.known(1.0))
    by = claim.membership
    over_p = curves(cases, by)
    scoring.files["fields.json"] = [
        row(case, by, scrubbed.text, originals=settings.originals) for case in cases
    ]
    scoring.files["curves.json"] = over_p
    return Result(
        kind="fields",
        headline=headline(numbers),
        details=numbers,
        tables=tuple(tables(numbers)),
        figures=tuple(figures(numbers, over_p)),
        left_out=scrubbed.left_out,
        verdict=verdict(factor, WORTH),
        primary="ipf",
        numbers={"ipf": factor},
    )


def _improvement(cases: Sequence[Case], epsilon: float) -> Estimate:
    """Returns the improvement factor of the first attempts, by leaving out one document a time."""
    sides = [
        [case.similarity(one[0]) for case, one in zip(cases, shots, strict=True)]
        for shots in ([c.found.attempts for c in cases], [c.found.baseline for c in cases])
    ]

    def log_factor(rows: NDArray[np.int64]) -> float:
        mine, theirs = (Similarity.mean([side[row] for row in rows]) for side in sides)
        return math.log(improvement_factor(mine, theirs, epsilon=epsilon))

    return jackknife(log_factor, [case.field.document for case in cases]).through(
        lambda log: math.exp(log) if log < MOST_LOG else math.inf
    )


def one_shot(
    cases: Sequence[Case], rng: np.random.Generator, settings: AttackSettings
) -> dict[str, Any]:
    """Returns the numbers of the first attempts (CDMI, §5.2).

    * `ipf`, `ipf_interval`, `ipf_epsilon`, `level`: the improvement factor.
    * `pr`, `hd`, `ld`, `jwd`: means of attack and baseline.
    * `by_key`: by the fields' label, their number, IpF and PR.
    * `not_public`: the same of the fields whose text stands in no public document; None where all
      do.
    """
    attack = [case.similarity(case.found.attempts[0]) for case in cases]
    baseline = [case.similarity(case.found.baseline[0]) for case in cases]

    def brief(rows: Sequence[int]) -> dict[str, Any]:
        mine, theirs = (Similarity.mean([side[row] for row in rows]) for side in (attack, baseline))
        factor = improvement_factor(mine, theirs, epsilon=settings.epsilon)
        return {"fields": len(rows), "ipf": factor, "pr": _pair(mine.pr, theirs.pr)}

    means = Similarity.mean(attack), Similarity.mean(baseline)
    by_key: dict[str, list[int]] = defaultdict(list)
    for place, case in enumerate(cases):
        by_key[case.field.key].append(place)
    unknown = [place for place, case in enumerate(cases) if case.truth.public == 0]
    interval = ipf_interval(
        attack,
        baseline,
        [case.field.document for case in cases],
        rng,
        resamples=settings.resamples,
        level=settings.confidence,
        epsilon=settings.epsilon,
    )
    return {
        "ipf": improvement_factor(*means, epsilon=settings.epsilon),
        "ipf_interval": list(interval),
        "ipf_epsilon": settings.epsilon,
        "level": settings.confidence,
        **{name: _pair(*(getattr(m, name) for m in means)) for name in ("pr", "hd", "ld", "jwd")},
        "by_key": {key: brief(by_key[key]) for key in sorted(by_key)},
        "not_public": brief(unknown) if unknown else None,
    }


def multi_shot(
    cases: Sequence[Case], by: str, rng: np.random.Generator, settings: AttackSettings
) -> dict[str, Any]:
    """Returns the numbers of the chosen attempts, sorted (CDMI, §5.3).

    * `acc_auc`, `ham_aac`, and by share of the fields `acc_at`, `ham_at`: of attack and baseline.
    * `acc_auc_gain_interval`, `ham_aac_gain_interval`: of attack - baseline.
    * `by_membership`: the same of the attack, had it chosen and sorted by another metric.
    """
    mine, theirs = shots(cases, by), shots(cases, PUBLIC)
    of_acc, of_ham = area_intervals(
        mine,
        theirs,
        [case.field.document for case in cases],
        rng,
        resamples=settings.resamples,
        level=settings.confidence,
    )
    others = {name: shots(cases, name) for name in cases[0].found.attempts[0].confidence}
    return {
        "acc_auc": _pair(mine.acc_auc, theirs.acc_auc),
        "acc_auc_gain_interval": list(of_acc),
        "ham_aac": _pair(mine.ham_aac, theirs.ham_aac),
        "ham_aac_gain_interval": list(of_ham),
        "acc_at": {str(p): _pair(mine.acc_at(p), theirs.acc_at(p)) for p in SHARES},
        "ham_at": {str(p): _pair(mine.ham_at(p), theirs.ham_at(p)) for p in SHARES},
        "by_membership": {
            name: {
                "acc_auc": kept.acc_auc,
                "ham_aac": kept.ham_aac,
                "acc_at": {str(p): kept.acc_at(p) for p in SHARES},
            }
            for name, kept in others.items()
        },
    }


def perfect(cases: Sequence[Case], by: str) -> Iterator[dict[str, Any]]:
    """Yields the attack's perfect reconstructions, surest first, at most `MOST_PERFECT`.

    Each with the number of training and of public documents that hold the text, and whether the
    baseline has it too.
    """
    ranked = sorted(cases, key=lambda case: -case.kept(by).confidence[by])
    right = [(rank, case) for rank, case in enumerate(ranked, 1) if case.perfect(case.kept(by))]
    for rank, case in right[:MOST_PERFECT]:
        yield {
            "rank": rank,
            "key": case.field.key,
            "text": case.truth.text,
            "length": len(case.truth.tokens),
            "occurrences": case.truth.occurrences,
            "public": case.truth.public,
            "baseline": case.perfect(case.kept(PUBLIC)),
        }


def curves(cases: Sequence[Case], by: str) -> dict[str, Any]:
    """Returns AccAt and HamAt over p (CDMI, Fig. 6), at most `MOST_POINTS` points."""
    sides = shots(cases, by), shots(cases, PUBLIC)
    drawn = np.unique(np.linspace(1, len(cases), min(len(cases), MOST_POINTS)).astype(np.int64))
    return {
        "fields": len(cases),
        "p": (drawn / len(cases)).tolist(),
        "acc_at": _pair(*(side.acc_curve[drawn - 1].tolist() for side in sides)),
        "ham_at": _pair(*(side.ham_curve[drawn - 1].tolist() for side in sides)),
    }


def row(case: Case, by: str, texts: Texts, *, originals: bool) -> dict[str, Any]:
    """Returns what was made of a field, for `fields.json`.

    Args:
        case: the field.
        by: the confidence that chose.
        texts: turns token ids into text.
        originals: whether the true text is shown; it is in any case where the attack has found it.
    """
    first, kept = case.found.attempts[0], case.kept(by)
    confidence = kept.confidence[by]
    shown = {
        "document": case.field.document,
        "key": case.field.key,
        "length": len(case.truth.tokens),
        "one_shot": texts(first.tokens),
        "one_shot_perfect": case.perfect(first),
        "reconstruction": texts(kept.tokens),
        "perfect": case.perfect(kept),
        # JSON has no infinity.
        "confidence": confidence if math.isfinite(confidence) else None,
        "baseline_one_shot": texts(case.found.baseline[0].tokens),
        "baseline": texts(case.kept(PUBLIC).tokens),
    }
    if originals or shown["perfect"] or shown["one_shot_perfect"]:
        shown["truth"] = case.truth.text
    return shown


def cases_of(
    found: FieldGuesses,
    scrubbed: ScrubbedFields,
    truths: Mapping[int, TrueField],
    left_out: Mapping[str, int],
) -> list[Case]:
    """Returns each field that was attacked beside its truth, in the attack's order.

    Args:
        found: with one model.
        scrubbed: what was to be attacked.
        truths: by number of the field.
        left_out: reason → number of fields that the attack left out.

    Raises:
        ValueError: if there is none; or one is attacked twice, is none of the fields, has no
            attempt, or one of another length or without a confidence that all have.
    """
    if not found.fields:
        reasons = "; ".join(f"{n} {why}" for why, n in {**scrubbed.left_out, **left_out}.items())
        raise ValueError(f"no field was attacked: {reasons or 'the attack gave no reason'}")
    known = {one.number: one for one in scrubbed.fields}
    cases: list[Case] = []
    for one in found.fields:
        if one.number not in known or one.number not in truths:
            raise ValueError(
                f"field {one.number} is reconstructed, but is none of those that were to be "
                "attacked, or a second time"
            )
        cases.append(Case(known.pop(one.number), truths[one.number], one))
    names = {found.membership, *(n for a in found.fields[0].attempts[:1] for n in a.confidence)}
    if PUBLIC in names:
        raise ValueError(f"the attack calls a confidence {PUBLIC!r}, as the baseline's is called")
    for case in cases:
        _check(case, case.found.attempts, names)
        _check(case, case.found.baseline, {PUBLIC})
    return cases


def shots(cases: Sequence[Case], by: str) -> Shots:
    """Returns what is kept of each field, chosen as by `Case.kept`."""
    kept = [case.kept(by) for case in cases]
    similarities = [case.similarity(one) for case, one in zip(cases, kept, strict=True)]
    return Shots.of(similarities, [one.confidence[by] for one in kept])


def _check(case: Case, attempts: Sequence[Attempt], names: set[str]) -> None:
    """Raises `ValueError` if attempts cannot be compared with the truth or with each other."""
    which = f"field {case.field.number} ({case.field.key} of {case.field.document})"
    if not attempts:
        raise ValueError(f"{which} has no attempt: expected one or more, of the baseline too")
    for attempt in attempts:
        if len(attempt.tokens) != len(case.truth.tokens):
            raise ValueError(
                f"{which} is reconstructed as {len(attempt.tokens)} tokens: expected "
                f"{len(case.truth.tokens)}"
            )
        if missing := names - attempt.confidence.keys():
            raise ValueError(
                f"{which} has an attempt without the confidence {sorted(missing)[0]!r}: expected "
                f"{', '.join(sorted(names))}"
            )
        if wrong := [name for name in names if math.isnan(attempt.confidence[name])]:
            raise ValueError(f"{which}: the confidence {wrong[0]!r} is not a number")


def _pair(attack: Any, baseline: Any) -> dict[str, Any]:
    return {"attack": attack, "baseline": baseline}
