"""Questions as VT5 reads them: a prompt, then words with boxes (PFL-DocVQA, App. B)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.models.generation import target
from fedpriv.models.question_answering import Asked, asked, table
from fedpriv.models.readers.reader import PageReader, filled, square_pages

Coordinates = Literal["thousandths", "published"]

PROMPT_BOX = (0, 0, 1000, 1000)


@dataclass(frozen=True)
class VT5Reader(PageReader):
    """Turns questions about documents into arrays.

    Args:
        subwords: tokenizer.
        max_length: tokens of question and words, the end token included; what is longer is cut.
        answer_length: tokens of an answer, the end token included.
        image_size: side of the square page image.
        coordinates: "thousandths" of the page, 0…1000; or "published": the authors' code copies
            coordinates between 0 and 1 into integers, so that nearly all become 0 and the model
            hardly sees the place of a word. For comparison with the paper's numbers.
        box_step: coordinates are rounded down to multiples of this.
    """

    max_length: int = 512
    answer_length: int = 32
    image_size: int = 224
    coordinates: Coordinates = "thousandths"
    box_step: int = 1

    def read(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per question.

        Columns (N questions, L = max_length, A = answer_length, D documents): input_ids,
        attention_mask (N, L); bbox (N, L, 4); labels (N, A), the first accepted answer; those of
        `Asked`. Shared: pixels (D, 3, image_size, image_size), uint8.

        Raises:
            ValueError: if no document has a question.
        """
        pages = square_pages(documents, self.image_size)  # first: each page is drawn once so
        questions = asked(documents)
        positions = {question.document for question in questions}
        contexts = {position: self._context(documents[position]) for position in positions}
        rows = [self._row(question, *contexts[question.document]) for question in questions]
        return table(rows, pages)

    def _context(self, document: Document) -> tuple[list[int], list[tuple[int, ...]]]:
        """Returns the tokens of all words and the box of each."""
        width, height = document.size
        boxes = np.array([word.box for word in document.words]).reshape(-1, 4)
        share = np.clip(boxes / [width, height, width, height], 0, 1)
        scale = 1000 if self.coordinates == "thousandths" else 1
        whole = (share * scale).astype(np.int64) // self.box_step * self.box_step
        pieces = self.subwords.pieces([word.text for word in document.words])
        ids = [token for tokens in pieces for token in tokens]
        repeated = np.repeat(whole, [len(tokens) for tokens in pieces], axis=0)
        return ids, [tuple(box) for box in repeated.tolist()]

    def _row(
        self, question: Asked, context: list[int], boxes: list[tuple[int, ...]]
    ) -> dict[str, NDArray[Any]]:
        with_case = dataclasses.replace(self.subwords, lowercase=False)
        prompt = with_case.tokens(f"question: {question.question.text} context:")
        ids = [*prompt, *context][: self.max_length - 1]
        places = [*[PROMPT_BOX] * len(prompt), *boxes][: self.max_length - 1]
        row = {
            "input_ids": filled([*ids, self.subwords.sep], self.max_length, self.subwords.pad),
            "attention_mask": filled([1] * (len(ids) + 1), self.max_length),
            "bbox": filled(places, self.max_length),
        }
        small = {name: column.astype(np.int32) for name, column in row.items()}
        answer = self.subwords.tokens(question.answer)
        labels = target(answer, self.answer_length, self.subwords.sep)
        return {**small, "labels": labels, **question.columns()}
