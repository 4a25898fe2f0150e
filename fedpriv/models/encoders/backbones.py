"""LayoutLM, BROS and BERT with a head: sizes, random weights, and folders (CDMI, §2.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

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

from fedpriv.models.checkpoints import config_of, network_of
from fedpriv.models.encoders.encoder import Encoder
from fedpriv.models.encoders.roi import RoiVisual, beit_visual, small_visual
from fedpriv.models.field_model import Task
from fedpriv.models.heads.heads import HEADS, Model
from fedpriv.models.heads.masked_lm import MaskedWords
from fedpriv.models.presets import Attention, Presets, choose, small_network
from fedpriv.models.readers.reader import Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import VISUAL, fits_positions, settings_of, tensors_of

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
    visual: str | Path | None = None,
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
            "tiny" and 224 otherwise. A BEiT or DiT has a side of its own.
        visual: what reads the page image: a pretrained BEiT or DiT, local or on the hub
            (microsoft/dit-base), whose patches are the cells of the map of features, and which is
            trained too. None takes the saved one, or a small convolutional network.
        max_length: L, tokens of a window, the two special ones included; at most 512 in "base".
        dropout: in the embeddings, the layers and the head.
        hidden_size: width of "tiny", even; the feed-forward layer is twice as wide.
        layers: Transformer layers of "tiny".
        initializer_range: standard deviation of the random weights of "tiny".
        attention: see `Attention`.

    Raises:
        ValueError: if a folder holds another architecture, `max_length` is too long, `image_size`
            is not the side of `visual`, or words are to be masked and the tokenizer has no token
            for that.
        OSError: if there is no such folder and no such model on the hub.
    """
    return BERT.build(locals())


def layoutlm(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: str | Path | None = None,
    task: Task | None = None,
    image: bool | None = None,
    image_size: int | None = None,
    visual: str | Path | None = None,
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
    return LAYOUTLM.build(locals())


def bros(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: str | Path | None = None,
    task: Task | None = None,
    image: bool | None = None,
    image_size: int | None = None,
    visual: str | Path | None = None,
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
    return BROS.build({**locals(), "bbox_scale": box_scale})


def _presets(**own: Any) -> Presets:
    """Returns the sizes of a backbone; `own` settings of "tiny" are named as transformers does."""
    common = {"image": None, "image_size": None, "visual": None}
    tiny = {"max_length": 256, "dropout": 0.0, "hidden_size": 64, "layers": 2}
    return Presets(
        {
            "tiny": {**common, **tiny, "initializer_range": 0.1, **own},
            "base": {**common, "max_length": 512, "dropout": 0.1},
        },
        loadable=("image", "image_size", "visual", "max_length", "dropout"),
    )


@dataclass(frozen=True)
class Backbone:
    """An architecture as transformers has it; its models read the boxes of words.

    Attributes:
        config: the class of its settings.
        network: the class of its encoder.
        masked: of its encoder with a head for masked words; None where transformers has none.
        presets: its sizes.
        own: settings of "tiny" that other architectures do not have, named as transformers does.
    """

    config: type[PreTrainedConfig]
    network: type[PreTrainedModel]
    masked: type[PreTrainedModel] | None
    presets: Presets
    own: tuple[str, ...] = ()

    def build(self, given: Mapping[str, Any]) -> Model:
        """Draws or loads a model, given the arguments of `bert` by name."""
        settings = self.presets.settings(given)
        return self._draw(settings) if given["pretrained"] is None else self._load(settings)

    def _draw(self, given: Mapping[str, Any]) -> Model:
        """Returns a model with random weights, in its published size if no width is given."""
        subwords, tiny = Subwords.shipped(), given["hidden_size"] is not None
        sizes: dict[str, Any] = {}
        if tiny:
            own = {name: given[name] for name in self.own}
            sizes = {"type_vocab_size": 1, **own, **small_network(subwords, given)}
        config = self.config(
            **sizes,
            hidden_dropout_prob=given["dropout"],
            attention_probs_dropout_prob=given["dropout"],
            pad_token_id=subwords.pad,
            attn_implementation=given.get("attention"),
        )
        source = f"this {self.config.model_type}"
        length = fits_positions(given["max_length"], None, config.max_position_embeddings, source)
        head = choose("task", given["task"] or "tags", HEADS)
        network = self.network(config)
        visual = _visual(given, config.hidden_size, TINY_IMAGE if tiny else BASE_IMAGE)
        side = None if visual is None else visual.image_size
        reader = Reader(subwords, length, side, boxes="word")
        return head(Encoder(network, visual), reader, given["labels"])

    def _load(self, given: Mapping[str, Any]) -> Model:
        folder, dropout = given["pretrained"], given["dropout"]
        saved = settings_of(folder)
        labels = list(given["labels"] or saved.get("labels", ()))
        task = given["task"] or saved.get("task", "tags")
        config = config_of(self.config, folder)
        if dropout is not None:
            config.hidden_dropout_prob = config.attention_probs_dropout_prob = dropout
        most, side = config.max_position_embeddings, saved.get("image_size")
        length = fits_positions(given["max_length"], saved.get("max_length"), most, folder)
        head = choose("task", task, HEADS)
        # A head that fedpriv saved is in a file of its own.
        kind = (task == "mlm" and not saved and self.masked) or self.network
        whole, drawn = network_of(
            kind,
            folder,
            new_head=True,
            config=config,
            attn_implementation=given.get("attention"),
        )
        visual = _visual(given, config.hidden_size, side or BASE_IMAGE, side)
        side = None if visual is None else visual.image_size
        reader = Reader(Subwords.from_pretrained(folder), length, side, boxes="word")
        model = head(Encoder(whole.base_model, visual), reader, labels)
        has_scores = not any(name.startswith("cls.") for name in drawn)
        if isinstance(model, MaskedWords) and kind is self.masked and has_scores:
            scores = whole.cls.predictions.state_dict()
            # The decoder is the embeddings, and its bias the head's.
            own = {name: w for name, w in scores.items() if not name.startswith("decoder.")}
            model.scores.load_state_dict(own)
        same_head = saved.get("task") == task and (task == "mlm" or saved.get("labels") == labels)
        weights = {
            name: weight
            for name, weight in tensors_of(folder).items()
            if name in model.state_dict()
            and (given["visual"] is None if name.startswith("encoder.visual.") else same_head)
        }
        model.load_state_dict(weights, strict=False)
        return model.train()


def _visual(
    given: Mapping[str, Any], width: int, usual: int, saved: int | None = None
) -> RoiVisual | None:
    """Returns what reads the page image, None where none is read.

    Args:
        given: the arguments of `bert`.
        width: H, of the model that reads the text.
        usual: the side of a page image in pixels, where it is read and no side is given.
        saved: the side that the saved model reads; None where it reads no image.

    Raises:
        ValueError: if an image that is not read has a size or a reader, or the reader another size.
    """
    image, image_size, folder = given["image"], given["image_size"], given["visual"]
    if image is False:
        for name in ("image_size", "visual"):
            if given[name] is not None:
                raise ValueError(f"image=False and {name}={given[name]}: expected one of the two")
        return None
    if folder is None and given["pretrained"] is not None:
        kept = Path(given["pretrained"]) / VISUAL
        folder = kept if kept.is_dir() else None
    if folder is None:
        side = image_size or (usual if image else saved)
        return None if side is None else small_visual(width, side)
    attention: Attention = given.get("attention", "sdpa")
    visual = beit_visual(folder, width, dropout=given["dropout"], attention=attention)
    if image_size not in (None, visual.image_size):
        raise ValueError(
            f"image_size={image_size}: {folder} has positions for pages of {visual.image_size} "
            "pixels; leave image_size out"
        )
    return visual


BERT = Backbone(BertConfig, BertModel, BertForMaskedLM, _presets())
LAYOUTLM = Backbone(
    LayoutLMConfig, LayoutLMModel, LayoutLMForMaskedLM, _presets(box_step=40), ("box_step",)
)
BROS = Backbone(BrosConfig, BrosModel, None, _presets(bbox_scale=10.0), ("bbox_scale",))
