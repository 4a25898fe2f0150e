"""One window of each page, cut around a field and scaled so that its text can be read."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedpriv.data.document import (
    Box,
    DataError,
    Document,
    DocumentSet,
    DocumentSource,
    Entity,
    Question,
    Word,
)
from fedpriv.data.links import kept_entities


@dataclass(frozen=True)
class Cropped:
    """Cuts a square around one field out of every document of a data set.

    For attacks on real pages. A receipt or a form that is shrunk whole to the 224 x 224 pixels of
    a model's input can be read by no OCR, so that nothing of it could be found in what an attack
    recovers, however good. A window of it, at the size of its text, can.

    The window is centred on the first entity of the label that fits, but for the page's edges. Of
    the words, those wholly inside are kept; of the entities, those whose words are all kept, with
    the links among them; of the questions, those whose key is the label of such an entity, or of
    which an accepted answer stands in the kept words. Documents without a fitting entity are among
    `skipped`.

    Attributes:
        source: the whole pages.
        size: side of the window in pixels; that of the model's input.
        key: label of the field.
        word_height: what the median height of the field's word boxes becomes, in pixels. Larger
            where the page would otherwise be smaller than the window.
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
        windows: list[Document] = []
        skipped = list(found.skipped)
        for document in found.documents:
            try:
                windows.append(self._window(document))
            except DataError as error:
                skipped.append(error)
        name = f"{found.name}, cut around {self.key}"
        return DocumentSet(name, tuple(windows), found.labels, tuple(skipped))

    def _window(self, document: Document) -> Document:
        """Returns the window; raises `DataError` where there is none."""
        entities = [entity for entity in document.entities if entity.label == self.key]
        if not entities:
            raise DataError(_where(document), f"no {self.key}")
        for entity in entities:
            place = self._place(document, entity)
            if place is not None:
                return _cut(document, place, self.size)
        raise DataError(
            _where(document),
            f"its {self.key} does not fit into {self.size} pixels, {self.word_height:g} a line",
        )

    def _place(self, document: Document, entity: Entity) -> Box | None:
        """Returns the window around an entity in the page's pixels; none where it does not fit."""
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
    left, top, right, _ = place
    scale = size / (right - left)
    kept = [at for at, word in enumerate(document.words) if _inside(word.box, place)]
    entities, links = kept_entities(document, {old: new for new, old in enumerate(kept)})
    words = tuple(
        dataclasses.replace(
            document.words[at], box=_scaled(document.words[at].box, left, top, scale)
        )
        for at in kept
    )
    return dataclasses.replace(
        document,
        page=_pixels(document, place, size),
        size=(size, size),
        words=words,
        entities=entities,
        links=links,
        questions=tuple(q for q in document.questions if _answered(q, words, entities)),
    )


def _inside(box: Box, place: Box) -> bool:
    # Less than a thousandth of a pixel outside is rounding.
    return all(box[k] >= place[k] - 1e-3 and box[k + 2] <= place[k + 2] + 1e-3 for k in (0, 1))


def _scaled(box: Box, left: float, top: float, scale: float) -> Box:
    x0, y0, x1, y1 = box
    return (
        (x0 - left) * scale,
        (y0 - top) * scale,
        (x1 - left) * scale,
        (y1 - top) * scale,
    )


def _pixels(document: Document, place: Box, size: int) -> NDArray[np.uint8]:
    window = document.image().resize((size, size), Image.Resampling.BICUBIC, box=place)
    return np.array(window, dtype=np.uint8)


def _answered(question: Question, words: Sequence[Word], entities: Sequence[Entity]) -> bool:
    if any(entity.label == question.key for entity in entities):
        return True
    text = _plain(" ".join(word.text for word in words))
    return any(f" {_plain(answer)} " in f" {text} " for answer in question.answers)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _where(document: Document) -> Path | str:
    return document.page if isinstance(document.page, Path) else document.id
