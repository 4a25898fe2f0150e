"""The figures of a `Result`, numbers as JSON has them, made into charts.

Each kind of figure is a function here, and its parameters are what `Figure.data` may hold. The data
may come from a file of somebody else's, so they are checked.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedpriv.report.figures.charts import (
    OFF_SCALE,
    Chart,
    bar_chart,
    line_chart,
    roc_chart,
    share_chart,
)
from fedpriv.report.figures.counts import ExposureLine, count_chart, exposure_chart, score_chart
from fedpriv.report.rounds import Curve
from fedpriv.threat.results import Figure

MOST_NUMBERS = 20_000
"""In one figure; more would take minutes."""

MOST_MARKS = {"bars": 500, "counts": 500, "exposure": 2_000, "scores": 6_000}
"""The same for kinds that draw a mark for each number."""

Rates = Mapping[str, Sequence[Sequence[float]]]

_NOT_OF_OURS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def lines(
    title: str,
    curves: Mapping[str, Mapping[str, float | None]],
    x: str = "round",
    unit_interval: bool = False,
) -> Chart:
    """Draws values by round, or by another whole number; a cross stands where one is not finite."""

    def number(value: float | None) -> float:
        return math.nan if value is None else float(value)

    drawn = {name: _curve(curve, number) for name, curve in curves.items()}
    return line_chart(title, drawn, bool(unit_interval), str(x))


def roc(title: str, curves: Rates) -> Chart:
    """Draws true positive rates over false positive rates, both from 0 to 1."""
    chart = roc_chart({name: _pair(pair) for name, pair in curves.items()})
    return dataclasses.replace(chart, title=title or chart.title)


def shares(title: str, curves: Rates) -> Chart:
    """Draws values over a share from 0 to 1."""
    return share_chart(title, {name: _pair(pair) for name, pair in curves.items()})


def bars(title: str, bars: Mapping[str, Mapping[str, float]]) -> Chart:
    """Draws groups of bars; the same groups in each series."""
    return bar_chart(title, _groups(bars, finite))


def counts(
    title: str,
    bars: Mapping[str, Mapping[str, int]],
    darker: Mapping[str, Mapping[str, int]] | None = None,
    wide: bool = False,
    first_shade: int = 0,
) -> Chart:
    """Draws groups of bars of counts; the same groups in each series."""
    part = _groups(darker or {}, _count)
    return count_chart(
        title, _groups(bars, _count), part, wide=bool(wide), first_shade=int(first_shade)
    )


def scores(title: str, panels: Mapping[str, Sequence[Sequence[int]]]) -> Chart:
    """Draws 2-D histograms, which are square."""
    held = {name: np.array(panel, dtype=np.int64) for name, panel in panels.items()}
    for panel in held.values():
        if panel.ndim != 2 or panel.shape[0] != panel.shape[1] or len(panel) < 2 or panel.min() < 0:
            raise ValueError(f"expected square tables of counts, not {panel.shape}")
    return score_chart(title, held)


def exposure(
    title: str,
    lines: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float | None]]]],
    bound: float,
    baseline: float,
) -> Chart:
    """Draws exposure by repeat count: of each line its "in" and "out", with mean, low and high.

    A count without a mean, which is None, has no place.
    """

    def known(values: Mapping[str, float | None]) -> Curve:
        return _curve({at: value for at, value in values.items() if value is not None}, finite)

    drawn = {
        name: {
            side: ExposureLine(known(ends["mean"]), known(ends["low"]), known(ends["high"]))
            for side, ends in sides.items()
            if any(value is not None for value in ends["mean"].values())
        }
        for name, sides in lines.items()
    }
    return exposure_chart(title, drawn, finite(bound), finite(baseline))


KINDS: Mapping[str, Callable[..., Chart]] = {
    "lines": lines,
    "roc": roc,
    "shares": shares,
    "bars": bars,
    "counts": counts,
    "scores": scores,
    "exposure": exposure,
}


def draw(figure: Figure) -> Chart:
    """Returns a figure as a chart.

    Raises:
        ValueError: if its kind is not among `KINDS`, or its data are not what the kind takes.
    """
    if figure.kind not in KINDS:
        raise ValueError(f"unknown kind {figure.kind!r:.40}: expected {', '.join(KINDS)}")
    most, numbers = MOST_MARKS.get(figure.kind, MOST_NUMBERS), 0
    held: list[Any] = [figure.data]
    while held:
        inside = held.pop()
        for value in inside.values() if isinstance(inside, Mapping) else inside:
            if isinstance(value, Mapping | list | tuple):
                held.append(value)
            numbers += isinstance(value, int | float) and not isinstance(value, bool)
    if not 0 < numbers <= most:
        raise ValueError(f"it holds {numbers:,} numbers: expected 1 to {most:,}")
    try:
        return KINDS[figure.kind](figure.title, **figure.data)
    except _NOT_OF_OURS as error:
        raise ValueError(f"its data are not those of {figure.kind!r}: {error!r:.100}") from error


def finite(value: float) -> float:
    """Returns a number that can be drawn.

    Raises:
        ValueError: if it is none.
    """
    number = float(value)
    if not abs(number) < OFF_SCALE:
        raise ValueError(f"{number} cannot be drawn")
    return number


def _count(value: float) -> int:
    number = int(value)
    if not 0 <= number < 1e15:
        raise ValueError(f"{number} is no count")
    return number


def _curve(values: Mapping[str, Any], number: Callable[[Any], float]) -> Curve:
    """Returns values by whole number, which JSON has as text."""
    return {int(finite(float(at))): number(value) for at, value in values.items()}


def _pair(sides: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    """Returns shares and the values at them, equally many."""
    across, up = ([finite(value) for value in side] for side in sides)
    if not across or len(across) != len(up) or min(across) < 0 or max(across) > 1:
        raise ValueError("expected shares from 0 to 1 and as many values")
    return across, up


def _groups(bars: Mapping[str, Mapping[str, Any]], number: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: {g: number(value) for g, value in row.items()} for name, row in bars.items()}
