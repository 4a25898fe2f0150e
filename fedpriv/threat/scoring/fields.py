"""How near reconstructed fields come to the true ones (CDMI, §5.2, §5.3 and App. B).

Everything is of token ids. AccAt and HamAt are means over the ⌈pM⌉ surest fields: the proof in the
paper's appendix reads as if pM were rounded down, but its Table 5 has eighths at 1 % of 777 fields.
That proof has two signs the wrong way: to put a better reconstruction first lowers HamAt, and a
larger distance lowers HamAAC. The two properties that it is about hold (tests/properties).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
from rapidfuzz.distance import Hamming, JaroWinkler, Levenshtein

from fedpriv.threat.scoring.summaries import Counts, Floats, middle, resampled
from fedpriv.threat.statistics import Estimate, jackknife, mean

MOST_LOG = 700.0
"""Beyond which exp is more than a float holds."""


@dataclass(frozen=True)
class Similarity:
    """How near one reconstruction is to its field of k tokens, or the means over many.

    Attributes:
        pr: 1 where all tokens are right, else 0; of many, the share of perfect reconstructions.
        hd: Hamming distance, the number of wrong tokens, from 0 to k.
        ham: `hd` / k.
        ld: Levenshtein distance / k, so that it is from 0 to 1.
        jwd: 1 - the Jaro-Winkler similarity, from 0 to 1.
    """

    pr: float
    hd: float
    ham: float
    ld: float
    jwd: float

    @classmethod
    def of(cls, true: Sequence[int], guess: Sequence[int]) -> Similarity:
        """Compares a reconstruction with what stood there.

        Args:
            true: (k,), token ids.
            guess: (k,), token ids.
        """
        wrong = Hamming.distance(true, guess)
        return cls(
            pr=float(wrong == 0),
            hd=float(wrong),
            ham=wrong / len(true),
            ld=float(Levenshtein.normalized_distance(true, guess)),
            jwd=float(JaroWinkler.normalized_distance(true, guess)),
        )

    @classmethod
    def mean(cls, similarities: Sequence[Similarity]) -> Similarity:
        """Returns the means of one or more."""
        return cls(*np.mean([astuple(one) for one in similarities], axis=0).tolist())


def improvement_factor(attack: Similarity, baseline: Similarity, *, epsilon: float = 0.01) -> float:
    """Returns the IpF of CDMI, eq. 6: 1 where the attack does as the baseline does, more if better.

    Args:
        attack: means over the fields.
        baseline: likewise, of what public knowledge gives.
        epsilon: bounds the factor; the paper has it and does not say how large it is.
    """
    return math.fsum(improvement_terms(attack, baseline, epsilon=epsilon).values())


def improvement_terms(
    attack: Similarity, baseline: Similarity, *, epsilon: float = 0.01
) -> dict[str, float]:
    """Returns what each of the four measures adds to the IpF; see `improvement_factor`."""
    mine, theirs = _of_equation_6([attack, baseline])
    terms = _terms(mine, theirs, epsilon).tolist()
    return dict(zip(("pr", "hd", "ld", "jwd"), terms, strict=True))


def improvement(
    attack: Sequence[Similarity],
    baseline: Sequence[Similarity],
    documents: Sequence[str],
    *,
    epsilon: float = 0.01,
) -> Estimate:
    """Returns the IpF of F fields with its interval.

    The interval is of its logarithm, by leaving out one document at a time, since the fields of one
    hang together. Model and reconstructions are held fixed. A single document gives none.

    Args:
        attack: of F fields.
        baseline: of the same F fields.
        documents: the document of each field.
        epsilon: see `improvement_factor`.
    """
    mine, theirs = _of_equation_6(attack), _of_equation_6(baseline)

    def log_factor(rows: Counts) -> float:
        return math.log(_terms(mine[rows].mean(0), theirs[rows].mean(0), epsilon).sum())

    return jackknife(log_factor, documents).through(
        lambda log: math.exp(log) if log < MOST_LOG else math.inf
    )


def tokens_gained(
    attack: Sequence[Similarity], baseline: Sequence[Similarity], documents: Sequence[str]
) -> Estimate:
    """Returns how much larger a share of a field's tokens is right than of the baseline's.

    Unlike the IpF it is a mean over fields, and hangs on no ε.

    Args: as of `improvement`.
    """
    gained = np.array([b.ham - a.ham for a, b in zip(attack, baseline, strict=True)])
    if np.ptp(gained) > 0:
        return mean(gained, documents)
    # Nothing tells how much they vary: as much as with one document more that gains all, and one
    # that loses all.
    more = mean([*gained, 1.0, -1.0], [*documents, "one more", "another"])
    apart = more.value - float(gained[0])

    def limits(confidence: float) -> tuple[float, float]:
        low, high = more.limits(confidence)
        return low - apart, high - apart

    return Estimate(float(gained[0]), more.n - 2, limits, more.error, more.freedom)


@dataclass(frozen=True)
class Shots:
    """One reconstruction for each of M fields, with how sure the attack is of it.

    Where confidences are equal, every number is the expectation over all orders of the tied: it is
    neither luck nor the order of the fields.

    Attributes:
        confidence: (M,); high: sure. Infinities are allowed.
        right: (M,), 1 for a perfect reconstruction, else 0.
        ham: (M,), share of wrong tokens.
    """

    confidence: Floats
    right: Floats
    ham: Floats

    @classmethod
    def of(cls, similarities: Sequence[Similarity], confidence: Sequence[float]) -> Shots:
        """Takes what it needs of the similarities."""
        right, ham = np.array([(one.pr, one.ham) for one in similarities], np.float64).T
        return cls(np.array(confidence, np.float64), right, ham)

    @property
    def acc_curve(self) -> Floats:
        """AccAt(i/M), i = 1 … M: the share of perfect ones among the i surest (CDMI, eq. 7)."""
        return self._of_the_surest(self.right)

    @property
    def ham_curve(self) -> Floats:
        """HamAt(i/M), i = 1 … M: the mean share of wrong tokens of the i surest (CDMI, eq. 9)."""
        return self._of_the_surest(self.ham)

    @property
    def acc_auc(self) -> float:
        """The area under AccAt (CDMI, eq. 8), a staircase of M steps."""
        return float(self.acc_curve.mean())

    @property
    def ham_aac(self) -> float:
        """The area above HamAt (CDMI, eq. 10)."""
        return 1 - float(self.ham_curve.mean())

    def acc_at(self, p: float) -> float:
        """Returns the share of perfect ones among the ⌈pM⌉ surest."""
        return float(self.acc_curve[surest(p, len(self.right)) - 1])

    def ham_at(self, p: float) -> float:
        """Returns the mean share of wrong tokens of the ⌈pM⌉ surest."""
        return float(self.ham_curve[surest(p, len(self.ham)) - 1])

    def take(self, rows: Counts) -> Shots:
        """Returns those of the fields at these rows."""
        return Shots(self.confidence[rows], self.right[rows], self.ham[rows])

    def _of_the_surest(self, values: Floats) -> Floats:
        _, group = np.unique(-self.confidence, return_inverse=True)
        means = np.bincount(group, values) / np.bincount(group)
        return np.cumsum(means[np.sort(group)]) / np.arange(1, len(values) + 1)


def surest(p: float, fields: int) -> int:
    """Returns ⌈p · fields⌉, the number of fields in the top p, a share."""
    # The small number is for products such as 0.07 * 100, which exceed an integer.
    return max(1, math.ceil(p * fields - 1e-9))


def area_intervals(
    attack: Shots,
    baseline: Shots,
    documents: Sequence[str],
    rng: np.random.Generator,
    *,
    resamples: int = 1000,
    level: float = 0.95,
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns the intervals of attack - baseline, of AccAUC and of HamAAC.

    By bootstrap: whole documents are drawn, attack and baseline see the same draw, and the drawn
    fields are sorted anew. With a single document the interval has no width and says nothing.
    """
    drawn, member = resampled(documents, rng, resamples)
    gains = np.empty((resamples, 2))
    for number, counts in enumerate(drawn):
        rows = np.repeat(np.arange(len(member)), counts[member])
        mine, theirs = attack.take(rows), baseline.take(rows)
        gains[number] = mine.acc_auc - theirs.acc_auc, mine.ham_aac - theirs.ham_aac
    return middle(gains[:, 0], level), middle(gains[:, 1], level)


def _of_equation_6(similarities: Sequence[Similarity]) -> Floats:
    """Returns the four numbers of eq. 6 for each field, (fields, 4)."""
    return np.array([(one.pr, one.hd, one.ld, one.jwd) for one in similarities])


def _terms(attack: Floats, baseline: Floats, epsilon: float) -> Floats:
    """Returns the four terms of eq. 6 of means, (4,); their sum is the IpF."""
    a, b = attack + epsilon, baseline + epsilon
    return np.append(a[:1] / b[:1], b[1:] / a[1:]) / 4
