"""LayoutLMv3's network (Huang et al. 2022), as tagging and answering questions share it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
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
    """The encoder of transformers, to the same bits, whose biases of attention vmap can take.

    transformers bounds the differences of positions in place, for which vmap has no rule and falls
    back to a loop over the batch. It has the name of the original because it computes the same: the
    keys of a private run's random numbers contain the names of the model's modules
    (`fedpriv.privacy.message_key`).
    """

    @torch.no_grad()
    def _relative_position_lookup(
        self, positions: Tensor, bias: nn.Linear, num_buckets: int, max_distance: int
    ) -> Tensor:
        """Returns the biases between all pairs of tokens, (batch, heads, L, L).

        Args:
            positions: of the tokens, integers, (batch, L).
            bias: from the bucket of a difference of two positions to a bias for each head.
            num_buckets: the buckets that there are.
            max_distance: beyond it, all differences are in one bucket.
        """
        differences = torch.arange(-max_distance, max_distance + 1, device=positions.device)
        buckets = self.relative_position_bucket(
            differences, num_buckets=num_buckets, max_distance=max_distance
        )
        pairs = positions.unsqueeze(-2) - positions.unsqueeze(-1)
        places = pairs.clamp(-max_distance, max_distance) + max_distance
        biases = torch.index_select(bias.weight[:, buckets], 1, places.flatten())
        return biases.view(-1, *places.shape).transpose(0, 1).contiguous()
