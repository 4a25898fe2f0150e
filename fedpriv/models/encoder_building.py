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
from fedpriv.models.encoder import Encoder
from fedpriv.models.field_model import Task
from fedpriv.models.heads import HEADS, Model
from fedpriv.models.masked_lm import MaskedWords
from fedpriv.models.reader import Boxes, Reader
from fedpriv.models.roi import roi_visual
from fedpriv.models.saving import fits_positions, settings_of, tensors_of
from fedpriv.models.subwords import Subwords

Attention = Literal["sdpa", "eager"]

IMAGE_SIZE = 64
"""Side in pixels of the page image that a tiny model reads."""

BASE_IMAGE_SIZE = 224
"""The same of a published size."""


@dataclass(frozen=True)
class Backbone:
    """An architecture as transformers has it.

    Attributes:
        config: the class of its settings.
        network: the class of its encoder.
        masked: of its encoder with a head for masked words; none where transformers has none.
        boxes: whose boxes it reads.
    """

    config: type[PreTrainedConfig]
    network: type[PreTrainedModel]
    masked: type[PreTrainedModel] | None
    boxes: Boxes = "word"


@dataclass(frozen=True)
class Sizes:
    """What all three architectures are told in the same words.

    Attributes:
        max_length: L, tokens of a window.
        image_size: side of the page image in pixels; none: the model is unimodal.
        dropout: everywhere.
        attention: how it is computed.
        box_step: see `Reader`.
    """

    max_length: int
    image_size: int | None
    dropout: float
    attention: Attention
    box_step: int = 1


def drawn(
    backbone: Backbone, labels: Sequence[str], task: Task, sizes: Sizes, **more: Any
) -> Model:
    """Builds a model with random weights on the tokenizer that comes with fedpriv.

    Args:
        backbone: the architecture.
        labels: entity types of the data set.
        task: the name of a head.
        sizes: of window and image.
        **more: settings of the network in transformers' words; the published ones where none.

    Raises:
        ValueError: if the window is longer than the network has positions.
    """
    subwords = Subwords.shipped()
    config = backbone.config(
        hidden_dropout_prob=sizes.dropout,
        attention_probs_dropout_prob=sizes.dropout,
        pad_token_id=subwords.pad,
        attn_implementation=sizes.attention,
        **more,
    )
    name = f"this {config.model_type}"
    length = fits_positions(sizes.max_length, None, config.max_position_embeddings, name)
    reader = Reader(subwords, length, sizes.image_size, sizes.box_step, backbone.boxes)
    return _headed(backbone.network(config), reader, labels, task)


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


def loaded(
    backbone: Backbone,
    folder: str | Path,
    labels: Sequence[str],
    *,
    task: Task | None,
    image: bool | None,
    image_size: int | None,
    max_length: int | None,
    dropout: float | None,
    attention: Attention,
) -> Model:
    """Loads a model from a folder or a hub id; see `fedpriv.models.layoutlm.from_pretrained`."""
    saved = settings_of(folder)
    labels = list(labels or saved.get("labels", ()))
    task = task or saved.get("task", "tags")
    config = backbone.config.from_pretrained(str(folder))
    if dropout is not None:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
    length = fits_positions(
        max_length, saved.get("max_length"), config.max_position_embeddings, folder
    )
    seen = saved.get("image_size") if image is None else None
    pixels = side(image, image_size, saved.get("image_size") or BASE_IMAGE_SIZE) or seen
    subwords = Subwords.from_pretrained(folder)
    reader = Reader(subwords, length, pixels, saved.get("box_step", 1), backbone.boxes)
    network, scores = _network(backbone, folder, config, attention, masked=task == "mlm")
    model = _headed(network, reader, labels, task)
    if isinstance(model, MaskedWords) and scores:
        model.scores.load_state_dict(scores)
    same = (saved.get("task"), saved.get("labels")) == (task, labels)
    _take(model, tensors_of(folder), head=same or saved.get("task") == task == "mlm")
    return model.train()


def _headed(network: PreTrainedModel, reader: Reader, labels: Sequence[str], task: Task) -> Model:
    head = choose("task", task, HEADS)
    size = reader.image_size
    visual = None if size is None else roi_visual(network.config.hidden_size, size)
    return head(Encoder(network, visual), reader, labels)


def _network(
    backbone: Backbone,
    folder: str | Path,
    config: PreTrainedConfig,
    attention: Attention,
    *,
    masked: bool,
) -> tuple[PreTrainedModel, Mapping[str, Tensor]]:
    """Returns the encoder and, where wanted and there, the weights of `WordScores`."""
    kind = (masked and backbone.masked) or backbone.network
    whole, info = kind.from_pretrained(
        str(folder),
        config=config,
        dtype=torch.float32,
        attn_implementation=attention,
        output_loading_info=True,
    )
    if kind is backbone.network:
        return whole, {}
    given = not any(name.startswith("cls.") for name in info["missing_keys"])
    scores = whole.cls.predictions.state_dict() if given else {}
    # The decoder is the embeddings, and its bias the head's.
    own = {name: w for name, w in scores.items() if not name.startswith("decoder.")}
    return whole.base_model, own


def _take(model: Model, weights: Mapping[str, Tensor], *, head: bool) -> None:
    """Takes what was saved of a model: what looks at the page, and the head where it fits."""
    wanted = {
        name: weight
        for name, weight in weights.items()
        if name in model.state_dict() and (head or name.startswith("encoder.visual."))
    }
    model.load_state_dict(wanted, strict=False)
