"""The batch behind a message: as it is, with private fields blank, with other questions.

All are read by the model itself, from documents that differ in one thing only. So this works
for any document model, whatever it does to a page.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation

from fedpriv.data.document import Document, Question
from fedpriv.data.redaction.fields import private_fields, without_fields
from fedpriv.federation.dataset import FederatedDataset
from fedpriv.models.base import DocumentModel
from fedpriv.models.page_geometry import in_model_pixels
from fedpriv.models.question_answering import DOCUMENT, QUESTION
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.threat.access import Known
from fedpriv.threat.knowledge import TEXTS, Texts
from fedpriv.threat.truth import Field, Truth

NOWHERE = (0, 0, 0, 0)
MOST_SPREAD = 8
"""Pixels that shrinking a page may carry a field's ink beyond its box."""


class PrivatePages:
    """Reads the documents behind rows of the training examples.

    Args:
        bound: data and model.
        private: keys of the private entities; none for all.
        seed: of the run, with which the model is built.

    Raises:
        ValueError: if a key is none of the documents' entities'.
    """

    def __init__(self, bound: FederatedDataset, private: Sequence[str] | None, seed: int) -> None:
        self.train, self.documents, self.private = bound.train, bound.documents, private
        model = seeded_model(bound.build_model, seed) if bound.documents else None
        self.model = model if isinstance(model, DocumentModel) else None

    def read(self, rows: NDArray[np.int64], rng: np.random.Generator) -> tuple[Known, Texts, Truth]:
        """Returns what could be known of these rows, the text under each assumption, the truth.

        Args:
            rows: positions in the training examples, B of them.
            rng: draws the words that stand for what is not known.
        """
        columns = _columns(self.train.batch(rows))
        pixels = columns.pop("pixels", None)
        if self.model is None:
            plain = Truth((), columns, pixels, (), ("",) * len(rows), ("",) * len(rows))
            return Known(len(rows)), {"given": columns}, plain
        pages = [self._page(int(row)) for row in rows]
        questions = [page.questions[0] if page.questions else None for page in pages]
        given = {name: array for name, array in columns.items() if name not in self._of_page}
        texts = {
            name: given if name == "given" else self._text(pages, rows, name, rng)
            for name in TEXTS
            if name != "none"
        }
        truth = Truth(
            documents=tuple(page.id for page in pages),
            columns=columns,
            pixels=pixels,
            fields=tuple(self._fields(page) for page in pages),
            questions=tuple(question.text if question else "" for question in questions),
            answers=tuple(
                next(iter(question.answers), "") if question else "" for question in questions
            ),
        )
        if pixels is None:
            return Known(len(rows)), texts, truth
        blank = np.stack([self._pixels(without_fields(page, self._keys(page))) for page in pages])
        return Known(len(rows), blank, _private(pixels, blank, truth.fields)), texts, truth

    @functools.cached_property
    def _of_page(self) -> frozenset[str]:
        """The columns in which the model has the page itself: no text that could be known.

        They differ between a black page and a white one. So a Pix2Struct's patches are found, and
        whatever a processor makes of an image.
        """
        page = dataclasses.replace(self._page(0), white=())
        black, white = (
            _columns(self._reader.encode([one]).batch(np.array([0])))
            for one in (
                dataclasses.replace(page, page=np.full(page.size[::-1], shade, np.uint8))
                for shade in (0, 255)
            )
        )
        return frozenset(name for name in black if not np.array_equal(black[name], white[name]))

    def _page(self, row: int) -> Document:
        """Returns the document of a row, with that row's question only."""
        document = self.documents[int(self.train.column(DOCUMENT)[row])]
        if QUESTION not in self.train.columns:
            return document
        numbers = self.train.column(QUESTION)
        first = numbers[self.train.column(DOCUMENT) == self.train.column(DOCUMENT)[row]].min()
        return dataclasses.replace(
            document, questions=(document.questions[int(numbers[row] - first)],)
        )

    def _window(self, row: int) -> int:
        """Returns which window of its page or question a row is, from 0."""
        by = QUESTION if QUESTION in self.train.columns else DOCUMENT
        numbers = self.train.column(by)
        return int((numbers[:row] == numbers[row]).sum())

    def _keys(self, page: Document) -> list[str] | None:
        """Returns the private keys that this page has."""
        if self.private is None:
            return None
        return [key for key in self.private if any(e.label == key for e in page.entities)]

    def _fields(self, page: Document) -> tuple[Field, ...]:
        fields = private_fields(page, self._keys(page))
        places = [field.box for field in fields]
        # A model that makes no `pixels` of a page shows its fields nowhere.
        shows = "pixels" in self.train.shared
        boxes = in_model_pixels(self._reader, page, places) if shows else [NOWHERE] * len(places)
        return tuple(
            Field(field.key, field.text, box) for field, box in zip(fields, boxes, strict=True)
        )

    def _pixels(self, page: Document) -> NDArray[np.uint8]:
        pixels: NDArray[np.uint8] = self._reader.encode([page]).shared["pixels"][0][0]
        return pixels

    def _text(
        self,
        pages: Sequence[Document],
        rows: NDArray[np.int64],
        name: str,
        rng: np.random.Generator,
    ) -> dict[str, NDArray[Any]]:
        """Returns the columns of the pages with their questions partly made up."""
        read: list[dict[str, NDArray[Any]]] = []
        for page, row in zip(pages, rows, strict=True):
            examples = self._reader.encode([_asking(page, name, rng)])
            # The last window where there are not as many as of the true question.
            window = min(self._window(int(row)), len(examples) - 1)
            read.append(_columns(examples.batch(np.array([window]))))
        names = [column for column in read[0] if column not in self._of_page]
        return {column: np.concatenate([one[column] for one in read]) for column in names}

    @property
    def _reader(self) -> DocumentModel:
        if self.model is None:
            raise TypeError("there are no documents to read")
        return self.model


def _asking(page: Document, name: str, rng: np.random.Generator) -> Document:
    """Returns the page with what is not known of question and answer made of its words."""
    if not page.questions or not page.words:
        return page
    words = [word.text for word in page.words]
    question = page.questions[0]
    text, answers = question.text, question.answers
    if name != "question":
        text = " ".join(rng.choice(words, size=len(text.split())))
    if name != "answer":
        answers = (str(rng.choice(words)),)
    return dataclasses.replace(page, questions=(Question(question.key, text, answers),))


def _columns(batch: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in batch.items()}


def _private(
    pixels: NDArray[np.uint8], blank: NDArray[np.uint8], fields: Sequence[Sequence[Field]]
) -> NDArray[np.bool_]:
    """Returns where the private fields are, (B, 1, H, W).

    Their boxes, all widened alike until they hold all that blanking changed: shrinking a page
    carries ink across the edge of a box.
    """
    inside = np.zeros((len(pixels), 1, *pixels.shape[2:]), dtype=np.bool_)
    for place, page in enumerate(fields):
        for left, top, right, bottom in (field.box for field in page):
            inside[place, 0, top:bottom, left:right] = True
    changed = (pixels != blank).any(1, keepdims=True)
    square = np.ones((1, 1, 3, 3), dtype=np.bool_)
    for _ in range(MOST_SPREAD):
        if not (changed & ~inside).any():
            break
        inside = binary_dilation(inside, square)
    private: NDArray[np.bool_] = inside | changed
    return private
