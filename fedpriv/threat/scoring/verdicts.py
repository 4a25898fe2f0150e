"""What a number means: a leak, none where one could have been seen, or nothing that can be told.

A number that is shown to be above its control is a leak. One that is not is no leak only where an
experiment of this size would have shown one that is worth knowing of; otherwise it tells nothing,
and neither does an attack that comes out below what was known without it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedpriv.privacy.views import face
from fedpriv.threat.results import CANNOT_TELL, LEAK, NONE_SHOWN, Number
from fedpriv.threat.statistics import (
    CONFIDENCE,
    LEVEL,
    Estimate,
    corrected,
    detectable,
    difference,
    discordance,
    discordant,
    p_value,
    share,
)

Bools = NDArray[np.bool_]


def number(
    estimate: Estimate, unit: str, control: Estimate | None = None, p: float | None = None
) -> Number:
    """Returns an estimate as a number beside its control.

    Args:
        estimate: the number.
        unit: what was counted.
        control: the same where nothing can leak; of other units, or known.
        p: of a test that exchanges the two's units. None: that of the difference of their
            intervals.
    """
    low, high = estimate.limits(CONFIDENCE)
    sure = math.isfinite(low) and math.isfinite(high)
    known = control is not None and sure
    if p is None and control and known:
        p = p_value(difference(estimate, control))
    return Number(
        estimate.value,
        (low, high) if sure else None,
        estimate.n,
        unit,
        control.value if control else None,
        detectable(estimate, control) if control and known else None,
        p if control else None,
        1.0 if estimate.coins else None,
    )


def paired(ours: Sequence[bool] | Bools, theirs: Sequence[bool] | Bools, unit: str) -> Number:
    """Returns the share of units that only ours is true of, beside that of only theirs.

    The interval is that of the difference, moved to where the control lies.

    Args:
        ours: (n,), of each unit.
        theirs: (n,), likewise, such as of a model that cannot know.
        unit: what was counted.
    """
    mine, other = np.asarray(ours, np.bool_), np.asarray(theirs, np.bool_)
    found, chance, count = int((mine & ~other).sum()), int((other & ~mine).sum()), len(mine)
    apart, control = discordance(found, chance, count), chance / count
    low, high = apart.limits(CONFIDENCE)
    if found > chance:  # how many there are is in doubt too, not only whose they are
        high = max(high, share(mine & ~other).limits(CONFIDENCE)[1] - control)
    return Number(
        found / count,
        (max(0.0, control + low), control + high),
        count,
        unit,
        control,
        discordant(chance, count),
        p_value(apart),
        1.0,
    )


def exploratory(numbers: Mapping[str, Number], primary: str) -> dict[str, Number]:
    """Returns numbers with the p-values of all but the primary one corrected for their number."""
    others = [name for name, one in numbers.items() if name != primary and one.p_value is not None]
    p_values = corrected([p for name in others if (p := numbers[name].p_value) is not None])
    shown = dict(zip(others, p_values, strict=True))
    return {
        name: dataclasses.replace(one, p_value=shown.get(name, one.p_value))
        for name, one in numbers.items()
    }


def verdict(primary: Number, worth: float) -> str:
    """Returns what a number shows.

    Args:
        primary: with a control.
        worth: the least value whose absence is worth telling. Where not even that would have been
            shown, that nothing was shown says nothing.
    """
    if primary.p_value is None or primary.control is None:
        return CANNOT_TELL
    if primary.p_value <= LEVEL:
        return LEAK if primary.value > primary.control else CANNOT_TELL
    could = primary.detectable
    return NONE_SHOWN if could is not None and could <= worth else CANNOT_TELL


def in_words(primary: Number, said: str, remedy: str = "") -> str:
    """Returns a number with all that there is to know of it, as half a sentence.

    Args:
        primary: the number.
        said: its value and what it is, such as "AUC 0.81".
        remedy: how many units would tell more, where these tell nothing.
    """
    where = f"{said} on {primary.n:,} {face(primary.unit)}{'s' * (primary.n != 1)}"
    if primary.control is None or primary.p_value is None:
        return where
    against = f"{where}, against {primary.control:.3g} without a leak"
    if primary.p_value <= LEVEL:
        below = "" if primary.value > primary.control else ": worse than the control"
        return f"{against}, p {primary.p_value:.2g}{below}"
    could = (
        f"{primary.detectable:.2g} or more would have been shown"
        if primary.detectable is not None
        else f"so few {face(primary.unit)}s hardly show a leak, however large it is"
    )
    return f"{against}, p {primary.p_value:.2g}; {could}{f'; {remedy}' if remedy else ''}"
