"""Setting words in the DejaVu typefaces that come with matplotlib."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Colour = tuple[int, int, int]
Pixels = NDArray[np.uint8]

_SMALLEST_SIZE = 4


class Face(NamedTuple):
    """A typeface's file name, without ending, and its size in pixels."""

    name: str
    size: int


class _Glyph(NamedTuple):
    """A character: ink (height × width, 255 is full), place of the ink, and advance of the pen.

    Places are pixels right of the pen and below the baseline.
    """

    ink: Pixels
    left: int
    top: int
    advance: int


class Patch(NamedTuple):
    """A word on its background (height × width × 3), cut to the ink; places as for a glyph."""

    pixels: Pixels
    left: int
    top: int
    advance: int


class Setting(NamedTuple):
    """A string that is set: its words, its width and the width of a blank, in pixels."""

    words: list[tuple[str, Patch]]
    width: int
    blank: int


def font_file(name: str) -> str:
    """Returns the file of a typeface by its name, such as DejaVuSans."""
    # Imported here because matplotlib takes a quarter of a second, and only drawing needs it.
    from matplotlib import get_data_path

    return str(Path(get_data_path()) / "fonts" / "ttf" / f"{name}.ttf")


@lru_cache(maxsize=256)
def load_font(file: str, size: int) -> ImageFont.FreeTypeFont:
    """Returns a typeface, set in the basic layout, which every build of Pillow has.

    So that pages are the same everywhere.
    """
    return ImageFont.truetype(file, size, layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=8192)
def _glyph(face: Face, character: str) -> _Glyph:
    """Draws a character once; words are put together from these, without kerning.

    Setting every word with `ImageDraw.text` would take longer than all else on the page.
    """
    font = load_font(font_file(face.name), face.size)
    pen, baseline = face.size, 2 * face.size
    tile = Image.new("L", (4 * face.size, 3 * face.size))
    ImageDraw.Draw(tile).text((pen, baseline), character, fill=255, font=font, anchor="ls")
    left, top, right, bottom = tile.getbbox() or (pen, baseline, pen, baseline)
    ink = np.array(tile, dtype=np.uint8)[top:bottom, left:right]
    return _Glyph(ink, left - pen, top - baseline, round(font.getlength(character)))


@lru_cache(maxsize=4096)
def text_width(face: Face, text: str) -> int:
    """Returns how far a text, blanks included, moves the pen."""
    return sum(_glyph(face, character).advance for character in text)


@lru_cache(maxsize=2048)
def set_word(face: Face, word: str, ink: Colour, paper: Colour) -> Patch:
    """Sets a word. The cache helps with captions and item names, which occur on every page."""
    pen, placed = 0, []
    for character in word:
        glyph = _glyph(face, character)
        placed.append((pen + glyph.left, glyph))
        pen += glyph.advance
    left = min(x for x, _ in placed)
    top = min(glyph.top for _, glyph in placed)
    right = max(x + glyph.ink.shape[1] for x, glyph in placed)
    bottom = max(glyph.top + glyph.ink.shape[0] for _, glyph in placed)
    cover: Pixels = np.zeros((bottom - top, right - left), np.uint8)
    for x, glyph in placed:
        height, width = glyph.ink.shape
        y = glyph.top - top
        part = cover[y : y + height, x - left : x - left + width]
        np.maximum(part, glyph.ink, out=part)
    return Patch(_mixtures(ink, paper)[cover], left, top, pen)


def set_string(face: Face, text: str, ink: Colour, paper: Colour, room: int) -> Setting:
    """Sets a string in the largest size that fits, at most the size of the face.

    Args:
        face: typeface and size.
        text: words separated by blanks.
        ink: colour of the text.
        paper: colour of the ground.
        room: in pixels.
    """
    words = text.split()
    while True:
        blank = text_width(face, " ")
        patches = [set_word(face, word, ink, paper) for word in words]
        width = sum(patch.advance for patch in patches) + blank * (len(words) - 1)
        if width <= room or face.size <= _SMALLEST_SIZE:
            return Setting(list(zip(words, patches, strict=True)), width, blank)
        face = Face(face.name, face.size - 1)


@lru_cache(maxsize=256)
def _mixtures(ink: Colour, paper: Colour) -> Pixels:
    """Returns the 256 colours (256 × 3) between paper and ink."""
    cover = np.arange(256)[:, None] / 255
    return (cover * ink + (1 - cover) * paper).round().astype(np.uint8)
