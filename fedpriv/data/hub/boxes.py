"""In which unit the boxes of a data set are: shares of the page, thousandths of it, or pixels.

Data sets for LayoutLM have boxes of 0 to 1000, others pixels, and few of them say which. A unit
does not fit a page if a box then stands outside of it. Where several fit, the one is likelier in
which the text spans more of the page: a wrong one crowds it into the upper left corner. So the unit
is taken with the largest sum over pages of the share that the text spans, less one for each page
that does not fit. A few broken pages do not outweigh the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedpriv.data.document import Box

Unit = Literal["share", "thousandth", "pixel"]

UNITS: tuple[Unit, ...] = ("share", "thousandth", "pixel")


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


def choose(pages: Sequence[dict[Unit, float]]) -> tuple[Unit, int]:
    """Returns the unit for a data set, and the number of its pages that do not fit it.

    Args:
        pages: of each page that has boxes, what `fitting` returns.
    """
    best = max(UNITS, key=lambda unit: sum(page.get(unit, -1.0) for page in pages))
    return best, sum(best not in page for page in pages)
