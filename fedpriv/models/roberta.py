"""RoBERTa for key information extraction: the baseline of PrIeD-KIE that reads the text alone.

Words, windows and tags are those of LayoutLMv3; places and image are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from transformers import RobertaConfig, RobertaForTokenClassification

from fedpriv.data.examples import Batch
from fedpriv.models.presets import Attention, Presets, small_network
from fedpriv.models.readers.reader import Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import (
    draw_linear,
    fits_positions,
    load_network,
    positions,
    save,
    settings_of,
)
from fedpriv.models.tagging import WordTagger, tags_of

PRESETS = Presets(
    {
        "tiny": {
            "max_length": 128,
            "dropout": 0.0,
            "hidden_size": 32,
            "layers": 2,
            "initializer_range": 0.1,
        },
        "base": {"max_length": 512, "dropout": 0.1},
    },
    loadable=("max_length", "dropout"),
)


def roberta(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: str | Path | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    hidden_size: int | None = None,
    layers: int | None = None,
    initializer_range: float | None = None,
    attention: Attention = "sdpa",
) -> RobertaTagger:
    """Builds a RoBERTa that tags words.

    Arguments left as None keep the default of `size`, or of the pretrained model.

    Args:
        labels: entity types of the data set. If empty, a pretrained model keeps its own; for
            others its classification head is drawn anew.
        size: "tiny" has 70 000 parameters and the sizes of the tiny LayoutLMv3, "base" 124 million
            as published; both have random weights. Beside `pretrained` it decides nothing here,
            but experiments take their learning rates from it.
        pretrained: a local folder or a hub id (FacebookAI/roberta-base).
        max_length: L, tokens of a window, the two special ones included; at most 512 in "base".
        dropout: in the embeddings, the layers and the head.
        hidden_size: width of "tiny", even; the feed-forward layer is twice as wide.
        layers: Transformer layers of "tiny".
        initializer_range: standard deviation of the random weights of "tiny".
        attention: see `Attention`.

    Raises:
        ValueError: if `max_length` is too long for the model.
        OSError: if there is no such folder and no such model on the hub.
    """
    settings = PRESETS.settings(
        size, pretrained, max_length=max_length, dropout=dropout, hidden_size=hidden_size,
        layers=layers, initializer_range=initializer_range,
    )  # fmt: skip
    if pretrained is not None:
        return _load(pretrained, labels, attention, **settings)
    return _draw(size, labels, attention, **settings)


def _draw(
    size: str,
    labels: Sequence[str],
    attention: Attention,
    *,
    max_length: int,
    dropout: float,
    **small: Any,
) -> RobertaTagger:
    subwords = Subwords.shipped()
    sizes = {"vocab_size": 50265, "max_position_embeddings": 514}
    if size == "tiny":
        if small["hidden_size"] % 2:
            raise ValueError(
                f"hidden_size={small['hidden_size']} must be even, for two attention heads"
            )
        sizes = small_network(subwords, positions=max_length + 2, **small)
    config = RobertaConfig(
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
    length = fits_positions(max_length, None, positions(config), f"size={size!r}")
    reader = Reader(subwords, length, None, box_step=40 if size == "tiny" else 1)
    return RobertaTagger(RobertaForTokenClassification(config), reader, labels)


def _load(
    folder: str | Path,
    labels: Sequence[str],
    attention: Attention,
    *,
    max_length: int | None,
    dropout: float | None,
) -> RobertaTagger:
    saved = settings_of(folder)
    labels = labels or saved.get("labels", ())
    config = RobertaConfig.from_pretrained(str(folder), num_labels=len(tags_of(labels)))
    kind = RobertaForTokenClassification
    network = load_network(kind, folder, config, dropout=dropout, attention=attention)
    if saved.get("labels", list(labels)) != list(labels):
        draw_linear(network.classifier, config.initializer_range)
    length = fits_positions(max_length, saved.get("max_length"), positions(config), folder)
    reader = Reader(Subwords.from_pretrained(folder), length, None, saved.get("box_step", 1))
    return RobertaTagger(network, reader, labels).train()


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
        """Returns the modules after the last layer."""
        return [self.network.classifier]

    def visual(self) -> list[nn.Module]:
        """Returns nothing: there is no image."""
        return []

    def reading(self) -> dict[str, Any]:
        """Returns all settings that decide how documents become arrays."""
        return {"model": "roberta", **super().reading()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model into a folder; `roberta(pretrained=folder)` reads it back."""
        save(folder, self.network, self.reader.subwords, self.reading())
