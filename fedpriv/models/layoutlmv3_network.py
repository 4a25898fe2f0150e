"""LayoutLMv3's network (Huang et al. 2022), as tagging and answering questions share it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

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
