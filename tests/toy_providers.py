"""Providers, each with a direction of its own, and a model of 64 numbers that can learn them."""

import math

import numpy as np
import torch
from torch import nn

from fedpriv.data.document import Document, Question
from fedpriv.data.examples import Examples
from fedpriv.models.base import Answer
from fedpriv.models.question_answering import QuestionAnswerer, asked
from fedpriv.runtime.torch_state import isolated_randomness
from fedpriv.training.loops import Optimizer, train_steps

WIDTH = 64
SGD = Optimizer("sgd", lr=0.3)


def page_of(numbers, name="", provider="p"):
    """A page of numbers in place of pixels, with one question."""
    question = Question("total", "How much?", ("1",))
    return Document(name, provider, numbers, (1, 1), (), questions=(question,))


def pages_as_examples(documents):
    """One row for each question: its columns, and the document's page as it is."""
    rows = asked(documents)
    columns = [row.columns() for row in rows]
    stacked = {name: np.stack([c[name] for c in columns]) for name in columns[0]}
    pages = np.stack([documents[row.document].page for row in rows])
    return Examples.of({**stacked, "page": pages})


class Pointer(QuestionAnswerer):
    """Its loss is small where the weights point along the page; dropout makes it random."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(WIDTH))
        self.dropout = nn.Dropout(0.1)

    def encode(self, documents):
        return pages_as_examples(documents)

    def losses(self, batch):
        return nn.functional.softplus(-4 * self.dropout(batch["page"]) @ self.weight)

    def answer_batch(self, batch):
        return [Answer("", 0.5) for _ in batch["page"]]


def documents_of(providers=24, documents=4, seed=0):
    """Returns each provider's pages around a direction of its own, and as many to train on."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(providers, WIDTH)) / math.sqrt(WIDTH)

    def pages(provider, kind):
        near = directions[provider] + 0.05 * rng.normal(size=(documents, WIDTH))
        return tuple(
            page_of(numbers, f"{kind}{n}", f"p{provider:02}")
            for n, numbers in enumerate(near.astype(np.float32))
        )

    held = {f"p{n:02}": pages(n, "held") for n in range(providers)}
    own = {f"p{n:02}": pages(n, "own") for n in range(providers)}
    return held, own


def trained(pages, steps=60):
    model = Pointer()
    rng = np.random.default_rng(7)
    with isolated_randomness(7):  # dropout draws; whatever ran before shall not matter
        train_steps(
            model, model.encode(pages), SGD.build(model), steps=steps, batch_size=8, shuffle=rng
        )
    return model


def auc(verdict, members):
    inside = np.array([name in members for name in verdict.providers])
    return (verdict.scores[inside][:, None] > verdict.scores[~inside][None, :]).mean()
