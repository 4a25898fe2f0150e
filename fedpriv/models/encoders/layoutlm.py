"""LayoutLM v1 (Xu et al. 2020): the first backbone that CDMI attacks.

A token's place is where its word stands: its box's corners and sides have embeddings, as its
position in the text has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from transformers import LayoutLMConfig, LayoutLMForMaskedLM, LayoutLMModel

from fedpriv.models.choices import choose
from fedpriv.models.encoders.encoder_building import (
    BASE_IMAGE_SIZE,
    IMAGE_SIZE,
    Attention,
    Backbone,
    Sizes,
    given,
    side,
    tiny,
)
from fedpriv.models.field_model import Task
from fedpriv.models.heads.heads import Model

LAYOUTLM = Backbone(LayoutLMConfig, LayoutLMModel, LayoutLMForMaskedLM)

from_pretrained = LAYOUTLM.from_pretrained


def layoutlm(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: str | None = None,
    task: Task = "tags",
    image: bool | None = None,
    image_size: int | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    attention: Attention = "sdpa",
) -> Model:
    """Builds a LayoutLM with a head, for settings files.

    What is none is as the size, or the pretrained model, has it.

    Args:
        labels: entity types of the data set.
        size: "tiny", or as published, with random weights. Beside `pretrained` it
            decides nothing here, but experiments take their learning rates from it.
        pretrained: a local folder or a hub id (microsoft/layoutlm-base-uncased).
        task: "mlm", "tags" for words, "spade" for entities by their tokens' predecessors, "links"
            between entities.
        image: whether the page image is read too (bimodal).
        image_size: side of the square page image in pixels, a multiple of 8.
        max_length: L, tokens of a window.
        dropout: everywhere.
        attention: "eager" where gradients of gradients are needed, as by gradient inversion.
    """
    set_ones = given(image=image, image_size=image_size, max_length=max_length, dropout=dropout)
    if pretrained is not None:
        return from_pretrained(pretrained, labels, task=task, attention=attention, **set_ones)
    build = choose("size", size, {"tiny": layoutlm_tiny, "base": layoutlm_base})
    return build(labels, task=task, attention=attention, **set_ones)


def layoutlm_tiny(
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
    attention: Attention = "sdpa",
) -> Model:
    """Builds a LayoutLM of 440 000 parameters that learns on two CPU cores in minutes.

    Coordinates are rounded down to multiples of 40 of 1000: from scratch, on few pages, most of the
    1000 positions are never seen, and the model would learn none of the layout. The page's image is
    looked at by the full boxes.

    Args:
        labels: entity types of the data set.
        task: see `layoutlm`.
        image: whether the page image is read too; none: if it has a size.
        image_size: side of the square page image in pixels, a multiple of 8; none: 64.
        max_length: L, tokens of a window, the two special ones included.
        hidden_size: width, even; the feed-forward layer is twice as wide.
        layers: Transformer layers.
        dropout: in the embeddings, the layers and the head.
        initializer_range: standard deviation of the drawn weights.
        attention: see `layoutlm`.
    """
    pixels = side(image, image_size, IMAGE_SIZE)
    sizes = Sizes(max_length, pixels, dropout, attention)
    more = tiny(
        hidden_size=hidden_size, layers=layers, max_length=max_length, spread=initializer_range
    )
    return LAYOUTLM.drawn(labels, task, sizes, box_step=40, **more)


def layoutlm_base(
    labels: Sequence[str] = (),
    *,
    task: Task = "tags",
    image: bool | None = None,
    image_size: int | None = None,
    max_length: int = 512,
    dropout: float = 0.1,
    attention: Attention = "sdpa",
) -> Model:
    """Builds a LayoutLM in its published size, 112 million parameters, with random weights.

    Args: as of `layoutlm_tiny`; `max_length` is at most 512, and the image's usual side 224 pixels.
    """
    pixels = side(image, image_size, BASE_IMAGE_SIZE)
    return LAYOUTLM.drawn(labels, task, Sizes(max_length, pixels, dropout, attention))
