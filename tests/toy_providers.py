"""Providers, each with a direction of its own, and a model of 64 numbers that can learn them."""

import math

import numpy as np
import torch
from torch import nn
from toy_answers import pages_as_examples

from fedpriv.data.document import Document, Question
from fedpriv.models.base import Answer
from fedpriv.models.question_answering import QuestionAnswerer
from fedpriv.runtime.torch_state import isolated_randomness
from fedpriv.training.loops import Optimizer, train_steps

WIDTH = 64
SGD = Optimizer("sgd", lr=0.3)


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
    question = (Question("total", "How much?", ("1",)),)

    def pages(provider, kind):
        near = directions[provider] + 0.05 * rng.normal(size=(documents, WIDTH))
        return tuple(
            Document(f"{kind}{n}", f"p{provider:02}", p, (1, 1), (), questions=question)
            for n, p in enumerate(near.astype(np.float32))
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
