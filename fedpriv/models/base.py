"""Protocols of the models that are trained, evaluated and asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's answer to one question.

    Attributes:
        text: the answer; empty if the model finds none.
        confidence: the model's probability of the answer, in [0, 1]; each model documents how it
            is computed.
    """

    text: str
    confidence: float


def sums_over(batches: Iterable[Mapping[str, Tensor]]) -> dict[str, float]:
    """Returns the sums over batches of scalars by name, 0 without a batch; fetches them at once."""
    rows = list(batches)
    if not rows:
        return defaultdict(float)
    wide = [[x if x.is_floating_point() else x.float() for x in row.values()] for row in rows]
    fetched = torch.stack([torch.stack(row) for row in wide])
    return dict(zip(rows[0], map(sum, zip(*fetched.tolist(), strict=True)), strict=True))


class OnDevice(nn.Module):
    """A module that knows where it is."""

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device


class ExampleLosses(OnDevice, ABC):
    """The base of the models that read documents and tell the loss of each example."""

    @abstractmethod
    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns the documents as examples."""

    @abstractmethod
    def losses(self, batch: Batch) -> Tensor:
        """Returns the training loss of each example, (batch,)."""


@runtime_checkable
class Model(Protocol):
    """An `nn.Module` that can be trained and evaluated.

    A model whose loss is not a mean over the examples, but over tokens, also has a method
    `summed_loss(batch)`, which returns the sum and the number that `loss` divides it by, at least
    1: so a batch that is computed in parts gives the same gradient (`training.microbatch`).
    """

    def loss(self, batch: Batch) -> Tensor:
        """Returns the mean loss of a batch, a scalar with a gradient."""

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """Returns metrics by name; called in evaluation mode, without gradients."""


@runtime_checkable
class DocumentModel(Model, Protocol):
    """A model that reads documents."""

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns the documents as examples.

        A column `document` holds, for each row, the position in `documents` it comes from.
        """

    def answer(self, documents: Sequence[Document]) -> list[tuple[Answer, ...]]:
        """Returns, for each document, an answer to each of its questions, in their order.

        Called in evaluation mode, without gradients.
        """


@runtime_checkable
class Tagger(DocumentModel, Protocol):
    """A model that gives each word of a document a BIO tag."""

    def tag(self, document: Document) -> list[str]:
        """Returns the predicted BIO tag of every word."""
