"""LayoutLM v1 (Xu et al. 2020): the first backbone that 000 attacks.

A token's place is where its word stands: its box's corners and sides have embeddings, as its
position in the text has.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from transformers import LayoutLMConfig, LayoutLMForMaskedLM, LayoutLMModel

from fedpriv.models.choices import choose
from fedpriv.models.encoder_building import (
    BASE_IMAGE_SIZE,
    IMAGE_SIZE,
    Attention,
    Backbone,
    Sizes,
    drawn,
    given,
    loaded,
    side,
    tiny,
)
from fedpriv.models.field_model import Task
from fedpriv.models.heads import Model

LAYOUTLM = Backbone(LayoutLMConfig, LayoutLMModel, LayoutLMForMaskedLM)


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
    """Builds a LayoutLM of 450 000 parameters that learns on two CPU cores in minutes.

    Coordinates are rounded down to multiples of 40 of 1000: from scratch, on few pages, most of the
    1000 positions are never seen, and the model would learn none of the layout.

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
    sizes = Sizes(max_length, pixels, dropout, attention, box_step=40)
    more = tiny(
        hidden_size=hidden_size, layers=layers, max_length=max_length, spread=initializer_range
    )
    return drawn(LAYOUTLM, labels, task, sizes, **more)


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
    """Builds a LayoutLM in its published size, 113 million parameters, with random weights.

    Args: as of `layoutlm_tiny`; `max_length` is at most 512, and the image's usual side 224 pixels.
    """
    pixels = side(image, image_size, BASE_IMAGE_SIZE)
    return drawn(LAYOUTLM, labels, task, Sizes(max_length, pixels, dropout, attention))


def from_pretrained(
    folder: str | Path,
    labels: Sequence[str] = (),
    *,
    task: Task | None = None,
    image: bool | None = None,
    image_size: int | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    attention: Attention = "sdpa",
) -> Model:
    """Loads weights and tokenizer from a folder or a hub id (microsoft/layoutlm-base-uncased).

    A head for another task, or for other labels, is drawn anew; so is what looks at the page, where
    the saved model does not. The head for masked words is also taken from what transformers saved.

    Args:
        folder: as `save_pretrained` of a model or that of transformers writes it.
        labels: entity types of the data set; none: those that were saved.
        task: see `layoutlm`; none: as saved, or "tags".
        image: whether the page image is read too; none: if it has a size, or as saved.
        image_size: none: as saved, or 224.
        max_length: L, at most what the model's position embeddings allow; none: as saved, or that.
        dropout: none: as saved.
        attention: see `layoutlm`.

    Raises:
        ValueError: if `max_length` is too long for the model, or words are to be masked and the
            tokenizer has no token for that.
        OSError: if there is no such folder and no such model on the hub.
    """
    return loaded(
        LAYOUTLM,
        folder,
        labels,
        task=task,
        image=image,
        image_size=image_size,
        max_length=max_length,
        dropout=dropout,
        attention=attention,
    )
