"""The table of a study as a figure: a line for each row, or curves over an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedpriv.report.figures.canvas import legible
from fedpriv.studies.estimate import Over

MOST_PANELS = 4
"""Columns that a figure shows."""


class Line(NamedTuple):
    """A row of a table: its name, and where it stands on which curve if there is an axis."""

    name: str
    x: float | None = None
    curve: str = ""


def figure(
    rows: Sequence[Line],
    panels: Sequence[tuple[str, Sequence[Over | None]]],
    axis: str = "",
    title: str = "",
    span: float = 0.0,
) -> Figure:
    """Returns a figure with a panel for each of the first `MOST_PANELS` columns.

    A row is a dot at the mean, a bar for the interval, and a cross for the control if it has one.
    Over an axis, a curve is the mean with its interval.

    Args:
        rows: of the table.
        panels: its columns: the heading, and an estimate for each row that has one.
        axis: name of the horizontal axis; "" draws rows.
        title: of the figure.
        span: the least that the horizontal axis of rows spans, as a share of the largest mean if
            that is above 1.
    """
    shown = panels[:MOST_PANELS]
    size = min(12.0, 2.0 + 3.2 * len(shown)), 3.4 if axis else 1.0 + 0.26 * len(rows)
    drawn = Figure(figsize=size, layout="constrained")
    if title:
        drawn.suptitle(legible(title, 200), fontsize=10)
    places = drawn.subplots(1, len(shown), sharey=not axis, squeeze=False)[0]
    for axes, (heading, cells) in zip(places, shown, strict=True):
        axes.set_title(legible(heading), fontsize=9)
        axes.tick_params(labelsize=7)
        if axis:
            _draw_curves(axes, rows, cells)
            axes.set_xlabel(legible(axis), fontsize=8)
            continue
        for place, one in enumerate(cells):
            if one is not None:
                axes.plot([one.low, one.high], [place, place], color="C0", alpha=0.4, linewidth=3)
                axes.plot(one.mean, place, "o", color="C0", markersize=5)
                if one.control is not None:
                    axes.plot(one.control, place, "x", color="C1", markersize=6)
        axes.set_yticks(range(len(rows)), [legible(row.name, 80) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.grid(axis="x", alpha=0.5)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        least = span * max([1.0, *(abs(one.mean) for one in cells if one is not None)])
        low, high = axes.get_xlim()
        if (more := least - (high - low)) > 0:
            axes.set_xlim(low - more / 2, high + more / 2)
    return drawn


def _draw_curves(axes: Any, rows: Sequence[Line], cells: Sequence[Over | None]) -> None:
    curves: dict[str, list[tuple[float, Over]]] = {}
    for row, one in zip(rows, cells, strict=True):
        if one is not None and row.x is not None:
            curves.setdefault(row.curve, []).append((row.x, one))
    for number, (label, points) in enumerate(curves.items()):
        xs, ys = zip(*sorted(points, key=lambda point: point[0]), strict=True)
        axes.plot(xs, [y.mean for y in ys], f"C{number}o-", markersize=3, label=legible(label, 80))
        low, high = [y.low for y in ys], [y.high for y in ys]
        axes.fill_between(xs, low, high, color=f"C{number}", alpha=0.2)
    places = [x for points in curves.values() for x, _ in points if x > 0]
    if places and max(places) >= 50 * min(places):
        # Zero stands beside the least of the others.
        axes.set_xscale("symlog", linthresh=min(places))
    if any(curves):  # a single curve may have no name
        axes.legend(fontsize=7, frameon=False)
