"""What a model gives away of its training answers, and what is memorised (Pinto et al., §3, §4).

Pinto et al. 2024, "Extracting Training Data from Document-Based VQA Models". E are the
canaries whose answer a model says though the page no longer has it; G, those that a model says
which never saw the canaries; M = E ∖ G.

M_E and S_E come from K models, each trained with half of the canaries (Pinto et al., eq. 2). With
p_in and p_out the shares of the models with and without a canary that say its answer,

    M_E = p_in - p_out, from -1 to 1;    S_E = p_in + p_out, from 0 to 2.

Pinto et al. do not say the ranges. Always |M_E| ≤ S_E ≤ 2 - |M_E|.

All intervals and p-values take the trained models as given: they say what other canaries, or other
assignments of the canaries to models, would have shown, not what other seeds of training would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, norm

LEVEL = 0.95
"""Share that intervals are to hold."""

RESAMPLES = 1000
"""Draws behind an interval or a p-value."""

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Bools = NDArray[np.bool_]


def balanced_splits(splits: int, canaries: int, rng: np.random.Generator) -> Bools:
    """Returns which canaries each of K models is trained with, (K, canaries).

    Each canary is in exactly K/2 splits, and any K/2 are as likely as any other (the sampling of
    Carlini et al. 2022, which Pinto et al., §4.2 takes over). Canaries are drawn independently: a
    split has half of them on average only.

    Args:
        splits: K, an even number of two or more; 50 in Pinto et al..
        canaries: one or more.
        rng: draws.

    Raises:
        ValueError: on other numbers.
    """
    if splits < 2 or splits % 2:
        raise ValueError(
            f"splits={splits}: expected an even number of 2 or more, so that each canary is in "
            "exactly half of them"
        )
    if canaries < 1:
        raise ValueError(f"canaries={canaries}: expected 1 or more")
    order = rng.random((splits, canaries)).argsort(axis=0)
    return order < splits // 2


def memorised(in_e: Sequence[bool] | Bools, in_g: Sequence[bool] | Bools) -> Bools:
    """Returns M = E ∖ G (Pinto et al., §4.1), as which of the n canaries are in it.

    Raises:
        ValueError: if the two are not of the same canaries.
    """
    extracted, general = np.asarray(in_e, bool), np.asarray(in_g, bool)
    if extracted.shape != general.shape or extracted.ndim != 1:
        raise ValueError(
            f"E and G have the shapes {extracted.shape} and {general.shape}: expected twice (n,), "
            "one value for each canary"
        )
    only: Bools = extracted & ~general
    return only


def set_sizes(in_e: Sequence[bool] | Bools, in_g: Sequence[bool] | Bools) -> dict[str, int]:
    """Returns |E|, |G| and |M| (Pinto et al., Fig. 3)."""
    in_m = memorised(in_e, in_g)
    return {"E": int(np.sum(in_e)), "G": int(np.sum(in_g)), "M": int(in_m.sum())}


def pii_counts(in_m: Bools, pii: Sequence[str], repeats: Sequence[int]) -> dict[str, Any]:
    """Returns how much of M is personal information (Pinto et al., Fig. 4).

    Args:
        in_m: (n,).
        pii: the class of each canary's answer, empty for none.
        repeats: training samples with the same answer, the canary's own included.

    Returns:
        `pii`, samples of M that are personal information; `unique_pii`, those of them whose answer
        no other training sample has (Pinto et al. do not define it; its §5 speaks of answers
        "repeated only once"); `pii_classes`, `pii` by class.
    """
    if not len(in_m) == len(pii) == len(repeats):
        raise ValueError(
            f"{len(in_m)} canaries, {len(pii)} classes of personal information and {len(repeats)} "
            "repeat counts: expected as many of each"
        )
    found = [(kind, count) for kind, count, m in zip(pii, repeats, in_m, strict=True) if m and kind]
    return {
        "pii": len(found),
        "unique_pii": sum(int(count) == 1 for _, count in found),
        "pii_classes": dict(Counter(kind for kind, _ in found).most_common()),
    }


def sizes_by_repeats(
    in_e: Sequence[bool] | Bools, in_g: Sequence[bool] | Bools, repeats: Sequence[int]
) -> dict[str, dict[str, int]]:
    """Returns `canaries`, |E|, |G| and |M| for each repeat count, from the least up."""
    extracted, general = np.asarray(in_e, bool), np.asarray(in_g, bool)
    return {
        str(count): {"canaries": int(here.sum()), **set_sizes(extracted[here], general[here])}
        for count, here in _by_count(repeats).items()
    }


@dataclass(frozen=True)
class Scores:
    """How often K models said the answers of n canaries, with them in training and without.

    Attributes:
        hits_in: (n,), of the K/2 models that were trained with the canary, those that said it.
        hits_out: (n,), likewise of the K/2 that were not.
        splits: K, even.
    """

    hits_in: Counts
    hits_out: Counts
    splits: int

    def __post_init__(self) -> None:
        if self.splits < 2 or self.splits % 2:
            raise ValueError(f"splits={self.splits}: expected an even number of 2 or more")
        if np.shape(self.hits_in) != np.shape(self.hits_out) or np.ndim(self.hits_in) != 1:
            raise ValueError(
                f"shapes {np.shape(self.hits_in)} and {np.shape(self.hits_out)}: expected twice "
                "(n,), one count for each canary"
            )
        hits = np.concatenate([self.hits_in, self.hits_out])
        if len(hits) and not 0 <= hits.min() <= hits.max() <= self.half:
            raise ValueError(
                f"hits from {hits.min()} to {hits.max()}: expected 0 to {self.half}, half of the "
                "splits"
            )

    @classmethod
    def of(cls, correct: Bools, inside: Bools) -> Scores:
        """Counts.

        Args:
            correct: (K, n), whether model k said the answer of canary i.
            inside: (K, n), whether it was trained with it, as `balanced_splits` draws it.

        Raises:
            ValueError: on other shapes, or if a canary is not inside of exactly half of them.
        """
        if np.shape(correct) != np.shape(inside) or np.ndim(inside) != 2:
            raise ValueError(
                f"shapes {np.shape(correct)} and {np.shape(inside)}: expected twice (K, n), a row "
                "for each split and a column for each canary"
            )
        said, trained = np.asarray(correct, bool), np.asarray(inside, bool)
        wrong = np.flatnonzero(2 * trained.sum(0) != len(trained))
        if wrong.size:
            raise ValueError(
                f"canary {wrong[0]} is inside of {trained[:, wrong[0]].sum()} of {len(trained)} "
                "splits: expected exactly half"
            )
        return cls((said & trained).sum(0), (said & ~trained).sum(0), len(trained))

    @property
    def half(self) -> int:
        """K/2, the models on either side."""
        return self.splits // 2

    @property
    def memorization(self) -> Floats:
        """M_E of each canary, (n,), from -1 to 1 (Pinto et al., eq. 2)."""
        return (self.hits_in - self.hits_out) / self.half

    @property
    def simplicity(self) -> Floats:
        """S_E of each canary, (n,), from 0 to 2 (Pinto et al., §4.2)."""
        return (self.hits_in + self.hits_out) / self.half

    def intervals(self, level: float = LEVEL) -> Floats:
        """Returns the interval of each canary's M_E, (n, 2), by Newcombe's method 10.

        The two shares come from different models, so they are independent, and K/2 is small: 4 or
        25. Newcombe (1998) joins the Wilson intervals of the two: it stays within -1 and 1, has
        width where all models agree, where a normal one has none, and needs no search as the exact
        ones do. It covers about `level`, not at least.
        """
        if not 0 < level < 1:
            raise ValueError(f"level={level}: expected a share between 0 and 1")
        p, q = self.hits_in / self.half, self.hits_out / self.half
        p_low, p_high = _wilson(p, self.half, level)
        q_low, q_high = _wilson(q, self.half, level)
        low = p - q - np.hypot(p - p_low, q_high - q)
        high = p - q + np.hypot(p_high - p, q - q_low)
        return np.clip(np.stack([low, high], axis=1), -1, 1)


def mean_interval(
    values: Floats,
    rng: np.random.Generator,
    *,
    documents: Sequence[str] | NDArray[Any] | None = None,
    resamples: int = RESAMPLES,
    level: float = LEVEL,
) -> dict[str, Any]:
    """Returns `mean`, `low`, `high` and `count`: the mean and its interval by bootstrap.

    Args:
        values: (n,); of none, mean and interval are none.
        rng: draws.
        documents: the page of each value: whole pages are then drawn, since the canaries of one
            hang together. None: each value is its own.
        resamples: how many.
        level: share of them inside.
    """
    if resamples < 1:
        raise ValueError(f"resamples={resamples}: expected 1 or more")
    if not len(values):
        return {"mean": None, "low": None, "high": None, "count": 0}
    names = range(len(values)) if documents is None else documents
    found, member = np.unique(np.array(names), return_inverse=True)
    sums, sizes = np.bincount(member, values), np.bincount(member)
    drawn = rng.multinomial(len(found), np.full(len(found), 1 / len(found)), size=resamples)
    low, high = np.quantile(drawn @ sums / (drawn @ sizes), [(1 - level) / 2, (1 + level) / 2])
    return {
        "mean": float(np.mean(values)),
        "low": float(low),
        "high": float(high),
        "count": len(values),
    }


def null_memorization(
    scores: Scores, rng: np.random.Generator, *, resamples: int = RESAMPLES, level: float = LEVEL
) -> dict[str, float] | None:
    """Returns where the mean M_E lies of models that never saw the canary.

    Of each canary only the K/2 models without it are taken, and a random half of those plays the
    models with it. The mean of that is 0 but for the draws; `low` and `high` hold `level` of them.
    Where K/2 is odd, one of the models, drawn anew each time, is left out. With K/4 models a side
    it is wider than the mean of the real scores would be: a mean M_E outside is more than chance.

    Returns:
        `mean`, `low`, `high`; none for K = 2, whose one model cannot be halved, and without a
        canary.
    """
    side = scores.half // 2
    if not side or not len(scores.hits_out):
        return None
    size = (resamples, len(scores.hits_out))
    # How many hits fall to one side is hypergeometric: no model has to be shuffled.
    kept = rng.hypergeometric(scores.hits_out, scores.half - scores.hits_out, 2 * side, size=size)
    first = rng.hypergeometric(kept, 2 * side - kept, side)
    means = ((2 * first - kept) / side).mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return {"mean": float(means.mean()), "low": float(low), "high": float(high)}


def assignment_p_value(
    scores: Scores, rng: np.random.Generator, *, resamples: int = RESAMPLES
) -> float | None:
    """Returns how often a mean M_E as high comes of canaries assigned to models anew.

    One-sided, never 0. It is the randomisation test of the very draw that `balanced_splits` made,
    and so exact: if training on a canary changes nothing, p ≤ α in at most a share α of studies,
    however the canaries hang together and however the models differ. None without a canary.
    """
    if not len(scores.hits_in):
        return None
    hits = scores.hits_in + scores.hits_out
    drawn = rng.hypergeometric(
        hits, scores.splits - hits, scores.half, size=(resamples, len(hits))
    ).sum(axis=1)
    return float((1 + (drawn >= scores.hits_in.sum()).sum()) / (1 + resamples))


def rank_test(
    of_m: Floats, of_g: Floats, rng: np.random.Generator, *, resamples: int = 9999
) -> dict[str, Any]:
    """Tests whether M_E is higher in M than in G (what Pinto et al., Fig. 5 shows).

    The Mann-Whitney U test, one-sided. M_E has few values, so most are tied, and groups may be
    small: the p-value is by permutation, never 0. M and G must come from two models that are not
    among the K, else they were chosen by what they are tested for.

    Args:
        of_m: M_E of the samples of M.
        of_g: M_E of the samples of G.
        rng: draws permutations.
        resamples: how many.

    Returns:
        `auc`, how often a sample of M is above one of G, a tie counting half; `p`; `M` and `G`, the
        sizes. `auc` and `p` are none if either is empty; `p` is none if all values are equal.
    """
    sizes = {"M": len(of_m), "G": len(of_g)}
    if not (len(of_m) and len(of_g)):
        return {"auc": None, "p": None, **sizes}
    values, group = np.unique(np.concatenate([of_m, of_g]), return_inverse=True)
    tied = np.bincount(group)
    ranks = np.cumsum(tied) - (tied - 1) / 2
    found = ranks[group[: len(of_m)]].sum()
    # A permutation only changes how many of each value are in M: no sample has to be shuffled.
    drawn = rng.multivariate_hypergeometric(tied, len(of_m), size=resamples) @ ranks
    least = len(of_m) * (len(of_m) + 1) / 2
    return {
        "auc": float((found - least) / (len(of_m) * len(of_g))),
        "p": float((1 + (drawn >= found).sum()) / (1 + resamples)) if len(values) > 1 else None,
        **sizes,
    }


def mcnemar(in_e: Sequence[bool] | Bools, in_g: Sequence[bool] | Bools) -> dict[str, Any]:
    """Compares what two models extract of the same canaries; neither need have seen them.

    Returns:
        `E`, `G`, `both`, and `p`: the exact two-sided p-value of McNemar's test, which asks whether
        canaries that only one of them says fall to either alike; 1 without such canaries.
    """
    only_e = int(memorised(in_e, in_g).sum())
    only_g = int(memorised(in_g, in_e).sum())
    apart = only_e + only_g
    return {
        "E": int(np.sum(in_e)),
        "G": int(np.sum(in_g)),
        "both": int(np.sum(in_e)) - only_e,
        "p": float(binomtest(only_e, apart).pvalue) if apart else 1.0,
    }


def histogram(memorization: Floats, simplicity: Floats, splits: int) -> Counts:
    """Counts canaries at each place that K splits allow (Pinto et al., Fig. 5), (K + 1, K + 1).

    Row r is S_E = 2r/K, column c is M_E = 2c/K - 1. Only places with r + c + K/2 even, within
    |M_E| ≤ S_E ≤ 2 - |M_E|, can be taken.

    Raises:
        ValueError: if a score is at no such place: it is of another K.
    """
    half = splits / 2
    steps = np.stack([np.asarray(simplicity), np.asarray(memorization) + 1]) * half
    places = np.rint(steps).astype(np.int64)
    hits_twice = places[0] + places[1] - splits // 2
    if (
        (np.abs(steps - places) > 1e-6).any()
        or (hits_twice % 2).any()
        or (np.abs(2 * places[1] - splits) > 2 * np.minimum(places[0], splits - places[0])).any()
    ):
        raise ValueError(
            f"a pair of scores cannot come from {splits} splits: expected multiples of "
            f"{2 / splits:g} with |M_E| ≤ S_E ≤ 2 - |M_E|"
        )
    counts = np.zeros((splits + 1, splits + 1), np.int64)
    np.add.at(counts, (places[0], places[1]), 1)
    return counts


def memorization_metrics(
    scores: Scores,
    in_e: Sequence[bool] | Bools,
    in_g: Sequence[bool] | Bools,
    repeats: Sequence[int],
    rng: np.random.Generator,
    *,
    documents: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """Returns the sections "memorization" and "simplicity" of the numbers.

    Args:
        scores: of the n canaries.
        in_e: (n,), extracted from a model trained with all of them.
        in_g: (n,), from one trained with none.
        repeats: (n,), training samples with the same answer.
        rng: of bootstrap, null and tests.
        documents: (n,), what hangs together, such as their pages; see `mean_interval`. The rank
            test then takes one value of each, its mean: twins are no evidence of their own.
        resamples: draws behind each number.

    Returns:
        `memorization`: `mean`, `low`, `high` and `count` of M_E; `of_M`, `of_G` and `by_repeats`,
        the same of some of the canaries; `rank_test`; `null`, see `null_memorization`; and `p`, see
        `assignment_p_value`. `simplicity`: `mean` and so on of S_E.
    """
    values = scores.memorization
    pages = np.arange(len(values)) if documents is None else np.array(documents)

    def mean(numbers: Floats, here: Bools | slice = slice(None)) -> dict[str, Any]:
        return mean_interval(numbers[here], rng, documents=pages[here], resamples=resamples)

    in_m, general = memorised(in_e, in_g), np.asarray(in_g, bool)
    memorization = {
        **mean(values),
        "of_M": mean(values, in_m),
        "of_G": mean(values, general),
        "by_repeats": {
            str(count): mean(values, here) for count, here in _by_count(repeats).items()
        },
        "rank_test": rank_test(
            _means_of(values[in_m], pages[in_m]), _means_of(values[general], pages[general]), rng
        ),
        "null": null_memorization(scores, rng, resamples=resamples),
        "p": assignment_p_value(scores, rng, resamples=resamples),
    }
    return {"memorization": memorization, "simplicity": mean(scores.simplicity)}


def _means_of(values: Floats, groups: NDArray[Any]) -> Floats:
    """Returns the mean of each group's values."""
    _, member = np.unique(groups, return_inverse=True)
    return np.bincount(member, values) / np.bincount(member) if len(values) else values


def _by_count(repeats: Sequence[int]) -> dict[int, Bools]:
    """Returns which canaries have each repeat count, from the least up."""
    counts = np.asarray(repeats)
    return {int(count): counts == count for count in np.unique(counts)}


def _wilson(share: Floats, trials: int, level: float) -> tuple[Floats, Floats]:
    """Returns the ends of the Wilson intervals of shares of so many trials."""
    z = norm.ppf((1 + level) / 2)
    centre = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    reach = z / (1 + z**2 / trials) * np.sqrt(share * (1 - share) / trials + z**2 / 4 / trials**2)
    return centre - reach, centre + reach
