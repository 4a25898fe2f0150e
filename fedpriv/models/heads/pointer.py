"""Tokens that point at tokens: the base of the SPADE heads.

Hwang et al., "Spatial Dependency Parsing for Semi-Structured Document Information Extraction",
Findings of ACL 2021, as used by BROS (Hong et al., AAAI 2022) and by CDMI, §2.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedpriv.data.examples import Batch
from fedpriv.models.encoders.encoder import Encoder
from fedpriv.models.encoders.encoder_model import EncoderModel
from fedpriv.models.readers.reader import IGNORED, Reader
from fedpriv.models.saving import draw_linear


class Pointer(nn.Module):
    """Scores each token as the one that another points at, and "none": (q_i · k_j) / √H.

    BROS's code does not divide by √H. Without it, random scores would be large at BROS's size.

    Args:
        hidden_size: H.
        initializer_range: standard deviation of the drawn weights.
    """

    def __init__(self, hidden_size: int, initializer_range: float = 0.02) -> None:
        super().__init__()
        self.query = nn.Linear(hidden_size, hidden_size)
        self.key = nn.Linear(hidden_size, hidden_size)
        self.none = nn.Parameter(torch.randn(hidden_size) * initializer_range)
        draw_linear(self, initializer_range)

    def forward(self, vectors: Tensor, candidates: Tensor) -> Tensor:
        """Returns the scores, (batch, L, L + 1); "none" is the last.

        Args:
            vectors: of the tokens, (batch, L, H).
            candidates: (batch, L), bool: tokens that can be pointed at, by any token but
                themselves. All other scores are the smallest number, hence of probability 0.
        """
        size, length, width = vectors.shape
        keys = torch.cat([self.key(vectors), self.none.expand(size, 1, width)], 1)
        scores: Tensor = self.query(vectors) / math.sqrt(width) @ keys.transpose(1, 2)
        itself = torch.eye(length, dtype=torch.bool, device=vectors.device)
        closed = functional.pad(~candidates.unsqueeze(1) | itself, (0, 1), value=False)
        return scores.masked_fill_(closed, torch.finfo(scores.dtype).min)


class PointerModel(EncoderModel):
    """An encoder with a pointer on its tokens; a subclass defines which tokens point at which.

    Its examples have a column of the place that each token points at: (N, L), L for "none" and
    `IGNORED` where a token neither points nor is pointed at.

    Attributes:
        column: name of that column.
    """

    column: ClassVar[str]

    def __init__(self, encoder: Encoder, reader: Reader, labels: Sequence[str]) -> None:
        super().__init__(encoder, reader, labels)
        config = encoder.network.config
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.pointer = Pointer(config.hidden_size, config.initializer_range)

    def loss(self, batch: Batch) -> Tensor:
        """Returns the mean loss of the examples in which a token points; 0 if there are none."""
        total, count = self.summed_loss(batch)
        return total / count.clamp(min=1)

    def summed_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the examples' losses summed, and the number of examples with a pointing token."""
        return self.losses(batch).sum(), self.pointing(batch).any(1).sum()

    def pointing(self, batch: Batch) -> Tensor:
        """Returns which tokens point and are pointed at, (batch, L), bool."""
        return batch[self.column] != IGNORED

    def pointed(self, batch: Batch) -> Tensor:
        """Returns the place that each token points at, (batch, L), L for "none".

        A batch may have been cut after its longest window: "none" is the L of the batch then.
        """
        places = batch[self.column]
        return places.clamp(max=places.shape[1])

    def head(self) -> list[nn.Module]:
        """Returns the modules after the last layer."""
        return [self.pointer]


def found_scores(right: int, found: int, true: int) -> dict[str, float]:
    """Returns `precision`, `recall` and `f1` from counts; 0 where undefined.

    >>> found_scores(right=1, found=2, true=4)
    {'precision': 0.5, 'recall': 0.25, 'f1': 0.3333333333333333}
    """
    return {
        "precision": right / max(found, 1),
        "recall": right / max(true, 1),
        "f1": 2 * right / max(found + true, 1),
    }
