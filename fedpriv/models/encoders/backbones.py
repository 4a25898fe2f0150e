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
from fedpriv.runtime.outside import PathSetting

TINY_IMAGE, BASE_IMAGE = 64, 224
"""Sides in pixels of the page image, where none is given: of the tiny size, and of all others."""


def bert(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: PathSetting | None = None,
    task: Task | None = None,
    image: bool | None = None,
    image_size: int | None = None,
    visual: PathSetting | None = None,
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
        labels: the entity types of the data set. If empty, a pretrained model keeps its own. For
            other labels, or for another task, a new head is drawn.
        size: the size of a model with random weights: "tiny" has 180,000 parameters and learns on
            two CPU cores in minutes, "base" has 109 million, as published. With `pretrained`, it
            has no effect on the model, but experiments take their learning rates from it.
        pretrained: the weights to start from: a local folder or a hub id, such as
            google-bert/bert-base-uncased. For the task "mlm", the head for masked words that
            transformers saved is loaded too. None draws random weights.
        task: what the model learns: "mlm" guesses masked words, "tags" tags each word, "spade"
            finds entities by linking each of their tokens to the one before, and "links" finds
            links between entities. None takes the task of the pretrained model, or "tags".
        image: whether the model also reads the page image, under the box of each token. None reads
            it if `image_size` or `visual` is given, or if the pretrained model reads it.
        image_size: the side of the square page image in pixels, a multiple of 8. None takes 64 in
            "tiny" and 224 in "base", or the value of the pretrained model. A BEiT or DiT as
            `visual` has a side of its own.
        visual: the network that reads the page image: the folder or hub id of a pretrained BEiT or
            DiT, such as microsoft/dit-base, which is trained too. None takes the network of the
            pretrained model, or a small convolutional one.
        max_length: the number of tokens in a window of the text, the two special tokens included
            (L). "base" takes at most 512. None takes 256 in "tiny" and 512 in "base", or the value
            of the pretrained model.
        dropout: the dropout probability in the embeddings, the layers and the head. None takes 0 in
            "tiny" and 0.1 in "base", or the value of the pretrained model.
        hidden_size: the width of the layers, an even number; the feed-forward layers are twice as
            wide. Only "tiny" with random weights takes it. None takes 64.
        layers: the number of Transformer layers. Only "tiny" with random weights takes it. None
            takes 2.
        initializer_range: the standard deviation of the random weights. Only "tiny" with random
            weights takes it. None takes 0.1.
        attention: how attention is computed: "sdpa", or "eager" for attacks that need gradients of
            gradients.

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
    pretrained: PathSetting | None = None,
    task: Task | None = None,
    image: bool | None = None,
    image_size: int | None = None,
    visual: PathSetting | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    hidden_size: int | None = None,
    layers: int | None = None,
    initializer_range: float | None = None,
    attention: Attention = "sdpa",
) -> Model:
    """Builds a LayoutLM v1 (Xu et al. 2020), the first backbone that CDMI attacks.

    The corners and sides of a word's box have embeddings, as its position in the text has. "tiny"
    has 440,000 parameters and rounds coordinates down to multiples of 40 of 1000: from scratch, on
    few pages, most of the 1000 positions are never seen, and the model would learn none of the
    layout; the page image is looked at by the full boxes. "base" has 112 million.

    Args:
        labels: the entity types of the data set. If empty, a pretrained model keeps its own. For
            other labels, or for another task, a new head is drawn.
        size: the size of a model with random weights: "tiny" has 440,000 parameters, "base" has 112
            million, as published. With `pretrained`, it has no effect on the model, but experiments
            take their learning rates from it.
        pretrained: the weights to start from: a local folder or a hub id, such as
            microsoft/layoutlm-base-uncased. For the task "mlm", the head for masked words that
            transformers saved is loaded too. None draws random weights.
        task: what the model learns: "mlm" guesses masked words, "tags" tags each word, "spade"
            finds entities by linking each of their tokens to the one before, and "links" finds
            links between entities. None takes the task of the pretrained model, or "tags".
        image: whether the model also reads the page image, under the box of each token. None reads
            it if `image_size` or `visual` is given, or if the pretrained model reads it.
        image_size: the side of the square page image in pixels, a multiple of 8. None takes 64 in
            "tiny" and 224 in "base", or the value of the pretrained model. A BEiT or DiT as
            `visual` has a side of its own.
        visual: the network that reads the page image: the folder or hub id of a pretrained BEiT or
            DiT, such as microsoft/dit-base, which is trained too. None takes the network of the
            pretrained model, or a small convolutional one.
        max_length: the number of tokens in a window of the text, the two special tokens included
            (L). "base" takes at most 512. None takes 256 in "tiny" and 512 in "base", or the value
            of the pretrained model.
        dropout: the dropout probability in the embeddings, the layers and the head. None takes 0 in
            "tiny" and 0.1 in "base", or the value of the pretrained model.
        hidden_size: the width of the layers, an even number; the feed-forward layers are twice as
            wide. Only "tiny" with random weights takes it. None takes 64.
        layers: the number of Transformer layers. Only "tiny" with random weights takes it. None
            takes 2.
        initializer_range: the standard deviation of the random weights. Only "tiny" with random
            weights takes it. None takes 0.1.
        attention: how attention is computed: "sdpa", or "eager" for attacks that need gradients of
            gradients.
    """
    return LAYOUTLM.build(locals())


def bros(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "base"] = "tiny",
    pretrained: PathSetting | None = None,
    task: Task | None = None,
    image: bool | None = None,
    image_size: int | None = None,
    visual: PathSetting | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    hidden_size: int | None = None,
    layers: int | None = None,
    initializer_range: float | None = None,
    box_scale: float | None = None,
) -> Model:
    """Builds a BROS (Hong et al. 2022), the second backbone that CDMI attacks.

    The distances between the corners of two tokens' boxes are part of the attention between the
    two. "tiny" has 180,000 parameters, "base" 112 million.

    Args:
        labels: the entity types of the data set. If empty, a pretrained model keeps its own. For
            other labels, or for another task, a new head is drawn.
        size: the size of a model with random weights: "tiny" has 180,000 parameters, "base" has 112
            million, as published. With `pretrained`, it has no effect on the model, but experiments
            take their learning rates from it.
        pretrained: the weights to start from: a local folder or a hub id, such as
            jinho8345/bros-base-uncased. None draws random weights.
        task: what the model learns: "mlm" guesses masked words, "tags" tags each word, "spade"
            finds entities by linking each of their tokens to the one before, and "links" finds
            links between entities. None takes the task of the pretrained model, or "tags".
        image: whether the model also reads the page image, under the box of each token. None reads
            it if `image_size` or `visual` is given, or if the pretrained model reads it.
        image_size: the side of the square page image in pixels, a multiple of 8. None takes 64 in
            "tiny" and 224 in "base", or the value of the pretrained model. A BEiT or DiT as
            `visual` has a side of its own.
        visual: the network that reads the page image: the folder or hub id of a pretrained BEiT or
            DiT, such as microsoft/dit-base, which is trained too. None takes the network of the
            pretrained model, or a small convolutional one.
        max_length: the number of tokens in a window of the text, the two special tokens included
            (L). "base" takes at most 512. None takes 256 in "tiny" and 512 in "base", or the value
            of the pretrained model.
        dropout: the dropout probability in the embeddings, the layers and the head. None takes 0 in
            "tiny" and 0.1 in "base", or the value of the pretrained model.
        hidden_size: the width of the layers, a multiple of 64; the feed-forward layers are twice as
            wide. Only "tiny" with random weights takes it. None takes 64.
        layers: the number of Transformer layers. Only "tiny" with random weights takes it. None
            takes 2.
        initializer_range: the standard deviation of the random weights. Only "tiny" with random
            weights takes it. None takes 0.1.
        box_scale: the side of a page in radians, at which distances are turned into sines. Only
            "tiny" with random weights takes it. None takes 10.
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
