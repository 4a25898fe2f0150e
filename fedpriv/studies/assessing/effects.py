"""What a defence does to an attack: its success over the seeds, held against that without it.

An attack's success is its `primary` number above its control, where nothing leaks. A defence is
held against `none` on the same seeds.
"""

from __future__ import annotations

import math

from fedpriv.privacy.views import face
from fedpriv.studies.estimate import EDGE, Over, reach
from fedpriv.threat.statistics import LEVEL

LEAKS, LEAKS_LESS, STOPS, CANNOT_TELL = "leaks", "leaks_less", "stops_it", "cannot_tell"
"""What is said of a defence against an attack. Of an attack by itself: `fedpriv.threat.results`."""

REMAINS = 0.5
"""An attack counts as stopped if at most this share of its success without a defence may remain."""


def verdict_of(
    effect: Over, p: float, without: tuple[Over, float, float] | None, *, looks: int
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
            return LEAKS, "it succeeds", None
        least = effect.detectable(looks)
        power = f"so few {face(effect.unit) or 'unit'}s hardly show one, however large it is"
        if least is not None:
            power = f"{least:.2g} or more would have been shown"
        more = _more(effect.n, effect.gain, max(effect.below, effect.above), looks)
        return CANNOT_TELL, f"no success is shown; {power}", more
    bare, p_bare, p_less = without
    less = p_less <= LEVEL and effect.gain < bare.gain
    if leaks and not less:
        return LEAKS, "it succeeds as it does without the defence, as far as can be told", None
    if not (p_bare <= LEVEL and bare.gain > 0):
        return CANNOT_TELL, "it is not shown to succeed without the defence either", None
    if not less:
        ways = [_more(effect.n, effect.gain, max(effect.below, effect.above), looks)]
        less_of_it = bare.minus(effect)
        ways.append(_more(effect.n, less_of_it.mean, less_of_it.error, looks))
        needed = min((way for way in ways if way is not None), default=None)
        return CANNOT_TELL, "neither a success nor less of it is shown", needed
    # Not `interval`, whose ends know nothing of the control's own error.
    remains = effect.mean + EDGE * effect.above
    if not leaks and remains - (effect.control or 0.0) <= REMAINS * bare.gain:
        return STOPS, f"at most {remains:.3g} of {bare.mean:.3g} remains", None
    return LEAKS_LESS, f"from {bare.mean:.3g} to {effect.mean:.3g}", None


def _more(n: int, size: float, error: float, looks: int) -> int | None:
    """Returns the units that would show an effect of this size; None if these should have."""
    if size <= 0:
        return None
    needed = math.ceil(n * (reach(looks) * error / size) ** 2)
    return needed if needed > n else None
