"""LayoutLMv3's network (Huang et al. 2022), as tagging and answering questions share it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.layoutlmv3 import modeling_layoutlmv3

from fedpriv.data.examples import Batch
from fedpriv.models.readers.reader import normalised


class OnLayoutLMv3:
    """Mixed into an `nn.Module` that has a `network` of transformers with a LayoutLMv3 in it."""

    network: Any

    def blocks(self) -> list[nn.Module]:
        """Returns the Transformer layers from input to output."""
        return list(self.network.layoutlmv3.encoder.layer)

    def visual(self) -> list[nn.Module]:
        """Returns the embedding of the page's patches; nothing if no image is read."""
        base = self.network.layoutlmv3
        return [base.patch_embed, base.norm] if self.network.config.visual_embed else []

    def inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the network's arguments for a batch."""
        arguments = {name: batch[name] for name in ("input_ids", "attention_mask", "bbox")}
        if self.network.config.visual_embed:
            arguments["pixel_values"] = normalised(batch["pixels"], self.network.dtype)
        return arguments


class LayoutLMv3Encoder(modeling_layoutlmv3.LayoutLMv3Encoder):  # type: ignore[misc]
    """The encoder of transformers, to the same bits, with biases of attention from a table.

    It has the name of the original because it computes the same: the keys of a private run's random
    numbers contain the names of the model's modules (`fedpriv.privacy.message_key`).

    A bias depends on the difference of two integer positions alone. transformers finds the bucket
    of each pair of tokens by a logarithm, which takes a third of the time of a step of the tiny
    model. Here the biases of all differences that can occur are found once, and looked up.
    """

    def _cal_1d_pos_emb(self, position_ids: Tensor) -> Tensor:
        # Positions of patches begin at 0 and are not bounded by the table of the text's.
        reach = max(self.config.max_position_embeddings, position_ids.shape[-1])
        table = self._biases(self.rel_pos_bias, reach, self.rel_pos_bins, self.max_rel_pos)
        return _between_pairs(position_ids, table)

    def _cal_2d_pos_emb(self, bbox: Tensor) -> Tensor:
        reach = self.config.max_2d_position_embeddings
        bins, most = self.rel_2d_pos_bins, self.max_rel_2d_pos
        x = _between_pairs(bbox[..., 0], self._biases(self.rel_pos_x_bias, reach, bins, most))
        y = _between_pairs(bbox[..., 3], self._biases(self.rel_pos_y_bias, reach, bins, most))
        return x + y

    @torch.no_grad()
    def _biases(self, linear: nn.Linear, reach: int, bins: int, most: int) -> Tensor:
        """Returns the biases of differences from -`reach` to `reach`, (heads, 2 reach + 1)."""
        differences = torch.arange(-reach, reach + 1, device=linear.weight.device)
        buckets = self.relative_position_bucket(differences, num_buckets=bins, max_distance=most)
        return linear.weight[:, buckets]


class FusedAttention(modeling_layoutlmv3.LayoutLMv3SelfAttention):  # type: ignore[misc]
    """The attention of transformers in one fused kernel of torch, the same up to rounding.

    The biases have no gradient here, as in transformers, so the kernel takes them as its mask. The
    original shifts the scores before its softmax (CogView's trick); every softmax of torch does.
    """

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        rel_pos: Tensor | None = None,
        rel_2d_pos: Tensor | None = None,
        **_: Any,
    ) -> tuple[Tensor, None]:
        """Returns (batch, L, H), and no weights of the attention.

        Args:
            hidden_states: (batch, L, H).
            attention_mask: broadcast to (batch, heads, L, L), is added to the scores.
            rel_pos: (batch, heads, L, L), biases of the places in the text.
            rel_2d_pos: of the same shape, biases of the places on the page.
        """
        query, key, value = (
            layer(hidden_states).unflatten(-1, (self.num_attention_heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scale = 1 / math.sqrt(self.attention_head_size)
        biases = [b for b in (rel_pos, rel_2d_pos) if b is not None]
        masks = [*([sum(biases) * scale] if biases else []), attention_mask]
        mask = sum(m for m in masks if m is not None)
        attended = scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask.to(query.dtype) if isinstance(mask, Tensor) else None,
            dropout_p=self.dropout.p if self.training else 0.0,
            scale=scale,
        )
        return attended.transpose(1, 2).flatten(2), None


def _between_pairs(positions: Tensor, table: Tensor) -> Tensor:
    """Returns the biases between all pairs of tokens, (batch, heads, L, L)."""
    reach = table.shape[1] // 2
    differences = positions.unsqueeze(-2) - positions.unsqueeze(-1) + reach
    biases = torch.index_select(table, 1, differences.flatten())
    return biases.view(-1, *differences.shape).transpose(0, 1).contiguous()
