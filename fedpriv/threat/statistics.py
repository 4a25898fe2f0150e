"""How sure a number is, and what it could have shown: intervals, comparisons, power, many looks.

An `Estimate` is a value with an interval at any confidence. The difference of two estimates has the
interval of Zou & Donner (2008), and its p-value is the smallest level at which that leaves out 0.
So interval and p-value are of one procedure and never contradict each other.

Two samples that would be alike without a leak are compared by exchanging their units (`exchanged`),
which is exact however the values are distributed, claims and the truths that they are of by dealing
the truths out anew (`matching`), and what two models say of the same units by its signs
(`discordance`).

What is resampled or counted is the unit that the truth was decided for: a provider, a document, a
secret. Values of one unit hang together, and many of them are not many units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import brentq
from scipy.special import betaincinv, nctdtrinc

CONFIDENCE = 0.95
"""Of intervals, unless said otherwise."""

LEVEL = 0.05
"""Up to which a p-value counts as shown; what 95 % intervals belong to."""

POWER = 0.8
"""How often an experiment shows what is called detectable."""

FEW = 16
"""Units on a side below which their order is tested exactly."""

FEWEST = 6
"""Units, of which the spread tells what could have been shown."""

DRAWS = 9999
"""Exchanges of units behind a p-value."""

MOST_UNITS = 10_000
"""Up to which it is sought how many units a claim needs."""

SMALLEST = 1e-12
"""The least p-value that is told."""

TINY, STEP = 1e-9, 1e-4

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Limits = Callable[[float], tuple[float, float]]


@dataclass(frozen=True)
class Estimate:
    """A value, and between what it lies.

    Attributes:
        value: of the units that were looked at.
        n: units.
        limits: confidence → ends of the interval.
        error: standard error.
        freedom: degrees of freedom that it was estimated with.
        coins: of a share or an AUC: value → how many coins of that bias would vary as much. None
            for what is not in [0, 1].
    """

    value: float
    n: int
    limits: Limits
    error: float = 0.0
    freedom: float = math.inf
    coins: Callable[[float], float] | None = None

    @classmethod
    def known(cls, value: float) -> Estimate:
        """Returns a value without doubt, such as what guessing gets."""
        return cls(value, 0, lambda confidence: (value, value))

    def through(self, function: Callable[[float], float]) -> Estimate:
        """Returns the estimate of a rising, smooth function of the value, such as exp."""

        def limits(confidence: float) -> tuple[float, float]:
            low, high = self.limits(confidence)
            return function(low), function(high)

        slope = (function(self.value + STEP) - function(self.value - STEP)) / (2 * STEP)
        return Estimate(function(self.value), self.n, limits, self.error * slope, self.freedom)


def share(values: ArrayLike, units: ArrayLike | None = None) -> Estimate:
    """Returns the mean of values in [0, 1], such as of what is right, by whole units.

    The interval is exact for one value of 0 or 1 a unit (Clopper & Pearson 1934). Otherwise it is
    that of Korn & Graubard (1998): the same, for as many coins as would vary like these values.

    Args:
        values: (n,).
        units: (n,), of each value. None: each is its own.

    Raises:
        ValueError: without a value, or with one outside [0, 1].
    """
    held = np.asarray(values, np.float64)
    if not len(held) or not ((held >= 0) & (held <= 1)).all():
        raise ValueError(f"a share is the mean of one or more values in [0, 1], not of {held}")
    sums, sizes = _by_unit(held, units)
    count, value = len(sums), float(held.mean())
    coins = float(count)
    if not (((held == 0) | (held == 1)).all() and (sizes == 1).all()):
        # One unit more that is right, and one that is wrong: of rare events few units tell how
        # much they vary. A large unit pulls the mean to itself and hides its own variance: with
        # it, the others are worth fewer (Kish 1965), and those two are as large as it.
        size, told = (sizes**2).sum() / sizes.sum(), sizes.sum() ** 2 / (sizes**2).sum()
        whole, parts = np.append(sums, [0.0, size]), np.append(sizes, [size, size])
        middle = whole.sum() / parts.sum()
        residuals = whole - middle * parts
        variance = float(residuals @ residuals) / parts.sum() ** 2 * (count + 2) / (count + 1)
        coins = _effective(middle, variance, told, len(held))
    return _binomial(value, count, lambda value: coins)


def area(
    members: Sequence[Bools],
    scores: Sequence[Floats],
    units: Sequence[Any],
    *,
    ranked: bool = True,
) -> Estimate:
    """Returns the AUC, how often a member's score is above another's, as a mean over draws.

    A draw is what the attack was told of; one attack alone is one draw. A tie counts half. A unit
    that is judged in several draws is one unit. The variance is that of DeLong et al. (1988) over
    the units, and that over the draws, since others would have given another mean; the interval is
    that of `share`. Where no two are in the wrong order there are as many coins as the smaller side
    has members: the variance cannot exceed theirs (Birnbaum & Klose 1957).

    Args:
        members: of each draw, (n,), at least one and not all.
        scores: likewise.
        units: likewise, who was judged.
        ranked: False takes half of 1 plus the difference of two scores in [0, 1] in place of
            which is higher: of guesses, that is their balanced accuracy.
    """
    drawn = [_placements(*draw, ranked) for draw in zip(members, scores, strict=True)]
    names, place = np.unique(np.concatenate([np.asarray(u) for u in units]), return_inverse=True)
    influence, inside = np.zeros(len(names)), np.zeros(len(names), np.bool_)
    np.add.at(influence, place, np.concatenate([own for _, own in drawn]) / len(drawn))
    inside[place] = np.concatenate(list(members))
    sides = influence[inside], influence[~inside]
    variance = sum(float(np.var(own) * len(own) ** 2 / max(1, len(own) - 1)) for own in sides)
    found = [value for value, _ in drawn]
    variance += float(np.var(found, ddof=1)) / len(found) if len(found) > 1 else 0.0
    value, fewer = float(np.mean(found)), min(map(len, sides))
    seen = float(fewer)
    if 0 < value < 1 and variance > 0:
        seen = _effective(value, variance, fewer, len(names))
    expected = _coins_of_area(value, *map(len, sides))
    # Another experiment of this size may vary more than this one did; less would be luck.
    kept = min(seen / expected, _told_by(fewer))

    def coins(other: float) -> float:
        return kept * _coins_of_area(other, *map(len, sides))

    return _binomial(value, len(names), coins, seen)


def mean(values: ArrayLike, units: ArrayLike | None = None) -> Estimate:
    """Returns the mean of any values by whole units, with the interval of Student's t.

    Args:
        values: (n,), such as differences to a control.
        units: (n,), of each value. None: each is its own.
    """
    held = np.asarray(values, np.float64)
    names = np.arange(len(held)) if units is None else units
    return jackknife(lambda rows: float(held[rows].mean()), names)


def median(values: ArrayLike) -> Estimate:
    """Returns the median of any values, one a unit, with the interval of the sign test.

    Of few units it has no end: five gains may all be above 0 by chance.

    Args:
        values: (n,), such as gains over a control on the same unit.
    """
    ranked = np.sort(np.asarray(values, np.float64))
    count = len(ranked)

    def limits(confidence: float) -> tuple[float, float]:
        out = int(stats.binom.ppf((1 - confidence) / 2, count, 0.5))
        if stats.binom.cdf(out, count, 0.5) > (1 - confidence) / 2:
            out -= 1
        return (ranked[out], ranked[-1 - out]) if out >= 0 else (-math.inf, math.inf)

    return Estimate(float(np.median(ranked)), count, limits)


def jackknife(statistic: Callable[[NDArray[np.int64]], float], units: ArrayLike) -> Estimate:
    """Returns a smooth function of means, with an interval by leaving out one unit at a time.

    It is Tukey's (1958), with Student's t.

    Args:
        statistic: of the rows with these numbers.
        units: (n,), of each row.

    Raises:
        ValueError: without a row.
    """
    names, member = np.unique(np.asarray(units), return_inverse=True)
    if not len(names):
        raise ValueError("there is nothing to estimate from: expected one row or more")
    rows, k = np.arange(len(member)), len(names)
    whole = statistic(rows)
    if k == 1:
        return Estimate(whole, 1, lambda confidence: (-math.inf, math.inf), math.inf)
    left = np.array([statistic(rows[member != one]) for one in range(k)])
    error = float(np.sqrt((k - 1) * np.var(left)))

    def limits(confidence: float) -> tuple[float, float]:
        reach = float(stats.t.ppf((1 + confidence) / 2, k - 1)) * error
        return whole - reach, whole + reach

    return Estimate(whole, k, limits, error, k - 1)


def difference(one: Estimate, other: Estimate) -> Estimate:
    """Returns `one` minus `other`, of independent units (Zou & Donner 2008).

    The interval takes each side's own limits, so that it is as skewed as they are. That of paired
    values is the `mean` of their differences.
    """
    value = one.value - other.value

    def limits(confidence: float) -> tuple[float, float]:
        (low, high), (least, most) = one.limits(confidence), other.limits(confidence)
        down = math.hypot(one.value - low, most - other.value)
        up = math.hypot(high - one.value, other.value - least)
        return value - down, value + up

    error, freedom = math.hypot(one.error, other.error), min(one.freedom, other.freedom)
    return Estimate(value, one.n + other.n, limits, error, freedom)


def exchanged(values: ArrayLike, inside: ArrayLike, units: ArrayLike) -> float:
    """Returns how often a difference of two means as large comes of units that change sides.

    If it makes no difference on which side a unit is, any are as likely to be on either, and this
    p-value, two-sided and never 0, is at most α in a share α of experiments. It is the largest of
    three, of which each holds where another may not. Units change sides, and the difference is
    divided by its standard error, which holds for large samples too where only the means are equal
    (Chung & Romano 2013); or it is not divided, as that quotient is near 1 wherever one unit alone
    differs from the rest, and sizes would order it. Or units stay, and their means change places,
    because one side may have larger units.

    Args:
        values: (n,).
        inside: (n,), bool, the side of each; one for all values of a unit.
        units: (n,), what hangs together.

    Raises:
        ValueError: if a side is empty.
    """
    sums, sizes = _by_unit(np.asarray(values, np.float64), units)
    there = _by_unit(np.asarray(inside, np.float64), units)[0] > 0
    if there.all() or not there.any():
        raise ValueError("there is nothing to compare: expected units on both sides")
    rng = np.random.default_rng(0)  # of the same data the same p-value
    drawn = rng.permuted(np.tile(there, (DRAWS, 1)), axis=1)
    both = np.vstack([there, drawn]).astype(np.float64)
    means, errors = [], []
    for side in (both, 1 - both):
        count, whole = side.sum(1), side @ sizes
        mean = side @ sums / whole
        squares = side @ sums**2 - 2 * mean * (side @ (sums * sizes)) + mean**2 * (side @ sizes**2)
        means.append(mean)
        errors.append(np.maximum(squares, 0.0) / whole**2 * count / np.maximum(count - 1, 1))
    apart = np.abs(means[0] - means[1])
    # Where neither side varies, as large as can be; and where all are equal, 0.
    scaled = np.where(apart < TINY, 0.0, apart / np.sqrt(errors[0] + errors[1] + TINY**2))
    rates = sums / sizes
    dealt = np.vstack([rates, rng.permuted(np.tile(rates, (DRAWS, 1)), axis=1)])
    stayed = np.abs(dealt @ (sizes * (there / sizes[there].sum() - ~there / sizes[~there].sum())))
    return max(float(np.mean(one >= one[0] * (1 - TINY))) for one in (apart, scaled, stayed))


def ranked_apart(members: Bools, scores: Floats) -> float:
    """Returns how often an AUC as far from 1/2 comes of units that change sides; two-sided.

    It is the exact test of Mann & Whitney (1947) with every tie counted against the side that is
    ahead, so that a higher score of a member never raises the p-value of an AUC above 1/2.

    Args:
        members: (n,), at least one and not all.
        scores: (n,).
    """
    found = []
    for side in (members, ~members):
        ranks = np.empty(len(scores))
        ranks[np.lexsort((~side, scores))] = np.arange(len(scores))
        test = stats.mannwhitneyu(ranks[side], ranks[~side], alternative="greater", method="exact")
        found.append(float(test.pvalue))
    return min(1.0, 2 * min(found))


def matching(fits: ArrayLike) -> float:
    """Returns how often claims fit truths as well, or as badly, that are dealt out to them anew.

    If a claim has nothing of its truth, any other might be its own, and this p-value, two-sided, is
    at most α in a share α of experiments: it is Mantel's test (1967), exact where the deals are few
    enough to be tried.

    Args:
        fits: (n, m), how well each claim fits each truth, one for each claim and m - n more; a
            claim's own is on the diagonal.
    """
    table = np.asarray(fits, np.float64)
    n, m = table.shape
    means = table[np.arange(n), _deals(n, m)].mean(1)
    apart = np.abs(means - means.mean())
    own = abs(float(np.trace(table)) / n - means.mean())
    return float(np.mean(apart >= own - TINY))


@lru_cache(maxsize=1)  # the scores of one attack are of as many claims and truths
def _deals(n: int, m: int) -> NDArray[np.int64]:
    """Returns ways to deal n of m truths out, all of them where they are few enough, (ways, n)."""
    if math.perm(m, n) <= DRAWS:
        return np.array(list(permutations(range(m), n)))
    rng = np.random.default_rng(0)  # of the same data the same p-value
    drawn = rng.permuted(np.tile(np.arange(m), (DRAWS, 1)), axis=1)[:, :n]
    return np.vstack([np.arange(n), drawn])


def discordance(ours: int, theirs: int, count: int) -> Estimate:
    """Returns by how much a share of units exceeds another, of units that are never in both.

    Such as what only one model says, beside what only the other does. It is the exact test of
    McNemar (1947): where there is no difference, either is as likely to be the one. Its interval
    takes as given how many units there are of both kinds; without any, it is that of a share.

    Args:
        ours: units of the one kind.
        theirs: of the other.
        count: of all.
    """
    apart = ours + theirs

    def limits(confidence: float) -> tuple[float, float]:
        if not apart:
            most = share([0.0] * count).limits(confidence)[1]
            return -most, most
        low, high = share([1.0] * ours + [0.0] * theirs).limits(confidence)
        return apart / count * (2 * low - 1), apart / count * (2 * high - 1)

    value = (ours - theirs) / count
    return Estimate(value, count, limits, math.sqrt(apart) / count, count - 1)


def discordant(theirs: int, count: int) -> float | None:
    """Returns the least share that `discordance` would show beside so many units of the other kind.

    In four of five experiments (`POWER`). None where even the largest would not be shown.
    """
    # Each of two things that may go wrong, theirs and ours, does so in half of the fifth.
    enough = 1 - (1 - POWER) / 2
    most = int(stats.binom.ppf(enough, count, theirs / count))
    for ours in range(most + 1, count - most + 1):
        if stats.binomtest(ours, ours + most).pvalue <= LEVEL:
            return float(betaincinv(ours, count - ours + 1, enough))
    return None


def p_value(estimate: Estimate) -> float:
    """Returns the smallest level at which the interval of a difference leaves out 0; two-sided."""

    def reaches(level: float) -> float:
        low, high = estimate.limits(1 - level)
        return low if estimate.value > 0 else -high

    if estimate.value == 0 or reaches(SMALLEST) > 0:
        return 1.0 if estimate.value == 0 else SMALLEST
    if reaches(1 - SMALLEST) <= 0:
        return 1.0
    return float(brentq(reaches, SMALLEST, 1 - SMALLEST, xtol=SMALLEST))


def detectable(estimate: Estimate, control: Estimate) -> float | None:
    """Returns the least value that so many units would show to be above the control.

    In four of five experiments (`POWER`). None where even the largest value would not be.
    """
    if estimate.coins is None:
        apart = difference(estimate, control)
        error, freedom = apart.error, min(apart.freedom, MOST_UNITS)
        if freedom < FEWEST - 1 or not error or not math.isfinite(error):
            return None
        edge = stats.t.ppf((1 + CONFIDENCE) / 2, freedom)
        reach = float(nctdtrinc(freedom, 1 - POWER, edge))
        # The error itself is known from as few units: so large it may well be.
        return control.value + reach * error * math.sqrt(
            freedom / stats.chi2.ppf(1 - POWER, freedom)
        )
    coins = estimate.coins

    def spare(value: float) -> float:
        """Returns how far a value is above the least that its number of coins shows."""
        n = max(1.0, coins(value))

        def shown(heads: float) -> float:
            found = _binomial(heads / n, 0, lambda _: n)
            return difference(found, control).limits(CONFIDENCE)[0]

        fewest, most = n * control.value, n * (1 - TINY)
        if shown(most) <= 0:
            return value - 1 - TINY
        heads = fewest if shown(fewest) > 0 else float(brentq(shown, fewest, most))
        whole = min(n, max(1, math.ceil(heads - TINY)))
        return value - float(betaincinv(whole, n - whole + 1, POWER))

    least, most = control.value + TINY, 1 - TINY
    if least >= most or spare(most) <= 0:
        return None
    if spare(least) > 0:
        return least
    return float(brentq(spare, least, most, xtol=TINY))


def area_by_chance(members: int, others: int) -> Estimate:
    """Returns the AUC of guessing, of one attack on that many."""
    told = _told_by(min(members, others))

    def coins(value: float) -> float:
        return told * _coins_of_area(value, members, others)

    return _binomial(0.5, members + others, coins)


def needed(value: float, control: float, *, area: bool = False) -> int | None:
    """Returns how many units show a share, or how many members and as many others an AUC.

    Args:
        value: that is to be shown.
        control: that it is held against.
        area: whether it is an AUC.

    Returns:
        The number; None where `MOST_UNITS` do not.
    """

    def shows(count: int) -> bool:
        size = area_by_chance(count, count) if area else share(np.zeros(count))
        least = detectable(size, Estimate.known(control))
        return least is not None and least <= value

    return fewest(shows)


def fewest(shows: Callable[[int], bool]) -> int | None:
    """Returns the least number for which something is shown; None where `MOST_UNITS` do not."""
    low, high = 1, MOST_UNITS
    if not shows(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle + 1, high)
    return low


def corrected(p_values: Sequence[float]) -> list[float]:
    """Returns p-values of many looks, each as if it were the only one (Holm 1979).

    Not by statsmodels, whose `multipletests` collects garbage in each call, for a fifth of a second
    or, among a training's objects, a whole one.
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p)
    found = np.empty_like(p)
    found[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1)
    return [float(one) for one in found]


def _by_unit(values: Floats, units: ArrayLike | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the sum and the number of each unit's values."""
    if units is None:
        return values, np.ones(len(values), np.int64)
    _, member = np.unique(np.asarray(units), return_inverse=True)
    return np.bincount(member, values), np.bincount(member)


def _effective(value: float, variance: float, units: float, most: int) -> float:
    """Returns how many coins vary like this, less for a variance that few units tell of."""
    if units < 2:
        return 1.0
    if variance == 0:
        return float(units)
    return max(1.0, min(value * (1 - value) / variance * _told_by(units), float(most)))


def _told_by(units: float) -> float:
    """Returns what share of the coins is left where so few units tell how much they vary."""
    if units < 2:
        return 0.0
    middle = (1 + CONFIDENCE) / 2
    return float((stats.norm.ppf(middle) / stats.t.ppf(middle, units - 1)) ** 2)


def _binomial(
    value: float, n: int, coins: Callable[[float], float], seen: float | None = None
) -> Estimate:
    """Returns a share of coins, whose number need not be whole.

    Args:
        value: the share.
        n: units.
        coins: how many there would be at another value.
        seen: how many there were; None for `coins(value)`.
    """
    k = coins(value) if seen is None else seen
    heads = value * k

    def limits(confidence: float) -> tuple[float, float]:
        tail = (1 - confidence) / 2
        low = 0.0 if value <= 0 else float(betaincinv(heads, k - heads + 1, tail))
        high = 1.0 if value >= 1 else float(betaincinv(heads + 1, k - heads, 1 - tail))
        return low, high

    return Estimate(value, n, limits, math.sqrt(value * (1 - value) / k), coins=coins)


def _placements(members: Bools, scores: Floats, ranked: bool) -> tuple[float, Floats]:
    """Returns the AUC, and how much each unit moves it: its mean over the other side, in order.

    They are DeLong's components, divided by the size of the unit's own side and around 0.
    """
    inside, outside = scores[members], scores[~members]
    apart = inside[:, None] - outside
    above = (1 + (np.sign(apart) if ranked else apart)) / 2
    value = float(above.mean())
    own = np.empty(len(scores))
    own[members] = (above.mean(1) - value) / len(inside)
    own[~members] = (above.mean(0) - value) / len(outside)
    return value, own


def _coins_of_area(value: float, members: int, others: int) -> float:
    """Returns how many coins vary like an AUC of that many (Hanley & McNeil 1982)."""
    if not 0 < value < 1:
        return float(min(members, others))
    of_members, of_others = value / (2 - value), 2 * value**2 / (1 + value)
    variance = (
        value * (1 - value)
        + (members - 1) * (of_members - value**2)
        + (others - 1) * (of_others - value**2)
    ) / (members * others)
    return value * (1 - value) / variance
