"""A number over seeds with its interval: what tables show, and what claims and verdicts rest on.

A metric such as F1 tells one draw a seed, so the interval of the mean is Student's, at 95 %. The
number of an attack comes with errors of its own. Its mean is the one over these trainings, and the
error grows where the seeds disagree by more than their own errors explain (Birge 1932).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import cast

import numpy as np
from scipy.stats import norm, t

from fedpriv.report.wording import show_value
from fedpriv.threat.results import Number
from fedpriv.threat.statistics import CONFIDENCE, LEVEL, POWER

EDGE = float(norm.ppf((1 + CONFIDENCE) / 2))
"""How many standard errors from its value an interval ends, where the error is known."""

SCALES = {"f1": (0.0, 1.0), "anls": (0.0, 1.0), "accuracy": (0.0, 1.0), "loss": (0.0, math.inf)}
"""Least and most of metrics that have such."""

SUREST = 1e-11
"""Smaller p-values are not told apart, and say nothing of an error."""


@dataclass(frozen=True)
class Over:
    """A number over seeds.

    Attributes:
        mean: of the seeds' values.
        low: end of its interval, at 95 %; the mean itself where there is none.
        high: the other end.
        control: mean of what it is held against; None where there is no such number.
        below: standard error towards lower values, which a success is shown with.
        above: the same towards higher ones, which what may remain is judged with.
        freedom: degrees of freedom of these errors; infinite where they are known.
        n: units that were counted, over all seeds.
        unit: what was counted.
        most: the largest that the number can be.
    """

    mean: float
    low: float
    high: float
    control: float | None = None
    below: float = 0.0
    above: float = 0.0
    freedom: float = math.inf
    n: int = 0
    unit: str = ""
    most: float = math.inf

    @property
    def gain(self) -> float:
        """What is above the control."""
        return self.mean - (self.control or 0.0)

    @property
    def error(self) -> float:
        """Standard error of the gain, towards 0."""
        return self.below if self.gain > 0 else self.above

    @property
    def p_value(self) -> float:
        """Of the gain, two-sided."""
        if not self.error:
            return float(self.gain == 0)
        far = abs(self.gain) / self.error
        return float(2 * (norm.sf(far) if math.isinf(self.freedom) else t.sf(far, self.freedom)))

    def detectable(self, looks: int) -> float | None:
        """Returns the least value that so many looks would show, in four of five cases.

        None where even the largest would not be shown.
        """
        # Of nothing found, the error downwards is tiny, and says nothing of what would be found.
        least = (self.control or 0.0) + reach(looks) * max(self.below, self.above)
        return least if least <= self.most else None

    def minus(self, other: Over) -> Over:
        """Returns by how much this gain is more than another one that is independent of it.

        Each end of the difference comes from one end of either (Zou & Donner 2008).
        """
        gap = self.gain - other.gain
        below, above = math.hypot(self.below, other.above), math.hypot(self.above, other.below)
        return Over(gap, gap - EDGE * below, gap + EDGE * above, None, below, above)

    def __str__(self) -> str:
        if self.low == self.high:
            return show_value(self.mean)
        return f"{show_value(self.mean)} [{show_value(self.low)}, {show_value(self.high)}]"


def over(values: Sequence[float], name: str = "") -> Over:
    """Returns the mean of plain values, one of each seed; one alone has no interval.

    Args:
        values: of the seeds.
        name: of the metric, whose scale the interval does not leave.
    """
    mean, count = fmean(values), len(values)
    if count == 1:
        return Over(mean, mean, mean)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    half = float(t.ppf((1 + CONFIDENCE) / 2, count - 1)) * error
    least, most = SCALES.get(name.rpartition(".")[2], (-math.inf, math.inf))
    low, high = max(mean - half, least), min(mean + half, most)
    return Over(mean, low, high, None, error, error, count - 1)


def within(value: float, low: float, high: float) -> Over:
    """Returns a value of one seed with the interval that it comes with."""
    return Over(value, low, high, None, (value - low) / EDGE, (high - value) / EDGE)


def over_attacks(numbers: Sequence[Number], shared: bool = False) -> Over | None:
    """Returns the mean of an attack's number from each seed; None where none is `usable`.

    Args:
        numbers: of the seeds.
        shared: whether the seeds share their data, so that they may all err alike: then the mean is
            no surer than each of them, and units are not counted twice.
    """
    used = [one for one in numbers if usable(one)]
    if not used:
        return None
    known, count = [_errors(one) for one in used], len(used)
    value, control = (math.fsum(one[at] for one in known) / count for at in (0, 1))
    total = math.fsum if shared else lambda errors: math.hypot(*errors)
    shown, below, above = (total([one[at] for one in known]) / count for at in (2, 3, 4))
    if count > 1:
        apart = [(v - c - (value - control)) / max(low, high) for v, c, _, low, high in known]
        wider = max(1.0, math.hypot(*apart) / math.sqrt(count - 1))
        shown, below, above = shown * wider, below * wider, above * wider
    ends = [cast(tuple[float, float], one.interval) for one in used]
    return Over(
        value,
        max(value - EDGE * below, min(low for low, _ in ends)),
        min(value + EDGE * above, max(high for _, high in ends)),
        control,
        shown,
        above,
        n=max(one.n for one in used) if shared else sum(one.n for one in used),
        unit=used[0].unit,
        most=min(math.inf if one.most is None else one.most for one in used),
    )


def usable(number: Number) -> bool:
    """Says whether a number has a control and an interval, all of them finite."""
    ends = (number.value, number.control, *(number.interval or (None,)))
    return number.n > 0 and all(end is not None and math.isfinite(end) for end in ends)


def _errors(number: Number) -> tuple[float, float, float, float, float]:
    """Returns value, control and standard errors of a usable number.

    These are the one that a success is shown with, that of the interval downwards, and upwards.

    The interval is that of the value alone. Where the control is an estimate too, the p-value knows
    it, and so it does where units were exchanged, which is exact. So a success is shown with the
    error that the p-value has, and no interval is made narrower by it.
    """
    low, high = cast(tuple[float, float], number.interval)
    value, control = number.value, cast(float, number.control)
    least = 0.5 / number.n
    shown = below = max((value - low) / EDGE, least)
    above = max((high - value) / EDGE, least)
    if number.p_value is not None and SUREST < number.p_value < 0.95:
        told = abs(value - control) / float(norm.isf(number.p_value / 2))
        shown, below, above = told, max(below, told), max(above, told)
    return value, control, shown, below, above


def reach(looks: int) -> float:
    """Returns how many standard errors an effect must have to be shown among so many looks.

    In four of five cases. The first step of Holm's correction is that of Bonferroni.
    """
    return float(norm.isf(LEVEL / (2 * max(1, looks))) + norm.ppf(POWER))
