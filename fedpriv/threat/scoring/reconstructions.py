"""How much of scrubbed fields an attack brought back: where its reconstructions meet the truth.

One-shot (CDMI, §5.2): the first attempt at each field, against the first of the baseline.
Multi-shot (§5.3): of each field the attempt with the highest confidence, and the fields sorted by
it; of the baseline likewise. `fedpriv.threat.scoring.fields` says what each number is.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpriv.threat.access import ScrubbedField
from fedpriv.threat.claims import PUBLIC, Attempt, Reconstruction
from fedpriv.threat.fields_game import Reconstructions, TrueField
from fedpriv.threat.scoring.fields import (
    Shots,
    Similarity,
    area_intervals,
    improvement_factor,
    ipf_interval,
)

SHARES = (0.01, 0.05, 1.0)
"""At which AccAt and HamAt are told, as in CDMI's Table 5."""

MOST_PERFECT = 50
"""Perfect reconstructions that are listed."""

MOST_POINTS = 200
"""Of a curve."""


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


def scored(
    found: Reconstructions,
    fields: Sequence[ScrubbedField],
    truths: Mapping[int, TrueField],
    rng: np.random.Generator,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    epsilon: float = 0.01,
) -> dict[str, Any]:
    """Returns the numbers of metrics.json, M fields.

    * `ipf`, `ipf_interval`, `ipf_epsilon`, `level`: of the first attempts.
    * `pr`, `hd`, `ld`, `jwd`: likewise; means of attack and baseline.
    * `acc_auc`, `ham_aac`, and by share of the fields `acc_at`, `ham_at`: of the chosen attempts,
      sorted, of attack and baseline. `acc_auc_gain_interval` and `ham_aac_gain_interval` are of
      attack - baseline.
    * `by_membership`: the same of the attack, had it chosen and sorted by another metric.
    * `by_key`: by the fields' label, their number, IpF and PR of the first attempts.
    * `not_public`: the same of the fields whose text stands in no public document.
    * `fields`, `documents`, `attempts`: how many; `membership`: what the attack chose by.
    * `perfect`: the attack's perfect reconstructions, surest first, with the number of training
      and of public documents that hold the text, and whether the baseline has it too.

    Args:
        found: what the attack handed back.
        fields: what it was to attack, and maybe more.
        truths: by number of the field.
        rng: of the bootstrap.
        resamples: of the documents.
        level: of the intervals.
        epsilon: of the IpF.

    Raises:
        ValueError: if there is no reconstruction, or one that cannot be compared with its field.
    """
    cases = cases_of(found, fields, truths)
    first = [case.similarity(case.found.attempts[0]) for case in cases]
    public = [case.similarity(case.found.baseline[0]) for case in cases]
    documents = [case.field.document for case in cases]
    interval = ipf_interval(
        first, public, documents, rng, resamples=resamples, level=level, epsilon=epsilon
    )
    means = Similarity.mean(first), Similarity.mean(public)
    return {
        "ipf": improvement_factor(*means, epsilon=epsilon),
        "ipf_interval": list(interval),
        "ipf_epsilon": epsilon,
        "level": level,
        **{name: _pair(*(getattr(m, name) for m in means)) for name in ("pr", "hd", "ld", "jwd")},
        **_multi_shot(cases, found.membership, rng, resamples, level),
        "by_membership": {
            name: _alone(shots(cases, name)) for name in cases[0].found.attempts[0].confidence
        },
        "by_key": _by_key(cases, first, public, epsilon),
        "not_public": _not_public(cases, first, public, epsilon),
        "fields": len(cases),
        "documents": len(set(documents)),
        "attempts": max(len(case.found.attempts) for case in cases),
        "membership": found.membership,
        "perfect": list(_perfect(cases, found.membership)),
    }


def curves(
    found: Reconstructions, fields: Sequence[ScrubbedField], truths: Mapping[int, TrueField]
) -> dict[str, Any]:
    """Returns AccAt and HamAt over p for curves.json (CDMI, Fig. 6), at most `MOST_POINTS` points.

    Raises:
        ValueError: as `scored`.
    """
    cases = cases_of(found, fields, truths)
    sides = shots(cases, found.membership), baseline_shots(cases)
    drawn = np.unique(np.linspace(1, len(cases), min(len(cases), MOST_POINTS)).astype(np.int64))
    return {
        "fields": len(cases),
        "p": (drawn / len(cases)).tolist(),
        "acc_at": _pair(*(side.acc_curve[drawn - 1].tolist() for side in sides)),
        "ham_at": _pair(*(side.ham_curve[drawn - 1].tolist() for side in sides)),
    }


def cases_of(
    found: Reconstructions, fields: Sequence[ScrubbedField], truths: Mapping[int, TrueField]
) -> list[Case]:
    """Returns each field that was attacked beside its truth, in the attack's order.

    Raises:
        ValueError: if there is none; or one is attacked twice, is none of the fields, has no
            attempt, or one of another length or without a confidence that all have.
    """
    if not found.fields:
        reasons = "; ".join(f"{number} {why}" for why, number in found.left_out.items())
        raise ValueError(f"no field was attacked: {reasons or 'the attack gave no reason'}")
    known = {one.number: one for one in fields}
    cases: list[Case] = []
    for one in found.fields:
        if one.number not in known or one.number not in truths:
            raise ValueError(
                f"field {one.number} is reconstructed, but is none of those that were to be "
                "attacked, or a second time"
            )
        cases.append(Case(known.pop(one.number), truths[one.number], one))
    names = {found.membership, *(n for a in found.fields[0].attempts[:1] for n in a.confidence)}
    for case in cases:
        _check(case, case.found.attempts, names)
        _check(case, case.found.baseline, {PUBLIC})
    return cases


def chosen(attempts: Sequence[Attempt], by: str) -> Attempt:
    """Returns the attempt with the highest confidence; of equal ones the first."""
    return max(attempts, key=lambda attempt: attempt.confidence[by])


def shots(cases: Sequence[Case], by: str) -> Shots:
    """Returns what the attack keeps of each field, chosen by a membership metric."""
    return _shots(cases, [chosen(case.found.attempts, by) for case in cases], by)


def baseline_shots(cases: Sequence[Case]) -> Shots:
    """Returns what the baseline keeps of each field."""
    return _shots(cases, [chosen(case.found.baseline, PUBLIC) for case in cases], PUBLIC)


def _shots(cases: Sequence[Case], kept: Sequence[Attempt], by: str) -> Shots:
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


def _multi_shot(
    cases: Sequence[Case], by: str, rng: np.random.Generator, resamples: int, level: float
) -> dict[str, Any]:
    mine, theirs = shots(cases, by), baseline_shots(cases)
    documents = [case.field.document for case in cases]
    of_acc, of_ham = area_intervals(mine, theirs, documents, rng, resamples=resamples, level=level)
    return {
        "acc_auc": _pair(mine.acc_auc, theirs.acc_auc),
        "acc_auc_gain_interval": list(of_acc),
        "ham_aac": _pair(mine.ham_aac, theirs.ham_aac),
        "ham_aac_gain_interval": list(of_ham),
        "acc_at": {str(p): _pair(mine.acc_at(p), theirs.acc_at(p)) for p in SHARES},
        "ham_at": {str(p): _pair(mine.ham_at(p), theirs.ham_at(p)) for p in SHARES},
    }


def _alone(kept: Shots) -> dict[str, Any]:
    return {
        "acc_auc": kept.acc_auc,
        "ham_aac": kept.ham_aac,
        "acc_at": {str(p): kept.acc_at(p) for p in SHARES},
    }


def _by_key(
    cases: Sequence[Case],
    attack: Sequence[Similarity],
    baseline: Sequence[Similarity],
    epsilon: float,
) -> dict[str, Any]:
    rows: dict[str, list[int]] = defaultdict(list)
    for row, case in enumerate(cases):
        rows[case.field.key].append(row)
    return {key: _of_rows(rows[key], attack, baseline, epsilon) for key in sorted(rows)}


def _not_public(
    cases: Sequence[Case],
    attack: Sequence[Similarity],
    baseline: Sequence[Similarity],
    epsilon: float,
) -> dict[str, Any] | None:
    """Returns nothing where all texts are public."""
    rows = [row for row, case in enumerate(cases) if case.truth.public == 0]
    return _of_rows(rows, attack, baseline, epsilon) if rows else None


def _of_rows(
    rows: Sequence[int],
    attack: Sequence[Similarity],
    baseline: Sequence[Similarity],
    epsilon: float,
) -> dict[str, Any]:
    mine, theirs = (Similarity.mean([side[row] for row in rows]) for side in (attack, baseline))
    return {
        "fields": len(rows),
        "ipf": improvement_factor(mine, theirs, epsilon=epsilon),
        "pr": _pair(mine.pr, theirs.pr),
    }


def _perfect(cases: Sequence[Case], by: str) -> Iterator[dict[str, Any]]:
    kept = [chosen(case.found.attempts, by) for case in cases]
    order = sorted(range(len(cases)), key=lambda row: -kept[row].confidence[by])
    right = [(rank, row) for rank, row in enumerate(order, 1) if cases[row].perfect(kept[row])]
    for rank, row in right[:MOST_PERFECT]:
        case = cases[row]
        yield {
            "rank": rank,
            "key": case.field.key,
            "text": case.truth.text,
            "length": len(case.truth.tokens),
            "occurrences": case.truth.occurrences,
            "public": case.truth.public,
            "baseline": case.perfect(chosen(case.found.baseline, PUBLIC)),
        }
