"""Protocols of the models that attacks on masked fields need (CDMI, §4.2).

The models `layoutlm`, `bros` and `bert` follow them, whatever their task.
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
"""The column of a batch that replaces `pixels` once the visual encoder has read the page."""


@runtime_checkable
class FieldModel(DocumentModel, Protocol):
    """A model that returns the loss of each example.

    Attributes:
        reader: turns documents into windows of L tokens; its `subwords` is the tokenizer.
    """

    reader: Reader

    def losses(self, batch: Batch) -> Tensor:
        """Returns the training loss of each example, (batch,), over its whole window."""

    def seen(self, batch: Batch) -> Batch:
        """Returns the batch with `visual` (batch, L, H) in place of `pixels`.

        So what depends on page and boxes only is computed once for many texts. A model that reads
        no page returns the batch itself.
        """


def as_field_model(model: object) -> FieldModel:
    """Returns a model as what it is.

    Raises:
        TypeError: if it does not tell its loss example by example.
    """
    if isinstance(model, FieldModel):
        return model
    raise TypeError(
        f"{type(model).__name__} does not tell its loss example by example: take model=layoutlm, "
        "model=bros or model=bert"
    )


@runtime_checkable
class TokenModel(FieldModel, Protocol):
    """A model that guesses masked tokens: MLM."""

    def token_scores(self, batch: Batch, places: Tensor) -> Tensor:
        """Returns the logits at one place of each example, (batch, vocabulary).

        Args:
            batch: read as it is; no tokens are masked beside those masked in `input_ids`.
            places: (batch,), int64.
        """
