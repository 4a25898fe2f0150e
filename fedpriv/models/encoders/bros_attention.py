"""BROS's attention between boxes, computed without a vector for each pair of tokens.

In BROS the score of a pair of tokens i, j has a term qᵢ · W e(xⱼ - xᵢ), where e holds the sines and
cosines of the distances between their boxes' corners (Hong et al. 2022, §3.1). transformers
computes e for each pair, L² vectors: nearly all of the time and memory of a small model. By
sin(xⱼ - xᵢ) = sin xⱼ cos xᵢ - cos xⱼ sin xᵢ, and the same for the cosine, the term is a product of
a vector of i with one of j. The scores are the same up to rounding.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import BrosModel
from transformers.models.bros.modeling_bros import BrosBboxEmbeddings, BrosSelfAttention


class Angles(NamedTuple):
    """Sines and cosines of the corners of each token's box: C coordinates at F frequencies.

    Attributes:
        sines: (B, 1, L, C, F).
        cosines: (B, 1, L, C, F).
        projection: (head size, 2 · C · F), the W of this module's docstring.
    """

    sines: Tensor
    cosines: Tensor
    projection: Tensor


class BoxAngles(nn.Module):
    """Replaces `BrosBboxEmbeddings` and keeps the names of its parameters."""

    def __init__(self, original: BrosBboxEmbeddings) -> None:
        super().__init__()
        self.bbox_sinusoid_emb: Any = original.bbox_sinusoid_emb
        self.bbox_projection = original.bbox_projection

    def forward(self, bbox: Tensor) -> Angles:
        """Returns the angles of boxes (B, L, C) with x and y coordinates in turns."""
        sines = self.bbox_sinusoid_emb
        frequencies = torch.stack([sines.x_pos_emb.inv_freq, sines.y_pos_emb.inv_freq])
        angles = bbox.unsqueeze(-1) * frequencies.repeat(bbox.shape[-1] // 2, 1)
        angles = angles.unsqueeze(1)
        return Angles(angles.sin(), angles.cos(), self.bbox_projection.weight)


class BoxAttention(nn.Module):
    """Replaces `BrosSelfAttention` and keeps the names of its parameters."""

    def __init__(self, original: BrosSelfAttention) -> None:
        super().__init__()
        self.query, self.key, self.value = original.query, original.key, original.value
        self.dropout = original.dropout
        self.heads = original.num_attention_heads

    def forward(
        self,
        hidden_states: Tensor,
        bbox_pos_emb: Angles,
        attention_mask: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, Tensor]:
        """Returns (B, L, H) and the weights of the attention, (B, heads, L, L)."""
        query, key, value = (
            layer(hidden_states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(-1, -2) + _between_boxes(query, bbox_pos_emb)
        scores = scores / math.sqrt(query.shape[-1])
        if attention_mask is not None:
            scores = scores + attention_mask
        weights = self.dropout(scores.softmax(-1))
        return (weights @ value).transpose(1, 2).flatten(2), weights


def without_pairs(network: BrosModel) -> None:
    """Replaces the attention of a network of transformers, in place."""
    network.bbox_embeddings = BoxAngles(network.bbox_embeddings)
    for layer in network.encoder.layer:
        layer.attention.self = BoxAttention(layer.attention.self)


def _between_boxes(query: Tensor, angles: Angles) -> Tensor:
    """Returns qᵢ · W e(xⱼ - xᵢ), (B, heads, L, L), for queries (B, heads, L, head size)."""
    sines, cosines, projection = angles
    parts = query @ projection
    coordinates, frequencies = sines.shape[-2:]
    of_sine, of_cosine = parts.reshape(*parts.shape[:-1], coordinates, 2, frequencies).unbind(-2)
    turned = (of_sine * cosines + of_cosine * sines, of_cosine * cosines - of_sine * sines)
    of_i, of_j = (torch.cat(pair, -1).flatten(-2) for pair in (turned, (sines, cosines)))
    return of_i @ of_j.transpose(-1, -2)
