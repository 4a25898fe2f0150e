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

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.threat.results import Number
from fedpriv.threat.scoring.summaries import RESAMPLES, Counts, Floats, mean_interval, middle
from fedpriv.threat.scoring.verdicts import paired
from fedpriv.threat.statistics import CONFIDENCE

Bools = NDArray[np.bool_]


def balanced_splits(splits: int, canaries: int, rng: np.random.Generator) -> Bools:
    """Returns which canaries each of K models is trained with, (K, canaries).

    Each canary is in exactly K/2 splits, and any K/2 are as likely as any other (the sampling of
    Carlini et al. 2022, which Pinto et al., §4.2 takes over). Canaries are drawn independently: a
    split has half of them on average only.

    Args:
        splits: K, an even number of two or more; 50 in Pinto et al.
        canaries: one or more.
        rng: draws.
    """
    order = rng.random((splits, canaries)).argsort(axis=0)
    return order < splits // 2


def memorised(in_e: Sequence[bool] | Bools, in_g: Sequence[bool] | Bools) -> Bools:
    """Returns M = E ∖ G (Pinto et al., §4.1), as which of the n canaries are in it."""
    only: Bools = np.asarray(in_e, bool) & ~np.asarray(in_g, bool)
    return only


def set_sizes(
    in_e: Sequence[bool] | Bools, in_g: Sequence[bool] | Bools, answers: Sequence[str]
) -> dict[str, Any]:
    """Returns |E|, |G|, |M| (Pinto et al., Fig. 3), what chance makes of M, and its interval.

    M is never below 0, so chance alone looks like memory. G ∖ E is what M would be if neither
    model had seen the canaries, which Pinto et al. do not look at.

    Args:
        in_e: (n,), said by the model that was trained with the canaries.
        in_g: (n,), by the one that was not.
        answers: n, each canary's. Samples with one answer hang together.

    Returns:
        `E`, `G`, `M` and `control`, |G ∖ E|, in samples; `answers`, how many different ones there
        are, `answers_in_M`, and `interval` of these; the latter two as of `memorised_share`, none
        without a canary.
    """
    found: dict[str, Any] = {
        "E": int(np.sum(in_e)),
        "G": int(np.sum(in_g)),
        "M": int(memorised(in_e, in_g).sum()),
        "control": int(memorised(in_g, in_e).sum()),
        "answers": len(set(answers)),
        "answers_in_M": 0,
        "interval": None,
    }
    if answers:
        one = memorised_share(in_e, in_g, answers)
        found["answers_in_M"] = round(one.value * one.n)
        found["interval"] = [min(1.0, end) * one.n for end in one.interval or (0.0, 1.0)]
    return found


def memorised_share(
    in_e: Sequence[bool] | Bools, in_g: Sequence[bool] | Bools, answers: Sequence[str]
) -> Number:
    """Returns the share of the different answers that are in M, beside that in G ∖ E.

    A model says an answer if it says it of any of its samples: 24 samples of three names tell no
    more than three names do.
    """
    _, of = np.unique(np.asarray(answers), return_inverse=True)
    ours, theirs = (np.bincount(of, np.asarray(said, np.float64)) > 0 for said in (in_e, in_g))
    return paired(ours, theirs, "answer")


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
    found = [(kind, count) for kind, count, m in zip(pii, repeats, in_m, strict=True) if m and kind]
    return {
        "pii": len(found),
        "unique_pii": sum(int(count) == 1 for _, count in found),
        "pii_classes": dict(Counter(kind for kind, _ in found).most_common()),
    }


def sizes_by_repeats(
    in_e: Sequence[bool] | Bools,
    in_g: Sequence[bool] | Bools,
    repeats: Sequence[int],
    answers: Sequence[str],
) -> dict[str, dict[str, Any]]:
    """Returns `canaries` and the sizes of the sets for each repeat count, from the least up."""
    extracted, general, counts = np.asarray(in_e, bool), np.asarray(in_g, bool), np.array(repeats)
    return {
        str(count): {
            "canaries": int(here.sum()),
            **set_sizes(extracted[here], general[here], list(itertools.compress(answers, here))),
        }
        for count in np.unique(counts).tolist()
        for here in [counts == count]
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

    @classmethod
    def of(cls, correct: Bools, inside: Bools) -> Scores:
        """Counts.

        Args:
            correct: (K, n), whether model k said the answer of canary i.
            inside: (K, n), whether it was trained with it, as `balanced_splits` draws it.
        """
        return cls((correct & inside).sum(0), (correct & ~inside).sum(0), len(inside))

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


def null_memorization(
    scores: Scores, rng: np.random.Generator, *, resamples: int = RESAMPLES
) -> dict[str, float] | None:
    """Returns where the mean M_E lies of models that never saw the canary.

    Of each canary only the K/2 models without it are taken, and a random half of those plays the
    models with it. The mean of that is 0 but for the draws; `low` and `high` hold 95 % of them.
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
    low, high = middle(means, CONFIDENCE)
    return {"mean": float(means.mean()), "low": low, "high": high}


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


def histogram(memorization: Floats, simplicity: Floats, splits: int) -> Counts:
    """Counts canaries at each place that K splits allow (Pinto et al., Fig. 5), (K + 1, K + 1).

    Row r is S_E = 2r/K, column c is M_E = 2c/K - 1. Only places with r + c + K/2 even, within
    |M_E| ≤ S_E ≤ 2 - |M_E|, can be taken.
    """
    steps = np.stack([np.asarray(simplicity), np.asarray(memorization) + 1]) * splits / 2
    places = np.rint(steps).astype(np.int64)
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
        rng: of null and tests.
        documents: (n,), what hangs together, such as their pages; see `mean_interval`. The rank
            test then takes one value of each, its mean: twins are no evidence of their own.
        resamples: draws behind null and tests.

    Returns:
        `memorization`: `mean`, `low`, `high` and `count` of M_E; `of_M`, `of_G` and `by_repeats`,
        the same of some of the canaries; `rank_test`; `null`, see `null_memorization`; and `p`, see
        `assignment_p_value`. `simplicity`: `mean` and so on of S_E.
    """
    values, counts = scores.memorization, np.asarray(repeats)
    pages = np.arange(len(values)) if documents is None else np.array(documents)

    def mean(here: Bools | slice = slice(None)) -> dict[str, Any]:
        return mean_interval(values[here], (-1, 1), pages[here])

    def of_pages(here: Bools) -> Floats:
        """Returns the mean of each document's values."""
        _, member = np.unique(pages[here], return_inverse=True)
        return np.bincount(member, values[here]) / np.bincount(member)

    in_m, general = memorised(in_e, in_g), np.asarray(in_g, bool)
    memorization = {
        **mean(),
        "of_M": mean(in_m),
        "of_G": mean(general),
        "by_repeats": {str(count): mean(counts == count) for count in np.unique(counts).tolist()},
        "rank_test": rank_test(of_pages(in_m), of_pages(general), rng),
        "null": null_memorization(scores, rng, resamples=resamples),
        "p": assignment_p_value(scores, rng, resamples=resamples),
    }
    simplicity = mean_interval(scores.simplicity, (0, 2), pages)
    return {"memorization": memorization, "simplicity": simplicity}
