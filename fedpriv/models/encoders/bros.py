"""BROS (Hong et al. 2022): the second backbone that CDMI attacks.

A token's place is where its word stands; how far apart the corners of two tokens' boxes are is part
of the attention between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from transformers import BrosConfig, BrosModel

from fedpriv.models.choices import choose
from fedpriv.models.encoders.encoder_building import (
    BASE_IMAGE_SIZE,
    IMAGE_SIZE,
    Backbone,
    Sizes,
    given,
    side,
    tiny,
)
from fedpriv.models.field_model import Task
from fedpriv.models.heads.heads import Model

BROS = Backbone(BrosConfig, BrosModel, None)

from_pretrained = BROS.from_pretrained


def bros(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: str | None = None,
    task: Task = "tags",
    image: bool | None = None,
    image_size: int | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
) -> Model:
    """Builds a BROS with a head, for settings files.

    What is none is as the size, or the pretrained model, has it.

    Args:
        labels: entity types of the data set.
        size: "tiny", or as published, with random weights. Beside `pretrained` it
            decides nothing here, but experiments take their learning rates from it.
        pretrained: a local folder or a hub id (jinho8345/bros-base-uncased).
        task: "mlm", "tags" for words, "spade" for entities by their tokens' predecessors, "links"
            between entities.
        image: whether the page image is read too (bimodal).
        image_size: side of the square page image in pixels, a multiple of 8.
        max_length: L, tokens of a window.
        dropout: everywhere.
    """
    set_ones = given(image=image, image_size=image_size, max_length=max_length, dropout=dropout)
    if pretrained is not None:
        return from_pretrained(pretrained, labels, task=task, **set_ones)
    build = choose("size", size, {"tiny": bros_tiny, "base": bros_base})
    return build(labels, task=task, **set_ones)


def bros_tiny(
    labels: Sequence[str] = (),
    *,
    task: Task = "tags",
    image: bool | None = None,
    image_size: int | None = None,
    max_length: int = 256,
    hidden_size: int = 64,
    layers: int = 2,
    dropout: float = 0.0,
    initializer_range: float = 0.1,
    box_scale: float = 10.0,
) -> Model:
    """Builds a BROS of 180 000 parameters that learns on two CPU cores in minutes.

    Args:
        labels: entity types of the data set.
        task: see `bros`.
        image: whether the page image is read too; none: if it has a size.
        image_size: side of the square page image in pixels, a multiple of 8; none: 64.
        max_length: L, tokens of a window, the two special ones included.
        hidden_size: width, a multiple of 64; the feed-forward layer is twice as wide.
        layers: Transformer layers.
        dropout: in the embeddings, the layers and the head.
        initializer_range: standard deviation of the drawn weights.
        box_scale: what a page's side counts as where distances become sines, in radians.
    """
    if hidden_size % 64:
        raise ValueError(f"{hidden_size=} must be a multiple of 64, for sines of 8 coordinates")
    pixels = side(image, image_size, IMAGE_SIZE)
    sizes = Sizes(max_length, pixels, dropout, None)
    more = tiny(
        hidden_size=hidden_size, layers=layers, max_length=max_length, spread=initializer_range
    )
    return BROS.drawn(labels, task, sizes, bbox_scale=box_scale, **more)


def bros_base(
    labels: Sequence[str] = (),
    *,
    task: Task = "tags",
    image: bool | None = None,
    image_size: int | None = None,
    max_length: int = 512,
    dropout: float = 0.1,
) -> Model:
    """Builds a BROS in its published size, 112 million parameters, with random weights.

    Args: as of `bros_tiny`; `max_length` is at most 512, and the image's usual side 224 pixels.
    """
    pixels = side(image, image_size, BASE_IMAGE_SIZE)
    return BROS.drawn(labels, task, Sizes(max_length, pixels, dropout, None))
