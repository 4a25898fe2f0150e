"""Defences at inference: the question is changed before the model sees it (Pinto et al., §6)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedpriv.attacks.extraction.paraphrases import CannotParaphrase, Paraphraser
from fedpriv.data.document import Document, Question
from fedpriv.threat.checks import check_choices, check_least

Prompt = Callable[[Question, np.random.Generator], Question]
"""Changes the words of a question; its key and its answers stay."""


@dataclass(frozen=True)
class PrependRandom:
    """PR: a random number stands before the question, another one each time (Pinto et al., §6).

    The paper does not say what parts the two: here, a blank. The number may begin with zeros.

    Attributes:
        digits: of the number; 6 in the paper.
    """

    digits: int = 6

    def __post_init__(self) -> None:
        check_least(self, 1, "digits")

    def __call__(self, question: Question, rng: np.random.Generator) -> Question:
        """Returns the question with a number before it."""
        return dataclasses.replace(question, text=f"{_number(self.digits, rng)} {question.text}")


@dataclass(frozen=True)
class AppendRandom(PrependRandom):
    """AR: a random number stands after the question, as with `PrependRandom` (Pinto et al., §6)."""

    def __call__(self, question: Question, rng: np.random.Generator) -> Question:
        """Returns the question with a number after it."""
        return dataclasses.replace(question, text=f"{question.text} {_number(self.digits, rng)}")


@dataclass(frozen=True)
class Paraphrase:
    """ITP: the question in other words (Pinto et al., §6).

    Attributes:
        paraphrase: words it.
        otherwise: where the paraphraser knows no other words: "keep" lets the question through as
            it is, as a service would that has to answer; "raise" raises `CannotParaphrase`.
    """

    paraphrase: Paraphraser
    otherwise: Literal["keep", "raise"] = "keep"

    def __post_init__(self) -> None:
        check_choices(self)

    def __call__(self, question: Question, rng: np.random.Generator) -> Question:
        """Returns the question in other words."""
        try:
            return dataclasses.replace(question, text=self.paraphrase(question, rng))
        except CannotParaphrase:
            if self.otherwise == "raise":
                raise
            return question


PROMPTS: Mapping[str, Callable[[Paraphraser], Prompt]] = {
    "PR": lambda _: PrependRandom(),
    "AR": lambda _: AppendRandom(),
    "ITP": Paraphrase,
}
"""The defences by their names in Table 1 of Pinto et al., built with the paraphraser."""


def defended(
    documents: Sequence[Document], prompt: Prompt, rng: np.random.Generator
) -> list[Document]:
    """Returns pages whose every question went through a defence.

    Args:
        documents: what the model is asked: canaries, or held-out pages to see what is lost.
        prompt: the defence.
        rng: of the numbers and wordings.
    """
    return [
        dataclasses.replace(document, questions=tuple(prompt(q, rng) for q in document.questions))
        for document in documents
    ]


def _number(digits: int, rng: np.random.Generator) -> str:
    return "".join(map(str, rng.integers(10, size=digits).tolist()))
