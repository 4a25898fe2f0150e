"""Pictures of an extraction: bars of counts, scores on their lattice, exposure by repeats.

As in `charts`, the names of series are left to the HTML around the drawing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from fedpriv.report.figures.canvas import SHADES, canvas, colour, legible, style, svg
from fedpriv.report.figures.charts import Chart, Key

_SIZE, _WIDE = (430.0, 220.0), (860.0, 260.0)
_SMALL = 8.5
"""Size of the letters of the numbers in a picture."""

_FAINT = 0.4
"""Opacity of the part of a bar that is not personal information."""

_MOST_NUMBERED = 12
"""Splits up to which the places of a histogram are large enough for a number."""


def count_chart(
    title: str,
    bars: Mapping[str, Mapping[str, int]],
    darker: Mapping[str, Mapping[str, int]] | None = None,
    *,
    wide: bool = False,
    first_shade: int = 0,
) -> Chart:
    """Returns groups of bars of counts, with logarithmic heights from 1 up and their numbers.

    Args:
        title: what they count.
        bars: by name of the series, its count by name of the group; the same groups in each. The
            names of the groups are drawn as far as they are `legible`.
        darker: of some series, the part of each count that is drawn darker.
        wide: as wide as the page, with slanted names.
        first_shade: colour of the first series; each further one has the next.
    """
    groups = list(next(iter(bars.values())))
    width = 0.84 / len(bars)
    shades = {name: (first_shade + place) % SHADES for place, name in enumerate(bars)}
    with style():
        figure, axes = canvas(_WIDE if wide else _SIZE)
        for place, (name, counts) in enumerate(bars.items()):
            left = np.arange(len(groups)) + (place + 0.5) * width - 0.42
            part = (darker or {}).get(name)
            tint = colour(f"c{shades[name]}")
            heights = [counts[g] for g in groups]
            alpha = 1 if part is None else _FAINT
            axes.bar(left, heights, width * 0.92, color=tint, alpha=alpha)
            above = {"textcoords": "offset points", "ha": "center", "fontsize": _SMALL}
            for x, height in zip(left, heights, strict=True):
                axes.annotate(f"{height}", (x, height), (0, 1.5), **above)
            if part:
                axes.bar(left, [part[g] for g in groups], width * 0.92, color=tint)
        slanted = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if wide else {}
        axes.set_xticks(range(len(groups)), list(map(legible, groups)), **slanted)
        # Logarithmic from 1 up, and linear between 0 and 1, so that 0 has a place.
        most = max(max(counts.values()) for counts in bars.values())
        axes.set_yscale("symlog", linthresh=1, linscale=0.35)
        powers = range(math.ceil(math.log10(max(most, 2))) + 1)
        axes.yaxis.set_major_locator(FixedLocator([0, *(10.0**power for power in powers)]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylim(0, max(most, 1) * 2)
        told = (
            f"{name}: " + ", ".join(f"{group} {count}" for group, count in counts.items())
            for name, counts in bars.items()
        )
        drawing = svg(figure, f"{title}. {'; '.join(told)}.")
    keys = tuple(Key(name, shade) for name, shade in shades.items()) if len(bars) > 1 else ()
    return Chart(title, drawing, keys)


def score_chart(title: str, panels: Mapping[str, NDArray[np.int64]]) -> Chart:
    """Returns 2-D histograms of M_E and S_E side by side (Pinto et al., Fig. 5).

    Args:
        title: what they show.
        panels: by heading, counts as `fedpriv.threat.scoring.extraction.histogram` returns them,
            all for the same K. The headings are drawn as far as they are `legible`.
    """
    most = max(int(counts.max()) for counts in panels.values())
    with style():
        layout = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.02)
        figure = Figure(figsize=(_WIDE[0] / 72, 270 / 72), layout=layout)
        for axes, (heading, counts) in zip(
            np.atleast_1d(figure.subplots(1, len(panels), sharey=True)),
            panels.items(),
            strict=True,
        ):
            _draw_scores(axes, counts, most)
            axes.set_title(f"{legible(heading)}: {counts.sum()}", fontsize=10, color=colour("ink"))
        figure.axes[0].set_ylabel("S_E, simplicity")
        told = (f"{heading}: {_places(counts)}" for heading, counts in panels.items())
        drawing = svg(figure, f"{title}. {'; '.join(told)}.")
    note = "The stronger the colour of a place, the more canaries it has, by the logarithm"
    return Chart(title, drawing, (), note)


def _draw_scores(axes: Any, counts: NDArray[np.int64], most: int) -> None:
    """Draws each taken place as a diamond: those that K allows fill the plane together."""
    splits = len(counts) - 1
    step = 2 / splits
    edge = 1 + step
    axes.plot([-edge, 0, edge, 0, -edge], [1, -step, 1, 1 + edge, 1], color=colour("line"))
    for row, column in np.argwhere(counts).tolist():
        x, y, count = column * step - 1, row * step, int(counts[row, column])
        depth = math.log1p(count) / math.log1p(most)
        axes.fill(
            [x - step, x, x + step, x],
            [y, y - step, y, y + step],
            color=colour("c0"),
            alpha=0.25 + 0.6 * depth,
            linewidth=0,
        )
        if splits <= _MOST_NUMBERED:
            axes.text(x, y, f"{count}", ha="center", va="center", fontsize=_SMALL)
    axes.set_xlim(-1 - step, 1 + step)
    axes.set_ylim(-step, 2 + step)
    axes.set_aspect("equal")
    axes.set_xlabel("M_E, memorization")
    axes.xaxis.set_major_locator(FixedLocator([-1, 0, 1]))
    axes.yaxis.set_major_locator(FixedLocator([0, 1, 2]))


def _places(counts: NDArray[np.int64]) -> str:
    half = (len(counts) - 1) / 2
    largest = sorted(np.argwhere(counts).tolist(), key=lambda at: -counts[tuple(at)])[:3]
    return ", ".join(
        f"{counts[row, column]} at M_E {column / half - 1:g} and S_E {row / half:g}"
        for row, column in largest
    )


@dataclass(frozen=True)
class ExposureLine:
    """Mean exposure in bits by repeat count, and the ends of its intervals."""

    mean: Mapping[int, float]
    low: Mapping[int, float]
    high: Mapping[int, float]


def exposure_chart(
    title: str,
    lines: Mapping[str, Mapping[str, ExposureLine]],
    bound: float,
    baseline: float,
) -> Chart:
    """Returns exposure by repeat count, with its bound above and its baseline below.

    Args:
        title: what it shows.
        lines: by strategy, of secrets "in" training and "out" of it.
        bound: the most that the references can show, in bits.
        baseline: what secrets have that were never trained on.
    """
    keys: list[Key] = []
    counts = sorted({n for sides in lines.values() for line in sides.values() for n in line.mean})
    with style():
        figure, axes = canvas(_SIZE)
        axes.set_xscale("symlog", linthresh=1)
        axes.axhline(bound, color=colour("muted"), linewidth=1)
        axes.axhline(baseline, color=colour("muted"), linewidth=1, linestyle=(0, (2, 3)))
        for place, (name, sides) in enumerate(lines.items()):
            for side, line in sides.items():
                dashed = side == "out"
                _draw_exposure(axes, line, place % SHADES, dashed)
                label = f"{name}, {'out of' if dashed else 'in'} training".removeprefix(", ")
                keys.append(Key(label, place % SHADES, "5 3" if dashed else ""))
        axes.xaxis.set_major_locator(FixedLocator(counts))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xlabel("times planted")
        axes.set_ylim(0, bound * 1.05)
        told = (
            f"{name} {side}: " + ", ".join(f"{n} times {line.mean[n]:.3g}" for n in line.mean)
            for name, sides in lines.items()
            for side, line in sides.items()
        )
        drawing = svg(figure, f"{title}. {'; '.join(told)}.")
    note = f"The grey lines: the bound, {bound:.2f} bits, and uniform ranks, {baseline:.2f} bits"
    return Chart(title, drawing, tuple(keys), note)


def _draw_exposure(axes: Any, line: ExposureLine, shade: int, dashed: bool) -> None:
    counts = sorted(line.mean)
    tint = colour(f"c{shade}")
    low, mean, high = ([side[n] for n in counts] for side in (line.low, line.mean, line.high))
    axes.fill_between(counts, low, high, color=tint, alpha=0.14, linewidth=0)
    pattern = (0, (3, 1.8)) if dashed else "-"
    axes.plot(counts, mean, "o", color=tint, markersize=3.2)
    axes.plot(counts, mean, color=tint, linewidth=1.7, linestyle=pattern)
