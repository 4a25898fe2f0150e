"""LayoutLMv3 for key information extraction as token classification (PrIeD-KIE, §4.2).

BIO tags, a label on the first sub-token of a word only, documents cut into windows of L tokens,
2-D positions of text lines scaled to 0…1000, the page image beside them; lower-cased text.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from transformers import (
    LayoutLMv3Config,
    LayoutLMv3ForQuestionAnswering,
    LayoutLMv3ForTokenClassification,
    LayoutLMv3PreTrainedModel,
)

from fedpriv.data.examples import Batch
from fedpriv.models.layoutlmv3_answers import LayoutLMv3Answerer
from fedpriv.models.layoutlmv3_network import OnLayoutLMv3, draw_config, draw_visual_positions
from fedpriv.models.presets import Presets, choose
from fedpriv.models.readers.question_reader import QuestionReader
from fedpriv.models.readers.reader import Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import (
    draw_linear,
    fits_positions,
    load_network,
    positions,
    save,
    settings_of,
)
from fedpriv.models.tagging import WordTagger, tags_of

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
    pretrained: str | Path | None = None,
    task: Literal["tags", "answers"] = "tags",
    max_length: int | None = None,
    image: bool | None = None,
    image_size: int | None = None,
    dropout: float | None = None,
    hidden_size: int | None = None,
    layers: int | None = None,
    initializer_range: float | None = None,
) -> LayoutLMv3Tagger | LayoutLMv3Answerer:
    """Builds a LayoutLMv3 that tags words, or answers questions with spans of them.

    Arguments left as None keep the default of `size`, or of the pretrained model.

    "tiny" has 100 000 parameters and learns on two CPU cores in seconds. Small sizes round
    coordinates down to multiples of 40 of 1000: from scratch, on few pages, most of the 1000
    positions are never seen, and the model would learn none of the layout. "small", for answers
    only, has 1.3 million parameters and sees every letter of a small page: a patch of 8 x 8 pixels
    in three colours fits into its 208 dimensions, and its gradients tell the 196 patches of a page
    of 112 x 112 apart, as the published size does for 224 x 224. "base" has 125 million.

    Args:
        labels: entity types of the data set, for "tags". If empty, a pretrained model keeps its
            own; for others its classification head is drawn anew.
        size: of a model with random weights. Beside `pretrained` it decides nothing here, but
            experiments take their learning rates from it.
        pretrained: a local folder or a hub id (microsoft/layoutlmv3-base).
        task: "tags" for words, or "answers" to questions.
        max_length: L, tokens of a window, special ones included; at most 512 in "base".
        image: whether the page image is read; PrIeD-KIE has a variant without.
        image_size: side of the square page image in pixels, a multiple of 8, or of 16 in "base".
        dropout: in the embeddings, the layers and the head.
        hidden_size: width of a small size, a multiple of 16.
        layers: Transformer layers of a small size.
        initializer_range: standard deviation of a small size's random weights.

    Raises:
        ValueError: if sizes do not fit each other, or the pretrained model.
        OSError: if there is no such folder and no such model on the hub.
    """
    settings = choose("task", task, PRESETS).settings(
        size, pretrained, max_length=max_length, image=image, image_size=image_size,
        dropout=dropout, hidden_size=hidden_size, layers=layers,
        initializer_range=initializer_range,
    )  # fmt: skip
    if pretrained is not None:
        return _load(pretrained, labels, task, **settings)
    return _draw(size, labels, task, **settings)


def _draw(
    size: str, labels: Sequence[str], task: str, **settings: Any
) -> LayoutLMv3Tagger | LayoutLMv3Answerer:
    subwords, (kind, num_labels) = Subwords.shipped(), _head(task, labels)
    config = draw_config(size, subwords, num_labels, **settings)
    most = positions(config)
    length = fits_positions(settings["max_length"], None, most, f"size={size!r}")
    network = kind(config)
    draw_visual_positions(network)
    return _with_reader(network, labels, subwords, length, 1 if size == "base" else 40)


def _load(
    folder: str | Path,
    labels: Sequence[str],
    task: str,
    *,
    max_length: int | None,
    image: bool | None,
    dropout: float | None,
) -> LayoutLMv3Tagger | LayoutLMv3Answerer:
    saved = settings_of(folder)
    labels = labels or saved.get("labels", ())
    kind, num_labels = _head(task, labels)
    config = LayoutLMv3Config.from_pretrained(str(folder), num_labels=num_labels)
    if image and not config.visual_embed:
        raise ValueError(f"image=True: the network in {folder} reads no image; take image=False")
    if image is not None:
        config.visual_embed = image
    length = fits_positions(max_length, saved.get("max_length"), positions(config), folder)
    network = load_network(kind, folder, config, dropout=dropout)
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
    side = int(network.config.input_size) if network.config.visual_embed else None
    if isinstance(network, LayoutLMv3ForTokenClassification):
        return LayoutLMv3Tagger(network, Reader(subwords, length, side, box_step), labels)
    return LayoutLMv3Answerer(network, QuestionReader(subwords, length, side, box_step))


class LayoutLMv3Tagger(OnLayoutLMv3, WordTagger):
    """LayoutLMv3 with a BIO tag on each word."""

    def __init__(
        self,
        network: LayoutLMv3ForTokenClassification,
        reader: Reader,
        labels: Sequence[str],
    ) -> None:
        super().__init__(reader, labels)
        self.network = network
        self.freeze_unused()

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the tags, of shape (batch, L, tags)."""
        scores: Tensor = self.network(**self.inputs(batch)).logits
        return scores[:, : batch["input_ids"].shape[1]]

    def head(self) -> list[nn.Module]:
        """Returns the modules after the last layer."""
        return [self.network.classifier]

    def reading(self) -> dict[str, Any]:
        """Returns all settings that decide how documents become arrays."""
        return {"model": "layoutlmv3", **super().reading()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model into a folder; `layoutlmv3(pretrained=folder)` reads it back."""
        save(folder, self.network, self.reader.subwords, self.reading())
