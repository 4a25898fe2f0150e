"""Means, their intervals by bootstrap, and how they stand in a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedpriv.threat.statistics import CONFIDENCE, FEWEST, mean, share

RESAMPLES = 1000
"""Draws behind an interval or a p-value."""

NOTHING = "—"
"""What stands in a table where there is no number."""


def percent(share: float) -> str:
    """Returns a share in percent, with a digit more where it is small."""
    return f"{share:.0%}" if share in (0.0, 1.0) or share >= 0.01 else f"{share:.1%}"


Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def resampled(
    groups: Sequence[Any] | NDArray[Any], rng: np.random.Generator, resamples: int
) -> tuple[Counts, Counts]:
    """Draws whole groups with replacement, as many as there are.

    Args:
        groups: (n,), the group of each value, such as its document.
        rng: draws.
        resamples: how many draws.

    Returns:
        How often each group is drawn, (resamples, groups), and the group of each value, (n,).

    Raises:
        ValueError: without a draw.
    """
    if resamples < 1:
        raise ValueError(f"resamples={resamples}: expected 1 or more")
    names, member = np.unique(np.array(groups), return_inverse=True)
    share = np.full(len(names), 1 / len(names))
    return rng.multinomial(len(names), share, size=resamples), member


def middle(values: Floats, level: float) -> tuple[float, float]:
    """Returns the ends of the interval that holds the middle values, a share `level` of them.

    Raises:
        ValueError: if that is no share.
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level}: expected a share between 0 and 1")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def mean_interval(
    values: ArrayLike, ends: tuple[float, float], units: ArrayLike | None = None
) -> dict[str, Any]:
    """Returns `mean`, `low`, `high` and `count` of values that lie between two ends.

    The interval is Student's t by unit; of so few units, or such equal ones, that they do not tell
    how much they vary, that of a share.

    Args:
        values: (n,); of none, mean and interval are none.
        ends: the least and the most that a value can be.
        units: (n,), what hangs together, such as the page of each value. None: each is its own.
    """
    held, (least, most) = np.asarray(values, np.float64), ends
    if not len(held):
        return {"mean": None, "low": None, "high": None, "count": 0}
    found, wide = mean(held, units), most - least
    if found.n < FEWEST or not found.error:
        part = share((held - least) / wide, units).limits(CONFIDENCE)
        low, high = least + wide * part[0], least + wide * part[1]
    else:
        low, high = found.limits(CONFIDENCE)
    return {
        "mean": found.value,
        "low": max(least, low),
        "high": min(most, high),
        "count": len(held),
    }


def mean_of(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the values that there are; None without any."""
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def digits(value: float | None, pattern: str = "z.3f") -> str:
    """Returns a number as a cell of a table shows it."""
    return NOTHING if value is None else format(value, pattern)


def interval(row: Mapping[str, Any]) -> str:
    """Returns `mean`, `low` and `high` as a cell of a table shows them."""
    if row["mean"] is None:
        return NOTHING
    return f"{row['mean']:z.3f} [{row['low']:z.3f}, {row['high']:z.3f}]"


def times(count: str) -> str:
    """Returns "once", "twice" or "3 times"."""
    return {"1": "once", "2": "twice"}.get(count, f"{count} times")
