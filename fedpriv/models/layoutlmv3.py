"""LayoutLMv3 for key information extraction as token classification (PrIeD-KIE, §4.2).

BIO tags, a label on the first sub-token of a word only, documents cut into windows of L tokens,
2-D positions of text lines scaled to 0…1000, the page image beside them; lower-cased text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from torch import nn
from transformers import (
    LayoutLMv3Config,
    LayoutLMv3ForQuestionAnswering,
    LayoutLMv3ForTokenClassification,
    LayoutLMv3PreTrainedModel,
)

from fedpriv.models.checkpoints import config_of, network_of
from fedpriv.models.layoutlmv3_answers import LayoutLMv3Answerer
from fedpriv.models.layoutlmv3_network import LayoutLMv3Encoder, OnLayoutLMv3
from fedpriv.models.presets import Attention, Presets, choose, small_network
from fedpriv.models.readers.question_reader import QuestionReader
from fedpriv.models.readers.reader import Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import (
    draw_linear,
    fits_positions,
    positions,
    settings_of,
)
from fedpriv.models.tagging import NetworkTagger, tags_of
from fedpriv.runtime.outside import PathSetting

PATCH, BASE_PATCH = 8, 16
"""Sides of a patch of the image in pixels, of small networks and of the published one."""

TINY = {
    "max_length": 128,
    "image": True,
    "image_size": 32,
    "dropout": 0.0,
    "hidden_size": 32,
    "layers": 2,
    # The usual 0.02 is made for 768 dimensions; in 32 it costs the first two epochs.
    "initializer_range": 0.1,
}
SMALL = {**TINY, "image_size": 112, "hidden_size": 208, "initializer_range": 0.07}
BASE = {"max_length": 512, "image": True, "image_size": 224, "dropout": 0.1}
LOADABLE = ("max_length", "image", "dropout")

PRESETS = {
    "tags": Presets({"tiny": TINY, "base": BASE}, LOADABLE),
    "answers": Presets(
        {"tiny": {**TINY, "max_length": 192}, "small": SMALL, "base": BASE}, LOADABLE
    ),
}
"""The sizes for each task."""


def layoutlmv3(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "small", "base"] = "tiny",
    pretrained: PathSetting | None = None,
    task: Literal["tags", "answers"] = "tags",
    max_length: int | None = None,
    image: bool | None = None,
    image_size: int | None = None,
    dropout: float | None = None,
    hidden_size: int | None = None,
    layers: int | None = None,
    initializer_range: float | None = None,
    attention: Attention = "eager",
) -> LayoutLMv3Tagger | LayoutLMv3Answerer:
    """Builds a LayoutLMv3 that tags words, or answers questions with spans of them.

    Arguments left as None keep the default of `size`, or of the pretrained model.

    "tiny" has 100,000 parameters and learns on two CPU cores in seconds. Small sizes round
    coordinates down to multiples of 40 of 1000: from scratch, on few pages, most of the 1000
    positions are never seen, and the model would learn none of the layout. "small", for answers
    only, has 1.3 million parameters and sees every letter of a small page: a patch of 8 x 8 pixels
    in three colours fits into its 208 dimensions, and its gradients tell the 196 patches of a page
    of 112 x 112 apart, as the published size does for 224 x 224. "base" has 125 million.

    Args:
        labels: the entity types of the data set, for the task "tags". If empty, a pretrained model
            keeps its own; for other labels, a new head is drawn.
        size: the size of a model with random weights: "tiny" has 100,000 parameters, "small" (for
            the task "answers" only) 1.3 million, "base" 125 million, as published. With
            `pretrained`, it has no effect on the model, but experiments take their learning rates
            from it.
        pretrained: the weights to start from: a local folder or a hub id, such as
            microsoft/layoutlmv3-base. None draws random weights.
        task: what the model learns: "tags" tags each word, "answers" finds the words that answer a
            question.
        max_length: the number of tokens in a window of the text, special tokens included (L);
            "base" takes at most 512. None takes 128 in "tiny" (192 for "answers") and "small" and
            512 in "base", or the value of the pretrained model.
        image: whether the model reads the page image; PrIeD-KIE has a variant without. None reads
            it, unless the pretrained model does not.
        image_size: the side of the square page image in pixels, a multiple of 8, or of 16 in
            "base". None takes 32 in "tiny", 112 in "small" and 224 in "base". A pretrained model
            has its own.
        dropout: the dropout probability in the embeddings, the layers and the head. None takes 0 in
            "tiny" and "small" and 0.1 in "base", or the value of the pretrained model.
        hidden_size: the width of the layers, a multiple of 16. Only "tiny" and "small" with random
            weights take it. None takes 32 in "tiny" and 208 in "small".
        layers: the number of Transformer layers. Only "tiny" and "small" with random weights take
            it. None takes 2.
        initializer_range: the standard deviation of the random weights. Only "tiny" and "small"
            with random weights take it. None takes 0.1 in "tiny" and 0.07 in "small".
        attention: how attention is computed: "eager" as transformers does, or "sdpa" by a fused
            kernel of torch, which is faster and the same up to rounding. Attacks that need
            gradients of gradients need "eager".

    Raises:
        ValueError: if sizes do not fit each other, or the pretrained model.
        OSError: if there is no such folder and no such model on the hub.
    """
    settings = choose("task", task, PRESETS).settings(locals())
    choose("attention", attention, dict.fromkeys(get_args(Attention)))
    return _draw(settings) if pretrained is None else _load(settings)


def _draw(given: Mapping[str, Any]) -> LayoutLMv3Tagger | LayoutLMv3Answerer:
    """Returns a model as microsoft/layoutlmv3-base, as its `config.json` has it, or smaller."""
    size, image_size, dropout = given["size"], given["image_size"], given["dropout"]
    subwords, (kind, num_labels) = Subwords.shipped(), _head(given["task"], given["labels"])
    if size == "base":
        if image_size < BASE_PATCH or image_size % BASE_PATCH:
            raise ValueError(f"{image_size=} must be a multiple of {BASE_PATCH}")
        # Two of the positions are for padding.
        sizes = {"max_position_embeddings": 514, "patch_size": BASE_PATCH, "type_vocab_size": 1}
    else:
        hidden_size = given["hidden_size"]
        if hidden_size % 16 or image_size % PATCH:
            raise ValueError(
                f"{hidden_size=} must be a multiple of 16 and {image_size=} a multiple of {PATCH}"
            )
        sizes = small_network(subwords, given, padding=2) | {"patch_size": PATCH}
        sizes["shape_size"] = hidden_size // 8
        sizes["coordinate_size"] = (hidden_size - 2 * sizes["shape_size"]) // 4
    config = LayoutLMv3Config(
        **sizes,
        pad_token_id=subwords.pad,
        bos_token_id=subwords.cls,
        eos_token_id=subwords.sep,
        input_size=image_size,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        num_labels=num_labels,
        visual_embed=given["image"],
        attn_implementation=given["attention"],
    )
    length = fits_positions(given["max_length"], None, positions(config), f"size={size!r}")
    network = kind(config)
    if config.visual_embed:
        # transformers leaves these at zero, in front of a LayerNorm, where the gradient is about
        # 500 times that of all other parameters together: clipping and inversion would see nothing
        # else.
        for parameter in (network.layoutlmv3.cls_token, network.layoutlmv3.pos_embed):
            nn.init.normal_(parameter, std=config.initializer_range)
    return _with_reader(network, given["labels"], subwords, length, 1 if size == "base" else 40)


def _load(given: Mapping[str, Any]) -> LayoutLMv3Tagger | LayoutLMv3Answerer:
    folder, image, task = given["pretrained"], given["image"], given["task"]
    saved = settings_of(folder)
    labels = given["labels"] or saved.get("labels", ())
    kind, num_labels = _head(task, labels)
    config = config_of(LayoutLMv3Config, folder, num_labels=num_labels)
    if image and not config.visual_embed:
        raise ValueError(f"image=True: the network in {folder} reads no image; take image=False")
    if image is not None:
        config.visual_embed = image
    most = positions(config)
    length = fits_positions(given["max_length"], saved.get("max_length"), most, folder)
    if given["dropout"] is not None:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = given["dropout"]
    network, _ = network_of(
        kind, folder, new_head=True, config=config, attn_implementation=given["attention"]
    )
    if task == "tags" and saved.get("labels", list(labels)) != list(labels):
        draw_linear(network.classifier, config.initializer_range)
    subwords = Subwords.from_pretrained(folder)
    return _with_reader(network, labels, subwords, length, saved.get("box_step", 1)).train()


def _head(task: str, labels: Sequence[str]) -> tuple[type[LayoutLMv3PreTrainedModel], int]:
    """Returns the class of the network for a task and the number of its outputs."""
    if task == "tags":
        return LayoutLMv3ForTokenClassification, len(tags_of(labels))
    return LayoutLMv3ForQuestionAnswering, 2


def _with_reader(
    network: Any, labels: Sequence[str], subwords: Subwords, length: int, box_step: int
) -> LayoutLMv3Tagger | LayoutLMv3Answerer:
    for name, parameter in network.named_parameters():
        # transformers looks these tables up without gradient: they can never learn, and must be
        # neither sent, clipped nor noised.
        if "rel_pos" in name:
            parameter.requires_grad_(False)
    network.layoutlmv3.encoder.__class__ = LayoutLMv3Encoder
    side = int(network.config.input_size) if network.config.visual_embed else None
    if isinstance(network, LayoutLMv3ForTokenClassification):
        return LayoutLMv3Tagger(network, Reader(subwords, length, side, box_step), labels)
    return LayoutLMv3Answerer(network, QuestionReader(subwords, length, side, box_step))


class LayoutLMv3Tagger(OnLayoutLMv3, NetworkTagger):
    """LayoutLMv3 with a BIO tag on each word."""

    name = "layoutlmv3"
