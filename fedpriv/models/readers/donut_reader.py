"""Questions about page images as Donut reads them: a prompt of tokens and the page."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tokenizers import AddedToken, Tokenizer

from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.models.generation import continued, target
from fedpriv.models.question_answering import asked, table
from fedpriv.models.readers.reader import PageReader
from fedpriv.models.readers.subwords import Subwords

START, QUESTION, QUESTION_END = "<s_docvqa>", "<s_question>", "</s_question>"
ANSWER, ANSWER_END = "<s_answer>", "</s_answer>"
PROMPT = (START, QUESTION, QUESTION_END, ANSWER)
MARKS = (*PROMPT, ANSWER_END)
"""The tokens around a question and at the end of its answer, of the published model for DocVQA."""


@dataclass(frozen=True)
class DonutReader(PageReader):
    """Turns questions about page images into arrays.

    Args:
        subwords: tokenizer, with the tokens of `MARKS`.
        max_length: L, tokens of prompt and answer; a question that is too long is cut.
        answer_length: A, tokens of an answer, the end token included.
        image_size: height and width of the page image in pixels.
    """

    max_length: int = 128
    answer_length: int = 48
    image_size: tuple[int, int] = (1280, 960)

    def __post_init__(self) -> None:
        if None in (ids := self._marks()):
            raise ValueError(f"the tokenizer does not know all of {MARKS}: {ids}; see with_prompt")
        if not 0 < self.answer_length < self.max_length - len(PROMPT):
            raise ValueError(
                f"answer_length={self.answer_length}: expected 1 or more, and less than "
                f"max_length - {len(PROMPT)} = {self.max_length - len(PROMPT)}, to leave room for "
                "the question"
            )

    def read(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per question.

        Columns (N questions, L = max_length, D documents): input_ids (N, L), prompt and answer
        without its end token; prompt (N,), how many of them are the prompt's; labels (N, L), at
        each place the token to follow, only where that is the first accepted answer's, its mark
        `</s_answer>` or the end; those of `Asked`. Shared: pixels (D, 3, height, width), uint8.

        Raises:
            ValueError: if no document has a question.
        """
        # First: each page is drawn once so.
        pages = [framed(document.image(), self.image_size) for document in documents]
        rows = []
        for question in asked(documents):
            tokens = self.subwords.tokens(question.question.text)
            tokens = tokens[: self.max_length - len(PROMPT) - self.answer_length]
            start, begin, end, answer, answer_end = self._marks()
            written = [*self.subwords.tokens(question.answer), answer_end]
            wanted = target(written, self.answer_length, self.subwords.sep)
            prompt = [start, begin, *tokens, end, answer]
            rows.append(continued(question, prompt, wanted, self.max_length, self.subwords.pad))
        return table(rows, np.stack(pages))

    @property
    def answer_end(self) -> int:
        """The token that marks the end of an answer."""
        return self._marks()[-1]

    def settings(self) -> dict[str, Any]:
        """Returns all settings as JSON can hold them."""
        return {**super().settings(), "image_size": list(self.image_size)}

    def _marks(self) -> list[int]:
        return [cast(int, self.subwords.tokenizer.token_to_id(token)) for token in MARKS]


def with_prompt(subwords: Subwords) -> Subwords:
    """Returns a copy that knows the tokens of `MARKS`; new ones are the last of the vocabulary.

    Words keep their case, as the published tokenizer has them; the shipped one knows none.
    """
    tokenizer = Tokenizer.from_str(subwords.tokenizer.to_str())
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in MARKS])
    return dataclasses.replace(subwords, tokenizer=tokenizer, lowercase=False)


def framed(image: Image.Image, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Returns the page in the middle of a black field, its proportions kept: Donut's own way.

    It is resized twice, as in Donut's code: to the shorter side of the field, then to what the
    field can hold.

    Args:
        image: the page.
        size: height and width of the field in pixels.
    """
    high, wide = size
    short = min(high, wide)
    width, height = image.size
    if width <= height:
        page = image.resize((short, int(short * height / width)), Image.Resampling.BILINEAR)
    else:
        page = image.resize((int(short * width / height), short), Image.Resampling.BILINEAR)
    width, height = min(page.width, wide), min(page.height, high)
    if (width, height) != page.size:
        if page.height > page.width:
            width = int(page.width * height / page.height)
        elif page.width > page.height:
            height = int(page.height * width / page.width)
        page = page.resize((width, height), Image.Resampling.BILINEAR)
    field = Image.new("RGB", (wide, high))
    field.paste(page, ((wide - page.width) // 2, (high - page.height) // 2))
    return np.moveaxis(np.asarray(field, dtype=np.uint8), -1, 0)
