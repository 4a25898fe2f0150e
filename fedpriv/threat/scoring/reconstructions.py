"""How much of scrubbed fields an attack brought back: where `FieldGuesses` meet the truth.

One-shot (CDMI, §5.2): the first attempt at each field, against the first of the baseline.
Multi-shot (§5.3): of each field the attempt with the highest confidence, and the fields sorted by
it; of the baseline likewise. `fedpriv.threat.scoring.fields` says what each number is.

An attack that does better than its baseline has not yet found memory: a target that knows more than
the public model fills in any document better. So the fields of documents that were trained on are
held against those of documents held out. What another document holds too, a public one or one of
the training, is left out of that comparison on either side.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpriv.threat.access import ScrubbedField, ScrubbedFields
from fedpriv.threat.claims import PUBLIC, Attempt, FieldGuesses, Reconstruction
from fedpriv.threat.results import CANNOT_TELL, NONE_SHOWN, Number, Result
from fedpriv.threat.scoring.fields import (
    Shots,
    Similarity,
    area_intervals,
    improvement,
    improvement_factor,
    improvement_terms,
    tokens_gained,
)
from fedpriv.threat.scoring.power import Power
from fedpriv.threat.scoring.reconstruction_tables import (
    figures,
    headline,
    notes,
    tables,
)
from fedpriv.threat.scoring.registry import IntervalSettings, OriginalSettings, Scoring, scorer
from fedpriv.threat.scoring.verdicts import exploratory, number, verdict
from fedpriv.threat.settings import at_least
from fedpriv.threat.surfaces.models import SeriesSettings
from fedpriv.threat.truth import TrueField

SHARES = (0.01, 0.05, 1.0)
"""At which AccAt and HamAt are told, as in CDMI's Table 5."""

MOST_PERFECT = 50
"""Perfect reconstructions that are listed."""

MOST_POINTS = 200
"""Of a curve."""

WORTH = 0.1
"""Share of a field's tokens above the control whose absence is worth telling."""

EPSILONS = (0.001, 0.01, 0.05, 0.1, 1.0)
"""At which the improvement factor is told too: the paper does not say its own."""

IN_SERIES = (
    *("round", "ipf", "ipf_interval", "ipf_held_out", "gain", "gain_held_out"),
    *("pr", "acc_auc", "ham_aac", "acc_at", "loss", "score"),
)
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

    @property
    def unknown(self) -> bool:
        """Whether no other document, public or of the training, tells the text.

        The same for both sides: of frequent texts, which any model guesses sooner, neither has any.
        """
        return not self.truth.public and self.truth.occurrences <= self.truth.trained


@dataclass(frozen=True, kw_only=True)
class ReconstructionSettings(IntervalSettings, OriginalSettings):
    """How reconstructed fields are scored.

    Args:
        epsilon: the constant ε in the improvement factor (CDMI, eq. 6), for which the paper gives
            no value. It is no privacy budget.
        resamples: the number of bootstrap samples for intervals that have no formula.
    """

    epsilon: float = 0.01
    resamples: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(100, resamples=self.resamples)
        if not self.epsilon > 0:
            raise ValueError(f"epsilon={self.epsilon}: expected a positive number")


@scorer(
    FieldGuesses,
    settings=ReconstructionSettings,
    power=Power("What stood in a field that was removed?", "documents", WORTH),
)
def score_guesses(claims: Sequence[FieldGuesses], scoring: Scoring) -> Result:
    """Scores what was made of the fields with each model.

    Numbers, tables and files are of the last model, and of the fields that were trained on: those
    of `one_shot` and `multi_shot`, and

    * `fields`, `documents`, `attempts`: how many; `membership`: what the attack chose by.
    * `held_out`: the numbers of `whose` and `multi_shot` of the fields held out; None without any.
    * `target`: the model; `details`: further numbers of the attack; `mute`: as the attack says.
    * `perfect`: see `perfect`.
    * `series`: with target=series, `IN_SERIES` of each model.

    The verdict rests on `gain`, see `compared`; an attack that is mute and finds nothing cannot
    tell. `curves.json` holds AccAt and HamAt over p, and `fields.json` what was made of each field.
    """
    scrubbed: ScrubbedFields = scoring.granted[ScrubbedFields]
    settings = scoring.settings.of(ReconstructionSettings)
    truths, series = scoring.truth.fields(), []
    for claim in claims:
        cases = cases_of(claim, scrubbed, truths, scoring.remarks.left_out)
        found = compared(cases, settings)
        # Each model is scored as it would be alone.
        numbers = measure(claim, cases, found, copy.deepcopy(scoring.rng), settings)
        series.append({name: numbers[name] for name in IN_SERIES if name in numbers})
    of_several = isinstance(settings, SeriesSettings) and settings.target == "series"
    numbers["series"] = series if of_several else []
    by, primary = claim.membership, found.get("gain")
    said = verdict(primary, (primary.control or 0.0) + WORTH) if primary else CANNOT_TELL
    over_p = curves([case for case in cases if case.truth.trained], by)
    scoring.files["fields.json"] = [
        row(case, by, scrubbed.text, originals=settings.originals) for case in cases
    ]
    scoring.files["curves.json"] = over_p
    return Result(
        kind="fields",
        headline=headline(numbers, primary),
        details=numbers,
        tables=tuple(tables(numbers)),
        figures=tuple(figures(numbers, over_p)),
        notes=tuple(notes(numbers)),
        left_out=scrubbed.left_out,
        verdict=CANNOT_TELL if claim.mute and said == NONE_SHOWN else said,
        primary="gain",
        numbers=exploratory(found, "gain"),
    )


def measure(
    claim: FieldGuesses,
    cases: Sequence[Case],
    found: Mapping[str, Number],
    rng: np.random.Generator,
    settings: ReconstructionSettings,
) -> dict[str, Any]:
    """Returns the details of one model, see `score_guesses`.

    Args:
        claim: what was made of the fields with it.
        cases: the fields beside their truth.
        found: see `compared`.
        rng: of the bootstrap.
        settings: of the attack.

    Raises:
        ValueError: if no field was trained on.
    """
    trained, held_out = ([c for c in cases if c.truth.trained is t] for t in (True, False))
    if not trained:
        raise ValueError("no field of a training document was attacked")
    gain = found.get("gain")
    numbers = {
        **one_shot(trained, held_out, settings),
        **multi_shot(trained, claim.membership, rng, settings),
        "held_out": None,
        "ipf_held_out": found["ipf"].control,
        **({"gain": gain.value, "gain_held_out": gain.control} if gain else {}),
        "fields": len(trained),
        "documents": len({case.field.document for case in trained}),
        "attempts": max(len(case.found.attempts) for case in trained),
        "membership": claim.membership,
        "perfect": list(perfect(trained, claim.membership)),
        "target": claim.model,
        "round": claim.round,
        **claim.measured,
        "details": dict(claim.details),
        "mute": claim.mute,
    }
    if held_out:
        sorted_alike = multi_shot(held_out, claim.membership, rng, settings)
        numbers["held_out"] = {**whose(held_out, settings), **sorted_alike}
    return numbers


def compared(cases: Sequence[Case], settings: ReconstructionSettings) -> dict[str, Number]:
    """Returns what the first attempts gain, of fields trained on against those held out.

    * `gain`: how much larger a share of a field's tokens is right than of the baseline's, in fields
      whose text no other document tells (`Case.unknown`). The IpF has ε in it, and its ratios are
      those of means, so that the same memory makes quite another number with another public model.
      Missing where all that was trained on is public.
    * `ipf_not_public`: the improvement factor of the same fields.
    * `ipf`: that of all fields, which the control has as well where a target knows the companies.
    """
    found: dict[str, Number] = {}
    for name in ("gain", "ipf_not_public", "ipf"):
        estimates = {}
        for trained in (True, False):
            own = [c for c in cases if c.truth.trained is trained and (name == "ipf" or c.unknown)]
            documents = [case.field.document for case in own]
            if own and name == "gain":
                estimates[trained] = tokens_gained(*_first(own), documents)
            elif own:
                estimates[trained] = improvement(*_first(own), documents, epsilon=settings.epsilon)
        if True in estimates:
            found[name] = number(estimates[True], "document", estimates.get(False))
    return found


def _first(cases: Sequence[Case]) -> tuple[list[Similarity], list[Similarity]]:
    """Returns how near the first attempts of attack and baseline come."""
    return (
        [case.similarity(case.found.attempts[0]) for case in cases],
        [case.similarity(case.found.baseline[0]) for case in cases],
    )


def whose(cases: Sequence[Case], settings: ReconstructionSettings) -> dict[str, Any]:
    """Returns the numbers of the first attempts at some fields, one or more (CDMI, §5.2).

    * `fields`, `documents`: how many.
    * `ipf`, `ipf_interval`: the improvement factor; no interval of a single document.
    * `pr`, `hd`, `ld`, `jwd`, `ham`: means of attack and baseline.
    """
    attack, baseline = _first(cases)
    documents = [case.field.document for case in cases]
    factor = improvement(attack, baseline, documents, epsilon=settings.epsilon)
    ends = factor.limits(settings.confidence)
    mine, theirs = Similarity.mean(attack), Similarity.mean(baseline)
    return {
        "fields": len(cases),
        "documents": factor.n,
        "ipf": factor.value,
        "ipf_interval": list(ends) if math.isfinite(ends[1]) else None,
        **{
            name: _pair(getattr(mine, name), getattr(theirs, name))
            for name in ("pr", "hd", "ld", "jwd", "ham")
        },
    }


def one_shot(
    trained: Sequence[Case], held_out: Sequence[Case], settings: ReconstructionSettings
) -> dict[str, Any]:
    """Returns the numbers of the first attempts (CDMI, §5.2).

    * those of `whose`, of the fields that were trained on; `level`: of the intervals.
    * `ipf_epsilon`, `ipf_terms`, `ipf_by_epsilon`: what each measure adds to the improvement
      factor, and what it would be with another ε.
    * `by_key`: those of `whose` by the fields' label, with `held_out` beside them.
    * `not_public`: the same of the fields that no other document tells; None where all are told.
    * `distinct_attempts`: how many of the attempts at a field differ, on average.
    """
    mine, theirs = (Similarity.mean(side) for side in _first(trained))

    def beside(own: Sequence[Case], controls: Sequence[Case]) -> dict[str, Any]:
        control = whose(controls, settings) if controls else None
        return {**whose(own, settings), "held_out": control}

    by_key: dict[str, tuple[list[Case], list[Case]]] = defaultdict(lambda: ([], []))
    for case in (*trained, *held_out):
        by_key[case.field.key][not case.truth.trained].append(case)
    unknown = [[case for case in side if case.unknown] for side in (trained, held_out)]
    return {
        **whose(trained, settings),
        "ipf_epsilon": settings.epsilon,
        "ipf_terms": improvement_terms(mine, theirs, epsilon=settings.epsilon),
        "ipf_by_epsilon": {str(e): improvement_factor(mine, theirs, epsilon=e) for e in EPSILONS},
        "level": settings.confidence,
        "by_key": {key: beside(*by_key[key]) for key in sorted(by_key) if by_key[key][0]},
        "not_public": beside(*unknown) if unknown[0] else None,
        "distinct_attempts": float(
            np.mean([len({one.tokens for one in case.found.attempts}) for case in trained])
        ),
    }


def multi_shot(
    cases: Sequence[Case], by: str, rng: np.random.Generator, settings: ReconstructionSettings
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
        "trained": case.truth.trained,
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
                f"field {one.number} is not among the fields to attack, or is reconstructed twice: "
                "expected each of ScrubbedFields.fields at most once"
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
