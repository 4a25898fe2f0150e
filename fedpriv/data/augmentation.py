"""Extraction blocking: a model learns to say that an answer is not there (Pinto et al., §6).

Pinto et al. 2024: beside each sample (I, Q, a), the sample (I^-a, Q, "ANSWER NOT PRESENT").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fedpriv.data.document import Document
from fedpriv.data.redaction.answers import check_margin, without_answer
from fedpriv.data.redaction.painting import MARGIN, CannotRemove

ANSWER_NOT_PRESENT = "ANSWER NOT PRESENT"
"""The answer that a model learns for a page without the answer."""


@dataclass(frozen=True)
class ExtractionBlocking:
    """EB: makes the page without its answer for each question of a document.

    A question is left unblocked if its answer is not found on the page (`CannotRemove`). Fewer
    pages than questions then come back. A model sees about twice as many samples in an epoch. The
    pages share the pixels of their document (`Document.white`) and are parts of it
    (`Document.part_of`), but each is encoded as a page of its own.

    The paper names a side channel: what the model learns to say may tell who was trained on.

    Attributes:
        margin: the share of its height by which the white box over an answer is enlarged, 0 or
            more.
        residual: what happens to a page on which a trace of the answer is left, so that it may
            still be read: "keep" trains on it, "drop" leaves it out. The paper does not check for
            traces and keeps all pages.
    """

    margin: float = MARGIN
    residual: Literal["keep", "drop"] = "keep"

    def __post_init__(self) -> None:
        check_margin(self.margin)
        if self.residual not in ("keep", "drop"):
            raise ValueError(f"residual={self.residual!r}: expected 'keep' or 'drop'")

    def __call__(self, documents: Sequence[Document]) -> list[Document]:
        """Returns the pages to train on beside these documents, each with one question.

        The id of a page is the name of its question with "!blocked" at the end.
        """
        pages = []
        for document in documents:
            for name, question in zip(document.question_names(), document.questions, strict=True):
                try:
                    redacted = without_answer(document, question, margin=self.margin)
                except CannotRemove:
                    continue
                if redacted.residual and self.residual == "drop":
                    continue
                page = dataclasses.replace(
                    redacted.page,
                    id=f"{name}!blocked",
                    questions=(dataclasses.replace(question, answers=(ANSWER_NOT_PRESENT,)),),
                    part_of=document.whole,
                )
                pages.append(page)
        return pages
