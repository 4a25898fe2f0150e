"""Draws pages of a data set side by side, with the boxes of their words and entities."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fedpriv.data.document import Box, Document

COLUMNS = 4
CELL = (460, 600)
"""Width and height in pixels to which each page is scaled."""

_MARGIN, _CAPTION, _LEGEND_ROW = 14, 22, 24
_GREY, _INK = (176, 176, 176), (40, 40, 40)

_PALETTE = [tab for number, tab in enumerate(matplotlib.color_sequences["tab10"]) if number != 7]
"""Red, green and blue from 0 to 1. The eighth is left out: it is grey, as the words are."""

Colour = tuple[int, int, int]


def evenly(count: int, wanted: int) -> list[int]:
    """Returns up to `wanted` positions spread evenly over `count`, the first and last included."""
    return sorted({round(x) for x in np.linspace(0, count - 1, min(wanted, count))})


def draw(documents: Sequence[Document], labels: Sequence[str], pages: int) -> Image.Image:
    """Draws up to `pages` documents, spread evenly over all, above a legend of their labels.

    Raises:
        DataError: if one of the pages cannot be decoded.
    """
    chosen = [documents[position] for position in evenly(len(documents), pages)]
    shown = {entity.label for document in chosen for entity in document.entities}
    order = [label for label in dict.fromkeys((*labels, *sorted(shown))) if label in shown]
    colours = _colours(order)
    columns = max(1, min(COLUMNS, len(chosen)))
    rows = -(-len(chosen) // columns)
    pitch = CELL[0] + _MARGIN, CELL[1] + _CAPTION + _MARGIN
    width = columns * pitch[0] + _MARGIN
    legend = _legend(colours, width)
    sheet = Image.new("RGB", (width, rows * pitch[1] + _MARGIN + legend.height), "white")
    for number, document in enumerate(chosen):
        left = _MARGIN + number % columns * pitch[0]
        top = _MARGIN + number // columns * pitch[1]
        sheet.paste(_cell(document, colours), (left, top))
    sheet.paste(legend, (0, sheet.height - legend.height))
    return sheet


def _cell(document: Document, colours: Mapping[str, Colour]) -> Image.Image:
    """Returns one page with its boxes and its caption."""
    cell = Image.new("RGB", (CELL[0], CELL[1] + _CAPTION), "white")
    scale = min(CELL[0] / document.size[0], CELL[1] / document.size[1])
    width, height = (max(1, round(side * scale)) for side in document.size)
    page = document.image().resize((width, height), Image.Resampling.LANCZOS)
    pen = ImageDraw.Draw(page)
    for word in document.words:
        _outline(pen, word.box, scale, _GREY, 1)
    for entity in document.entities:
        lines: dict[int, Box] = {}  # around the words that the entity has in each segment
        for word in (document.words[position] for position in entity.words):
            x0, y0, x1, y1 = lines.get(word.segment, word.box)
            a0, b0, a1, b1 = word.box
            lines[word.segment] = (min(x0, a0), min(y0, b0), max(x1, a1), max(y1, b1))
        for box in lines.values():
            _outline(pen, box, scale, colours[entity.label], 2)
    pen.rectangle((0, 0, page.width - 1, page.height - 1), outline=_INK)
    cell.paste(page, (0, 0))
    caption, font = document.id, _font()
    while caption and font.getlength(caption) > CELL[0]:
        caption = "…" + caption.removeprefix("…")[1:]  # the end of a path tells more
    ImageDraw.Draw(cell).text((0, page.height + 3), caption, fill=_INK, font=font)
    return cell


def _outline(pen: ImageDraw.ImageDraw, box: Box, scale: float, colour: Colour, width: int) -> None:
    x0, y0, x1, y1 = (round(side * scale) for side in box)
    out = width - 1  # the second pixel goes outwards, off the text
    corners = (x0 - out, y0 - out, max(x0, x1) + out, max(y0, y1) + out)
    pen.rectangle(corners, outline=colour, width=width)


def _colours(labels: Sequence[str]) -> dict[str, Colour]:
    """Returns a colour for every label: nine that are told apart well, then hues in between."""
    colours: dict[str, Colour] = {}
    for number, label in enumerate(labels):
        # Hues a golden section apart, in three depths.
        depth = (0.85, 0.55, 0.95)[number % 3]
        hue = colorsys.hsv_to_rgb(number * 0.618034 % 1, 0.95, depth)
        red, green, blue = _PALETTE[number] if number < len(_PALETTE) else hue
        colours[label] = (round(255 * red), round(255 * green), round(255 * blue))
    return colours


def _legend(colours: Mapping[str, Colour], width: int) -> Image.Image:
    """Returns the labels in their colours, in as many rows as they need."""
    entries = [*colours.items(), ("a word", _GREY)]
    font = _font()
    corners: list[tuple[int, int]] = []
    x = y = _MARGIN
    for label, _ in entries:
        needed = 20 + round(font.getlength(label)) + 18
        if x + needed > width - _MARGIN and x > _MARGIN:
            x, y = _MARGIN, y + _LEGEND_ROW
        corners.append((x, y))
        x += needed
    legend = Image.new("RGB", (width, y + _LEGEND_ROW + _MARGIN), "white")
    pen = ImageDraw.Draw(legend)
    for (label, colour), (left, top) in zip(entries, corners, strict=True):
        pen.rectangle((left, top + 2, left + 13, top + 15), outline=colour, width=3)
        pen.text((left + 20, top), label, fill=_INK, font=font)
    return legend


def _font() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(
        str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), 13
    )
