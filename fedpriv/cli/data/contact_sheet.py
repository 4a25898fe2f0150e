"""Pages of a data set side by side, with the boxes of their words and entities drawn in."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fedpriv.data.document import Box, Document, Entity

COLUMNS = 4
CELL = (460, 600)
"""Width and height, in pixels, that a page is shrunk or enlarged to fit."""

_MARGIN, _CAPTION, _LEGEND_ROW = 14, 22, 24
_GREY, _INK = (176, 176, 176), (40, 40, 40)

_PALETTE = [tab for place, tab in enumerate(matplotlib.color_sequences["tab10"]) if place != 7]
"""Red, green and blue from 0 to 1; without the eighth, a grey like that of the words."""

Colour = tuple[int, int, int]


def evenly(count: int, wanted: int) -> list[int]:
    """Returns up to `wanted` positions spread evenly over `count`, the first and last included."""
    return sorted({round(x) for x in np.linspace(0, count - 1, min(wanted, count))})


def draw(documents: Sequence[Document], labels: Sequence[str], pages: int) -> Image.Image:
    """Draws up to `pages` documents, evenly chosen, and a legend of the labels that they show.

    Raises:
        DataError: if one of the pages cannot be decoded.
    """
    chosen = [documents[place] for place in evenly(len(documents), pages)]
    shown = {entity.label for document in chosen for entity in document.entities}
    order = [label for label in dict.fromkeys((*labels, *sorted(shown))) if label in shown]
    colours = _colours(order)
    columns = max(1, min(COLUMNS, len(chosen)))
    rows = -(-len(chosen) // columns)
    pitch = CELL[0] + _MARGIN, CELL[1] + _CAPTION + _MARGIN
    width = columns * pitch[0] + _MARGIN
    legend = _legend(colours, width)
    sheet = Image.new("RGB", (width, rows * pitch[1] + _MARGIN + legend.height), "white")
    for place, document in enumerate(chosen):
        left = _MARGIN + place % columns * pitch[0]
        top = _MARGIN + place // columns * pitch[1]
        sheet.paste(_cell(document, colours), (left, top))
    sheet.paste(legend, (0, sheet.height - legend.height))
    return sheet


def _cell(document: Document, colours: Mapping[str, Colour]) -> Image.Image:
    """Returns one page with its boxes and its caption."""
    cell = Image.new("RGB", (CELL[0], CELL[1] + _CAPTION), "white")
    scale = min(CELL[0] / document.size[0], CELL[1] / document.size[1])
    size = tuple(max(1, round(side * scale)) for side in document.size)
    page = document.image().resize((size[0], size[1]), Image.Resampling.LANCZOS)
    pen = ImageDraw.Draw(page)
    for word in document.words:
        _outline(pen, word.box, scale, _GREY, 1)
    for entity in document.entities:
        for box in _lines(document, entity):
            _outline(pen, box, scale, colours[entity.label], 2)
    pen.rectangle((0, 0, page.width - 1, page.height - 1), outline=_INK)
    cell.paste(page, (0, 0))
    text = _shortened(document.id, CELL[0])
    ImageDraw.Draw(cell).text((0, page.height + 3), text, fill=_INK, font=_font())
    return cell


def _outline(pen: ImageDraw.ImageDraw, box: Box, scale: float, colour: Colour, width: int) -> None:
    x0, y0, x1, y1 = (round(side * scale) for side in box)
    out = width - 1  # the second pixel goes outwards, off the text
    corners = (x0 - out, y0 - out, max(x0, x1) + out, max(y0, y1) + out)
    pen.rectangle(corners, outline=colour, width=width)


def _lines(document: Document, entity: Entity) -> Iterable[Box]:
    """Returns a box around the words that an entity has in each segment."""
    boxes: dict[int, Box] = {}
    for word in (document.words[place] for place in entity.words):
        x0, y0, x1, y1 = boxes.get(word.segment, word.box)
        a0, b0, a1, b1 = word.box
        boxes[word.segment] = (min(x0, a0), min(y0, b0), max(x1, a1), max(y1, b1))
    return boxes.values()


def _colours(labels: Sequence[str]) -> dict[str, Colour]:
    """Returns a colour for every label: nine that are told apart well, then hues in between."""
    colours: dict[str, Colour] = {}
    for place, label in enumerate(labels):
        part = _PALETTE[place] if place < len(_PALETTE) else _hue(place)
        colours[label] = (round(255 * part[0]), round(255 * part[1]), round(255 * part[2]))
    return colours


def _hue(place: int) -> tuple[float, float, float]:
    """Returns red, green and blue from 0 to 1: hues a golden section apart, in three depths."""
    return colorsys.hsv_to_rgb(place * 0.618034 % 1, 0.95, (0.85, 0.55, 0.95)[place % 3])


def _legend(colours: Mapping[str, Colour], width: int) -> Image.Image:
    """Returns the labels in their colours, in as many rows as they need."""
    entries = [*colours.items(), ("a word", _GREY)]
    font = _font()
    places: list[tuple[int, int]] = []
    x = y = _MARGIN
    for label, _ in entries:
        needed = 20 + round(font.getlength(label)) + 18
        if x + needed > width - _MARGIN and x > _MARGIN:
            x, y = _MARGIN, y + _LEGEND_ROW
        places.append((x, y))
        x += needed
    legend = Image.new("RGB", (width, y + _LEGEND_ROW + _MARGIN), "white")
    pen = ImageDraw.Draw(legend)
    for (label, colour), (left, top) in zip(entries, places, strict=True):
        pen.rectangle((left, top + 2, left + 13, top + 15), outline=colour, width=3)
        pen.text((left + 20, top), label, fill=_INK, font=font)
    return legend


def _shortened(text: str, width: int) -> str:
    """Returns the text, its front cut where it is wider than `width` pixels."""
    font = _font()
    if font.getlength(text) <= width:
        return text
    while text and font.getlength("…" + text) > width:
        text = text[1:]
    return "…" + text


def _font() -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(
        str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), 13
    )
