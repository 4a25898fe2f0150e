"""BERT (Devlin et al. 2019): the text alone, to tell what the layout adds (CDMI, §6.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from transformers import BertConfig, BertForMaskedLM, BertModel

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

BERT = Backbone(BertConfig, BertModel, BertForMaskedLM)

from_pretrained = BERT.from_pretrained


def bert(
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
    """Builds a BERT with a head, for settings files.

    What is none is as the size, or the pretrained model, has it.

    Args:
        labels: entity types of the data set.
        size: "tiny", or as published, with random weights. Beside `pretrained` it
            decides nothing here, but experiments take their learning rates from it.
        pretrained: a local folder or a hub id (google-bert/bert-base-uncased).
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
    build = choose("size", size, {"tiny": bert_tiny, "base": bert_base})
    return build(labels, task=task, attention=attention, **set_ones)


def bert_tiny(
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
    """Builds a BERT of 180 000 parameters that learns on two CPU cores in minutes.

    Args:
        labels: entity types of the data set.
        task: see `bert`.
        image: whether the page image is read too; none: if it has a size.
        image_size: side of the square page image in pixels, a multiple of 8; none: 64.
        max_length: L, tokens of a window, the two special ones included.
        hidden_size: width, even; the feed-forward layer is twice as wide.
        layers: Transformer layers.
        dropout: in the embeddings, the layers and the head.
        initializer_range: standard deviation of the drawn weights.
        attention: see `bert`.
    """
    pixels = side(image, image_size, IMAGE_SIZE)
    sizes = Sizes(max_length, pixels, dropout, attention)
    more = tiny(
        hidden_size=hidden_size, layers=layers, max_length=max_length, spread=initializer_range
    )
    return BERT.drawn(labels, task, sizes, **more)


def bert_base(
    labels: Sequence[str] = (),
    *,
    task: Task = "tags",
    image: bool | None = None,
    image_size: int | None = None,
    max_length: int = 512,
    dropout: float = 0.1,
    attention: Attention = "sdpa",
) -> Model:
    """Builds a BERT in its published size, 109 million parameters, with random weights.

    Args: as of `bert_tiny`; `max_length` is at most 512, and the image's usual side 224 pixels.
    """
    pixels = side(image, image_size, BASE_IMAGE_SIZE)
    return BERT.drawn(labels, task, Sizes(max_length, pixels, dropout, attention))
