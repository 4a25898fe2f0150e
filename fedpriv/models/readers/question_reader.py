"""Questions about pages as LayoutLMv3 reads them, with the first and last token of the answer.

The input is that of transformers' processor, `<s> question </s></s> words </s>`, the question's
tokens at box 0; a page too long for one window gives several, each with the question in front.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.models.question_answering import Asked, asked, table
from fedpriv.models.readers.reader import PageReader, filled, scaled_boxes, square_pages
from fedpriv.models.readers.subwords import Window, windows

MARKS = 4
"""Special tokens of a window."""


@dataclass(frozen=True)
class QuestionReader(PageReader):
    """Turns questions about documents into arrays.

    A question takes at most half of a window, and is cut if it is longer.

    Args:
        subwords: tokenizer.
        max_length: L, tokens of a window.
        image_size: side of the square page image in pixels; None if the model reads no image.
        box_step: coordinates (0…1000) are rounded down to multiples of this.
    """

    max_length: int
    image_size: int | None
    box_step: int = 1

    def __post_init__(self) -> None:
        if self.max_length < 2 * MARKS:
            raise ValueError(
                f"max_length={self.max_length}: expected {2 * MARKS} or more, for {MARKS} special "
                "tokens, the question and the page"
            )

    def read(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per window of each question.

        Columns (N windows, L = max_length, D documents): input_ids, attention_mask and word (index
        into the document's words, -1 where none) of shape (N, L); bbox (N, L, 4), in 0…1000; start
        and end (N,), the first and last place of the answer, both 0 (that of `<s>`) in a window
        that does not hold it whole; those of `Asked`. Shared, where there is an image: pixels
        (D, 3, image_size, image_size), uint8.

        Raises:
            ValueError: if no document has a question.
        """
        pages = square_pages(documents, self.image_size)  # first: each page is drawn once so
        questions = asked(documents)
        subjects = {question.document: documents[question.document] for question in questions}
        pieces = {
            position: self.subwords.pieces([word.text for word in document.words])
            for position, document in subjects.items()
        }
        boxes = {p: scaled_boxes(document, self.box_step) for p, document in subjects.items()}
        rows: list[dict[str, NDArray[Any]]] = []
        for question in questions:
            position = question.document
            prompt = self.subwords.tokens(question.question.text)
            prompt = prompt[: (self.max_length - MARKS) // 2]
            span = gold_span(documents[position], question.question.answers)
            for window in windows(pieces[position], self.max_length - MARKS - len(prompt)):
                answer = _token_span(window, span, pieces[position])
                rows.append(self._row(question, prompt, window, boxes[position], answer))
        return table(rows, pages)

    def _row(
        self,
        question: Asked,
        prompt: list[int],
        window: Window,
        boxes: NDArray[np.int64],
        answer: tuple[int, int] | None,
    ) -> dict[str, NDArray[Any]]:
        sep, begin = self.subwords.sep, len(prompt) + MARKS - 1
        ids = [self.subwords.cls, *prompt, sep, sep, *window.ids, sep]
        start, end = (begin + place for place in answer) if answer else (0, 0)
        length, words = self.max_length, np.array(window.words, np.int64)
        return {
            "input_ids": filled(ids, length, self.subwords.pad),
            "attention_mask": filled([1] * len(ids), length),
            "bbox": filled(boxes[words], length, begin=begin),
            "word": filled(words, length, -1, begin=begin),
            "start": np.array(start),
            "end": np.array(end),
            **question.columns(),
        }


def gold_span(document: Document, answers: Sequence[str]) -> tuple[int, int] | None:
    """Returns the first and last word of the first run that reads as an accepted answer.

    The first answer that stands on the page counts. Upper and lower case and white space make no
    difference; where that finds none, neither do signs of punctuation at a word's ends.
    """
    words = [word.text for word in document.words]
    for plain in (str.lower, lambda text: text.lower().strip(string.punctuation)):
        page = [(plain(part), place) for place, text in enumerate(words) for part in text.split()]
        page = [(part, place) for part, place in page if part]
        parts = [part for part, _ in page]
        for answer in answers:
            wanted = [part for part in map(plain, answer.split()) if part]
            if not wanted:
                continue
            for start in range(len(parts) - len(wanted) + 1):
                if parts[start : start + len(wanted)] == wanted:
                    return page[start][1], page[start + len(wanted) - 1][1]
    return None


def _token_span(
    window: Window, span: tuple[int, int] | None, pieces: Sequence[Sequence[int]]
) -> tuple[int, int] | None:
    """Returns the first and last token of a span of words; None if the window cuts it."""
    if span is None:
        return None
    first, last = span
    starts = [i for i, word in enumerate(window.words) if word == first and window.first[i]]
    ends = [i for i, word in enumerate(window.words) if word == last]
    if not starts or len(ends) < len(pieces[last]):
        return None
    return starts[0], ends[-1]
