"""LayoutLMv3's networks (Huang et al. 2022) as both tasks need them: sizes, loading, freezing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LayoutLMv3Config, LayoutLMv3PreTrainedModel

from fedpriv.data.examples import Batch
from fedpriv.models.readers.reader import normalised
from fedpriv.models.readers.subwords import Subwords

PATCH = 8
"""Side of a patch of the tiny network's image, in pixels."""

BASE_PATCH = 16
"""The same of the published network."""


def tiny_config(
    subwords: Subwords,
    num_labels: int,
    *,
    max_length: int,
    image: bool,
    image_size: int,
    hidden_size: int,
    layers: int,
    dropout: float,
    initializer_range: float,
) -> LayoutLMv3Config:
    """Returns the structure of a small network; see `layoutlmv3_tiny`.

    Raises:
        ValueError: if the sizes do not divide as they must.
    """
    if hidden_size % 16 or image_size % PATCH:
        raise ValueError(
            f"{hidden_size=} must be a multiple of 16 and {image_size=} a multiple of {PATCH}"
        )
    shape_size = hidden_size // 8
    return LayoutLMv3Config(
        **_tokens(subwords),
        vocab_size=subwords.size,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=max_length + 2,
        coordinate_size=(hidden_size - 2 * shape_size) // 4,
        shape_size=shape_size,
        input_size=image_size,
        patch_size=PATCH,
        initializer_range=initializer_range,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=num_labels,
        visual_embed=image,
    )


def base_config(
    subwords: Subwords, num_labels: int, *, image: bool, image_size: int, dropout: float
) -> LayoutLMv3Config:
    """Returns the structure of microsoft/layoutlmv3-base, as its `config.json` has it.

    Of its 514 positions two are for padding.

    Raises:
        ValueError: if the image is not made of whole patches.
    """
    if image_size < BASE_PATCH or image_size % BASE_PATCH:
        raise ValueError(f"{image_size=} must be a multiple of {BASE_PATCH}")
    return LayoutLMv3Config(
        **_tokens(subwords),
        max_position_embeddings=514,
        input_size=image_size,
        patch_size=BASE_PATCH,
        type_vocab_size=1,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=num_labels,
        visual_embed=image,
    )


def _tokens(subwords: Subwords) -> dict[str, int]:
    return {
        "pad_token_id": subwords.pad,
        "bos_token_id": subwords.cls,
        "eos_token_id": subwords.sep,
    }


def load(
    kind: type[LayoutLMv3PreTrainedModel],
    folder: str | Path,
    num_labels: int,
    *,
    image: bool | None,
    dropout: float | None,
) -> Any:
    """Loads a network of transformers; a head for another number of labels is drawn anew.

    Args:
        kind: the network's class.
        folder: local, or a hub id.
        num_labels: outputs of the head.
        image: whether it reads the page image; none: if the folder's network does.
        dropout: none: as the folder says.

    Raises:
        ValueError: if an image is asked for, and the folder's network was trained without.
        OSError: if there is no such folder and no such model on the hub.
    """
    config = LayoutLMv3Config.from_pretrained(str(folder), num_labels=num_labels)
    if image and not config.visual_embed:
        raise ValueError(f"image=True: the network in {folder} reads no image; take image=False")
    if image is not None:
        config.visual_embed = image
    if dropout is not None:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
    # The type of a checkpoint would become that of the model: float16 cannot be trained.
    return kind.from_pretrained(
        str(folder), config=config, ignore_mismatched_sizes=True, dtype=torch.float32
    )


def image_size(config: LayoutLMv3Config) -> int | None:
    """Returns the side of the image in pixels; none without one."""
    return int(config.input_size) if config.visual_embed else None


def positions(config: LayoutLMv3Config) -> int:
    """Returns how many tokens a window may have."""
    # Positions count from the padding id + 1, as in RoBERTa.
    return int(config.max_position_embeddings - config.pad_token_id - 1)


def freeze_unused(network: nn.Module) -> None:
    """Freezes what can never learn: it must not travel, be clipped or get noise."""
    for name, parameter in network.named_parameters():
        # transformers looks these tables up without gradient.
        if "rel_pos" in name:
            parameter.requires_grad_(False)


def draw_visual_positions(network: Any) -> None:
    """Draws cls_token and pos_embed, which transformers leaves at zero.

    At zero they stand in front of a LayerNorm, where the gradient is about 500 times that of all
    other parameters together: clipping and inversion would see nothing else.
    """
    base = network.layoutlmv3
    if not network.config.visual_embed:
        return
    std = network.config.initializer_range
    nn.init.normal_(base.cls_token, std=std)
    nn.init.normal_(base.pos_embed, std=std)


def inputs(network: Any, batch: Batch) -> dict[str, Tensor]:
    """Returns what the network takes of a batch."""
    given = {name: batch[name] for name in ("input_ids", "attention_mask", "bbox")}
    if network.config.visual_embed:
        given["pixel_values"] = normalised(batch["pixels"], network.dtype)
    return given


def blocks(network: Any) -> list[nn.Module]:
    """Returns the Transformer layers from input to output."""
    return list(network.layoutlmv3.encoder.layer)


def visual(network: Any) -> list[nn.Module]:
    """Returns the embedding of the page's patches; nothing where no image is read."""
    base = network.layoutlmv3
    return [base.patch_embed, base.norm] if network.config.visual_embed else []
