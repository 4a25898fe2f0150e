"""Extraction blocking: a model learns to say that an answer is not there (Pinto et al., §6).

Pinto et al. 2024: beside each sample (I, Q, a), the sample (I^-a, Q, "ANSWER NOT PRESENT").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from fedpriv.data.document import Document
from fedpriv.data.redaction.answers import check_margin, without_answer
from fedpriv.data.redaction.painting import MARGIN, CannotRemove

ANSWER_NOT_PRESENT = "ANSWER NOT PRESENT"
"""What is answered to a question whose answer has been removed."""


@dataclass(frozen=True)
class ExtractionBlocking:
    """EB: makes, for each question of a document, the page without its answer.

    A question whose answer is not found on its page gets none (`CannotRemove`), so such a sample
    stays unblocked: their number is that of all questions less that of what comes back. A model
    sees about twice as many samples in an epoch. The pages share the pixels of their document
    (`Document.white`) and are parts of it (`Document.part_of`), but encoded, each is a page of its
    own.

    What the model learns to say may tell who was trained on: the paper names this side channel.

    Attributes:
        margin: by which white boxes are enlarged, of their height.
        residual: what becomes of a page on which a trace of the answer is left, so that it may
            still be read: "keep", as the paper, which does not look, or "drop".
    """

    margin: float = MARGIN
    residual: Literal["keep", "drop"] = "keep"

    def __post_init__(self) -> None:
        check_margin(self.margin)
        if self.residual not in ("keep", "drop"):
            raise ValueError(f"residual={self.residual!r}: expected 'keep' or 'drop'")

    def __call__(self, documents: Sequence[Document]) -> list[Document]:
        """Returns the pages that are trained on beside these, each with one question.

        Their ids are the names of the questions, with "!blocked" at the end.
        """
        return [page for document in documents for page in self._blocked(document)]

    def _blocked(self, document: Document) -> Iterator[Document]:
        for name, question in zip(document.question_names(), document.questions, strict=True):
            try:
                removed = without_answer(document, question, margin=self.margin)
            except CannotRemove:
                continue
            if removed.residual and self.residual == "drop":
                continue
            refused = dataclasses.replace(question, answers=(ANSWER_NOT_PRESENT,))
            yield dataclasses.replace(
                removed.page, id=f"{name}!blocked", questions=(refused,), part_of=document.whole
            )
