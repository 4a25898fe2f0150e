"""LayoutLM, BROS and BERT with a head: sizes, random weights, and folders (CDMI, §2.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    BrosConfig,
    BrosModel,
    LayoutLMConfig,
    LayoutLMForMaskedLM,
    LayoutLMModel,
    PreTrainedConfig,
    PreTrainedModel,
)

from fedpriv.models.encoders.encoder import Encoder
from fedpriv.models.encoders.roi import roi_visual
from fedpriv.models.field_model import Task
from fedpriv.models.heads.heads import HEADS, Model
from fedpriv.models.heads.masked_lm import MaskedWords
from fedpriv.models.presets import Attention, Presets, choose, small_network
from fedpriv.models.readers.reader import Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import fits_positions, settings_of, tensors_of

TINY_IMAGE, BASE_IMAGE = 64, 224
"""Sides in pixels of the page image, where none is given: of the tiny size, and of all others."""


def bert(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: str | Path | None = None,
    task: Task | None = None,
    image: bool | None = None,
    image_size: int | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    hidden_size: int | None = None,
    layers: int | None = None,
    initializer_range: float | None = None,
    attention: Attention = "sdpa",
) -> Model:
    """Builds a BERT (Devlin et al. 2019): it reads the text alone (CDMI, §6.2).

    Arguments left as None keep the default of `size`, or of the pretrained model.

    Args:
        labels: entity types of the data set. If empty, a pretrained model keeps its own. For
            other labels, or for another task, its head is drawn anew.
        size: "tiny" has 180 000 parameters and learns on two CPU cores in minutes, "base" 109
            million as published; both have random weights. Beside `pretrained` it decides nothing
            here, but experiments take their learning rates from it.
        pretrained: a local folder or a hub id (google-bert/bert-base-uncased). What
            `save_pretrained` wrote, or transformers, with its head for masked words.
        task: "mlm", "tags" for words, "spade" for entities by their tokens' predecessors, "links"
            between entities; None takes the saved one, or "tags".
        image: whether the page image is read too (bimodal); None reads it if it has a size.
        image_size: side of the square page image in pixels, a multiple of 8; None takes 64 in
            "tiny" and 224 otherwise.
        max_length: L, tokens of a window, the two special ones included; at most 512 in "base".
        dropout: in the embeddings, the layers and the head.
        hidden_size: width of "tiny", even; the feed-forward layer is twice as wide.
        layers: Transformer layers of "tiny".
        initializer_range: standard deviation of the random weights of "tiny".
        attention: see `Attention`.

    Raises:
        ValueError: if the folder holds another architecture, `max_length` is too long, or words
            are to be masked and the tokenizer has no token for that.
        OSError: if there is no such folder and no such model on the hub.
    """
    return BERT.build(
        labels, size, pretrained, task, attention, image=image, image_size=image_size,
        max_length=max_length, dropout=dropout, hidden_size=hidden_size, layers=layers,
        initializer_range=initializer_range,
    )  # fmt: skip


def layoutlm(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: str | Path | None = None,
    task: Task | None = None,
    image: bool | None = None,
    image_size: int | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    hidden_size: int | None = None,
    layers: int | None = None,
    initializer_range: float | None = None,
    attention: Attention = "sdpa",
) -> Model:
    """Builds a LayoutLM v1 (Xu et al. 2020), the first backbone that CDMI attacks.

    The corners and sides of a word's box have embeddings, as its position in the text has. "tiny"
    has 440 000 parameters and rounds coordinates down to multiples of 40 of 1000: from scratch, on
    few pages, most of the 1000 positions are never seen, and the model would learn none of the
    layout; the page image is looked at by the full boxes. "base" has 112 million.

    Args: as of `bert`; a hub id is microsoft/layoutlm-base-uncased.
    """
    return LAYOUTLM.build(
        labels, size, pretrained, task, attention, image=image, image_size=image_size,
        max_length=max_length, dropout=dropout, hidden_size=hidden_size, layers=layers,
        initializer_range=initializer_range,
    )  # fmt: skip


def bros(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: str | Path | None = None,
    task: Task | None = None,
    image: bool | None = None,
    image_size: int | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    hidden_size: int | None = None,
    layers: int | None = None,
    initializer_range: float | None = None,
    box_scale: float | None = None,
) -> Model:
    """Builds a BROS (Hong et al. 2022), the second backbone that CDMI attacks.

    The distances between the corners of two tokens' boxes are part of the attention between the
    two. "tiny" has 180 000 parameters, "base" 112 million.

    Args: as of `bert`, with a `hidden_size` that is a multiple of 64, and

        pretrained: a local folder or a hub id (jinho8345/bros-base-uncased).
        box_scale: the side of a page, where distances become sines, in radians; 10 in "tiny".
    """
    if hidden_size is not None and hidden_size % 64:
        raise ValueError(f"{hidden_size=} must be a multiple of 64, for sines of 8 coordinates")
    return BROS.build(
        labels, size, pretrained, task, None, image=image, image_size=image_size,
        max_length=max_length, dropout=dropout, hidden_size=hidden_size, layers=layers,
        initializer_range=initializer_range, bbox_scale=box_scale,
    )  # fmt: skip


def _presets(**own: Any) -> Presets:
    """Returns the sizes of a backbone; `own` settings of "tiny" are named as transformers does."""
    common = {"image": None, "image_size": None}
    tiny = {"max_length": 256, "dropout": 0.0, "hidden_size": 64, "layers": 2}
    return Presets(
        {
            "tiny": {**common, **tiny, "initializer_range": 0.1, **own},
            "base": {**common, "max_length": 512, "dropout": 0.1},
        },
        loadable=("image", "image_size", "max_length", "dropout"),
    )


@dataclass(frozen=True)
class Backbone:
    """An architecture as transformers has it; its models read the boxes of words.

    Attributes:
        config: the class of its settings.
        network: the class of its encoder.
        masked: of its encoder with a head for masked words; None where transformers has none.
        presets: its sizes.
    """

    config: type[PreTrainedConfig]
    network: type[PreTrainedModel]
    masked: type[PreTrainedModel] | None
    presets: Presets

    @property
    def name(self) -> str:
        """As transformers writes it into config.json."""
        return str(self.config.model_type)

    def build(
        self,
        labels: Sequence[str],
        size: str,
        pretrained: str | Path | None,
        task: Task | None,
        attention: Attention | None,
        **overrides: Any,
    ) -> Model:
        """Draws or loads a model; see `bert`."""
        settings = self.presets.settings(size, pretrained, **overrides)
        if pretrained is not None:
            return self._load(pretrained, labels, task, attention, **settings)
        return self._draw(labels, task or "tags", attention, **settings)

    def _draw(
        self,
        labels: Sequence[str],
        task: Task,
        attention: Attention | None,
        *,
        image: bool | None,
        image_size: int | None,
        max_length: int,
        dropout: float,
        hidden_size: int | None = None,
        layers: int = 2,
        initializer_range: float = 0.1,
        **own: Any,
    ) -> Model:
        """Returns a model with random weights, in its published size if no width is given."""
        subwords = Subwords.shipped()
        side = _side(image, image_size, BASE_IMAGE if hidden_size is None else TINY_IMAGE)
        sizes: dict[str, Any] = {}
        if hidden_size is not None:
            sizes = {"type_vocab_size": 1, **own}
            sizes |= small_network(
                subwords, hidden_size=hidden_size, layers=layers, positions=max_length,
                initializer_range=initializer_range,
            )  # fmt: skip
        config = self.config(
            **sizes,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            pad_token_id=subwords.pad,
            attn_implementation=attention,
        )
        most = config.max_position_embeddings
        length = fits_positions(max_length, None, most, f"this {self.name}")
        reader = Reader(subwords, length, side, boxes="word")
        return _with_head(self.network(config), reader, labels, task)

    def _load(
        self,
        folder: str | Path,
        labels: Sequence[str],
        task: Task | None,
        attention: Attention | None,
        *,
        image: bool | None,
        image_size: int | None,
        max_length: int | None,
        dropout: float | None,
    ) -> Model:
        saved = settings_of(folder)
        labels = list(labels or saved.get("labels", ()))
        task = task or saved.get("task", "tags")
        kind = self.config.get_config_dict(str(folder))[0].get("model_type")
        if kind not in (None, self.name):  # transformers would load no weight of it, and go on
            raise ValueError(f"{folder} holds a model of type {kind!r}: expected {self.name!r}")
        config = self.config.from_pretrained(str(folder))
        if dropout is not None:
            config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
        most = config.max_position_embeddings
        length = fits_positions(max_length, saved.get("max_length"), most, folder)
        side = saved.get("image_size")
        if image is not None or image_size is not None:
            side = _side(image, image_size, side or BASE_IMAGE)
        reader = Reader(Subwords.from_pretrained(folder), length, side, boxes="word")
        # A head that fedpriv saved is in a file of its own.
        masked = task == "mlm" and not saved
        network, scores = self._network(folder, config, attention, masked=masked)
        model = _with_head(network, reader, labels, task)
        if isinstance(model, MaskedWords) and scores:
            model.scores.load_state_dict(scores)
        same_head = saved.get("task") == task and (task == "mlm" or saved.get("labels") == labels)
        weights = {
            name: weight
            for name, weight in tensors_of(folder).items()
            if name in model.state_dict() and (same_head or name.startswith("encoder.visual."))
        }
        model.load_state_dict(weights, strict=False)
        return model.train()

    def _network(
        self,
        folder: str | Path,
        config: PreTrainedConfig,
        attention: Attention | None,
        *,
        masked: bool,
    ) -> tuple[PreTrainedModel, Mapping[str, Tensor]]:
        """Returns the encoder and the weights for `WordScores`; none if they were not saved."""
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
        if any(name.startswith("cls.") for name in info["missing_keys"]):
            return whole.base_model, {}
        scores = whole.cls.predictions.state_dict()
        # The decoder is the embeddings, and its bias the head's.
        own = {name: w for name, w in scores.items() if not name.startswith("decoder.")}
        return whole.base_model, own


def _side(image: bool | None, image_size: int | None, usual: int) -> int | None:
    """Returns the side of the page image, None where none is read.

    Raises:
        ValueError: if a size is given for an image that is not read.
    """
    if image is False and image_size is not None:
        raise ValueError(f"image=False and image_size={image_size}: expected one of the two")
    return image_size or (usual if image else None)


def _with_head(
    network: PreTrainedModel, reader: Reader, labels: Sequence[str], task: Task
) -> Model:
    head = choose("task", task, HEADS)
    side = reader.image_size
    visual = None if side is None else roi_visual(network.config.hidden_size, side)
    return head(Encoder(network, visual), reader, labels)


BERT = Backbone(BertConfig, BertModel, BertForMaskedLM, _presets())
LAYOUTLM = Backbone(LayoutLMConfig, LayoutLMModel, LayoutLMForMaskedLM, _presets(box_step=40))
BROS = Backbone(BrosConfig, BrosModel, None, _presets(bbox_scale=10.0))
