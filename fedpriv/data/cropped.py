"""One window of each page, cut around a field and scaled so that its text can be read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fedpriv.data import promises
from fedpriv.data.document import (
    Box,
    DataError,
    Document,
    DocumentSet,
    DocumentSource,
    Entity,
    Word,
    read_all,
)
from fedpriv.data.links import kept_entities


@dataclass(frozen=True)
class Cropped:
    """Cuts a square around one field out of every document of a data set.

    For attacks on real pages. No OCR can read a receipt or a form that is shrunk whole to the
    224 x 224 pixels of a model's input, so nothing could be found in the best reconstruction. A
    window of it, at the size of its text, can be read.

    The window is centred on the first entity of the label that fits, and moved where it would leave
    the page. It keeps the words that lie wholly inside, the entities that keep all their words, and
    the links among them. A question is kept if its key is the label of a kept entity, or if an
    accepted answer stands in the kept words. Documents without a fitting entity are `skipped`.

    Attributes:
        source: the reader of the whole pages.
        size: the side of the square window in pixels; it should be the input size of the model.
        key: the label of the field around which the window is cut.
        word_height: the median height in pixels that the word boxes of the field get in the window.
            They become larger if the page would otherwise be smaller than the window.
    """

    source: DocumentSource
    size: int
    key: str
    word_height: float = 11.0

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 < self.word_height <= self.size:
            raise ValueError(
                f"size={self.size}, word_height={self.word_height}: expected words of more than 0 "
                "and at most `size` pixels"
            )

    def load(self) -> DocumentSet:
        """Reads everything and cuts the windows, which are kept in memory.

        Raises:
            ValueError: if the data set has no such label.
        """
        found = self.source.load()
        if self.key not in found.labels:
            raise ValueError(
                f"key={self.key!r}: the labels of {found.name} are {', '.join(found.labels)}"
            )

        def window(document: Document) -> Document:
            promises.check(document, found)
            where = document.page if isinstance(document.page, Path) else document.id
            entities = [entity for entity in document.entities if entity.label == self.key]
            if not entities:
                raise DataError(where, f"no {self.key}")
            for entity in entities:
                place = self._place(document, entity)
                if place is not None:
                    return _cut(document, place, self.size)
            why = (
                f"its {self.key} does not fit into {self.size} pixels, {self.word_height:g} a line"
            )
            raise DataError(where, why)

        windows, skipped = read_all(window, found.documents, "skip")
        name = f"{found.name}, cut around {self.key}"
        return DocumentSet(name, tuple(windows), found.labels, (*found.skipped, *skipped))

    def _place(self, document: Document, entity: Entity) -> Box | None:
        """Returns the window around an entity, in pixels of the page; None if it does not fit."""
        boxes = np.array([document.words[word].box for word in entity.words], dtype=np.float64)
        page = np.array(document.size, dtype=np.float64)
        height = float(np.median(boxes[:, 3] - boxes[:, 1]))
        side = min(self.size * height / self.word_height, page.min())
        low, high = boxes[:, :2].min(0), boxes[:, 2:].max(0)
        if side < (high - low).max():
            return None
        corner = np.clip((low + high - side) / 2, 0, page - side)
        # Rounding must not move the window off a field as large as the window.
        corner = np.clip(corner, high - side, low)
        left, top = corner.tolist()
        return (left, top, left + side, top + side)


def _cut(document: Document, place: Box, size: int) -> Document:
    left, top, right, bottom = place
    scale = size / (right - left)
    words: list[Word] = []
    moved: dict[int, int] = {}
    for old, word in enumerate(document.words):
        x0, y0, x1, y1 = word.box
        # Less than a thousandth of a pixel outside is rounding.
        if min(x0 - left, y0 - top, right - x1, bottom - y1) < -1e-3:
            continue
        box = ((x0 - left) * scale, (y0 - top) * scale, (x1 - left) * scale, (y1 - top) * scale)
        moved[old] = len(words)
        words.append(dataclasses.replace(word, box=box))
    entities, links = kept_entities(document, moved)
    labels = {entity.label for entity in entities}
    text = _plain(" ".join(word.text for word in words))
    questions = tuple(
        question
        for question in document.questions
        if question.key in labels
        or any(f" {_plain(answer)} " in f" {text} " for answer in question.answers)
    )
    window = document.image().resize((size, size), Image.Resampling.BICUBIC, box=place)
    return dataclasses.replace(
        document,
        page=np.array(window, dtype=np.uint8),
        size=(size, size),
        words=tuple(words),
        entities=entities,
        links=links,
        questions=questions,
    )


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())
