"""How models on an encoder are made: sizes, random weights, and folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from fedpriv.models.choices import choose
from fedpriv.models.encoders.encoder import Encoder
from fedpriv.models.encoders.roi import roi_visual
from fedpriv.models.field_model import Task
from fedpriv.models.heads.heads import HEADS, Model
from fedpriv.models.heads.masked_lm import MaskedWords
from fedpriv.models.readers.reader import Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import fits_positions, settings_of, tensors_of

Attention = Literal["sdpa", "eager"]

IMAGE_SIZE = 64
"""Side in pixels of the page image that a tiny model reads."""

BASE_IMAGE_SIZE = 224
"""The same of a published size."""


@dataclass(frozen=True)
class Sizes:
    """What all three architectures are told in the same words.

    Attributes:
        max_length: L, tokens of a window.
        image_size: side of the page image in pixels; none: the model is unimodal.
        dropout: everywhere.
        attention: how it is computed; none: the fastest way that the network has.
    """

    max_length: int
    image_size: int | None
    dropout: float
    attention: Attention | None


@dataclass(frozen=True)
class Backbone:
    """An architecture as transformers has it; its models read the boxes of words.

    Attributes:
        config: the class of its settings.
        network: the class of its encoder.
        masked: of its encoder with a head for masked words; none where transformers has none.
    """

    config: type[PreTrainedConfig]
    network: type[PreTrainedModel]
    masked: type[PreTrainedModel] | None

    @property
    def name(self) -> str:
        """As transformers writes it into config.json."""
        return str(self.config.model_type)

    def drawn(self, labels: Sequence[str], task: Task, sizes: Sizes, **more: Any) -> Model:
        """Builds a model with random weights on the tokenizer that comes with fedpriv.

        Args:
            labels: entity types of the data set.
            task: the name of a head.
            sizes: of window and image.
            **more: settings of the network in transformers' words; where none, as published.

        Raises:
            ValueError: if the window is longer than the network has positions.
        """
        subwords = Subwords.shipped()
        config = self.config(
            hidden_dropout_prob=sizes.dropout,
            attention_probs_dropout_prob=sizes.dropout,
            pad_token_id=subwords.pad,
            attn_implementation=sizes.attention,
            **more,
        )
        most = config.max_position_embeddings
        length = fits_positions(sizes.max_length, None, most, f"this {self.name}")
        reader = Reader(subwords, length, sizes.image_size, boxes="word")
        return _headed(self.network(config), reader, labels, task)

    def from_pretrained(
        self,
        folder: str | Path,
        labels: Sequence[str] = (),
        *,
        task: Task | None = None,
        image: bool | None = None,
        image_size: int | None = None,
        max_length: int | None = None,
        dropout: float | None = None,
        attention: Attention | None = None,
    ) -> Model:
        """Loads weights and tokenizer from a folder or a hub id.

        A head for another task, or for other labels, is drawn anew; so is what looks at the page,
        where the saved model does not. The head for masked words is also taken from what
        transformers saved.

        Args:
            folder: as `save_pretrained` of a model or that of transformers writes it.
            labels: entity types of the data set; none: those that were saved.
            task: the name of a head; none: as saved, or "tags".
            image: whether the page image is read too; none: if it has a size, or as saved.
            image_size: side of the square image in pixels; none: as saved, or 224.
            max_length: L, at most what the model's positions allow; none: as saved, or that.
            dropout: none: as saved.
            attention: "eager" where gradients of gradients are needed; none: the fastest.

        Raises:
            ValueError: if the folder holds another architecture, `max_length` is too long, or
                words are to be masked and the tokenizer has no token for that.
            OSError: if there is no such folder and no such model on the hub.
        """
        saved = settings_of(folder)
        labels = list(labels or saved.get("labels", ()))
        task = task or saved.get("task", "tags")
        config = self._config(folder)
        if dropout is not None:
            config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
        reader = _reader_of(folder, saved, config, image, image_size, max_length)
        masked = task == "mlm" and not saved  # else the head is in a file of its own
        network, scores = self._network(folder, config, attention, masked=masked)
        model = _headed(network, reader, labels, task)
        if isinstance(model, MaskedWords) and scores:
            model.scores.load_state_dict(scores)
        same = (saved.get("task"), saved.get("labels")) == (task, labels)
        _take(model, tensors_of(folder), head=same or saved.get("task") == task == "mlm")
        return model.train()

    def _config(self, folder: str | Path) -> PreTrainedConfig:
        kind = self.config.get_config_dict(str(folder))[0].get("model_type")
        if kind not in (None, self.name):  # transformers would load no weight of it, and go on
            raise ValueError(f"{folder} holds a model of type {kind!r}: expected {self.name!r}")
        return self.config.from_pretrained(str(folder))

    def _network(
        self,
        folder: str | Path,
        config: PreTrainedConfig,
        attention: Attention | None,
        *,
        masked: bool,
    ) -> tuple[PreTrainedModel, Mapping[str, Tensor]]:
        """Returns the encoder and, where wanted and there, the weights of `WordScores`."""
        kind = (masked and self.masked) or self.network
        whole, info = kind.from_pretrained(
            str(folder),
            config=config,
            dtype=torch.float32,
            attn_implementation=attention,
            output_loading_info=True,
        )
        if kind is self.network:
            return whole, {}
        there = not any(name.startswith("cls.") for name in info["missing_keys"])
        scores = whole.cls.predictions.state_dict() if there else {}
        # The decoder is the embeddings, and its bias the head's.
        own = {name: w for name, w in scores.items() if not name.startswith("decoder.")}
        return whole.base_model, own


def tiny(*, hidden_size: int, layers: int, max_length: int, spread: float) -> dict[str, Any]:
    """Returns the settings of a small network, in transformers' words.

    Args:
        hidden_size: width; the feed-forward layer is twice as wide.
        layers: Transformer layers, with two heads of attention each.
        max_length: L.
        spread: standard deviation of the drawn weights.
    """
    return {
        "vocab_size": Subwords.shipped().size,
        "hidden_size": hidden_size,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "intermediate_size": 2 * hidden_size,
        "max_position_embeddings": max_length,
        "type_vocab_size": 1,
        "initializer_range": spread,
    }


def side(image: bool | None, image_size: int | None, usual: int) -> int | None:
    """Returns the side of the page image, none where none is read.

    Args:
        image: whether one is read; none: if a size is given.
        image_size: none: the usual one.
        usual: in pixels.

    Raises:
        ValueError: if a size is given for an image that is not read.
    """
    if image is False and image_size is not None:
        raise ValueError(f"image=False and image_size={image_size}: expected one of the two")
    return image_size or (usual if image else None)


def given(**settings: Any) -> dict[str, Any]:
    """Returns the settings that are not none."""
    return {name: value for name, value in settings.items() if value is not None}


def _reader_of(
    folder: str | Path,
    saved: Mapping[str, Any],
    config: PreTrainedConfig,
    image: bool | None,
    image_size: int | None,
    max_length: int | None,
) -> Reader:
    most = config.max_position_embeddings
    length = fits_positions(max_length, saved.get("max_length"), most, folder)
    size = saved.get("image_size")
    if image is not None or image_size is not None:
        size = side(image, image_size, size or BASE_IMAGE_SIZE)
    subwords = Subwords.from_pretrained(folder)
    return Reader(subwords, length, size, boxes="word")


def _headed(network: PreTrainedModel, reader: Reader, labels: Sequence[str], task: Task) -> Model:
    head = choose("task", task, HEADS)
    size = reader.image_size
    visual = None if size is None else roi_visual(network.config.hidden_size, size)
    return head(Encoder(network, visual), reader, labels)


def _take(model: Model, weights: Mapping[str, Tensor], *, head: bool) -> None:
    """Takes what was saved of a model: what looks at the page, and the head where it fits."""
    wanted = {
        name: weight
        for name, weight in weights.items()
        if name in model.state_dict() and (head or name.startswith("encoder.visual."))
    }
    model.load_state_dict(wanted, strict=False)
