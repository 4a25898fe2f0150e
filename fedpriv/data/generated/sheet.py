"""A page on which words are set. All generated data sets draw on it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedpriv.data.document import Entity, Question, Word
from fedpriv.data.drawn_page import Drawing, PageText
from fedpriv.data.generated.glyphs import Colour, Face, Pixels, set_string
from fedpriv.data.generated.invoice_style import WHITE

Align = Literal["left", "center", "right"]


class Sheet:
    """A white page in the making: pixels, words, and which words belong to which entity.

    Args:
        size: width and height in pixels.
    """

    def __init__(self, size: tuple[int, int]) -> None:
        self.width, self.height = size
        self.pixels: Pixels = np.full((self.height, self.width, 3), 255, np.uint8)
        self.words: list[Word] = []
        self.entities: list[Entity] = []
        self._segment = 0

    def set_line(
        self,
        text: str,
        face: Face,
        ink: Colour,
        span: tuple[int, int],
        baseline: int,
        *,
        paper: Colour = WHITE,
        align: Align = "left",
    ) -> int:
        """Sets one string, a segment of its own, and returns where it ends.

        Args:
            text: words separated by blanks.
            face: typeface and size; a string too long for its span is set smaller.
            ink: colour of the text.
            span: left and right end of the room, in pixels.
            baseline: of the line, in pixels from the top.
            paper: colour of the ground.
            align: where in the room the string stands.
        """
        setting = set_string(face, text, ink, paper, span[1] - span[0])
        pen = span[0] + offset(align, span[1] - span[0] - setting.width)
        for word, patch in setting.words:
            height, width, _ = patch.pixels.shape
            left, top = pen + patch.left, baseline + patch.top
            right, bottom = left + width, top + height
            self.pixels[top:bottom, left:right] = patch.pixels
            box = (float(left), float(top), float(right), float(bottom))
            self.words.append(Word(word, box, self._segment))
            pen += patch.advance + setting.blank
        self._segment += 1
        return pen - setting.blank

    def label_from(self, first: int, label: str) -> None:
        """Makes an entity of the words from position `first` on."""
        self.entities.append(Entity(label, tuple(range(first, len(self.words)))))

    def drawing(self, questions: tuple[Question, ...] = ()) -> Drawing:
        """Returns the finished page with the questions on it."""
        text = PageText(tuple(self.words), tuple(self.entities), questions)
        return Drawing(self.pixels, text)


def offset(align: Align, room: int) -> int:
    """Returns how far from the left something stands that leaves so many pixels of room."""
    return {"left": 0, "center": room // 2, "right": room}[align]
