"""Questions about pages as rows of a table, and the base of all models that answer them.

Every (document, question) pair is one example: one row, or several windows that share a question.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedpriv.data.document import Document, Question
from fedpriv.data.examples import Batch, Examples
from fedpriv.metrics.answers import anls, is_exact
from fedpriv.models.base import Answer, ExampleLosses

EVALUATION_BATCH = 64

DOCUMENT, QUESTION, ANSWERS, KEY = "document", "question", "answers", "key"
"""Columns of every model that answers: the positions of the document and of the question (counted
over all documents that were encoded), the accepted answers one per line, the question's key."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its number and the position of its document."""

    number: int
    document: int
    question: Question

    @property
    def answer(self) -> str:
        """The first accepted answer; empty if there is none."""
        return next(iter(self.question.answers), "")

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the columns that every row of this question carries."""
        answers = "\n".join(" ".join(answer.split()) for answer in self.question.answers)
        return {
            DOCUMENT: np.array(self.document),
            QUESTION: np.array(self.number),
            ANSWERS: np.array(answers),
            KEY: np.array(self.question.key),
        }


def asked(documents: Sequence[Document]) -> list[Asked]:
    """Returns every question of the documents, in order.

    Raises:
        ValueError: if there is none.
    """
    pairs = [(place, q) for place, page in enumerate(documents) for q in page.questions]
    if not pairs:
        raise ValueError(
            f"none of the {len(documents)} documents has a question: take data with questions "
            "(generated invoices, DocVQA, PFL-DocVQA, SROIE), or a model that tags words"
        )
    return [Asked(number, place, question) for number, (place, question) in enumerate(pairs)]


def table(
    rows: Sequence[dict[str, NDArray[Any]]], pixels: NDArray[np.uint8] | None = None
) -> Examples:
    """Stacks rows into examples, with the pages' pixels (D, 3, height, width) beside them."""
    columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    return Examples.of(columns, {"pixels": (pixels, DOCUMENT)} if pixels is not None else None)


class QuestionAnswerer(ExampleLosses):
    """A `fedpriv.models.base.DocumentModel` that answers questions; a subclass reads and writes.

    The loss of a batch is the mean over its examples of each one's own loss, not the mean over all
    their tokens: so the gradient of a batch is the mean of its per-example gradients, and padding
    or a long answer of one example does not change the weight of another.
    """

    @abstractmethod
    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns the questions of the documents as examples, with the columns of `Asked`."""

    @abstractmethod
    def losses(self, batch: Batch) -> Tensor:
        """Returns the loss of each example, of shape (batch,)."""

    @abstractmethod
    def answer_batch(self, batch: Batch) -> list[Answer]:
        """Returns an answer for each row."""

    def reply_batch(self, batch: Batch) -> tuple[list[Answer], Tensor]:
        """Returns an answer for each row and the losses; a model may share what both compute."""
        return self.answer_batch(batch), self.losses(batch)

    def loss(self, batch: Batch) -> Tensor:
        """Returns the mean of the examples' losses."""
        return self.losses(batch).mean()

    def answer(self, documents: Sequence[Document]) -> list[tuple[Answer, ...]]:
        """Returns, for each document, an answer to each of its questions."""
        given: list[list[Answer]] = [[] for _ in documents]
        if any(document.questions for document in documents):
            answers = self.answers(self.encode(documents))
            for question, answer in zip(asked(documents), answers, strict=True):
                given[question.document].append(answer)
        return [tuple(answers) for answers in given]

    def answers(self, examples: Examples) -> list[Answer]:
        """Returns one answer per question, in the order of their numbers.

        Of several windows of one question, the most confident one that says anything speaks: the
        others are right to find no answer in their part of the page, and sure of it.
        """
        said = (
            self.answer_batch(batch)
            for batch in examples.batches(EVALUATION_BATCH, device=self.device)
        )
        return most_confident(examples, itertools.chain.from_iterable(said))

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """Returns `loss`, `anls`, `accuracy` and, per key, `anls/<key>` and `accuracy/<key>`."""
        losses = [
            self.losses(batch) for batch in examples.batches(EVALUATION_BATCH, device=self.device)
        ]
        scores = answer_scores(examples, self.answers(examples))
        return {"loss": torch.cat(losses).mean().item(), **scores}


def most_confident(examples: Examples, answers: Iterable[Answer]) -> list[Answer]:
    """Returns one answer per question, of its rows' answers; see `QuestionAnswerer.answers`."""
    best: dict[int, Answer] = {}
    for number, answer in zip(examples.column(QUESTION).tolist(), answers, strict=True):
        if number not in best or _weight(answer) > _weight(best[number]):
            best[number] = answer
    return [best[number] for number in sorted(best)]


def _weight(answer: Answer) -> tuple[bool, float]:
    return answer.text != "", answer.confidence


def answer_scores(examples: Examples, answers: Sequence[Answer]) -> dict[str, float]:
    """Returns ANLS and accuracy over all questions that have an accepted answer, and by key.

    Args:
        examples: with the columns of `Asked`.
        answers: one per question, in the order of their numbers.
    """
    _, first = np.unique(examples.column(QUESTION), return_index=True)
    accepted, keys = examples.column(ANSWERS)[first], examples.column(KEY)[first]
    marks: dict[str, list[float]] = defaultdict(list)
    for answer, right, key in zip(answers, accepted.tolist(), keys.tolist(), strict=True):
        if not right:
            continue
        mark = {
            "anls": anls(answer.text, right.split("\n")),
            "accuracy": float(is_exact(answer.text, right.split("\n"))),
        }
        for name, value in mark.items():
            marks[name].append(value)
            if key:
                marks[f"{name}/{key}"].append(value)
    order = sorted(marks, key=lambda name: ("/" in name, name))
    return {name: float(np.mean(marks[name])) for name in order}
