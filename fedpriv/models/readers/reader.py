"""Documents as windows of tokens, boxes and tags, for all models that tag words."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from PIL import Image
from torch import Tensor

from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.models.readers.subwords import Subwords, Window, windows

IGNORED = -100
"""Stands for a missing label; the loss leaves such tokens out."""

Boxes = Literal["segment", "word"]
"""Which box a token has: that of its text line or form field, or that of its word."""


def read_places(columns: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Returns which places of `input_ids` hold text, (B, L).

    Of models without an attention mask, whose labels are the next tokens, all up to the last label.
    """
    ids = columns["input_ids"]
    if "attention_mask" in columns:
        return np.asarray(columns["attention_mask"] > 0)
    if "labels" not in columns:
        return np.ones(ids.shape, dtype=np.bool_)
    return np.logical_or.accumulate(columns["labels"][:, ::-1] >= 0, axis=1)[:, ::-1]


def tokens_of(columns: Mapping[str, NDArray[Any]]) -> list[list[int]]:
    """Returns the tokens of each row, those that a decoder of its own reads behind the others.

    These are its answer but for the end. Labels as long as the input are tags, or the input's own
    next tokens.
    """
    ids, labels = columns.get("input_ids"), columns.get("labels")
    written = labels is not None and (ids is None or labels.shape != ids.shape)
    found: list[list[int]] = [[] for _ in next(iter(columns.values()), ())]
    if ids is not None:
        for own, row, read in zip(found, ids, read_places(columns), strict=True):
            own += row[read].tolist()
    if labels is not None and written:
        for own, row in zip(found, labels, strict=True):
            own += row[row >= 0][:-1].tolist()
    return found


@dataclass(frozen=True)
class PageReader:
    """The base of all that turn documents into arrays with a tokenizer.

    Attributes:
        subwords: the tokenizer.
    """

    subwords: Subwords

    def settings(self) -> dict[str, Any]:
        """Returns all settings by name, and the hash of the tokenizer's vocabulary."""
        names = [field.name for field in dataclasses.fields(self) if field.name != "subwords"]
        settings = {name: getattr(self, name) for name in names}
        return {**settings, "vocabulary": self.subwords.digest}


@dataclass(frozen=True)
class Reader(PageReader):
    """Turns documents into arrays.

    Args:
        subwords: tokenizer.
        max_length: L, tokens of a window, the two special ones included.
        image_size: side of the square page image in pixels; None if the model reads no image.
        box_step: coordinates (0…1000) are rounded down to multiples of this.
        boxes: "segment", as LayoutLMv3 has it, or "word".
    """

    max_length: int
    image_size: int | None
    box_step: int = 1
    boxes: Boxes = "segment"

    def __post_init__(self) -> None:
        if self.max_length < 3:
            raise ValueError(
                f"max_length={self.max_length}: expected 3 or more, two special tokens and a word's"
            )

    def read(self, documents: Sequence[Document], tags: Sequence[str]) -> Examples:
        """Returns one row per window.

        Columns (N windows, L = max_length, D documents): input_ids, attention_mask, labels and
        word (index into the document's words, -1 where none) of shape (N, L); bbox (N, L, 4), in
        0…1000; document (N,). Shared, where there is an image: pixels (D, 3, image_size,
        image_size), uint8.

        Raises:
            ValueError: if a document has a label that is not among the tags.
        """
        numbers = {tag: number for number, tag in enumerate(tags)}
        pages = square_pages(documents, self.image_size)  # first: each page is drawn once so
        rows: list[dict[str, NDArray[np.int64]]] = []
        for position, document in enumerate(documents):
            unknown = {entity.label for entity in document.entities} - {tag[2:] for tag in tags}
            if unknown:
                raise ValueError(
                    f"document {document.id}: labels {sorted(unknown)} are not the model's"
                )
            labels = np.array([numbers[tag] for tag in document.tags()], dtype=np.int64)
            boxes = scaled_boxes(document, self.box_step, self.boxes)
            pieces = self.subwords.pieces([word.text for word in document.words])
            for window in windows(pieces, self.max_length - 2):
                row = self._row(window, boxes, labels)
                rows.append({**row, "document": np.array(position, dtype=np.int64)})
        columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        return Examples.of(columns, {"pixels": (pages, "document")} if pages is not None else None)

    def _row(
        self, window: Window, boxes: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> dict[str, NDArray[np.int64]]:
        length, ids = self.max_length, [self.subwords.cls, *window.ids, self.subwords.sep]
        words, first = np.array(window.words, np.int64), np.array(window.first, np.bool_)
        return {
            "input_ids": filled(ids, length, self.subwords.pad),
            "attention_mask": filled([1] * len(ids), length),
            "bbox": filled(boxes[words], length, begin=1),
            "labels": filled(np.where(first, labels[words], IGNORED), length, IGNORED, begin=1),
            "word": filled(np.where(first, words, -1), length, -1, begin=1),
        }


def filled(values: ArrayLike, length: int, fill: int = 0, begin: int = 0) -> NDArray[np.int64]:
    """Returns an array of `length` rows with the values from row `begin` on, filled up."""
    given = np.asarray(values, dtype=np.int64)
    rows = np.full((length, *given.shape[1:]), fill, dtype=np.int64)
    rows[begin : begin + len(given)] = given
    return rows


def scaled_boxes(document: Document, step: int = 1, boxes: Boxes = "segment") -> NDArray[np.int64]:
    """Returns the box of each word, or of its segment, in 0…1000 of the page, (words, 4).

    Args:
        document: of any number of words.
        step: coordinates are rounded down to multiples of this.
        boxes: of the segments or of the words.
    """
    width, height = document.size
    own = [word.box for word in document.words]
    pixels = np.array(own if boxes == "word" else document.segment_boxes(), dtype=np.float64)
    shares = pixels.reshape(-1, 4) / [width, height, width, height]
    scaled = np.clip(shares, 0, 1) * 1000
    return scaled.astype(np.int64) // step * step


def words_of_tokens(word: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the index of each token's word, of shape (N, L).

    It is -1 at special tokens, at padding, and at tokens of a word that began in another window.

    Args:
        word: of the first token of each word, -1 elsewhere, (N, L).
        mask: 1 up to the window's last token, a special one, (N, L).
    """
    places = np.where(word >= 0, np.arange(word.shape[1]), 0)
    beginnings = np.maximum.accumulate(places, axis=1)
    filled = np.take_along_axis(word, beginnings, axis=1)
    inside = np.zeros_like(mask)
    inside[:, 1:-1] = mask[:, 2:]
    return np.where(inside == 1, filled, -1)


def square_pages(documents: Sequence[Document], side: int | None) -> NDArray[np.uint8] | None:
    """Returns the pages scaled to squares, (D, 3, side, side); None if `side` is None."""
    if side is None:
        return None
    pages = (page.image().resize((side, side), Image.Resampling.BILINEAR) for page in documents)
    return np.stack([np.moveaxis(np.asarray(page, dtype=np.uint8), -1, 0) for page in pages])


def normalised(pixels: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns pixels of 0…255 as numbers of -1…1, with mean and deviation 0.5."""
    return (pixels.to(dtype) / 255 - 0.5) / 0.5
