"""LayoutLMv3's network (Huang et al. 2022), as tagging and answering questions share it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import LayoutLMv3Config

from fedpriv.data.examples import Batch
from fedpriv.models.presets import small_network
from fedpriv.models.readers.reader import normalised
from fedpriv.models.readers.subwords import Subwords

PATCH, BASE_PATCH = 8, 16
"""Sides of a patch of the image in pixels, of small networks and of the published one."""


def draw_config(
    size: str,
    subwords: Subwords,
    num_labels: int,
    *,
    max_length: int,
    image: bool,
    image_size: int,
    dropout: float,
    **small: Any,
) -> LayoutLMv3Config:
    """Returns the structure of microsoft/layoutlmv3-base, as its `config.json` has it, or smaller.

    Args:
        size: "base", or a small one.
        subwords: the tokenizer.
        num_labels: outputs of the head.
        max_length: L, tokens of a window; the published network has 512 positions in any case.
        image: whether the page image is read.
        image_size: side of the square page image in pixels.
        dropout: everywhere.
        **small: the other settings of a small network, see `small_network`.

    Raises:
        ValueError: if the sizes do not divide as they must.
    """
    if size == "base":
        if image_size < BASE_PATCH or image_size % BASE_PATCH:
            raise ValueError(f"{image_size=} must be a multiple of {BASE_PATCH}")
        # Two of the positions are for padding.
        sizes = {"max_position_embeddings": 514, "patch_size": BASE_PATCH, "type_vocab_size": 1}
    else:
        hidden_size = small["hidden_size"]
        if hidden_size % 16 or image_size % PATCH:
            raise ValueError(
                f"{hidden_size=} must be a multiple of 16 and {image_size=} a multiple of {PATCH}"
            )
        sizes = small_network(subwords, positions=max_length + 2, **small)
        sizes["shape_size"] = hidden_size // 8
        sizes["coordinate_size"] = (hidden_size - 2 * sizes["shape_size"]) // 4
        sizes["patch_size"] = PATCH
    return LayoutLMv3Config(
        **sizes,
        pad_token_id=subwords.pad,
        bos_token_id=subwords.cls,
        eos_token_id=subwords.sep,
        input_size=image_size,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=num_labels,
        visual_embed=image,
    )


def draw_visual_positions(network: Any) -> None:
    """Draws cls_token and pos_embed, which transformers leaves at zero.

    At zero they stand in front of a LayerNorm, where the gradient is about 500 times that of all
    other parameters together: clipping and inversion would see nothing else.
    """
    if network.config.visual_embed:
        std = network.config.initializer_range
        nn.init.normal_(network.layoutlmv3.cls_token, std=std)
        nn.init.normal_(network.layoutlmv3.pos_embed, std=std)


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

    def freeze_unused(self) -> None:
        """Freezes parameters that can never learn, so that none is sent, clipped or noised."""
        for name, parameter in self.network.named_parameters():
            # transformers looks these tables up without gradient.
            if "rel_pos" in name:
                parameter.requires_grad_(False)
