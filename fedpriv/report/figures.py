"""The pictures of a report: curves and bars, the partition, and a page with its entities.

Curves and bars are drawn by matplotlib and come out as inline SVG whose colours are CSS variables
of the page, so that they follow its light or dark theme. They hold numbers only: every name that
comes from a run stands in the HTML around them, where Jinja2 escapes it. The partition and the
page's boxes are returned as plain geometry, which the template draws.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib.style
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator
from PIL import Image

Curve = Mapping[int, float]
"""Round (from 1) -> value; not a finite number where the run recorded none."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels of the page image."""

OFF_SCALE = 1e30
"""Values at or beyond it are drawn as crosses, like NaN: an axis that holds them shows nothing."""

SHADES = 6
"""Number of series colours, ``--c0`` … ``--c5`` in the page's style sheet."""

DASHES = ("", "6 3", "2 2", "8 3 2 3")
"""SVG dash patterns of the curves, so that colour is never the only difference."""

_VARIABLES = ("ink", "muted", "line", *(f"c{shade}" for shade in range(SHADES)))
_SIZE, _SMALL_SIZE = (430.0, 210.0), (200.0, 104.0)
_FONT = 10.5
_MOST_BARS, _MOST_BLOCKS = 300, 4000


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
    """

    title: str
    svg: Markup
    keys: tuple[Key, ...] = ()
    note: str = ""


# ------------------------------------------------------------------------------- matplotlib


def _colour(name: str) -> str:
    """Returns the stand-in for a CSS variable, which `_svg` replaces."""
    return f"#0a0a{_VARIABLES.index(name):02d}"


@contextmanager
def _style() -> Iterator[None]:
    # The SVG writer takes its font and id settings from rcParams only; the context starts from
    # matplotlib's defaults, so a user's matplotlibrc changes nothing, and restores on leaving.
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "fedpriv",
        "font.size": _FONT,
        "text.color": _colour("ink"),
        "axes.edgecolor": _colour("muted"),
        "axes.labelcolor": _colour("muted"),
        "xtick.color": _colour("muted"),
        "ytick.color": _colour("muted"),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": _colour("line"),
        "ytick.major.size": 0,
        "ytick.minor.size": 0,
        "axes.formatter.use_mathtext": False,
        "axes.unicode_minus": True,
    }
    with matplotlib.style.context(["default", settings]):
        yield


def _canvas(size: tuple[float, float]) -> tuple[Figure, Any]:
    """Returns a figure of so many CSS pixels and its axes, with whole rounds below."""
    layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02)
    figure = Figure(figsize=(size[0] / 72, size[1] / 72), layout=layout)
    axes = figure.add_subplot()
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    axes.margins(x=0.02)
    return figure, axes


def _svg(figure: Figure, description: str) -> Markup:
    """Returns the figure as an ``<svg>`` element without size, names, ids of groups or fonts."""
    file = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    found = re.search(r'<svg[^>]*viewBox="([\d. ]+)"[^>]*>(.*)</svg>', file.getvalue(), re.DOTALL)
    if found is None:
        raise RuntimeError("matplotlib wrote no SVG element with a viewBox")
    box, body = found.groups()
    # Its style sheet would apply to the whole page, and its group ids repeat in every figure.
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    body = re.sub(r" font-family: [^;\"]*;?", "", body)
    body = re.sub(
        r": #0a0a(\d\d)", lambda match: f": var(--{_VARIABLES[int(match.group(1))]})", body
    )
    body = re.sub(r"\s*\n\s*", " ", body)
    # matplotlib has drawn numbers and our own labels; nothing in it comes from the run.
    drawn = Markup(body)  # noqa: S704
    return Markup('<svg viewBox="{}" role="img" aria-label="{}">{}</svg>').format(
        box, description, drawn
    )


def _finite(value: float) -> bool:
    return math.isfinite(value) and abs(value) < OFF_SCALE


def _short(value: float) -> str:
    return f"{value:.3g}"


def _describe(title: str, curves: Mapping[str, Curve]) -> str:
    """Returns what a reader who cannot see the chart should know: first and last values."""
    parts = []
    for label, curve in curves.items():
        drawn = [(at, curve[at]) for at in sorted(curve) if _finite(curve[at])]
        if drawn:
            (first, start), (last, end) = drawn[0], drawn[-1]
            parts.append(
                f"{label} from {_short(start)} in round {first} to {_short(end)} in round {last}"
            )
    return f"{title}: {'; '.join(parts) or 'no finite value'}."


def _draw_curve(axes: Any, curve: Curve, shade: int, dashes: str = "", width: float = 1.7) -> None:
    """Draws one curve; it breaks where a value is not finite, and a cross stands there."""
    rounds = sorted(curve)
    values = [curve[at] if _finite(curve[at]) else math.nan for at in rounds]
    style: Any = (0, tuple(float(part) / width for part in dashes.split())) if dashes else "-"
    colour = _colour(f"c{shade}")
    axes.plot(rounds, values, color=colour, linewidth=width, linestyle=style)
    alone = [
        (at, value)
        for place, (at, value) in enumerate(zip(rounds, values, strict=True))
        if len(rounds) <= 30 or all(math.isnan(v) for v in _neighbours(values, place))
    ]
    axes.plot(*zip(*alone, strict=True), "o", color=colour, markersize=3.2) if alone else None
    broken = [at for at, value in zip(rounds, values, strict=True) if math.isnan(value)]
    if broken:
        across = axes.get_xaxis_transform()
        axes.plot(broken, [0.03] * len(broken), "x", color=colour, transform=across, markersize=5)


def _neighbours(values: Sequence[float], place: int) -> list[float]:
    return [*values[max(place - 1, 0) : place], *values[place + 1 : place + 2]]


def line_chart(title: str, curves: Mapping[str, Curve], unit_interval: bool = False) -> Chart:
    """Returns curves by round in one chart.

    Args:
        title: what they measure.
        curves: by name, in the order of the legend.
        unit_interval: whether the axis runs from 0 to 1; else it fits, and is logarithmic where
            positive values span more than two powers of ten.
    """
    styles = {
        label: (place % SHADES, DASHES[(place + place // SHADES) % len(DASHES)])
        for place, label in enumerate(curves)
    }
    values = [value for curve in curves.values() for value in curve.values()]
    drawn = [value for value in values if _finite(value)]
    with _style():
        figure, axes = _canvas(_SIZE)
        for label, curve in curves.items():
            _draw_curve(axes, curve, *styles[label])
        axes.set_xlabel("round")
        if unit_interval:
            axes.set_ylim(0, 1.02)
        elif drawn and min(drawn) > 0 and max(drawn) > 100 * min(drawn):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        svg = _svg(figure, _describe(title, curves))
    note = "" if len(drawn) == len(values) else "× marks a round whose value is not a finite number"
    keys = tuple(Key(label, shade, dashes) for label, (shade, dashes) in styles.items())
    if list(curves) == [title]:
        keys = ()
    return Chart(title, svg, keys, note)


def small_chart(
    title: str, curve: Curve, overall: Curve, span: tuple[int, int], unit_interval: bool = True
) -> Chart:
    """Returns one curve in a small chart, with the overall curve faint behind it.

    Args:
        title: the name of the curve.
        curve: the values.
        overall: the same measure over all types; empty where there is none.
        span: first and last round of the axis, the same in all charts of a group.
        unit_interval: whether the axis runs from 0 to 1.
    """
    with _style():
        figure, axes = _canvas(_SMALL_SIZE)
        for line, name, width in ((overall, "muted", 1.0), (curve, "c0", 1.8)):
            rounds = [at for at in sorted(line) if _finite(line[at])]
            mark = "o" if len(rounds) == 1 else ""
            heights = [line[at] for at in rounds]
            axes.plot(rounds, heights, mark + "-", ms=3, color=_colour(name), linewidth=width)
        axes.set_xlim(span[0] - 0.3, span[1] + 0.3)
        axes.xaxis.set_major_locator(FixedLocator(sorted(set(span))))
        if unit_interval:
            axes.set_ylim(0, 1.04)
            axes.set_yticks([0, 0.5, 1], ["0", ".5", "1"])
        svg = _svg(figure, _describe(title, {title: curve}))
    return Chart(title, svg)


def stacked_chart(
    title: str, layers: Mapping[str, Curve], shades: Sequence[int], marked: Sequence[int] = ()
) -> Chart:
    """Returns stacked bars, one per round.

    Args:
        title: what the bars measure, with the unit.
        layers: by name, from the bottom up; values that are absent or not finite count as 0.
        shades: the colour of each layer.
        marked: rounds to mark with a triangle on the axis.
    """
    rounds = sorted({at for curve in layers.values() for at in curve})
    half = 0.5 if len(rounds) > 120 else 0.38
    edges = np.ravel([(at - half, at + half) for at in rounds])
    floor = np.zeros(max(len(edges) - 1, 0))
    # NaN between two bars leaves a gap: one path per layer however many rounds there are.
    floor[1::2] = math.nan
    with _style():
        figure, axes = _canvas(_SIZE)
        for curve, shade in zip(layers.values(), shades, strict=True):
            heights = [_height(curve.get(at, 0.0)) for at in rounds]
            top = floor.copy()
            top[::2] += heights
            if len(rounds):
                colour = _colour(f"c{shade}")
                axes.stairs(top, edges, baseline=floor, fill=True, color=colour, linewidth=0)
            floor = top
        if marked:
            above = {"transform": axes.get_xaxis_transform(), "clip_on": False}
            axes.plot(marked, [1.0] * len(marked), "v", color=_colour("c1"), **above)
        axes.set_ylim(0, max(np.nanmax(floor) * 1.1, 1e-9) if len(rounds) else 1)
        _fit_bars(axes, rounds, whole=all(float(top).is_integer() for top in floor[::2]))
        svg = _svg(figure, _describe(title, layers))
    keys = tuple(Key(label, shade) for label, shade in zip(layers, shades, strict=True))
    return Chart(title, svg, keys, "▼ marks a refused round" if marked else "")


def _fit_bars(axes: Any, rounds: Sequence[int], whole: bool) -> None:
    """Labels the axes of stacked bars; `whole` says that the bars count something."""
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=whole))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("round")
    if 0 < len(rounds) <= 4:
        axes.xaxis.set_major_locator(FixedLocator(list(rounds)))
        axes.set_xlim(rounds[0] - 1.5, rounds[-1] + 1.5)


def _height(value: float) -> float:
    return value if _finite(value) and value > 0 else 0.0


# -------------------------------------------------------------------------------- partition


@dataclass(frozen=True)
class Block:
    """A provider's documents at one client: `shade` is its colour, an index."""

    provider: str
    documents: int
    shade: int


@dataclass(frozen=True)
class Bar:
    """A client: its blocks, and its length in percent of the longest bar."""

    client: str
    documents: int
    providers: int
    percent: float
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Bars:
    """The partition as horizontal stacked bars.

    Attributes:
        bars: one per client, or the `len(bars)` largest of `clients`.
        clients: number of clients.
        longest: documents of the largest client.
        density: "roomy", "thin" or "dense": how much room a bar has.
        shared: whether a provider's documents are at several clients.
        keys: colour of each provider where every provider has its own.
        lumped: whether small providers of a client are drawn as one block.
    """

    bars: tuple[Bar, ...]
    clients: int
    longest: int
    density: str
    shared: bool
    keys: tuple[Key, ...]
    lumped: bool


def client_order(client: str) -> tuple[int, int, str]:
    """Returns the sorting key of a client's name: numbers by value, then texts."""
    digits = client.isascii() and client.isdigit() and len(client) < 20
    return (0, int(client), "") if digits else (1, 0, client)


def partition_bars(clients: Mapping[str, Mapping[str, int]]) -> Bars:
    """Returns the picture of a partition.

    Args:
        clients: client -> provider -> number of documents.
    """
    totals: dict[str, int] = {}
    homes: dict[str, int] = {}
    for held in clients.values():
        for provider, documents in held.items():
            totals[provider] = totals.get(provider, 0) + documents
            homes[provider] = homes.get(provider, 0) + 1
    shared = any(count > 1 for count in homes.values())
    order = {name: at for at, name in enumerate(sorted(totals, key=lambda p: (-totals[p], p)))}
    size = {client: sum(held.values()) for client, held in clients.items()}
    longest = max(size.values(), default=0)
    largest = sorted(clients, key=lambda client: (-size[client], client_order(client)))
    shown = sorted(largest[:_MOST_BARS], key=client_order)
    most = max(_MOST_BLOCKS // max(len(shown), 1), 3)
    bars = tuple(
        Bar(
            client,
            size[client],
            len(clients[client]),
            100 * size[client] / max(longest, 1),
            _blocks(clients[client], order, most, shared),
        )
        for client in shown
    )
    named = shared and len(order) <= SHADES
    keys = tuple(Key(provider, shade) for provider, shade in order.items()) if named else ()
    density = "roomy" if len(shown) <= 12 else "thin" if len(shown) <= 40 else "dense"
    lumped = any(len(held) > most for held in clients.values())
    return Bars(bars, len(clients), longest, density, shared, keys, lumped)


def _blocks(
    held: Mapping[str, int], order: Mapping[str, int], most: int, shared: bool
) -> tuple[Block, ...]:
    """Returns a client's providers in the common order; those beyond `most` become one block."""
    ordered = sorted((provider for provider in held if held[provider]), key=lambda p: order[p])
    # A provider that is at one client needs no colour of its own, only another than its neighbour.
    blocks = [
        Block(provider, held[provider], order[provider] % SHADES if shared else place % 3)
        for place, provider in enumerate(ordered[:most])
    ]
    rest = ordered[most:]
    if rest:
        label = f"{len(rest)} further providers"
        blocks.append(Block(label, sum(held[provider] for provider in rest), SHADES))
    return tuple(blocks)


# ------------------------------------------------------------------------------ page picture


@dataclass(frozen=True)
class TaggedWord:
    """A word of a page with its true and its predicted BIO tag."""

    text: str
    box: Box
    true: str
    predicted: str


@dataclass(frozen=True)
class EntityRow:
    """A true entity with what was predicted over it, or a prediction that has no true entity.

    Attributes:
        number: its number on the picture, from 1.
        status: "correct" (same words, same type), "missed" (nothing predicted over it), "wrong"
            (something else predicted over it) or "spurious" (no true entity under it).
        true: type and text, or None.
        predicted: types and texts.
    """

    number: int
    status: str
    true: tuple[str, str] | None
    predicted: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Mark:
    """A rectangle on the page: status "correct", "missed" or "wrong", and what to say on hover.

    `number` is its entity row's number where it is the row's first rectangle, else 0.
    """

    status: str
    left: float
    top: float
    width: float
    height: float
    number: int
    words: str


Span = tuple[str, int, int]


def spans(tags: Sequence[str]) -> list[Span]:
    """Returns (type, first word, word after the last) of each entity in BIO tags.

    An ``I-x`` that follows no ``x`` begins an entity, as seqeval's default has it.
    """
    found: list[Span] = []
    for place, tag in enumerate(tags):
        prefix, _, label = tag.partition("-")
        if not label:
            continue
        if prefix == "I" and found and found[-1][0] == label and found[-1][2] == place:
            found[-1] = (label, found[-1][1], place + 1)
        else:
            found.append((label, place, place + 1))
    return found


def entity_rows(words: Sequence[TaggedWord]) -> tuple[list[EntityRow], dict[int, int]]:
    """Returns the table of entities in reading order, and the row number of each tagged word."""
    true = spans([word.true for word in words])
    predicted = spans([word.predicted for word in words])

    def said(span: Span) -> tuple[str, str]:
        return span[0], " ".join(word.text for word in words[span[1] : span[2]])

    pairs: list[tuple[Span | None, list[Span]]] = [
        (span, [other for other in predicted if other[1] < span[2] and span[1] < other[2]])
        for span in true
    ]
    hit = {other for _, others in pairs for other in others}
    pairs += [(None, [other]) for other in predicted if other not in hit]
    pairs.sort(key=lambda pair: pair[0][1] if pair[0] else pair[1][0][1])
    rows = [
        EntityRow(
            number,
            _row_status(span, others),
            said(span) if span else None,
            tuple(said(other) for other in others),
        )
        for number, (span, others) in enumerate(pairs, 1)
    ]
    row_of: dict[int, int] = {}
    for own in (True, False):
        for number, (span, others) in enumerate(pairs, 1):
            for _, start, end in [span] if own and span else [] if own else others:
                for place in range(start, end):
                    row_of.setdefault(place, number)
    return rows, row_of


def _row_status(true: Span | None, predicted: Sequence[Span]) -> str:
    if true is None:
        return "spurious"
    if not predicted:
        return "missed"
    return "correct" if true in predicted else "wrong"


def page_marks(words: Sequence[TaggedWord], row_of: Mapping[int, int]) -> list[Mark]:
    """Returns the rectangles to draw, one per run of words with one fate on one line.

    Args:
        words: the page's words.
        row_of: the row number of each tagged word, from `entity_rows`.
    """
    kinds = _normal([word.true for word in words]), _normal([word.predicted for word in words])
    runs: list[tuple[str, int, list[int]]] = []
    for place, (true, predicted) in enumerate(zip(*kinds, strict=True)):
        if true == predicted == "O":
            continue
        status = "correct" if true == predicted else "missed" if predicted == "O" else "wrong"
        row = row_of[place]
        if runs and runs[-1][:2] == (status, row) and _joins(words, runs[-1][2][-1], place):
            runs[-1][2].append(place)
        else:
            runs.append((status, row, [place]))
    first = {row: at for at, (_, row, _) in reversed(list(enumerate(runs)))}
    return [
        _mark(words, status, places, row if first[row] == at else 0)
        for at, (status, row, places) in enumerate(runs)
    ]


def _normal(tags: Sequence[str]) -> list[str]:
    """Returns the tags with ``B`` and ``I`` as `spans` reads them."""
    normal = ["O"] * len(tags)
    for label, start, end in spans(tags):
        normal[start:end] = [f"{'I' if at > start else 'B'}-{label}" for at in range(start, end)]
    return normal


def _joins(words: Sequence[TaggedWord], before: int, after: int) -> bool:
    """Says whether two words are neighbours on one text line."""
    a, b = words[before].box, words[after].box
    overlap = min(a[3], b[3]) - max(a[1], b[1])
    return after == before + 1 and overlap >= 0.5 * min(a[3] - a[1], b[3] - b[1])


def _mark(words: Sequence[TaggedWord], status: str, places: Sequence[int], number: int) -> Mark:
    boxes = [words[place].box for place in places]
    left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[2] for box in boxes), max(box[3] for box in boxes)
    first = words[places[0]]
    told = " ".join(words[place].text for place in places)
    said = f"{told}: true {first.true}, predicted {first.predicted}"
    return Mark(status, left, top, right - left, bottom - top, number, said)


def image_uri(image: Image.Image, longest: int = 1500) -> str:
    """Returns the image as a JPEG data URI, its longer side at most `longest` pixels."""
    small = image.convert("RGB")
    small.thumbnail((longest, longest))
    file = io.BytesIO()
    small.save(file, "JPEG", quality=80, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
