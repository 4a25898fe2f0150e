"""How far an attack succeeds over the seeds, and what a defence does to that.

An attack's success is its `primary` number above its control, where nothing leaks. Over the seeds
it is a mean, whose error grows where the seeds disagree more than their own errors explain (Birge
1932). A defence is held against `none` on the same seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from scipy.stats import norm

from fedpriv.threat.results import Number
from fedpriv.threat.statistics import CONFIDENCE, LEVEL, POWER

STOPS, WEAKENS, NOTHING, CANNOT_TELL = "stops", "weakens", "nothing", "cannot_tell"

REMAINS = 0.5
"""An attack counts as stopped if at most this share of its success without a defence may remain."""

EDGE = float(norm.ppf((1 + CONFIDENCE) / 2))
"""How many standard errors from its value an interval ends."""

SUREST = 1e-11
"""Smaller p-values are not told apart, and say nothing of an error."""


@dataclass(frozen=True)
class Effect:
    """How far an attack succeeds beyond what is had without a leak, over the seeds.

    Attributes:
        value: mean of the attack's number.
        control: mean of what it is held against.
        below: standard error towards lower values: what a success is shown with.
        above: the same towards higher ones: what may remain is judged with it.
        n: units, over all seeds.
        unit: what was counted.
        reach: the ends of the seeds' own intervals.
        most: the largest that the number can be.
    """

    value: float
    control: float
    below: float
    above: float
    n: int
    unit: str = ""
    reach: tuple[float, float] = (-math.inf, math.inf)
    most: float = math.inf

    @classmethod
    def of(cls, numbers: Sequence[Number], shared: bool = False) -> Effect | None:
        """Returns the effect of a number from each seed; None where none is `usable`.

        Their mean is the mean over these trainings. Where they disagree by more than their own
        errors explain, the errors are as much larger. Seeds on data that they share may all err
        alike: then the mean is no surer than each of them, and units are not counted twice.
        """
        known = [_errors(one) for one in numbers if usable(one)]
        if not known:
            return None
        count = len(known)
        value, control = (math.fsum(one[at] for one in known) / count for at in (0, 1))
        total = math.fsum if shared else lambda errors: math.hypot(*errors)
        below, above = (total([one[at] for one in known]) / count for at in (2, 3))
        if count > 1:
            apart = [(v - c - (value - control)) / max(low, high) for v, c, low, high in known]
            wider = max(1.0, math.hypot(*apart) / math.sqrt(count - 1))
            below, above = below * wider, above * wider
        used = [one for one in numbers if usable(one)]
        ends = [cast(tuple[float, float], one.interval) for one in used]
        reach = min(low for low, _ in ends), max(high for _, high in ends)
        most = min(math.inf if one.most is None else one.most for one in used)
        n = max(one.n for one in used) if shared else sum(one.n for one in used)
        return cls(value, control, below, above, n, used[0].unit, reach, most)

    @property
    def gain(self) -> float:
        """What is above the control."""
        return self.value - self.control

    @property
    def interval(self) -> tuple[float, float]:
        """Of the value, at 95 %, within what the seeds' own intervals reach."""
        low, high = self.value - EDGE * self.below, self.value + EDGE * self.above
        return max(low, self.reach[0]), min(high, self.reach[1])

    def detectable(self, looks: int) -> float | None:
        """Returns the least value that so many looks would show, in four of five cases.

        None where even the largest would not be shown.
        """
        # Of nothing found, the error downwards is tiny, and says nothing of what would be found.
        least = self.control + reach(looks) * max(self.below, self.above)
        return least if least <= self.most else None

    @property
    def p_value(self) -> float:
        """Of the gain, two-sided."""
        return p_of(self.gain, self.below if self.gain > 0 else self.above)

    def less_than(self, other: Effect) -> tuple[float, float]:
        """Returns by how much this gain is less than another one, and the error of that."""
        less = other.gain - self.gain
        if less > 0:
            return less, math.hypot(self.above, other.below)
        return less, math.hypot(self.below, other.above)


def usable(number: Number) -> bool:
    """Says whether a number has a control and an interval, all of them finite."""
    ends = (number.value, number.control, *(number.interval or (None,)))
    return number.n > 0 and all(end is not None and math.isfinite(end) for end in ends)


def _errors(number: Number) -> tuple[float, float, float, float]:
    """Returns value, control, and the standard errors downwards and upwards of a usable number.

    The interval is that of the value alone. Where the control is an estimate too, the p-value knows
    it, and the errors are no smaller than those that it comes from.
    """
    low, high = cast(tuple[float, float], number.interval)
    value, control = number.value, cast(float, number.control)
    least = 0.5 / number.n
    below, above = max((value - low) / EDGE, least), max((high - value) / EDGE, least)
    if number.p_value is not None and SUREST < number.p_value < 0.95:
        told = abs(value - control) / float(norm.isf(number.p_value / 2))
        below, above = max(below, told), max(above, told)
    return value, control, below, above


def reach(looks: int) -> float:
    """Returns how many standard errors an effect must have to be shown among so many looks.

    In four of five cases. The first step of Holm's correction is that of Bonferroni.
    """
    return float(norm.isf(LEVEL / (2 * max(1, looks))) + norm.ppf(POWER))


def p_of(value: float, error: float) -> float:
    """Returns the p-value of an effect with its standard error, two-sided."""
    return float(2 * norm.sf(abs(value) / error)) if error else float(value == 0)


def verdict_of(
    effect: Effect, p: float, without: tuple[Effect, float, float] | None, *, looks: int
) -> tuple[str, str, int | None]:
    """Returns a verdict, why, and how many units could tell where these cannot.

    Args:
        effect: under the defence.
        p: of its gain, corrected.
        without: the effect without a defence on the same seeds, the p-value of its gain, and that
            of the difference between the two; None for the row without a defence.
        looks: p-values that were corrected together.
    """
    leaks = p <= LEVEL and effect.gain > 0
    if p <= LEVEL and effect.gain < 0:
        return CANNOT_TELL, "it came out worse than its control, which settles nothing", None
    if without is None:
        if leaks:
            return NOTHING, "it succeeds", None
        least = effect.detectable(looks)
        power = f"so few {effect.unit or 'unit'}s hardly show one, however large it is"
        if least is not None:
            power = f"{least:.2g} or more would have been shown"
        more = _more(effect.n, effect.gain, max(effect.below, effect.above), looks)
        return CANNOT_TELL, f"no success is shown; {power}", more
    bare, p_bare, p_less = without
    less = p_less <= LEVEL and effect.gain < bare.gain
    if leaks and not less:
        return NOTHING, "it succeeds as it does without the defence, as far as can be told", None
    if not (p_bare <= LEVEL and bare.gain > 0):
        return CANNOT_TELL, "it is not shown to succeed without the defence either", None
    if not less:
        ways = [_more(effect.n, effect.gain, max(effect.below, effect.above), looks)]
        ways.append(_more(effect.n, *effect.less_than(bare), looks))
        needed = min((way for way in ways if way is not None), default=None)
        return CANNOT_TELL, "neither a success nor less of it is shown", needed
    # Not `interval`, whose ends know nothing of the control's own error.
    remains = effect.value + EDGE * effect.above
    if not leaks and remains - effect.control <= REMAINS * bare.gain:
        return STOPS, f"at most {remains:.3g} of {bare.value:.3g} remains", None
    return WEAKENS, f"from {bare.value:.3g} to {effect.value:.3g}", None


def _more(n: int, size: float, error: float, looks: int) -> int | None:
    """Returns the units that would show an effect of this size; None if these should have."""
    if size <= 0:
        return None
    needed = math.ceil(n * (reach(looks) * error / size) ** 2)
    return needed if needed > n else None
