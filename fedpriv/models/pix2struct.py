"""Pix2Struct (Lee et al. 2023): reads the question and the page from one image, without OCR.

The question is set as a header above the page. A Transformer sees the patches of both, at a
resolution that keeps the page's proportions; a decoder like T5's writes the answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import (
    GenerationConfig,
    Pix2StructConfig,
    Pix2StructForConditionalGeneration,
    Pix2StructTextConfig,
    Pix2StructVisionConfig,
)

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.models.base import Answer
from fedpriv.models.choices import choose
from fedpriv.models.generation import read_answers, token_losses
from fedpriv.models.question_answering import QuestionAnswerer
from fedpriv.models.readers.pix2struct_reader import Pix2StructReader
from fedpriv.models.readers.reader import IGNORED
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import save, settings_of

Attention = Literal["sdpa", "eager"]

PUBLISHED_VOCABULARY = 50_244
"""Tokens of google/pix2struct-base."""

PUBLISHED_PLACES = 4096
"""Rows of its tables of rows and columns."""


def pix2struct(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: str | None = None,
    max_patches: int | None = None,
    answer_length: int | None = None,
    font: str | None = None,
    dropout: float | None = None,
    attention: Attention = "sdpa",
) -> Pix2Struct:
    """Builds a Pix2Struct, for settings files.

    What is none is as the size, or the pretrained model, has it.

    Args:
        labels: not used; taken because every document model is built with the data set's.
        size: "tiny", or "base" as published, with random weights. Beside `pretrained` it decides
            nothing here, but experiments take their learning rates from it.
        pretrained: a local folder or a hub id (google/pix2struct-docvqa-base).
        max_patches: patches of page and question at most: the resolution of the training.
        answer_length: tokens of an answer.
        font: a TrueType file in which questions are set; DejaVu Sans if none, where the published
            weights have seen Arial.
        dropout: in the decoder, as published.
        attention: "eager" where gradients of gradients are needed, as by gradient inversion.
    """
    given = {
        "max_patches": max_patches,
        "answer_length": answer_length,
        "font": font,
        "dropout": dropout,
        "attention": attention,
    }
    set_ones: dict[str, Any] = {k: value for k, value in given.items() if value is not None}
    if pretrained is not None:
        return from_pretrained(pretrained, labels, **set_ones)
    builders = {"tiny": pix2struct_tiny, "base": pix2struct_base}
    return choose("size", size, builders)(labels, **set_ones)


def pix2struct_tiny(
    labels: Sequence[str] = (),
    *,
    max_patches: int = 128,
    patch_size: int = 8,
    answer_length: int = 24,
    font: str | None = None,
    dropout: float = 0.0,
    attention: Attention = "sdpa",
) -> Pix2Struct:
    """Builds a Pix2Struct of 0.4 million parameters that learns pages by their look.

    With 128 patches of 8 x 8 pixels hardly a letter of a page can be read, but pages and questions
    can be told apart.

    Args: see `pix2struct`; `patch_size` is a patch's side in pixels.
    """
    subwords = _with_case(Subwords.shipped())
    vision = Pix2StructVisionConfig(
        hidden_size=64, d_ff=128, d_kv=16, num_hidden_layers=2, num_attention_heads=4,
        patch_embed_hidden_size=3 * patch_size**2, seq_len=max_patches + 1,
    )  # fmt: skip
    text = Pix2StructTextConfig(
        vocab_size=subwords.size, hidden_size=64, d_ff=128, d_kv=16, num_layers=2, num_heads=4,
        dropout_rate=dropout, **_marks(subwords),
    )  # fmt: skip
    reader = Pix2StructReader(subwords, max_patches, patch_size, answer_length, font)
    return _drawn(vision, text, reader, attention)


def pix2struct_base(
    labels: Sequence[str] = (),
    *,
    max_patches: int = 2048,
    answer_length: int = 48,
    font: str | None = None,
    dropout: float = 0.1,
    attention: Attention = "sdpa",
) -> Pix2Struct:
    """Builds Pix2Struct in its published size, 282 million parameters, with random weights.

    A federated round with one page at a time takes 11.4 GiB of memory, with 1024 patches 10.8.

    Args: see `pix2struct`. The shipped tokenizer's tokens are the first of the published 50 244.
    """
    subwords = _with_case(Subwords.shipped())
    vision = Pix2StructVisionConfig(seq_len=PUBLISHED_PLACES)
    text = Pix2StructTextConfig(
        vocab_size=PUBLISHED_VOCABULARY, dropout_rate=dropout, **_marks(subwords)
    )
    reader = Pix2StructReader(subwords, max_patches, 16, answer_length, font)
    return _drawn(vision, text, reader, attention)


def from_pretrained(
    folder: str | Path,
    labels: Sequence[str] = (),
    *,
    max_patches: int | None = None,
    answer_length: int | None = None,
    font: str | None = None,
    dropout: float | None = None,
    attention: Attention = "sdpa",
) -> Pix2Struct:
    """Loads weights and tokenizer from a folder or a hub id (google/pix2struct-docvqa-base).

    Args: see `pix2struct`.

    Raises:
        ValueError: if `max_patches` is too large for the encoder's tables of places.
        OSError: if there is no such folder and no such model on the hub.
    """
    saved = settings_of(folder)
    config = Pix2StructConfig.from_pretrained(str(folder))
    if dropout is not None:
        config.text_config.dropout_rate = dropout
    network = Pix2StructForConditionalGeneration.from_pretrained(
        str(folder), config=config, dtype=torch.float32, attn_implementation=attention
    )
    vision = network.config.vision_config
    reader = Pix2StructReader(
        _with_case(Subwords.from_pretrained(folder)),
        max_patches or saved.get("max_patches", min(2048, vision.seq_len - 1)),
        round((vision.patch_embed_hidden_size / 3) ** 0.5),
        answer_length or saved.get("answer_length", 48),
        font or saved.get("font"),
    )
    return Pix2Struct(network, reader).train()


def _with_case(subwords: Subwords) -> Subwords:
    """Returns a tokenizer that keeps the case of answers, if it knows any: as published."""
    return dataclasses.replace(subwords, lowercase=False)


def _marks(subwords: Subwords) -> dict[str, int]:
    """Returns the tokens that the decoder must know; T5 begins with a padding token."""
    return {
        "pad_token_id": subwords.pad,
        "eos_token_id": subwords.sep,
        "decoder_start_token_id": subwords.pad,
    }


def _drawn(
    vision: Pix2StructVisionConfig,
    text: Pix2StructTextConfig,
    reader: Pix2StructReader,
    attention: Attention,
) -> Pix2Struct:
    config = Pix2StructConfig(vision_config=vision, text_config=text, is_vqa=True)
    config._attn_implementation = attention
    return Pix2Struct(Pix2StructForConditionalGeneration(config), reader)


class Pix2Struct(QuestionAnswerer):
    """Answers questions about page images.

    Args:
        network: encoder of patches and decoder of text.
        reader: makes the arrays; its tokenizer is the network's.

    Raises:
        ValueError: if the reader makes more patches than the network has places for.
    """

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
        self._writing = GenerationConfig(
            max_new_tokens=reader.answer_length,
            do_sample=False,
            num_beams=1,
            decoder_start_token_id=network.config.decoder_start_token_id,
            pad_token_id=reader.subwords.pad,
            eos_token_id=reader.subwords.sep,
            return_dict_in_generate=True,
            output_scores=True,
        )
        # In place of what a checkpoint says, which `generate` would mix in.
        network.generation_config = self._writing

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per question; see `Pix2StructReader.read`."""
        return self.reader.read(documents)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the answer's tokens, of shape (batch, A, vocabulary)."""
        patches, mask = self._page(batch)
        return self._scores(batch, attention_mask=mask, flattened_patches=patches)

    def losses(self, batch: Batch) -> Tensor:
        """Returns -log p(answer | page, question), the mean over the answer's tokens, (batch,)."""
        return token_losses(self(batch), batch["labels"])

    def answer_batch(self, batch: Batch) -> list[Answer]:
        """Returns the greedy answer of each row."""
        patches, mask = self._page(batch)
        return self._written(attention_mask=mask, flattened_patches=patches)

    def reply_batch(self, batch: Batch) -> tuple[list[Answer], Tensor]:
        """Returns answers and losses of one reading of the page."""
        patches, mask = self._page(batch)
        seen = self.network.encoder(flattened_patches=patches, attention_mask=mask)
        losses = token_losses(
            self._scores(batch, attention_mask=mask, encoder_outputs=seen), batch["labels"]
        )
        return self._written(attention_mask=mask, encoder_outputs=seen), losses

    def blocks(self) -> list[nn.Module]:
        """Returns the Transformer layers from input to output, the encoder's first."""
        return [*self.network.encoder.encoder.layer, *self.network.decoder.layer]

    def head(self) -> list[nn.Module]:
        """Returns what comes after the last layer: a normalisation, and the scores of words."""
        return [self.network.decoder.final_layer_norm, self.network.decoder.lm_head]

    def visual(self) -> list[nn.Module]:
        """Returns the encoder; frozen, it reads neither page nor question in a new way."""
        return [self.network.encoder]

    def reading(self) -> dict[str, Any]:
        """Returns all that decides how documents become arrays."""
        return {"model": "pix2struct", **self.reader.settings()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model into a folder; `from_pretrained` reads it back."""
        save(folder, self.network, self.reader.subwords, self.reading())

    def _page(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns places and standardised patches, (batch, P, 2 + …), and what is a patch."""
        dtype = self.network.dtype
        mean, deviation = (batch[name].to(dtype)[:, None, None] for name in ("mean", "deviation"))
        there = (batch["places"][..., :1] > 0).to(dtype)
        patches = (batch["patches"].to(dtype) - mean) / deviation * there
        return torch.cat([batch["places"].to(dtype), patches], -1), there[..., 0]

    def _scores(self, batch: Batch, **page: Any) -> Tensor:
        output = self.network(
            decoder_input_ids=self._before(batch["labels"]), use_cache=False, **page
        )
        logits: Tensor = output.logits
        return logits

    def _written(self, **page: Any) -> list[Answer]:
        generated = self.network.generate(**page, generation_config=self._writing)
        return read_answers(generated, self.reader.subwords, begin=1)

    def _before(self, labels: Tensor) -> Tensor:
        """Returns the labels moved one place to the right, as the decoder reads them."""
        start = self.network.config.decoder_start_token_id
        shifted = nn.functional.pad(labels[:, :-1], (1, 0), value=start)
        return shifted.masked_fill(shifted == IGNORED, self.reader.subwords.pad)
