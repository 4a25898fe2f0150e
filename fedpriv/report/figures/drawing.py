"""The figures of a `Result`, numbers as JSON has them, made into charts.

Each kind of figure is a function here, and its parameters are what `Figure.data` may hold. The data
may come from a file of somebody else's, so they are checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from fedpriv.report.figures.canvas import SHADES, canvas, colour, legible, style, svg
from fedpriv.report.figures.charts import (
    OFF_SCALE,
    SIZE,
    WIDTH,
    Chart,
    Key,
    line_chart,
    line_style,
    look,
    short,
)
from fedpriv.report.rounds import Curve
from fedpriv.threat.results import Figure

MOST_NUMBERS = 20_000
"""In one figure; more would take minutes."""

MOST_MARKS = {"bars": 500, "counts": 500, "exposure": 2_000, "scores": 6_000}
"""The same for kinds that draw a mark for each number."""

WIDE = (860.0, 260.0)
"""Size of a figure as wide as the page, in CSS pixels."""

SMALL = 8.5
"""Size of the letters of the numbers in a picture."""

FAINT = 0.4
"""Opacity of the part of a bar that is not personal information."""

MOST_NUMBERED = 12
"""Splits up to which the places of a histogram are large enough for a number."""

ENOUGH_FOR_LOG = 30
"""Non-members from which on the ROC of few false alarms is worth a logarithmic axis."""

SEE = {
    "roc": "A curve above the grey line does better than chance. Its left end counts most: the "
    "members that are found with hardly a false alarm.",
    "shares": "From left to right come fields of which the attack is less and less sure. Only "
    "where its line parts from the baseline has it learnt something.",
    "bars": "The attack has learnt something where its bar is clearly higher than the baseline's.",
    "counts": "The heights are logarithmic; the numbers above the bars are the counts.",
    "scores": "The further right an answer stands, the more it is given only by models that were "
    "trained on it, so the right side is what was memorised. At the top is what any model says.",
    "exposure": "Where a line rises above the dotted baseline, the model remembers secrets that "
    "were planted so many times.",
}
"""Kind of figure → what there is to see."""

PLAIN = FuncFormatter(lambda value, _: f"{value:g}")

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
    see = f"Each line follows one value over the axis below: {legible(str(x))}."
    return line_chart(title, drawn, bool(unit_interval), str(x), see)


def roc(title: str, curves: Rates) -> Chart:
    """Draws true positive rates over false positive rates, both from 0 to 1.

    Logarithmic axes show the rates of few false alarms, where there are enough non-members for
    them: with fewer than `ENOUGH_FOR_LOG`, the axes are linear and every threshold is a point. On
    logarithmic axes, what is 0 is drawn at the left or lower edge.
    """
    drawn = {name: _pair(pair) for name, pair in curves.items()}
    false = [rate for across, _ in drawn.values() for rate in across if rate > 0]
    least = 10.0 ** max(math.floor(math.log10(min([*false, 0.1]))), -9)
    logarithmic = min([*false, 1.0]) <= 1 / ENOUGH_FOR_LOG
    with style():
        figure, axes = canvas(SIZE)
        if logarithmic:
            axes.set_xscale("log")
            axes.set_yscale("log")
            shown: Mapping[str, Any] = {n: np.maximum(pair, least) for n, pair in drawn.items()}
            low, high = least, 1.1
        else:
            shown, low, high = drawn, -0.02, 1.02
        axes.plot([max(low, 0.0), 1], [max(low, 0.0), 1], color=colour("muted"), linewidth=1)
        keys = _draw_pairs(axes, shown, dotted=not logarithmic)
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
        axes.set_xlabel("false positive rate: others taken for members")
        for axis in (axes.xaxis, axes.yaxis):
            if logarithmic:
                powers = [10.0**power for power in range(round(math.log10(least)), 1)]
                axis.set_major_locator(FixedLocator(powers))
            else:
                axis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(PLAIN)
        drawing = svg(figure, f"{title}: {', '.join(_ends(drawn))}")
    note = "The grey line is chance" + ("; rates of 0 stand at the edge" if logarithmic else "")
    return Chart(title, drawing, keys, note, SEE["roc"])


def _ends(curves: Mapping[str, tuple[list[float], list[float]]]) -> Iterator[str]:
    """Yields what each ROC finds without a false alarm, for who cannot see it."""
    for label, (across, up) in curves.items():
        sure = max((y for x, y in zip(across, up, strict=True) if x == 0), default=0.0)
        yield f"{label} finds {short(sure)} of the members without a false alarm"


def shares(title: str, curves: Rates) -> Chart:
    """Draws values over a share from 0 to 1, such as that of the fields one is surest of."""
    drawn = {name: _pair(pair) for name, pair in curves.items()}
    with style():
        figure, axes = canvas(SIZE)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        keys = _draw_pairs(axes, drawn)
        axes.set_xlim(0, 1.02)
        axes.set_ylim(0, max(axes.get_ylim()[1], 1e-9))
        axes.set_xlabel("p, share of the fields")
        ends = (
            f"{label} from {short(values[0])} at {short(shares[0])} to {short(values[-1])} at "
            f"{short(shares[-1])}"
            for label, (shares, values) in drawn.items()
        )
        drawing = svg(figure, f"{title}: {'; '.join(ends)}.")
    return Chart(title, drawing, keys, see=SEE["shares"])


def _draw_pairs(axes: Any, curves: Mapping[str, Any], dotted: bool = False) -> tuple[Key, ...]:
    keys = []
    for place, (label, (across, up)) in enumerate(curves.items()):
        shade, dashes = look(place)
        mark, line = "o" if dotted or len(across) == 1 else "", line_style(dashes)
        axes.plot(
            across, up, color=colour(f"c{shade}"), marker=mark, ms=3.2, lw=WIDTH, linestyle=line
        )
        keys.append(Key(label, shade, dashes))
    return tuple(keys)


def bars(title: str, bars: Mapping[str, Mapping[str, float]]) -> Chart:
    """Draws groups of bars side by side, from 0 up; the same groups in each series."""
    drawn = _groups(bars, finite)
    with style():
        figure, axes = canvas(SIZE)
        for place, (_, left, width, heights) in enumerate(_side_by_side(axes, drawn)):
            axes.bar(left, heights, width, color=colour(f"c{place}"))
        axes.set_ylim(0, max(axes.get_ylim()[1], 1e-9))
        drawing = svg(figure, _told(title, drawn))
    keys = tuple(Key(name, place) for place, name in enumerate(drawn))
    return Chart(title, drawing, keys, see=SEE["bars"])


def counts(
    title: str,
    bars: Mapping[str, Mapping[str, int]],
    darker: Mapping[str, Mapping[str, int]] | None = None,
    wide: bool = False,
    first_shade: int = 0,
) -> Chart:
    """Draws groups of bars of counts, with logarithmic heights from 1 up and their numbers.

    Args:
        title: what they count.
        bars: by name of the series, its count by name of the group; the same groups in each.
        darker: of some series, the part of each count that is drawn darker.
        wide: as wide as the page, with slanted names.
        first_shade: colour of the first series; each further one has the next.
    """
    drawn, parts = _groups(bars, _count), _groups(darker or {}, _count)
    shades = {name: (int(first_shade) + place) % SHADES for place, name in enumerate(drawn)}
    slanted = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if wide else {}
    above = {"textcoords": "offset points", "ha": "center", "fontsize": SMALL}
    with style():
        figure, axes = canvas(WIDE if wide else SIZE)
        for name, left, width, heights in _side_by_side(axes, drawn, **slanted):
            tint, part = colour(f"c{shades[name]}"), parts.get(name)
            axes.bar(left, heights, width, color=tint, alpha=1 if part is None else FAINT)
            for x, height in zip(left, heights, strict=True):
                axes.annotate(f"{height}", (x, height), (0, 1.5), **above)
            if part:
                axes.bar(left, [part[group] for group in drawn[name]], width, color=tint)
        # Logarithmic from 1 up, and linear between 0 and 1, so that 0 has a place.
        most = max(max(counts.values()) for counts in drawn.values())
        axes.set_yscale("symlog", linthresh=1, linscale=0.35)
        powers = range(math.ceil(math.log10(max(most, 2))) + 1)
        axes.yaxis.set_major_locator(FixedLocator([0, *(10.0**power for power in powers)]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(PLAIN)
        axes.set_ylim(0, max(most, 1) * 2)
        drawing = svg(figure, _told(title, drawn))
    keys = tuple(Key(name, shade) for name, shade in shades.items()) if len(drawn) > 1 else ()
    return Chart(title, drawing, keys, see=SEE["counts"])


def _side_by_side(
    axes: Any, bars: Mapping[str, Mapping[str, float]], **names: Any
) -> Iterator[tuple[str, NDArray[np.floating[Any]], float, list[float]]]:
    """Yields each series with the places, the width and the heights of its bars."""
    groups = list(next(iter(bars.values())))
    width = 0.82 / len(bars)
    for place, (name, values) in enumerate(bars.items()):
        left = np.arange(len(groups)) + (place + 0.5) * width - 0.41
        yield name, left, width * 0.92, [values[group] for group in groups]
    axes.set_xticks(range(len(groups)), list(map(legible, groups)), **names)


def _told(title: str, bars: Mapping[str, Mapping[str, float]]) -> str:
    told = (
        f"{name}: "
        + ", ".join(
            f"{group} {value if isinstance(value, int) else short(value)}"
            for group, value in values.items()
        )
        for name, values in bars.items()
    )
    return f"{title}. {'; '.join(told)}."


def scores(title: str, panels: Mapping[str, Sequence[Sequence[int]]]) -> Chart:
    """Draws 2-D histograms of M_E and S_E side by side (Pinto et al., Fig. 5).

    Args:
        title: what they show.
        panels: by heading, counts of canaries, (K + 1, K + 1): rows by S_E, columns by M_E,
            all for the same K.
    """
    drawn = {name: np.array(panel, dtype=np.int64) for name, panel in panels.items()}
    for panel in drawn.values():
        if panel.ndim != 2 or panel.shape[0] != panel.shape[1] or len(panel) < 2 or panel.min() < 0:
            raise ValueError(f"expected square tables of counts, not {panel.shape}")
    most = max(int(panel.max()) for panel in drawn.values())
    told = []
    with style():
        layout = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.02)
        figure = Canvas(figsize=(WIDE[0] / 72, 270 / 72), layout=layout)
        places = np.atleast_1d(figure.subplots(1, len(drawn), sharey=True))
        for axes, (heading, panel) in zip(places, drawn.items(), strict=True):
            _draw_scores(axes, panel, most)
            axes.set_title(f"{legible(heading)}: {panel.sum()}", fontsize=10, color=colour("ink"))
            half = (len(panel) - 1) / 2
            largest = sorted(np.argwhere(panel).tolist(), key=lambda at: -panel[tuple(at)])[:3]
            named = (
                f"{panel[row, column]} at M_E {column / half - 1:g} and S_E {row / half:g}"
                for row, column in largest
            )
            told.append(f"{heading}: {', '.join(named)}")
        figure.axes[0].set_ylabel("S_E, simplicity")
        drawing = svg(figure, f"{title}. {'; '.join(told)}.")
    note = "The stronger the colour of a place, the more canaries it has, by the logarithm"
    return Chart(title, drawing, (), note, SEE["scores"])


def _draw_scores(axes: Any, counts: NDArray[np.int64], most: int) -> None:
    """Draws each taken place as a diamond: those that K allows fill the plane together."""
    splits = len(counts) - 1
    step = 2 / splits
    edge = 1 + step
    axes.plot([-edge, 0, edge, 0, -edge], [1, -step, 1, 1 + edge, 1], color=colour("line"))
    for row, column in np.argwhere(counts).tolist():
        x, y, count = column * step - 1, row * step, int(counts[row, column])
        depth = 0.25 + 0.6 * math.log1p(count) / math.log1p(most)
        corners = [x - step, x, x + step, x], [y, y - step, y, y + step]
        axes.fill(*corners, color=colour("c0"), alpha=depth, linewidth=0)
        if splits <= MOST_NUMBERED:
            axes.text(x, y, f"{count}", ha="center", va="center", fontsize=SMALL)
    axes.set_xlim(-1 - step, 1 + step)
    axes.set_ylim(-step, 2 + step)
    axes.set_aspect("equal")
    axes.set_xlabel("M_E, memorization")
    axes.xaxis.set_major_locator(FixedLocator([-1, 0, 1]))
    axes.yaxis.set_major_locator(FixedLocator([0, 1, 2]))


def exposure(
    title: str,
    lines: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float | None]]]],
    bound: float,
    baseline: float,
) -> Chart:
    """Draws exposure by repeat count, with its bound above and its baseline below.

    Args:
        title: what it shows.
        lines: by strategy, of secrets "in" training and "out" of it: "mean", "low" and "high" in
            bits by repeat count. A count without a mean, which is None, has no place.
        bound: the most that the references can show, in bits.
        baseline: what secrets have that were never trained on.
    """
    bound, baseline = finite(bound), finite(baseline)
    keys: list[Key] = []
    repeats, told = set[int](), []
    with style():
        figure, axes = canvas(SIZE)
        axes.set_xscale("symlog", linthresh=1)
        axes.axhline(bound, color=colour("muted"), linewidth=1)
        axes.axhline(baseline, color=colour("muted"), linewidth=1, linestyle=(0, (2, 3)))
        for place, (name, sides) in enumerate(lines.items()):
            for side, ends in sides.items():
                mean, low, high = (
                    _curve({n: v for n, v in ends[end].items() if v is not None}, finite)
                    for end in ("mean", "low", "high")
                )
                if not mean:
                    continue
                counts, tint = sorted(mean), colour(f"c{place % SHADES}")
                pattern, dashes = ((0, (3, 1.8)), "5 3") if side == "out" else ("-", "")
                spread = [low[n] for n in counts], [high[n] for n in counts]
                axes.fill_between(counts, *spread, color=tint, alpha=0.14, linewidth=0)
                heights = [mean[n] for n in counts]
                axes.plot(counts, heights, "o", color=tint, markersize=3.2)
                axes.plot(counts, heights, color=tint, linewidth=WIDTH, linestyle=pattern)
                repeats |= mean.keys()
                label = f"{name}, {'out of' if side == 'out' else 'in'} training"
                keys.append(Key(label.removeprefix(", "), place % SHADES, dashes))
                each = ", ".join(f"{n} times {value:.3g}" for n, value in mean.items())
                told.append(f"{name} {side}: {each}")
        axes.xaxis.set_major_locator(FixedLocator(sorted(repeats)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(PLAIN)
        axes.set_xlabel("times planted")
        axes.set_ylim(0, bound * 1.05)
        drawing = svg(figure, f"{title}. {'; '.join(told)}.")
    note = f"The grey lines: the bound, {bound:.2f} bits, and uniform ranks, {baseline:.2f} bits"
    return Chart(title, drawing, tuple(keys), note, SEE["exposure"])


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
