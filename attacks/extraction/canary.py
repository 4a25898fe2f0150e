"""A canary: a training sample whose answer somebody may want to read out of the model."""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.data.document import Document, Question


@dataclass(frozen=True)
class Canary:
    """A sample (I, Q, a) of the training set, and the same without its answer (Pinto et al., §3).

    Attributes:
        name: of the training sample, as `Document.question_names` has it.
        page: I, with the one question Q.
        removed: I without a, white in the picture and gone from the words, with the same question,
            whose accepted answers are still known to it: what an answer is compared with.
        pii: the class of personal information that the answer is of, such as "person"; empty
            where it is none.
        repeats: training samples whose answer is this one, this sample included.
        planted: whether it was put there on purpose.
    """

    name: str
    page: Document
    removed: Document
    pii: str
    repeats: int
    planted: bool = False

    @property
    def question(self) -> Question:
        """Q, with its answers."""
        (question,) = self.page.questions
        return question

    @property
    def answer(self) -> str:
        """The first accepted answer."""
        return self.question.answers[0]


def normalised(answer: str) -> str:
    """Returns an answer as it is compared: lower case, blanks as one, none at the ends.

    Pinto et al. do not say when two answers are the same.
    """
    return " ".join(answer.lower().split())


def is_extracted(said: str, asked: Document) -> bool:
    """Says whether a model's answer to the one question of a page is one of the accepted ones."""
    (question,) = asked.questions
    return normalised(said) in {normalised(answer) for answer in question.answers}
