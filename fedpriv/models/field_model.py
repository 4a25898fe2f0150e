"""What an attack that fills in masked fields asks of a model (CDMI, §4.2).

The models of documents' tokens (`layoutlm`, `bros`, `bert`) are such, whatever their task.
"""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from torch import Tensor

from fedpriv.data.examples import Batch
from fedpriv.models.base import DocumentModel
from fedpriv.models.readers.reader import Reader

Task = Literal["mlm", "tags", "spade", "links"]
"""MLM, EE-BIO, EE-SPADE and EL of CDMI, §2.1."""

VISUAL = "visual"
"""The column of a batch that stands for `pixels` once the page has been looked at."""


@runtime_checkable
class FieldModel(DocumentModel, Protocol):
    """A model whose loss is told example by example.

    Attributes:
        reader: turns documents into windows of L tokens; its `subwords` is the tokenizer.
    """

    reader: Reader

    def losses(self, batch: Batch) -> Tensor:
        """Returns the loss of each example by itself, (batch,): of the whole window, as trained."""
        ...

    def seen(self, batch: Batch) -> Batch:
        """Returns the batch with its page looked at: `pixels` gone, `visual` (batch, L, H) instead.

        What depends on page and boxes only is so computed once for many texts. The batch itself
        where the model reads no page.
        """
        ...


@runtime_checkable
class TokenModel(FieldModel, Protocol):
    """A model that guesses masked tokens: MLM."""

    def token_scores(self, batch: Batch, places: Tensor) -> Tensor:
        """Returns the logits at one place of each example, (batch, vocabulary).

        Args:
            batch: as it stands; nothing is masked beside what its `input_ids` mask.
            places: (batch,), int64.
        """
        ...
