"""How well an attack told members from non-members: where its judgement meets the truth.

By classifier, and within it by s, the number of questions below which providers were left out:
`fedpriv.threat.scoring.membership` says what each number is. `clients_right` is the share of the
members for which the client that holds them was named. What a model was made to tell is scored by
`fedpriv.threat.scoring.memorisation`, how exposed planted secrets are by
`fedpriv.threat.scoring.exposure`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.threat.membership_game import Judgement, Secret, Verdict
from fedpriv.threat.scoring.exposure import (
    expected_exposure,
    exposure,
    exposure_bound,
    exposure_by_repeats,
    random_rank,
    uniform_ranks_test,
)
from fedpriv.threat.scoring.membership import Judged, membership_metrics
from fedpriv.threat.scoring.memorisation import memorisation_metrics


def scored(
    judgement: Judgement,
    parts: Mapping[str, TrainingMembership],
    rng: np.random.Generator,
    *,
    resamples: int,
) -> dict[str, Any]:
    """Returns the numbers of metrics.json.

    Args:
        judgement: of the attack.
        parts: of each provider in the training.
        rng: of bootstrap and permutations.
        resamples: of either.
    """
    by_name: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in judgement.verdicts:
        by_name[verdict.classifier].append(verdict)
    scores: dict[str, Any] = {
        "classifiers": {
            name: _classifier(verdicts, parts, rng, resamples) for name, verdicts in by_name.items()
        }
    }
    if judgement.probes:
        scores["memorisation"] = memorisation_metrics(judgement.probes, parts)
    if judgement.secrets:
        scores["exposure"] = _exposure(judgement.secrets, parts, rng, resamples)
    return {
        **scores,
        **judgement.details,
        "not_applicable": dict(judgement.not_applicable),
        "skipped": dict(judgement.skipped),
        "notes": list(judgement.notes),
    }


def judged(verdict: Verdict, parts: Mapping[str, TrainingMembership]) -> Judged:
    """Returns a verdict beside the truth."""
    members = np.array([parts[provider].member for provider in verdict.providers])
    return Judged(verdict.providers, members, verdict.scores, verdict.guesses)


def _exposure(
    secrets: Sequence[Secret],
    parts: Mapping[str, TrainingMembership],
    rng: np.random.Generator,
    resamples: int,
) -> dict[str, Any]:
    """Returns the mean exposure by repeat count, in bits, of canaries that were in and out.

    `bound` and `expected` are the most that it can be, and what it is without any memory; `ks`
    tests whether those that were out have any rank as often as any other, where there are some.
    """
    (references,) = {len(secret.references) for secret in secrets}
    kinds = {"in": True, "out": False}
    by_kind = {k: [s for s in secrets if parts[s.provider].member is m] for k, m in kinds.items()}
    found: dict[str, Any] = {
        "references": references,
        "bound": exposure_bound(references),
        "expected": expected_exposure(references),
    }
    for kind, group in by_kind.items():
        bits = [exposure(secret.loss, secret.references) for secret in group]
        repeats = [secret.repeats for secret in group]
        found[kind] = exposure_by_repeats(bits, repeats, rng, resamples=resamples)
    if ranks := [random_rank(s.loss, s.references, rng) for s in by_kind["out"]]:
        statistic, p = uniform_ranks_test(ranks, references, rng)
        found["ks"] = {"statistic": statistic, "p": p}
    return found


def _classifier(
    verdicts: Sequence[Verdict],
    parts: Mapping[str, TrainingMembership],
    rng: np.random.Generator,
    resamples: int,
) -> dict[str, Any]:
    """Returns the numbers of the smallest s, and under `subsets` those of the others by s."""
    by_s: dict[int, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_s[verdict.trial.least_questions if verdict.trial else 0].append(verdict)
    numbers: dict[int, dict[str, Any]] = {
        s: {"least_questions": s}
        | membership_metrics([judged(v, parts) for v in by_s[s]], rng, resamples=resamples)
        | _clients_right(by_s[s], parts)
        for s in sorted(by_s)
    }
    first, *others = numbers
    return {**numbers[first], "subsets": {str(s): numbers[s] for s in others}}


def _clients_right(
    verdicts: Sequence[Verdict], parts: Mapping[str, TrainingMembership]
) -> dict[str, float]:
    right = [
        client == parts[provider].client
        for verdict in verdicts
        if verdict.clients is not None
        for provider, client in zip(verdict.providers, verdict.clients.tolist(), strict=True)
        if parts[provider].member and parts[provider].client is not None
    ]
    return {"clients_right": float(np.mean(right))} if right else {}
