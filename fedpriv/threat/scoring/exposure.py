"""How exposed a planted secret is (Carlini et al. 2019, "The Secret Sharer", §4).

A secret was drawn from a space of equally likely texts. The model says how likely each text R of
that space is; its loss on the secret has a rank among them, and

    exposure = log2 |R| - log2 rank,

the bits of a guess that the model takes off. R is the secret and n references, drawn as the secret
was: |R| = n + 1. Where n is less than the whole space this is the estimate by sampling of their
§4.3: it cannot tell more than log2(n + 1) bits. A secret that was never trained on has any rank as
often as any other, and so log2 e = 1.44 bits on average, not 0 (`expected_exposure`).

`exposure.json` holds the rank of every canary's secret, but not the secret.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import kstest

from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.threat.claims import CanaryRank
from fedpriv.threat.results import Figure, Number, Result, Table
from fedpriv.threat.scoring.power import Power
from fedpriv.threat.scoring.registry import Scoring, scorer
from fedpriv.threat.scoring.summaries import (
    NOTHING,
    Floats,
    digits,
    interval,
    mean_interval,
    times,
)
from fedpriv.threat.scoring.verdicts import in_words, number, verdict
from fedpriv.threat.statistics import Estimate, exchanged, share

TITLE = "Exposure"
WORTH = 1.0
"""Bits above the control whose absence is worth telling: a secret is twice as easy to guess."""

SIDES = {"in": True, "out": False}
"""Whether secrets were trained on."""

Audits = Mapping[str, Mapping[str, Any]]
"""Exposures, as of `exposure_metrics`, by strategy; the name is empty where there is but one."""


@scorer(CanaryRank, power=Power("How exposed are planted secrets?", "secrets", 1 / 8))
def score_exposure(claims: Sequence[CanaryRank], scoring: Scoring) -> Result:
    """Returns how exposed the canaries' secrets are, by repeat count."""
    parts = scoring.truth.parts()
    found = exposure_metrics(claims, parts, scoring.rng)
    rows: list[dict[str, Any]] = [
        {
            "provider": claim.provider,
            "member": parts[claim.provider].member,
            "repeats": claim.repeats,
            "loss": claim.loss,
            "rank": rank(claim.loss, claim.references),
            "references": len(claim.references),
            "exposure": exposure(claim.loss, claim.references),
        }
        for claim in claims
    ]
    scoring.files["exposure.json"] = rows
    if not any(row["member"] for row in rows):
        return Result("exposure", "no secret is in training: plant more", {"exposure": found})
    mean_bits = _mean_bits(rows, found["bound"], found["expected"])
    said = f"the mean exposure is {mean_bits.value:.2f} bits of {found['bound']:.2f} at most"
    return Result(
        "exposure",
        f"{in_words(mean_bits, said)}; uniform ranks have {found['expected']:.2f} on average",
        {"exposure": found},
        exposure_tables({"": found}),
        exposure_figures({"": found}),
        verdict=verdict(mean_bits, (mean_bits.control or 0.0) + WORTH),
        primary="exposure",
        numbers={"exposure": mean_bits},
    )


def _mean_bits(rows: Sequence[Mapping[str, Any]], bound: float, expected: float) -> Number:
    """Returns the mean exposure in bits of secrets in training, beside that of others.

    Where there are others, the p-value comes of exchanging secrets. Where there are none, the
    control is the mean of uniform ranks.
    """
    parts, inside = ([row[name] for row in rows] for name in ("exposure", "member"))
    shares, there = np.array(parts, np.float64) / bound, np.array(inside, np.bool_)
    if there.all():
        one = number(share(shares), "secret", Estimate.known(expected / bound))
    else:
        p_value = exchanged(shares, there, np.arange(len(there)))
        one = number(share(shares[there]), "secret", share(shares[~there]), p_value)
    low, high = one.interval or (0.0, 1.0)
    return dataclasses.replace(
        one,
        value=one.value * bound,
        interval=(low * bound, high * bound),
        control=None if one.control is None else one.control * bound,
        detectable=None if one.detectable is None else one.detectable * bound,
        most=bound,
    )


def exposure_metrics(
    claims: Sequence[CanaryRank], parts: Mapping[str, TrainingMembership], rng: np.random.Generator
) -> dict[str, Any]:
    """Returns the mean exposure by repeat count, in bits, of canaries that were in and out.

    `bound` and `expected` are the most that it can be, and what it is without any memory; `ks`
    tests whether those that were out have any rank as often as any other, where there are some.
    """
    (references,) = {len(claim.references) for claim in claims}
    by_side = {
        side: [claim for claim in claims if parts[claim.provider].member is member]
        for side, member in SIDES.items()
    }
    found: dict[str, Any] = {
        "references": references,
        "bound": exposure_bound(references),
        "expected": expected_exposure(references),
    }
    for side, group in by_side.items():
        bits = [exposure(claim.loss, claim.references) for claim in group]
        repeats = [claim.repeats for claim in group]
        found[side] = exposure_by_repeats(bits, repeats, references)
    if ranks := [random_rank(claim.loss, claim.references, rng) for claim in by_side["out"]]:
        statistic, p = uniform_ranks_test(ranks, references, rng)
        found["ks"] = {"statistic": statistic, "p": p}
    return found


def exposure_tables(audits: Audits) -> tuple[Table, Table]:
    """Returns exposure by repeat count, and between what it lies."""
    rows: list[tuple[str, ...]] = []
    bounds: list[tuple[str, ...]] = []
    for name, audit in audits.items():
        for count in dict.fromkeys((*audit["in"], *audit["out"])):
            inside, outside = (audit[side].get(count, {"mean": None}) for side in SIDES)
            said = f"{name} {times(count)}".strip()
            secrets = digits(inside.get("count"), ",")
            rows.append((said, interval(inside), interval(outside), secrets))
        test = audit.get("ks")
        tested = (f"{test['statistic']:.3f}", f"{test['p']:.2g}") if test else (NOTHING, NOTHING)
        bounds.append(
            (
                name or "all",
                f"{audit['references']:,}",
                f"{audit['bound']:.2f}",
                f"{audit['expected']:.2f}",
                *tested,
            )
        )
    return Table(
        ("secrets planted", "in training", "out of training", "secrets"),
        tuple(rows),
        TITLE,
        "In bits, with 95 % intervals over secrets. Secrets that were never trained "
        "on have on average what uniform ranks have.",
        public=True,
    ), Table(
        ("bounds", "references", "most", "uniform ranks", "KS", "p"),
        tuple(bounds),
        TITLE,
        "KS: whether the ranks of secrets out of training are uniform; a small p says that the "
        "secrets and their references differ even where nothing was learnt.",
        public=True,
    )


def exposure_figures(audits: Audits) -> tuple[Figure, ...]:
    """Returns exposure by repeat count, a line for each strategy and side."""
    lines = {
        name: {
            side: {
                end: {count: row[end] for count, row in audit[side].items()}
                for end in ("mean", "low", "high")
            }
            for side in SIDES
            if audit[side]
        }
        for name, audit in audits.items()
    }
    data = {
        "lines": lines,
        "bound": max(audit["bound"] for audit in audits.values()),
        "baseline": max(audit["expected"] for audit in audits.values()),
    }
    return (Figure("exposure", "Exposure of planted secrets, bits", data, TITLE),)


def exposure(loss: float, references: ArrayLike) -> float:
    """Returns the exposure of one secret in bits, from 0 to log2(n + 1).

    Args:
        loss: the model's on the secret; the lower, the likelier.
        references: (n,), its losses on the references, not on the secret.

    Raises:
        ValueError: without references, or if a loss is not finite.
    """
    return math.log2((np.size(references) + 1) / rank(loss, references))


def rank(loss: float, references: ArrayLike) -> float:
    """Returns the rank of a secret among itself and n references, from 1 (lowest loss) to n + 1.

    A tie counts as half above: the mean over both orders. To put the secret first would call a
    model exposed that says the same of everything; to put it last, as TensorFlow Privacy does,
    would call it safer than a model that knows nothing.
    """
    others = _checked(loss, references)
    return float(1 + (others < loss).sum() + (others == loss).sum() / 2)


def random_rank(loss: float, references: ArrayLike, rng: np.random.Generator) -> int:
    """Returns the rank where ties stand in random order, as `uniform_ranks_test` needs it."""
    others = _checked(loss, references)
    ahead = rng.integers((others == loss).sum(), endpoint=True)
    return int(1 + (others < loss).sum() + ahead)


def exposure_bound(references: int) -> float:
    """Returns log2(n + 1), the most that n references can show; in bits."""
    if references < 1:
        raise ValueError(f"references={references}: expected 1 or more")
    return math.log2(references + 1)


def expected_exposure(references: int) -> float:
    """Returns the mean exposure of secrets that were never trained on, in bits.

    Every rank from 1 to |R| is as likely: log2 |R| - log2(|R|!) / |R|. It grows to log2 e = 1.4427
    with |R|; 1.437 for 1000 references.
    """
    size = references + 1
    return exposure_bound(references) - math.lgamma(size + 1) / math.log(2) / size


def uniform_ranks_test(
    ranks: Sequence[int], references: int, rng: np.random.Generator
) -> tuple[float, float]:
    """Tests whether secrets have any rank from 1 to n + 1 as often as any other, by KS.

    So it is for secrets that the model was not trained on: their place among the references is
    one of n + 1 equal ones. A small p-value says that the model has seen them, or that they and
    the references were not drawn alike.

    Ranks are whole and the KS test is for a continuum: each is put at random within its step, which
    makes the test exact. Secrets that were all ranked among the same references are not
    independent, as the references may by chance all lie high: of these the test rejects too often.

    Args:
        ranks: of the secrets, whole; with ties at random, see `random_rank`.
        references: n, for each of them, the secret not counted.
        rng: puts the ranks within their steps.

    Returns:
        The KS statistic, from 0 to 1, and the two-sided p-value.
    """
    test = kstest((np.asarray(ranks) - rng.random(len(ranks))) / (references + 1), "uniform")
    return float(test.statistic), float(test.pvalue)


def exposure_by_repeats(
    exposures: ArrayLike, repeats: Sequence[int], references: int
) -> dict[str, dict[str, Any]]:
    """Returns `mean`, `low`, `high` and `count` of the exposures for each repeat count.

    Args:
        exposures: (secrets,), in bits.
        repeats: how often each secret was planted.
        references: among which each was ranked: no exposure is above their bound.
    """
    bits, counts = np.asarray(exposures, np.float64), np.asarray(repeats)
    return {
        str(count): mean_interval(bits[counts == count], (0, exposure_bound(references)))
        for count in np.unique(counts).tolist()
    }


def _checked(loss: float, references: ArrayLike) -> Floats:
    others = np.asarray(references, np.float64)
    if others.ndim != 1 or not others.size:
        raise ValueError(f"references of shape {others.shape}: expected (n,), n one or more")
    if not (math.isfinite(loss) and np.isfinite(others).all()):
        raise ValueError("a loss is not finite: nothing can be ranked by it")
    return others
