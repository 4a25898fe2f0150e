"""In which unit the boxes of a data set are: shares of the page, thousandths of it, or pixels.

Data sets for LayoutLM have boxes of 0 to 1000, others pixels, and few of them say which. A unit
does not fit a page if a box then stands outside of it. A few broken pages do not outweigh the
others. Where several units fit, the ink under the boxes decides: in a wrong unit they miss it.
Without ink, such as on white pages, the one is likelier in which the text spans more of the page,
since a wrong one crowds it into the upper left corner. Where that is no more than likely, the user
has to say it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import Box

Unit = Literal["share", "thousandth", "pixel"]

UNITS: tuple[Unit, ...] = ("share", "thousandth", "pixel")

INK = 48
"""How much a pixel of ink differs from the paper, of 255."""

CLEARLY = 1.25
"""How much better the best of several units must do than the next."""


def whole_of(unit: Unit, size: tuple[int, int]) -> tuple[float, float]:
    """Returns width and height of a page of `size` pixels in a unit."""
    if unit == "pixel":
        return float(size[0]), float(size[1])
    return (1.0, 1.0) if unit == "share" else (1000.0, 1000.0)


def scale_of(unit: Unit, size: tuple[int, int]) -> tuple[float, float]:
    """Returns the factors from a unit to the pixels of a page of `size`."""
    width, height = whole_of(unit, size)
    return size[0] / width, size[1] / height


def fitting(boxes: Sequence[Box], size: tuple[int, int]) -> dict[Unit, float]:
    """Returns the units that fit a page, with the share of the page that its text spans in each.

    Boxes may stick out as far as `fedpriv.data.document.box_on_page` clips them: 1 % of the side,
    or 2 pixels. A page without boxes fits every unit, and spans nothing.

    Args:
        boxes: of the page's words, in the unit that is sought.
        size: width and height of the page in pixels.
    """
    if not boxes:
        return dict.fromkeys(UNITS, 0.0)
    sides = np.asarray(boxes, dtype=float)
    found: dict[Unit, float] = {}
    for unit in UNITS:
        pixels = sides * np.tile(scale_of(unit, size), 2)
        slack = np.maximum(2.0, 0.01 * np.asarray(size))
        low, high = pixels[:, :2], pixels[:, 2:]
        if bool(((low >= -slack) & (low <= high) & (high <= size + slack)).all()):
            found[unit] = float(np.clip(high.max(axis=0) / np.asarray(size), 0, 1).prod())
    return found


def inked(
    boxes: Sequence[Box], pixels: NDArray[np.uint8], units: Iterable[Unit]
) -> dict[Unit, float]:
    """Returns how well the boxes of a page cover its ink in some units, from 0 to 1.

    It is the share of the ink that lies in boxes, times the share of the boxes that hold any.

    Args:
        boxes: of the page's words, in the unit that is sought.
        pixels: of the page (height × width, or × 3); ink is what differs from the most usual grey.
        units: that fit the page.
    """
    grey = pixels.astype(np.int16).reshape(*pixels.shape[:2], -1).mean(axis=2)
    ink = np.abs(grey - np.median(grey)) > INK
    height, width = ink.shape
    found: dict[Unit, float] = {}
    for unit in units:
        scaled = np.asarray(boxes, float) * np.tile(scale_of(unit, (width, height)), 2)
        low, high = np.floor(scaled[:, :2]).astype(int), np.ceil(scaled[:, 2:]).astype(int)
        covered, holding = np.zeros_like(ink), 0
        for (x0, y0), (x1, y1) in zip(low.clip(0), high, strict=True):
            covered[y0:y1, x0:x1] = True
            holding += bool(ink[y0:y1, x0:x1].any())
        within = int((ink & covered).sum()) / max(int(ink.sum()), 1)
        found[unit] = within * holding / len(boxes)
    return found


def likely(pages: Sequence[Mapping[Unit, float]]) -> tuple[Unit, ...]:
    """Returns the units that fit most pages, the likeliest by the span of the text first.

    A unit that fits a quarter of the pages, or one, less than the best does is among them.

    Args:
        pages: of each page that has boxes, what `fitting` returns.
    """
    misfits = {unit: sum(unit not in page for page in pages) for unit in UNITS}
    most = min(misfits.values()) + max(len(pages) / 4, 1)
    good = [unit for unit in UNITS if misfits[unit] <= most]
    return tuple(sorted(good, key=lambda unit: -mean_of(unit, pages)))


def mean_of(unit: Unit, pages: Sequence[Mapping[Unit, float]]) -> float:
    """Returns the mean of what pages have of a unit, −1 where it does not fit."""
    return sum(page.get(unit, -1.0) for page in pages) / max(len(pages), 1)


def much_alike(units: Sequence[Unit], sizes: Iterable[tuple[int, int]]) -> bool:
    """Returns whether boxes stand in the same places in all of these units, to 2 % of the page."""
    return all(
        max(scales) <= 1.02 * min(scales)
        for size in sizes
        for scales in zip(*(scale_of(unit, size) for unit in units), strict=True)
    )
