"""What the federation asks of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples


@runtime_checkable
class Model(Protocol):
    """An `nn.Module` that can be trained and evaluated."""

    def loss(self, batch: Batch) -> Tensor:
        """Returns the mean loss of a batch, a scalar with a gradient."""
        ...

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """Returns metrics by name; called in evaluation mode, without gradients."""
        ...


@runtime_checkable
class DocumentModel(Model, Protocol):
    """A model that reads documents."""

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns the documents as examples.

        A column `document` holds, for each row, the position in `documents` it comes from.
        """
        ...

    def tag(self, document: Document) -> list[str]:
        """Returns the predicted BIO tag of every word."""
        ...
