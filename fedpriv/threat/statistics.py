"""How sure a number is, and what it could have shown: intervals, comparisons, power, many looks.

An `Estimate` is a value with an interval at any confidence. All else follows from the interval:
the difference of two estimates has the interval of Zou & Donner (2008), and the p-value of a
difference is the smallest level at which its interval leaves out 0. So interval and p-value are of
one procedure and never contradict each other.

What is resampled or counted is the unit that the truth was decided for: a provider, a document, a
secret. Values of one unit hang together, and many of them are not many units.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import brentq
from scipy.special import betaincinv

CONFIDENCE = 0.95
"""Of intervals, unless said otherwise."""

LEVEL = 0.05
"""Up to which a p-value counts as shown; what 95 % intervals belong to."""

POWER = 0.8
"""How often an experiment shows what is called detectable."""

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
        coins: of a share or an AUC: value → how many coins of that bias would vary as much. None
            for what is not in [0, 1].
    """

    value: float
    n: int
    limits: Limits
    error: float = 0.0
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
        return Estimate(function(self.value), self.n, limits, self.error * slope)


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
        # much they vary.
        size = sizes.mean()
        whole, parts = np.append(sums, [0.0, size]), np.append(sizes, [size, size])
        middle = whole.sum() / parts.sum()
        residuals = whole - middle * parts
        variance = float(residuals @ residuals) / parts.sum() ** 2 * (count + 2) / (count + 1)
        coins = _effective(middle, variance, count, len(held))
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
    at_value = _coins_of_area(value, *map(len, sides))

    def coins(other: float) -> float:
        # As far from what is expected of so many at the value that was found.
        return seen / at_value * _coins_of_area(other, *map(len, sides))

    return _binomial(value, len(names), coins)


def mean(values: ArrayLike, units: ArrayLike | None = None) -> Estimate:
    """Returns the mean of any values by whole units, with the interval of Student's t.

    Args:
        values: (n,), such as differences to a control.
        units: (n,), of each value. None: each is its own.
    """
    held = np.asarray(values, np.float64)
    names = np.arange(len(held)) if units is None else units
    return jackknife(lambda rows: float(held[rows].mean()), names)


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

    return Estimate(whole, k, limits, error)


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

    return Estimate(value, one.n + other.n, limits, math.hypot(one.error, other.error))


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
        reach = float(stats.norm.ppf((1 + CONFIDENCE) / 2) + stats.norm.ppf(POWER))
        least = control.value + reach * math.hypot(estimate.error, control.error)
        return least if math.isfinite(least) else None
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
        def coins(other: float) -> float:
            return _coins_of_area(other, count, count) * _told_by(count) if area else float(count)

        least = detectable(_binomial(value, count, coins), Estimate.known(control))
        return least is not None and least <= value

    low, high = 1, MOST_UNITS
    if not shows(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle + 1, high)
    return low


def corrected(p_values: Sequence[float]) -> list[float]:
    """Returns p-values of many looks, each as if it were the only one (Holm 1979)."""
    from statsmodels.stats.multitest import multipletests  # half a second that few need

    if not p_values:
        return []
    return [float(p) for p in multipletests(p_values, LEVEL, method="holm")[1]]


def _by_unit(values: Floats, units: ArrayLike | None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the sum and the number of each unit's values."""
    if units is None:
        return values, np.ones(len(values), np.int64)
    _, member = np.unique(np.asarray(units), return_inverse=True)
    return np.bincount(member, values), np.bincount(member)


def _effective(value: float, variance: float, units: int, most: int) -> float:
    """Returns how many coins vary like this, less for a variance that few units tell of."""
    if units < 2:
        return 1.0
    if variance == 0:
        return float(units)
    return max(1.0, min(value * (1 - value) / variance * _told_by(units), float(most)))


def _told_by(units: int) -> float:
    """Returns what share of the coins is left where so few units tell how much they vary."""
    if units < 2:
        return 0.0
    middle = (1 + CONFIDENCE) / 2
    return float((stats.norm.ppf(middle) / stats.t.ppf(middle, units - 1)) ** 2)


def _binomial(value: float, n: int, coins: Callable[[float], float]) -> Estimate:
    """Returns a share of `coins(value)` coins, whose number need not be whole."""
    k = coins(value)
    heads = value * k

    def limits(confidence: float) -> tuple[float, float]:
        tail = (1 - confidence) / 2
        low = 0.0 if value <= 0 else float(betaincinv(heads, k - heads + 1, tail))
        high = 1.0 if value >= 1 else float(betaincinv(heads + 1, k - heads, 1 - tail))
        return low, high

    return Estimate(value, n, limits, math.sqrt(value * (1 - value) / k), coins)


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
