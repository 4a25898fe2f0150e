"""Any checkpoint of transformers that tags words or answers questions, by its Auto classes.

A family that fedpriv has a model of goes to that model, which can do more. All others are read by
what their `forward` takes: tokens, and boxes where it has a `bbox`. Page images are read only by
families that have a model of their own here.

Code that lies beside a checkpoint is never run, and weights are read from safetensors alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_DOCUMENT_QUESTION_ANSWERING_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoModelForDocumentQuestionAnswering,
    AutoModelForQuestionAnswering,
    AutoModelForTokenClassification,
    PreTrainedConfig,
)

from fedpriv.data.document import Document, Question, Word
from fedpriv.data.examples import Batch
from fedpriv.models.checkpoints import another_type, check_config, check_weights, network_of
from fedpriv.models.donut import donut
from fedpriv.models.encoders.backbones import bert, bros, layoutlm
from fedpriv.models.image_text import image_text
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.layoutlmv3_answers import SpanAnswerer
from fedpriv.models.pix2struct import pix2struct
from fedpriv.models.presets import Attention, choose
from fedpriv.models.readers.question_reader import QuestionReader
from fedpriv.models.readers.reader import Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.roberta import roberta
from fedpriv.models.saving import draw_linear, fits_positions, settings_of, there
from fedpriv.models.tagging import NetworkTagger, tags_of
from fedpriv.runtime.outside import PathSetting

M = TypeVar("M", "AutoTagger", "AutoAnswerer")

USUAL_LENGTH = 512
"""Tokens of a window at most, if none are asked for: some networks have positions for 100 000."""

OURS: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("tags", "layoutlmv3"): partial(layoutlmv3, task="tags"),
    ("tags", "layoutlm"): partial(layoutlm, task="tags"),
    ("tags", "bros"): partial(bros, task="tags"),
    ("tags", "bert"): partial(bert, task="tags"),
    ("tags", "roberta"): roberta,
    ("answers", "layoutlmv3"): partial(layoutlmv3, task="answers"),
    ("answers", "vision-encoder-decoder"): donut,
    ("answers", "pix2struct"): pix2struct,
}
"""Task, and type of a checkpoint → the model of fedpriv that takes it."""


def auto(
    labels: Sequence[str] = (),
    *,
    pretrained: PathSetting | None,
    size: Literal["tiny", "base"] = "base",
    task: Literal["tags", "answers"] = "tags",
    max_length: int | None = None,
    attention: Attention | None = None,
) -> nn.Module:
    """Loads a checkpoint of any family.

    A checkpoint of LayoutLMv3, LayoutLM, BROS, BERT or RoBERTa becomes the model of that name here,
    and for the task "answers" so does one of LayoutLMv3, Donut or Pix2Struct. A decoder-only
    image-text-to-text model becomes an `image_text`. Any other becomes an `AutoTagger` or an
    `AutoAnswerer`.

    Args:
        labels: the entity types of the data set, for the task "tags". If empty, a model that
            fedpriv saved keeps its own. A head that the checkpoint has for the same tags, in
            whatever order, is kept. For others, a new one is drawn.
        pretrained: the model to load: a local folder or a hub id, such as
            SCUT-DLVCLab/lilt-roberta-en-base. It must be given.
        size: "tiny" or "base". It has no effect on the model, but experiments take their learning
            rates from it.
        task: what the model learns: "tags" tags each word, "answers" answers questions, with words
            of the page or by writing.
        max_length: the number of tokens in a window, special tokens included. None takes the saved
            value, or as many as the model has positions for, 512 at most.
        attention: how attention is computed: "sdpa" or "eager". None takes the default of the model
            that it becomes, or "sdpa" where the family has it.

    Raises:
        ValueError: if no Auto class for the task knows the family, if weights are missing or lie in
            a pickle, if the tokenizer cannot be used, or if the model fails on a first small page.
        OSError: if there is no such folder and no such model on the hub.
    """
    choose("task", task, {"tags": (), "answers": ()})
    if pretrained is None:
        raise ValueError(
            "pretrained=None: expected a local folder or a model's name on the hub, such as "
            "SCUT-DLVCLab/lilt-roberta-en-base; model=auto has no size of its own to draw"
        )
    there(pretrained)
    try:
        return _loaded(labels, pretrained, task, max_length, attention)
    except (ValueError, OSError):
        raise
    except Exception as error:  # what a config of no model makes transformers and torch raise
        why = " ".join(str(error).split())
        raise ValueError(
            f"{pretrained}: a model as its config.json says cannot be built: "
            f"{type(error).__name__}: {why:.200}"
        ) from error


def _loaded(
    labels: Sequence[str],
    pretrained: str | Path,
    task: str,
    max_length: int | None,
    attention: Attention | None,
) -> nn.Module:
    check_weights(pretrained)
    check_config(pretrained)
    # transformers raises a ValueError for a checkpoint that needs code of its own.
    config = AutoConfig.from_pretrained(str(pretrained), trust_remote_code=False)
    ours = OURS.get((task, config.model_type))
    if ours is None and task == "answers" and type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING:
        ours = image_text
    if ours is None:
        load = _tagger if task == "tags" else _answerer
        return load(pretrained, config, labels, max_length, attention)
    given = {"labels": labels, "max_length": max_length, "attention": attention}
    takes = inspect.signature(ours).parameters
    chosen = {name: v for name, v in given.items() if v is not None and name in takes}
    return ours(pretrained=pretrained, **chosen)  # type: ignore[no-any-return]


def _tagger(
    folder: str | Path,
    config: PreTrainedConfig,
    labels: Sequence[str],
    max_length: int | None,
    attention: Attention | None,
) -> AutoTagger:
    if type(config) not in MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING:
        expected = "one that transformers' AutoModelForTokenClassification knows, such as lilt"
        raise another_type(folder, config.model_type, f"{expected}, or task='answers'")
    saved = settings_of(folder)
    labels = list(labels or saved.get("labels", ()))
    tags = tags_of(labels)
    order = _order(config, tags)
    if order is None:  # a head for other tags is drawn anew, even one of the same size
        config.num_labels = len(tags)
    network = _network(AutoModelForTokenClassification, folder, config, attention)
    _fit_head(network, order, len(tags))
    network.config.id2label = dict(enumerate(tags))
    network.config.label2id = {tag: number for number, tag in enumerate(tags)}
    length = _length(network, folder, saved.get("max_length"), max_length)
    reader = Reader(_subwords(folder), length, None, saved.get("box_step", 1))
    return _tried(AutoTagger(network, reader, labels), folder)


def _answerer(
    folder: str | Path,
    config: PreTrainedConfig,
    labels: Sequence[str],
    max_length: int | None,
    attention: Attention | None,
) -> AutoAnswerer:
    if type(config) in MODEL_FOR_DOCUMENT_QUESTION_ANSWERING_MAPPING:
        kind: Any = AutoModelForDocumentQuestionAnswering
    elif type(config) in MODEL_FOR_QUESTION_ANSWERING_MAPPING:
        kind = AutoModelForQuestionAnswering
    else:
        expected = "one that transformers' AutoModelForDocumentQuestionAnswering knows, such as"
        raise another_type(folder, config.model_type, f"{expected} layoutlm, or task='tags'")
    config.num_labels = 2  # begin and end; a checkpoint of a tagger has another number
    network = _network(kind, folder, config, attention)
    saved = settings_of(folder)
    length = _length(network, folder, saved.get("max_length"), max_length)
    reader = QuestionReader(_subwords(folder), length, None, saved.get("box_step", 1))
    return _tried(AutoAnswerer(network, reader), folder)


def _network(
    kind: Any, folder: str | Path, config: PreTrainedConfig, attention: Attention | None
) -> Any:
    network, _ = network_of(
        kind,
        folder,
        new_head=True,
        config=config,
        attn_implementation=attention,
        trust_remote_code=False,
    )
    return network


def _order(config: Any, tags: Sequence[str]) -> list[int] | None:
    """Returns where the checkpoint's head has each tag; None if it is not a head for these tags."""
    numbers = {str(name): int(number) for number, name in config.id2label.items()}
    return [numbers[tag] for tag in tags] if numbers.keys() == set(tags) else None


def _fit_head(network: nn.Module, order: Sequence[int] | None, tags: int) -> None:
    """Puts the head's outputs into our order of the tags; draws them anew if `order` is None."""
    layers = [m for head in _heads(network) for m in head.modules() if isinstance(m, nn.Linear)]
    for linear in (layer for layer in layers if layer.out_features == tags):
        if order is None:  # a checkpoint's head of the same size may be for other tags
            draw_linear(linear, getattr(network.config, "initializer_range", 0.02))
            continue
        linear.weight.data = linear.weight.data[list(order)]
        if linear.bias is not None:
            linear.bias.data = linear.bias.data[list(order)]


def _subwords(folder: str | Path) -> Subwords:
    try:
        subwords = Subwords.from_pretrained(folder)
    except AttributeError as error:
        raise ValueError(f"{folder}: its tokenizer is not of the tokenizers library") from error
    if None in (subwords.cls, subwords.sep, subwords.pad):
        raise ValueError(
            f"{folder}: its tokenizer has no token for the begin, the end or the padding of a "
            "sequence; set cls_token, sep_token and pad_token, and save it again"
        )
    return subwords


def _length(network: Any, folder: str | Path, saved: int | None, given: int | None) -> int:
    """Returns the tokens of a window."""
    most = getattr(network.config, "max_position_embeddings", None)
    if not isinstance(most, int) or most < 1:  # relative positions have no end
        return given or saved or USUAL_LENGTH
    tables = (m for name, m in network.named_modules() if name.endswith("position_embeddings"))
    padding = getattr(next(tables, None), "padding_idx", None)
    if padding is not None:  # positions count from the one after it, as RoBERTa's do
        most -= padding + 1
    return fits_positions(given, saved or min(most, USUAL_LENGTH), most, folder)


def _tried(model: M, folder: str | Path) -> M:
    """Returns the model, ready to be trained, after it has read one small page."""
    network = model.network
    try:
        with torch.no_grad():
            examples = model.eval().encode([_page()])
            losses = model.losses(examples.batch(np.arange(1)))
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        told = str(error).strip().splitlines() or [""]
        raise ValueError(
            f"{folder}: a {type(network).__name__} cannot read a page of two words as tokens"
            f"{' with boxes of 0 to 1000' if model.takes('bbox') else ''} "
            f"({type(error).__name__}: {told[0]}); model=auto gives no page image, and nothing "
            "else that the network may need"
        ) from error
    if not losses.isfinite().all():
        raise ValueError(f"{folder}: the loss of a page of two words is {losses.tolist()}")
    return model.train()


def _page() -> Document:
    """Returns a page of two words, one of them as large as the page."""
    words = (Word("total", (0, 0, 10, 10), 0), Word("12.50", (0, 0, 20, 20), 1))
    asks = (Question("total", "How much?", ("12.50",)),)
    blank = np.full((20, 20), 255, np.uint8)
    return Document("trial", "trial", blank, (20, 20), words, (), asks)


def _heads(network: nn.Module) -> list[nn.Module]:
    """Returns the modules with parameters beside the base model."""
    base: Any = network.base_model
    return [m for m in network.children() if m is not base and any(True for _ in m.parameters())]


class OnAuto:
    """Mixed into an `nn.Module` that has a `network` of an Auto class of transformers."""

    network: Any

    def takes(self, name: str) -> bool:
        """Returns whether the network's `forward` has such an argument."""
        return name in inspect.signature(self.network.forward).parameters

    def inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the network's arguments for a batch."""
        names = ("input_ids", "attention_mask", "bbox")
        return {name: batch[name] for name in names if self.takes(name)}

    def blocks(self) -> list[nn.Module]:
        """Returns the layers from input to output; nothing if they are not found.

        They are the first list of as many modules as the config says that there are layers.
        """
        layers = getattr(self.network.config, "num_hidden_layers", None)
        for module in self.network.base_model.modules():
            if isinstance(module, nn.ModuleList) and len(module) == layers:
                return list(module)
        return []

    def head(self) -> list[nn.Module]:
        """Returns the modules after the base model."""
        return _heads(self.network)

    def visual(self) -> list[nn.Module]:
        """Returns nothing: no image is read."""
        return []


class AutoTagger(OnAuto, NetworkTagger):
    """Any token classifier of transformers, with a BIO tag on each word."""

    name = "auto"

    def seen(self, batch: Batch) -> Batch:
        """Returns the batch itself: no page is read. By this, fields can be attacked."""
        return batch


class AutoAnswerer(OnAuto, SpanAnswerer):
    """Any extractive question answerer of transformers: predicts begin and end of the answer."""

    name = "auto_answers"
