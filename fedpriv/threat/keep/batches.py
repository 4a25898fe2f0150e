"""The batch behind a message: as it is, with private fields blank, with other questions.

All are read by the model itself, from documents that differ in one thing only. So this works
for any document model, whatever it does to a page.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation
from torch import nn

from fedpriv.data.document import Document, Question
from fedpriv.data.examples import Examples
from fedpriv.data.redaction.fields import private_fields, without_fields
from fedpriv.models.base import DocumentModel
from fedpriv.models.page_geometry import in_model_pixels
from fedpriv.models.question_answering import DOCUMENT, QUESTION
from fedpriv.models.readers.reader import tokens_of
from fedpriv.models.readers.subwords import Subwords
from fedpriv.threat.access import Known
from fedpriv.threat.knowledge import TEXTS, Texts
from fedpriv.threat.truth import Field, Truth

NOWHERE = (0, 0, 0, 0)
MOST_SPREAD = 8
"""Pixels that shrinking a page may carry a field's ink beyond its box."""


class PrivatePages:
    """Reads the documents behind rows of examples.

    Args:
        examples: of which the rows are.
        documents: what their column `document` counts; empty where there are none.
        model: that has encoded them; None where there are no documents.
        private: keys of the private entities; none for all.
    """

    def __init__(
        self,
        examples: Examples,
        documents: Sequence[Document],
        model: nn.Module | None,
        private: Sequence[str] | None,
    ) -> None:
        self.examples, self.documents, self.private = examples, documents, private
        self.model = model if isinstance(model, DocumentModel) else None

    def read(self, rows: NDArray[np.int64], rng: np.random.Generator) -> tuple[Known, Texts, Truth]:
        """Returns what could be known of these rows, the text under each assumption, the truth.

        Args:
            rows: positions in the examples, B of them.
            rng: draws the words that stand for what is not known.
        """
        truth = self.truth(rows)
        if self.model is None:
            return Known(len(rows)), {"given": truth.columns}, truth
        pages = [self._page(int(row)) for row in rows]
        given = {name: array for name, array in truth.columns.items() if name not in self._of_page}
        texts = {
            name: given if name == "given" else self._text(pages, rows, name, rng)
            for name in TEXTS
            if name != "none"
        }
        if truth.pixels is None or truth.template is None:
            return Known(len(rows)), texts, truth
        private = _private(truth.pixels, truth.template, truth.fields)
        return Known(len(rows), truth.template, private), texts, truth

    def truth(self, rows: NDArray[np.int64]) -> Truth:
        """Returns what these rows hold, with the template of their pages."""
        columns = _columns(self.examples.batch(rows))
        pixels = columns.pop("pixels", None)
        if self.model is None:
            names, nothing = tuple(f"row {row}" for row in rows), ("",) * len(rows)
            return Truth(names, columns, pixels, (), nothing, nothing)
        pages = [self._page(int(row)) for row in rows]
        held = Held.of(self.model, columns, len(pages))
        blank = [] if pixels is None else [without_fields(p, self._keys(p)) for p in pages]
        return Truth(
            documents=tuple(page.id for page in pages),
            columns=columns,
            pixels=pixels,
            fields=tuple(
                tuple(
                    dataclasses.replace(field, tokens=held.tokens(row, field.text))
                    for field in self._fields(page)
                )
                for row, page in enumerate(pages)
            ),
            questions=tuple(held.question(row, page) for row, page in enumerate(pages)),
            answers=tuple(held.answer(row, page) for row, page in enumerate(pages)),
            template=np.stack([self._pixels(page) for page in blank]) if blank else None,
        )

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
        document = self.documents[int(self.examples.column(DOCUMENT)[row])]
        if QUESTION not in self.examples.columns:
            return document
        numbers = self.examples.column(QUESTION)
        first = numbers[self.examples.column(DOCUMENT) == self.examples.column(DOCUMENT)[row]].min()
        return dataclasses.replace(
            document, questions=(document.questions[int(numbers[row] - first)],)
        )

    def _window(self, row: int) -> int:
        """Returns which window of its page or question a row is, from 0."""
        by = QUESTION if QUESTION in self.examples.columns else DOCUMENT
        numbers = self.examples.column(by)
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
        shows = "pixels" in self.examples.shared
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


@dataclass(frozen=True)
class Held:
    """What rows hold of a page, which may be a window of it, and cut.

    Attributes:
        columns: of the rows.
        ids: the tokens of each row.
        subwords: of the model; None where it has none, and all of a page counts as held.
    """

    columns: Mapping[str, NDArray[Any]]
    ids: Sequence[frozenset[int]]
    subwords: Subwords | None

    @classmethod
    def of(cls, model: DocumentModel, columns: Mapping[str, NDArray[Any]], rows: int) -> Held:
        """Returns what these columns hold."""
        subwords = getattr(getattr(model, "reader", None), "subwords", None)
        if not isinstance(subwords, Subwords):
            return cls(columns, (frozenset(),) * rows, None)
        return cls(columns, [frozenset(ids) for ids in tokens_of(columns)], subwords)

    def tokens(self, row: int, text: str) -> tuple[int, ...]:
        """Returns the tokens of those words of a text that the row holds."""
        found = self._words(row, text, self.subwords) if self.subwords else ()
        return tuple(token for _, tokens in found for token in tokens)

    def question(self, row: int, page: Document) -> str:
        """Returns the words of the page's question that the row holds."""
        text = page.questions[0].text if page.questions else ""
        if self.subwords is None or QUESTION not in self.columns:
            return text
        cased = dataclasses.replace(self.subwords, lowercase=False)  # as some readers take it
        ways = [self._words(row, text, subwords) for subwords in (self.subwords, cased)]
        return " ".join(word for word, _ in max(ways, key=len))

    def answer(self, row: int, page: Document) -> str:
        """Returns what the row is labelled with: a span of it, or what is to be written."""
        ids, labels = self.columns.get("input_ids"), self.columns.get("labels")
        if self.subwords is not None and QUESTION in self.columns:
            if ids is not None and "start" in self.columns:
                start, end = int(self.columns["start"][row]), int(self.columns["end"][row])
                return self.subwords.text(ids[row, start : end + 1].tolist()) if start else ""
            if labels is not None:
                return self.subwords.text(labels[row][labels[row] >= 0].tolist())
        return next(iter(page.questions[0].answers), "") if page.questions else ""

    def _words(self, row: int, text: str, subwords: Subwords) -> list[tuple[str, list[int]]]:
        words = text.split()
        pairs = zip(words, subwords.pieces(words) if words else (), strict=True)
        return [(word, tokens) for word, tokens in pairs if self.ids[row].issuperset(tokens)]


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
