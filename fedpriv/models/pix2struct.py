"""Pix2Struct (Lee et al. 2023): reads the question and the page from one image, without OCR.

The question is set as a header above the page. A Transformer sees the patches of both, at a
resolution that keeps the page's proportions; a decoder like T5's writes the answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import (
    Pix2StructConfig,
    Pix2StructForConditionalGeneration,
    Pix2StructTextConfig,
    Pix2StructVisionConfig,
)

from fedpriv.data.examples import Batch
from fedpriv.models.checkpoints import config_of, network_of
from fedpriv.models.generation import EncoderDecoderAnswerer, greedy
from fedpriv.models.presets import Attention, Presets
from fedpriv.models.readers.pix2struct_reader import Pix2StructReader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import save, settings_of
from fedpriv.runtime.outside import PathSetting, PathText

PUBLISHED_VOCABULARY = 50_244
"""Tokens of google/pix2struct-base."""

PUBLISHED_PLACES = 4096
"""Rows of its tables of rows and columns."""

PRESETS = Presets(
    {
        "tiny": {
            "max_patches": 128,
            "patch_size": 8,
            "answer_length": 24,
            "font": None,
            "dropout": 0.0,
        },
        "base": {
            "max_patches": 2048,
            "patch_size": 16,
            "answer_length": 48,
            "font": None,
            "dropout": 0.1,
        },
    },
    loadable=("max_patches", "answer_length", "font", "dropout"),
)


def pix2struct(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: PathSetting | None = None,
    max_patches: int | None = None,
    patch_size: int | None = None,
    answer_length: int | None = None,
    font: PathText | None = None,
    dropout: float | None = None,
    attention: Attention = "sdpa",
) -> Pix2Struct:
    """Builds a Pix2Struct.

    Arguments left as None keep the default of `size`, or of the pretrained model.

    "tiny" has 0.4 million parameters: with 128 patches of 8 x 8 pixels hardly a letter of a page
    can be read, but pages and questions can be told apart. "base" has 282 million as published. A
    federated round of it with one page at a time takes 11.4 GiB of memory, with 1024 patches 10.8.

    Args:
        labels: the entity types of the data set. They are not used, but every document model is
            built with them.
        size: the size of a model with random weights: "tiny" has 0.4 million parameters, "base" 282
            million, as published. With `pretrained`, it has no effect on the model, but experiments
            take their learning rates from it.
        pretrained: the weights to start from: a local folder or a hub id, such as
            google/pix2struct-docvqa-base. None draws random weights.
        max_patches: the largest number of patches into which a page with its question is cut, which
            sets the resolution of training. None takes 128 in "tiny" and 2048 in "base", or the
            value of the pretrained model.
        patch_size: the side of a patch in pixels. None takes 8 in "tiny" and 16 in "base". A
            pretrained model has its own.
        answer_length: the largest number of tokens in an answer (A), the end token included. None
            takes 24 in "tiny" and 48 in "base", or the value of the pretrained model.
        font: the TrueType file of the font in which questions are drawn. None takes DejaVu Sans, or
            the font of the pretrained model if one was saved with it; the published weights were
            trained with Arial.
        dropout: the dropout probability in the decoder. None takes 0 in "tiny" and 0.1 in "base",
            or the value of the pretrained model.
        attention: how attention is computed: "sdpa", or "eager" for attacks that need gradients of
            gradients.

    Raises:
        ValueError: if `max_patches` is too large for the encoder's tables of places.
        OSError: if there is no such folder and no such model on the hub.
    """
    settings = PRESETS.settings(locals())
    return _draw(settings) if pretrained is None else _load(settings)


def _draw(given: Mapping[str, Any]) -> Pix2Struct:
    # Answers keep their case, as published.
    subwords = dataclasses.replace(Subwords.shipped(), lowercase=False)
    max_patches, patch_size = given["max_patches"], given["patch_size"]
    vision: dict[str, Any] = {"seq_len": PUBLISHED_PLACES}
    text: dict[str, Any] = {"vocab_size": PUBLISHED_VOCABULARY}
    if given["size"] == "tiny":
        width = {"hidden_size": 64, "d_ff": 128, "d_kv": 16}
        vision = {"seq_len": max_patches + 1, "num_hidden_layers": 2, "num_attention_heads": 4}
        text = {"vocab_size": subwords.size, "num_layers": 2, "num_heads": 4}
        vision, text = width | vision, width | text
    config = Pix2StructConfig(
        vision_config=Pix2StructVisionConfig(**vision, patch_embed_hidden_size=3 * patch_size**2),
        text_config=Pix2StructTextConfig(
            **text,
            dropout_rate=given["dropout"],
            pad_token_id=subwords.pad,
            eos_token_id=subwords.sep,
            # T5 begins with a padding token.
            decoder_start_token_id=subwords.pad,
        ),
        is_vqa=True,
    )
    config._attn_implementation = given["attention"]
    network = Pix2StructForConditionalGeneration(config)
    length, font = given["answer_length"], given["font"]
    return Pix2Struct(network, Pix2StructReader(subwords, max_patches, patch_size, length, font))


def _load(given: Mapping[str, Any]) -> Pix2Struct:
    folder = given["pretrained"]
    saved = settings_of(folder)
    config = config_of(Pix2StructConfig, folder)
    if given["dropout"] is not None:
        config.text_config.dropout_rate = given["dropout"]
    network, _ = network_of(
        Pix2StructForConditionalGeneration,
        folder,
        config=config,
        attn_implementation=given["attention"],
    )
    vision = network.config.vision_config
    reader = Pix2StructReader(
        dataclasses.replace(Subwords.from_pretrained(folder), lowercase=False),
        given["max_patches"] or saved.get("max_patches", min(2048, vision.seq_len - 1)),
        round((vision.patch_embed_hidden_size / 3) ** 0.5),
        given["answer_length"] or saved.get("answer_length", 48),
        given["font"] or saved.get("font"),
    )
    return Pix2Struct(network, reader).train()


class Pix2Struct(EncoderDecoderAnswerer):
    """Answers questions about page images.

    Args:
        network: encoder of patches and decoder of text.
        reader: makes the arrays; its tokenizer is the network's.

    Raises:
        ValueError: if the reader makes more patches than the network has places for.
    """

    name = "pix2struct"

    def __init__(
        self, network: Pix2StructForConditionalGeneration, reader: Pix2StructReader
    ) -> None:
        super().__init__()
        most = network.config.vision_config.seq_len - 1
        if reader.max_patches > most:
            # All could stand in one row, and the tables begin at 0, where there is no patch.
            raise ValueError(
                f"max_patches={reader.max_patches}: the encoder has places for {most} patches"
            )
        self.network = network
        self.reader = reader
        start = network.config.decoder_start_token_id
        network.generation_config = greedy(reader, decoder_start_token_id=start)

    def blocks(self) -> list[nn.Module]:
        """Returns the Transformer layers from input to output, the encoder's first."""
        return [*self.network.encoder.encoder.layer, *self.network.decoder.layer]

    def head(self) -> list[nn.Module]:
        """Returns the modules after the last layer: a normalisation, and the scores of words."""
        return [self.network.decoder.final_layer_norm, self.network.decoder.lm_head]

    def visual(self) -> list[nn.Module]:
        """Returns the encoder; frozen, it reads neither page nor question in a new way."""
        return [self.network.encoder]

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model into a folder; `pix2struct(pretrained=folder)` reads it back."""
        save(folder, self.network, self.reader.subwords, self.reading())

    def page(self, batch: Batch) -> dict[str, Tensor]:
        """Returns places and standardised patches, (batch, P, 2 + …), and what is a patch."""
        dtype = self.network.dtype
        mean, deviation = (batch[name].to(dtype)[:, None, None] for name in ("mean", "deviation"))
        there = (batch["places"][..., :1] > 0).to(dtype)
        patches = (batch["patches"].to(dtype) - mean) / deviation * there
        placed = torch.cat([batch["places"].to(dtype), patches], -1)
        return {"attention_mask": there[..., 0], "flattened_patches": placed}
