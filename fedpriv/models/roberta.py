"""RoBERTa for key information extraction: the baseline of PrIeD-KIE that reads the text alone.

Words, windows and tags are those of LayoutLMv3; places and image are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import RobertaConfig, RobertaForTokenClassification

from fedpriv.data.examples import Batch
from fedpriv.models.choices import choose
from fedpriv.models.readers.reader import Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import draw_linear, fits_positions, save, settings_of
from fedpriv.models.tagging import WordTagger, tags_of

Attention = Literal["sdpa", "eager"]


def roberta(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: str | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    attention: Attention = "sdpa",
) -> RobertaTagger:
    """Builds a RoBERTa that tags words, for settings files.

    What is none is as the size, or the pretrained model, has it.

    Args:
        labels: entity types of the data set.
        size: "tiny", or as published, with random weights. Beside `pretrained` it
            decides nothing here, but experiments take their learning rates from it.
        pretrained: a local folder or a hub id (FacebookAI/roberta-base).
        max_length: L, tokens of a window.
        dropout: everywhere.
        attention: "eager" where gradients of gradients are needed, as by gradient inversion.
    """
    given = {"max_length": max_length, "dropout": dropout, "attention": attention}
    set_ones: dict[str, Any] = {k: value for k, value in given.items() if value is not None}
    if pretrained is not None:
        return from_pretrained(pretrained, labels, **set_ones)
    builders = {"tiny": roberta_tiny, "base": roberta_base}
    return choose("size", size, builders)(labels, **set_ones)


def roberta_tiny(
    labels: Sequence[str] = (),
    *,
    max_length: int = 128,
    hidden_size: int = 32,
    layers: int = 2,
    dropout: float = 0.0,
    initializer_range: float = 0.1,
    attention: Attention = "sdpa",
) -> RobertaTagger:
    """Builds a RoBERTa of 70 000 parameters, of the sizes of `layoutlmv3_tiny`.

    Args:
        labels: entity types of the data set.
        max_length: L, tokens of a window, the two special ones included.
        hidden_size: width, even; the feed-forward layer is twice as wide.
        layers: Transformer layers.
        dropout: in the embeddings, the layers and the head.
        initializer_range: standard deviation of the drawn weights.
        attention: see `roberta`.
    """
    if hidden_size % 2:
        raise ValueError(f"{hidden_size=} must be even, for two attention heads")
    subwords = Subwords.shipped()
    config = _config(
        subwords, labels, dropout, attention,
        vocab_size=subwords.size, hidden_size=hidden_size, num_hidden_layers=layers,
        num_attention_heads=2, intermediate_size=2 * hidden_size,
        max_position_embeddings=max_length + 2, initializer_range=initializer_range,
    )  # fmt: skip
    return _drawn(config, Reader(subwords, max_length, None, box_step=40), labels)


def roberta_base(
    labels: Sequence[str] = (),
    *,
    max_length: int = 512,
    dropout: float = 0.1,
    attention: Attention = "sdpa",
) -> RobertaTagger:
    """Builds a RoBERTa in its published size, 124 million parameters, with random weights.

    Args: as of `roberta_tiny`; `max_length` is at most 512.
    """
    subwords = Subwords.shipped()
    config = _config(
        subwords, labels, dropout, attention, vocab_size=50265, max_position_embeddings=514
    )
    length = fits_positions(max_length, None, _positions(config), "roberta_base")
    return _drawn(config, Reader(subwords, length, None), labels)


def from_pretrained(
    folder: str | Path,
    labels: Sequence[str] = (),
    *,
    max_length: int | None = None,
    dropout: float | None = None,
    attention: Attention = "sdpa",
) -> RobertaTagger:
    """Loads weights and tokenizer from a folder or a hub id (FacebookAI/roberta-base).

    A classification head for another number of labels, or for others, is drawn anew.

    Args:
        folder: as `RobertaTagger.save_pretrained` or that of transformers writes it.
        labels: entity types of the data set; none: those that were saved.
        max_length: L, at most what the model's position embeddings allow; none: as saved, or that.
        dropout: none: as saved.
        attention: see `roberta`.

    Raises:
        ValueError: if `max_length` is too long for the model.
        OSError: if there is no such folder and no such model on the hub.
    """
    saved = settings_of(folder)
    labels = labels or saved.get("labels", ())
    config = RobertaConfig.from_pretrained(str(folder), num_labels=len(tags_of(labels)))
    if dropout is not None:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
    network = RobertaForTokenClassification.from_pretrained(
        str(folder),
        config=config,
        ignore_mismatched_sizes=True,
        dtype=torch.float32,
        attn_implementation=attention,
    )
    if saved.get("labels", list(labels)) != list(labels):
        draw_linear(network.classifier, config.initializer_range)
    length = fits_positions(max_length, saved.get("max_length"), _positions(config), folder)
    subwords = Subwords.from_pretrained(folder)
    reader = Reader(subwords, length, None, saved.get("box_step", 1))
    return RobertaTagger(network, reader, labels).train()


def _config(
    subwords: Subwords, labels: Sequence[str], dropout: float, attention: Attention, **sizes: Any
) -> RobertaConfig:
    return RobertaConfig(
        **sizes,
        type_vocab_size=1,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=subwords.pad,
        bos_token_id=subwords.cls,
        eos_token_id=subwords.sep,
        num_labels=len(tags_of(labels)),
        attn_implementation=attention,
    )


def _drawn(config: RobertaConfig, reader: Reader, labels: Sequence[str]) -> RobertaTagger:
    return RobertaTagger(RobertaForTokenClassification(config), reader, labels)


def _positions(config: RobertaConfig) -> int:
    # Positions count from the padding id + 1.
    return int(config.max_position_embeddings - config.pad_token_id - 1)


class RobertaTagger(WordTagger):
    """RoBERTa with a BIO tag on each word."""

    def __init__(
        self, network: RobertaForTokenClassification, reader: Reader, labels: Sequence[str]
    ) -> None:
        super().__init__(reader, labels)
        self.network = network

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the tags, of shape (batch, L, tags)."""
        scores: Tensor = self.network(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
        ).logits
        return scores

    def blocks(self) -> list[nn.Module]:
        """Returns the Transformer layers from input to output."""
        return list(self.network.roberta.encoder.layer)

    def head(self) -> list[nn.Module]:
        """Returns what comes after the last layer."""
        return [self.network.classifier]

    def visual(self) -> list[nn.Module]:
        """Returns nothing: there is no image."""
        return []

    def reading(self) -> dict[str, Any]:
        """Returns all that decides how documents become arrays."""
        return {"model": "roberta", **super().reading()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model into a folder; `from_pretrained` reads it back."""
        save(folder, self.network, self.reader.subwords, self.reading())
