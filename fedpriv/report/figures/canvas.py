"""What all drawn pictures of a report share: size, colours and how matplotlib's SVG is cleaned.

Colours are CSS variables of the page, so that they follow its light or dark theme.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib.style
from cycler import cycler
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

SHADES = 6
"""Number of series colours, ``--c0`` … ``--c5`` in the page's style sheet."""

FONT = 10.5
"""Size of the letters, in CSS pixels."""

_LONGEST_NAME = 40
_NOT_DRAWN = re.compile(
    r"[^\n\x20-\x23\x25-\x7e\u00a1-\u024f\u0370-\u03ff\u2013\u2212\u2216\u221e\u2264\u2265]"
)

_VARIABLES = ("ink", "muted", "line", *(f"c{shade}" for shade in range(SHADES)))


def colour(name: str) -> str:
    """Returns the stand-in for a CSS variable, which `svg` replaces."""
    return f"#0a0a{_VARIABLES.index(name):02d}"


def legible(name: str, longest: int = _LONGEST_NAME) -> str:
    """Returns a name as it may be drawn, its first letters if there are more than `longest`.

    matplotlib reads a $ as the beginning of a formula, and warns of letters that its font lacks.
    """
    return _NOT_DRAWN.sub("?", name[:longest])


@contextmanager
def style() -> Iterator[None]:
    """Sets matplotlib's style while a picture is drawn."""
    # The SVG writer takes its font and id settings from rcParams only; the context starts from
    # matplotlib's defaults, so a user's matplotlibrc changes nothing, and restores on leaving.
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "fedpriv",
        "font.size": FONT,
        "axes.prop_cycle": cycler(color=[colour(f"c{shade}") for shade in range(SHADES)]),
        "text.color": colour("ink"),
        "axes.edgecolor": colour("muted"),
        "axes.labelcolor": colour("muted"),
        "xtick.color": colour("muted"),
        "ytick.color": colour("muted"),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "grid.color": colour("line"),
        "ytick.major.size": 0,
        "ytick.minor.size": 0,
        "axes.formatter.use_mathtext": False,
        "axes.unicode_minus": True,
    }
    with matplotlib.style.context(["default", settings]):
        yield


def canvas(size: tuple[float, float]) -> tuple[Figure, Any]:
    """Returns a figure of so many CSS pixels and its axes, with whole rounds below."""
    layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02)
    figure = Figure(figsize=(size[0] / 72, size[1] / 72), layout=layout)
    axes = figure.add_subplot()
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
    axes.margins(x=0.02)
    return figure, axes


def svg(figure: Figure, description: str) -> Markup:
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
    body = re.sub(r'<g id="[^"]*"(/?)>', r"<g\1>", body)
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
