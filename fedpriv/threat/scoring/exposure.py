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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import ks_2samp, kstest, skewnorm

from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.threat.claims import CanaryRank
from fedpriv.threat.results import Figure, Result, Table
from fedpriv.threat.scoring.extraction import LEVEL, RESAMPLES, mean_interval
from fedpriv.threat.scoring.registry import Scoring, scorer

LEAST_REFERENCES = 30
"""From which three numbers of a skew-normal distribution are fitted."""

LEAST_SHARE = 1e-15
"""Below it the skew-normal distribution function is rounding error: 50 bits."""

TITLE = "Exposure"
SIDES = {"in": True, "out": False}
"""Whether secrets were trained on."""

Floats = NDArray[np.float64]
Audits = Mapping[str, Mapping[str, Any]]
"""Exposures, as of `exposure_metrics`, by strategy; the name is empty where there is but one."""


@scorer(CanaryRank, reads=("resamples",))
def score_exposure(claims: Sequence[CanaryRank], scoring: Scoring) -> Result:
    """Returns how exposed the canaries' secrets are, by repeat count."""
    parts = scoring.truth.parts()
    found = exposure_metrics(claims, parts, scoring.rng, scoring.settings.resamples)
    scoring.files["exposure.json"] = [
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
    means = {
        side: [exposure(c.loss, c.references) for c in claims if parts[c.provider].member is member]
        for side, member in SIDES.items()
    }
    told = " and ".join(
        f"{np.mean(bits):.2f} bits of {len(bits)} secrets {side} training"
        for side, bits in (("in", means["in"]), ("out of", means["out"]))
        if bits
    )
    return Result(
        "exposure",
        f"the mean exposure is {told}, of {found['bound']:.2f} bits at most; secrets that were "
        f"never trained on have {found['expected']:.2f} on average",
        {"exposure": found},
        exposure_tables({"": found}),
        exposure_figures({"": found}),
    )


def exposure_metrics(
    claims: Sequence[CanaryRank],
    parts: Mapping[str, TrainingMembership],
    rng: np.random.Generator,
    resamples: int,
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
        found[side] = exposure_by_repeats(bits, repeats, rng, resamples=resamples)
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
            times = {"1": "once", "2": "twice"}.get(count, f"{count} times")
            inside, outside = (audit[side].get(count, {"mean": None}) for side in SIDES)
            secrets = f"{inside['count']:,}" if "count" in inside else "—"
            rows.append((f"{name} {times}".strip(), _interval(inside), _interval(outside), secrets))
        test = audit.get("ks")
        bounds.append(
            (
                name or "all",
                f"{audit['references']:,}",
                f"{audit['bound']:.2f}",
                f"{audit['expected']:.2f}",
                f"{test['statistic']:.3f}" if test else "—",
                f"{test['p']:.2g}" if test else "—",
            )
        )
    return Table(
        ("secrets planted", "in training", "out of training", "secrets"),
        tuple(rows),
        TITLE,
        "In bits, with 95 % intervals by bootstrap over secrets. Secrets that were never trained "
        "on have on average what uniform ranks have.",
    ), Table(
        ("bounds", "references", "most", "uniform ranks", "KS", "p"),
        tuple(bounds),
        TITLE,
        "KS: whether the ranks of secrets out of training are uniform; a small p says that the "
        "secrets and their references differ even where nothing was learnt.",
    )


def _interval(row: Mapping[str, Any]) -> str:
    if row["mean"] is None:
        return "—"
    return f"{row['mean']:z.3f} [{row['low']:z.3f}, {row['high']:z.3f}]"


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
    _check_count(references)
    return math.log2(references + 1)


def expected_exposure(references: int) -> float:
    """Returns the mean exposure of secrets that were never trained on, in bits.

    Every rank from 1 to |R| is as likely: log2 |R| - log2(|R|!) / |R|. It grows to log2 e = 1.4427
    with |R|; 1.437 for 1000 references.
    """
    _check_count(references)
    size = references + 1
    return math.log2(size) - math.lgamma(size + 1) / math.log(2) / size


@dataclass(frozen=True)
class Extrapolated:
    """Exposures from a distribution fitted to the references (Carlini et al. 2019, §4.3).

    Attributes:
        bits: (secrets,), in bits; 50 at most.
        beyond: (secrets,), those above `exposure_bound`. No reference is as likely as these: their
            number is the fitted tail alone. Report it as such, never as measured.
        fit_p_value: of a KS test of the references against the fitted distribution. Low: the fit is
            bad, and so is every number of it. High says little, as the same references were fitted.
    """

    bits: Floats
    beyond: NDArray[np.bool_]
    fit_p_value: float


def extrapolated_exposure(losses: ArrayLike, references: ArrayLike) -> Extrapolated:
    """Returns -log2 of the share of texts below each loss, of a skew-normal fit to the references.

    For secrets whose loss is below that of all references, which `exposure` cannot tell apart. The
    fit is good where references are, and a guess where the secrets are: Carlini et al. chose this
    family because it fitted their losses.

    Args:
        losses: (secrets,), all of the same context as the references.
        references: (n,), 30 or more, not all equal.

    Raises:
        ValueError: on fewer, or on references without spread.
    """
    secrets = np.atleast_1d(np.asarray(losses, np.float64))
    others = _checked(0.0, references)
    if len(others) < LEAST_REFERENCES or np.ptp(others) == 0:
        raise ValueError(
            f"{len(others)} references with a spread of {np.ptp(others):g}: expected "
            f"{LEAST_REFERENCES} or more that differ; use exposure() for so few"
        )
    fitted = skewnorm(*skewnorm.fit(others))
    bits = -np.log2(np.clip(fitted.cdf(secrets), LEAST_SHARE, 1))
    return Extrapolated(
        bits, bits > exposure_bound(len(others)), float(kstest(others, fitted.cdf).pvalue)
    )


def uniform_ranks_test(
    ranks: Sequence[int], references: int, rng: np.random.Generator, *, shared: bool = False
) -> tuple[float, float]:
    """Tests whether secrets have any rank from 1 to n + 1 as often as any other, by KS.

    So it is for secrets that the model was not trained on: their place among the references is
    one of n + 1 equal ones. A small p-value says that the model has seen them, or that they and
    the references were not drawn alike.

    Ranks are whole and the KS test is for a continuum: each is put at random within its step, which
    makes the test exact. Secrets that were all ranked among the same references are not
    independent, as the references may by chance all lie high; then it is the two-sample test.

    Args:
        ranks: of the secrets, whole; with ties at random, see `random_rank`.
        references: n, for each of them, the secret not counted.
        rng: puts the ranks within their steps; not used if `shared`.
        shared: whether the references are the same for all secrets. Without it such a test
            rejects too often where the secrets are not few against n.

    Returns:
        The KS statistic, from 0 to 1, and the two-sided p-value.

    Raises:
        ValueError: without ranks, or if one is not a whole number from 1 to n + 1.
    """
    _check_count(references)
    found = np.asarray(ranks, np.float64)
    if not found.size:
        raise ValueError("there is no rank: expected one or more")
    wrong = found[(found != np.rint(found)) | (found < 1) | (found > references + 1)]
    if wrong.size:
        raise ValueError(
            f"rank {wrong[0]:g}: expected a whole number from 1 to {references + 1}; break ties "
            "with random_rank()"
        )
    if shared:
        test = ks_2samp(found - 0.5, np.arange(1, references + 1))
    else:
        test = kstest((found - rng.random(len(found))) / (references + 1), "uniform")
    return float(test.statistic), float(test.pvalue)


def exposure_by_repeats(
    exposures: ArrayLike,
    repeats: Sequence[int],
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> dict[str, dict[str, Any]]:
    """Returns `mean`, `low`, `high` and `count` of the exposures for each repeat count.

    Args:
        exposures: (secrets,), in bits.
        repeats: how often each secret was planted.
        rng: of the bootstrap over secrets; see `mean_interval`.
        resamples: how many.
        level: share of them inside.
    """
    bits, counts = np.asarray(exposures, np.float64), np.asarray(repeats)
    if bits.shape != counts.shape:
        raise ValueError(f"{bits.size} exposures and {counts.size} repeat counts: expected as many")
    return {
        str(count): mean_interval(bits[counts == count], rng, resamples=resamples, level=level)
        for count in np.unique(counts).tolist()
    }


def _checked(loss: float, references: ArrayLike) -> Floats:
    others = np.asarray(references, np.float64)
    if others.ndim != 1 or not others.size:
        raise ValueError(f"references of shape {others.shape}: expected (n,), n one or more")
    if not (math.isfinite(loss) and np.isfinite(others).all()):
        raise ValueError("a loss is not finite: nothing can be ranked by it")
    return others


def _check_count(references: int) -> None:
    if references < 1:
        raise ValueError(f"references={references}: expected 1 or more")
