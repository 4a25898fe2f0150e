"""Curves and bars, most of them by round, drawn by matplotlib as inline SVG.

Their colours are CSS variables of the page, so that they follow its light or dark theme. They hold
numbers only; the names of the series are left to the HTML around them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from fedpriv.report.figures.canvas import SHADES, canvas, colour, legible, style, svg
from fedpriv.report.rounds import Curve

OFF_SCALE = 1e30
"""Values at or beyond it are drawn as crosses, like NaN: an axis that holds them shows nothing."""

DASHES = ("", "6 3", "2 2", "8 3 2 3")
"""SVG dash patterns of the curves, so that colour is never the only difference."""

SIZE, SMALL_SIZE = (430.0, 210.0), (200.0, 104.0)
WIDTH = 1.7


@dataclass(frozen=True)
class Key:
    """One line of a legend.

    Attributes:
        label: the name of the series, as the run gave it (untrusted).
        shade: its colour, an index below `SHADES`.
        dashes: its SVG dash pattern, or None for an area.
    """

    label: str
    shade: int
    dashes: str | None = None


@dataclass(frozen=True)
class Chart:
    """One picture with its words; only `svg` is markup.

    Attributes:
        title: what is plotted, with its unit.
        svg: the drawing, with an accessible description.
        keys: the legend, empty where the title says it all.
        note: what the reader has to know besides, or "".
        see: what there is to see, for the caption, or "".
    """

    title: str
    svg: Markup
    keys: tuple[Key, ...] = ()
    note: str = ""
    see: str = ""


def line_chart(
    title: str,
    curves: Mapping[str, Curve],
    unit_interval: bool = False,
    x: str = "round",
    see: str = "",
) -> Chart:
    """Returns curves by round in one chart.

    Args:
        title: what they measure.
        curves: by name, in the order of the legend.
        unit_interval: whether the axis runs from 0 to 1; else it fits, and is logarithmic where
            positive values span more than two powers of ten.
        x: what the horizontal axis counts.
        see: what there is to see.
    """
    styles = {label: look(place) for place, label in enumerate(curves)}
    values = [value for curve in curves.values() for value in curve.values()]
    drawn = [value for value in values if is_drawable(value)]
    with style():
        figure, axes = canvas(SIZE)
        for label, curve in curves.items():
            _draw_curve(axes, curve, *styles[label])
        axes.set_xlabel(legible(x))
        if unit_interval:
            axes.set_ylim(0, 1.02)
        elif drawn and min(drawn) > 0 and max(drawn) > 100 * min(drawn):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        drawing = svg(figure, _describe(title, curves))
    note = "" if len(drawn) == len(values) else "× marks a round whose value is not a finite number"
    keys = tuple(Key(label, shade, dashes) for label, (shade, dashes) in styles.items())
    if list(curves) == [title]:
        keys = ()
    return Chart(title, drawing, keys, note, see)


def small_chart(
    title: str, curve: Curve, overall: Curve, span: tuple[int, int], unit_interval: bool
) -> Chart:
    """Returns one curve in a small chart, with the overall curve faint behind it.

    Args:
        title: the name of the curve.
        curve: the values.
        overall: the same measure over all types; empty where there is none.
        span: first and last round of the axis, the same in all charts of a group.
        unit_interval: whether the axis runs from 0 to 1.
    """
    with style():
        figure, axes = canvas(SMALL_SIZE)
        for line, name, width in ((overall, "muted", 1.0), (curve, "c0", 1.8)):
            rounds = [at for at in sorted(line) if is_drawable(line[at])]
            mark = "o" if len(rounds) == 1 else ""
            heights = [line[at] for at in rounds]
            axes.plot(rounds, heights, mark + "-", ms=3, color=colour(name), linewidth=width)
        axes.set_xlim(span[0] - 0.3, span[1] + 0.3)
        axes.xaxis.set_major_locator(FixedLocator(sorted(set(span))))
        if unit_interval:
            axes.set_ylim(0, 1.04)
            axes.set_yticks([0, 0.5, 1], ["0", ".5", "1"])
        drawing = svg(figure, _describe(title, {title: curve}))
    return Chart(title, drawing)


def stacked_chart(
    title: str,
    layers: Mapping[str, Curve],
    shades: Sequence[int],
    marked: Sequence[int] = (),
    see: str = "",
) -> Chart:
    """Returns stacked bars, one per round.

    Args:
        title: what the bars measure, with the unit.
        layers: by name, from the bottom up; finite values from 0, those that are absent count
            as 0; one at least.
        shades: the colour of each layer.
        marked: rounds to mark with a triangle on the axis.
        see: what there is to see.
    """
    rounds = sorted({at for curve in layers.values() for at in curve})
    half = 0.5 if len(rounds) > 120 else 0.38
    edges = np.ravel([(at - half, at + half) for at in rounds])
    # NaN between two bars leaves a gap: one path per layer however many rounds there are.
    floor = np.zeros(len(edges) - 1)
    floor[1::2] = math.nan
    with style():
        figure, axes = canvas(SIZE)
        for curve, shade in zip(layers.values(), shades, strict=True):
            tint = colour(f"c{shade}")
            top = floor.copy()
            top[::2] += [curve.get(at, 0.0) for at in rounds]
            axes.stairs(top, edges, baseline=floor, fill=True, color=tint, linewidth=0)
            floor = top
        if marked:
            above = {"transform": axes.get_xaxis_transform(), "clip_on": False}
            axes.plot(marked, [1.0] * len(marked), "v", color=colour("c1"), **above)
        axes.set_ylim(0, max(np.nanmax(floor) * 1.1, 1e-9))
        whole = all(float(top).is_integer() for top in floor[::2])
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=whole))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("round")
        if len(rounds) <= 4:
            axes.xaxis.set_major_locator(FixedLocator(rounds))
            axes.set_xlim(rounds[0] - 1.5, rounds[-1] + 1.5)
        drawing = svg(figure, _describe(title, layers))
    keys = tuple(Key(label, shade) for label, shade in zip(layers, shades, strict=True))
    return Chart(title, drawing, keys, "▼ marks a refused round" if marked else "", see)


def look(place: int) -> tuple[int, str]:
    """Returns shade and dashes of the series at a place of the legend."""
    return place % SHADES, DASHES[(place + place // SHADES) % len(DASHES)]


def line_style(dashes: str) -> Any:
    """Returns an SVG dash pattern as matplotlib wants it."""
    return (0, tuple(float(part) / WIDTH for part in dashes.split())) if dashes else "-"


def _draw_curve(axes: Any, curve: Curve, shade: int, dashes: str) -> None:
    """Draws one curve; it breaks where a value is not finite, and a cross stands there."""
    rounds = sorted(curve)
    values = [curve[at] if is_drawable(curve[at]) else math.nan for at in rounds]
    tint = colour(f"c{shade}")
    axes.plot(rounds, values, color=tint, linewidth=WIDTH, linestyle=line_style(dashes))
    few = len(rounds) <= 30
    # A value without a finite neighbour is on no line.
    dotted = [
        place
        for place in range(len(values))
        if few
        or not np.isfinite(
            [*values[max(place - 1, 0) : place], *values[place + 1 : place + 2]]
        ).any()
    ]
    if dotted:
        where = [rounds[place] for place in dotted], [values[place] for place in dotted]
        axes.plot(*where, "o", color=tint, markersize=3.2)
    broken = [at for at, value in zip(rounds, values, strict=True) if math.isnan(value)]
    if broken:
        across = axes.get_xaxis_transform()
        axes.plot(broken, [0.03] * len(broken), "x", color=tint, transform=across, markersize=5)


def is_drawable(value: float) -> bool:
    """Says whether a value has a place on an axis."""
    return math.isfinite(value) and abs(value) < OFF_SCALE


def short(value: float) -> str:
    """Returns a number for the description of a chart."""
    return f"{value:.3g}"


def _describe(title: str, curves: Mapping[str, Curve]) -> str:
    """Returns what a reader who cannot see the chart should know: first and last values."""
    parts = []
    for label, curve in curves.items():
        drawn = [(at, curve[at]) for at in sorted(curve) if is_drawable(curve[at])]
        if drawn:
            (first, start), (last, end) = drawn[0], drawn[-1]
            parts.append(
                f"{label} from {short(start)} in round {first} to {short(end)} in round {last}"
            )
    return f"{title}: {'; '.join(parts) or 'no finite value'}."
