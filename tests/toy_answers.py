"""A model of one number per vocabulary word that answers questions about toy pages."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.document import Document, DocumentSet, Question, Word
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.models.base import Answer
from fedpriv.models.question_answering import QuestionAnswerer, asked, table
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.threat.surfaces.held_out import KeepHeldOut
from fedpriv.training.loops import Optimizer

WORDS = ("ada", "bo", "cy", "di")


class Chooser(QuestionAnswerer):
    """Answers every question on a page with the word whose weight for that page's colour is most.

    `windows` rows for each question, as of a page that is read in several parts.
    """

    def __init__(self, windows: int = 1) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(256, len(WORDS)))
        self.windows = windows
        self.rows_asked = 0

    def encode(self, documents):
        rows = []
        for question in asked(documents):
            page = np.asarray(documents[question.document].image())[..., 0]
            right = question.question.answers[0] if question.question.answers else WORDS[0]
            columns = {
                "colour": np.array(int(page[0, 0])),
                "right": np.array(WORDS.index(right) if right in WORDS else 0),
                **question.columns(),
            }
            rows += [columns] * self.windows
        return table(rows)

    def losses(self, batch):
        scores = self.weights[batch["colour"]]
        return nn.functional.cross_entropy(scores, batch["right"], reduction="none")

    def answer_batch(self, batch):
        self.rows_asked += len(batch["colour"])
        certain, word = self.weights[batch["colour"]].softmax(-1).max(-1)
        return [Answer(WORDS[w], c) for w, c in zip(word.tolist(), certain.tolist(), strict=True)]

    def reading(self):
        return {"model": "chooser", "windows": self.windows}


def page(
    colour: int, *answers: str, provider: str = "p", name: str = "", mark: int = 0
) -> Document:
    """A page of one colour but for a mark, with a question for each answer."""
    pixels = np.full((4, 4), colour, dtype=np.uint8)
    pixels[1, 1] = mark
    questions = tuple(
        Question("name", f"Who, {n}?", (answer,) if answer else ())
        for n, answer in enumerate(answers)
    )
    words = (Word("hello", (0, 0, 2, 2), 0),)
    return Document(
        name or f"{provider}-{colour}", provider, pixels, (4, 4), words, questions=questions
    )


@dataclass(frozen=True)
class Pages:
    """Pages of providers, each with a colour of its own from `first` on; `same`: all alike."""

    providers: int = 8
    each: int = 2
    same: bool = False
    first: int = 0
    answers: tuple[str, ...] = ("bo",)

    def load(self):
        pages = tuple(
            page(
                0 if self.same else self.first + p,
                *self.answers,
                provider=f"p{p}",
                name=f"p{p}-{n}",
                mark=0 if self.same else n,
            )
            for p in range(self.providers)
            for n in range(self.each)
        )
        return DocumentSet("toy", pages, ())


@dataclass(frozen=True)
class Badges:
    """Pages of a colour each, with one of four names, to extract; the last `held` are held out."""

    count: int = 24
    held: int = 4

    def load(self):
        pages = tuple(badge(number, self.count - self.held) for number in range(self.count))
        return DocumentSet("badges", pages, ())


def badge(number, trained):
    """Names change from page to page; each is asked for by a question of its own."""
    name = WORDS[number % len(WORDS)]
    pixels = np.full((16, 16), 40 + 4 * number, np.uint8)
    words = (Word(name, (4.0, 4.0, 10.0, 8.0), 0), Word("badge", (4.0, 10.0, 12.0, 14.0), 1))
    question = Question("name", f"Who is it on page {number}?", (name,))
    split = "train" if number < trained else "test"
    return Document(f"b{number}", f"p{number}", pixels, (16, 16), words, (), (question,), split)


def shouting(question, rng):
    """A paraphraser."""
    return question.text.upper()


def chooser(labels=()):
    return Chooser()


def federation(
    runs,
    *,
    keep=(KeepHeldOut(),),  # noqa: B008
    source=Pages(),
    clients=2,
    **data,
):
    """Half of the providers are trained on, each on half of its pages, unless said otherwise."""
    held = data.pop("test", HoldOut(fraction=0.5, unseen=0.5))
    return Federation(
        model=chooser,
        data=DocumentData(source, ByProvider(clients), held, cache="off", **data),
        strategy=FedAvg(),
        client=LocalTraining(optimizer=Optimizer("sgd", lr=1.0)),
        keep=keep,
        runs=runs,
    )
