"""LayoutLMv3 for key information extraction as token classification (PrIeD-KIE, §4.2).

BIO tags, a label on the first sub-token of a word only, documents cut into windows of L tokens,
2-D positions of text lines scaled to 0…1000, the page image beside them; lower-cased text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from transformers import LayoutLMv3ForTokenClassification

from fedpriv.data.examples import Batch
from fedpriv.models import layoutlmv3_answers, layoutlmv3_network
from fedpriv.models.choices import choose
from fedpriv.models.layoutlmv3_answers import LayoutLMv3Answerer
from fedpriv.models.readers.reader import Reader
from fedpriv.models.readers.subwords import Subwords
from fedpriv.models.saving import draw_linear, fits_positions, save, settings_of
from fedpriv.models.tagging import WordTagger, tags_of

Builder = Callable[..., "LayoutLMv3Tagger | LayoutLMv3Answerer"]


def layoutlmv3(
    labels: Sequence[str] = (),
    *,
    size: Literal["tiny", "small", "base"] = "tiny",
    pretrained: str | None = None,
    task: Literal["tags", "answers"] = "tags",
    max_length: int | None = None,
    image: bool | None = None,
    image_size: int | None = None,
    dropout: float | None = None,
) -> LayoutLMv3Tagger | LayoutLMv3Answerer:
    """Builds a LayoutLMv3, for settings files.

    What is none is as the size, or the pretrained model, has it.

    Args:
        labels: entity types of the data set; for "tags".
        size: "tiny"; "small", which sees every letter of a small page, for answers only; or as
            published, with random weights. Beside `pretrained` it decides nothing here, but
            experiments take their learning rates from it.
        pretrained: a local folder or a hub id (microsoft/layoutlmv3-base).
        task: "tags" for words, or spans of words as "answers" to questions.
        max_length: L, tokens of a window.
        image: whether the page image is read; PrIeD-KIE has a variant without.
        image_size: side of the square page image in pixels; a pretrained model has its own.
        dropout: everywhere.
    """
    given = {"max_length": max_length, "image": image, "dropout": dropout}
    set_ones: dict[str, Any] = {k: value for k, value in given.items() if value is not None}
    if image_size is not None:
        if pretrained is not None:
            raise ValueError(f"image_size={image_size}: the model in {pretrained} has its own")
        set_ones["image_size"] = image_size
    loaders: dict[str, Builder] = {
        "tags": from_pretrained,
        "answers": layoutlmv3_answers.from_pretrained,
    }
    load = choose("task", task, loaders)
    if pretrained is not None:
        return load(pretrained, labels, **set_ones)
    return choose("size", size, _builders(task))(labels, **set_ones)


def _builders(task: str) -> dict[str, Builder]:
    if task == "tags":
        return {"tiny": layoutlmv3_tiny, "base": layoutlmv3_base}
    return {
        "tiny": layoutlmv3_answers.layoutlmv3_answers_tiny,
        "small": layoutlmv3_answers.layoutlmv3_answers_small,
        "base": layoutlmv3_answers.layoutlmv3_answers_base,
    }


def layoutlmv3_tiny(
    labels: Sequence[str] = (),
    *,
    max_length: int = 128,
    image: bool = True,
    image_size: int = 32,
    hidden_size: int = 32,
    layers: int = 2,
    dropout: float = 0.0,
    initializer_range: float = 0.1,
) -> LayoutLMv3Tagger:
    """Builds a LayoutLMv3 of 100 000 parameters that learns on two CPU cores in seconds.

    Coordinates are rounded down to multiples of 40 of 1000: from scratch, on few pages, most of the
    1000 positions are never seen, and the model would learn none of the layout.

    Args:
        labels: entity types of the data set.
        max_length: L, tokens of a window, the two special ones included.
        image: whether the page image is read.
        image_size: side of the square page image in pixels, a multiple of 8.
        hidden_size: width, a multiple of 16; the feed-forward layer is twice as wide.
        layers: Transformer layers.
        dropout: in the embeddings, the layers and the head.
        initializer_range: standard deviation of the drawn weights. The usual 0.02 is made for
            768 dimensions; in 32 it costs the first two epochs.
    """
    subwords = Subwords.shipped()
    config = layoutlmv3_network.tiny_config(
        subwords,
        len(tags_of(labels)),
        max_length=max_length,
        image=image,
        image_size=image_size,
        hidden_size=hidden_size,
        layers=layers,
        dropout=dropout,
        initializer_range=initializer_range,
    )
    network = LayoutLMv3ForTokenClassification(config)
    layoutlmv3_network.draw_visual_positions(network)
    reader = Reader(subwords, max_length, layoutlmv3_network.image_size(config), box_step=40)
    return LayoutLMv3Tagger(network, reader, labels)


def layoutlmv3_base(
    labels: Sequence[str] = (),
    *,
    max_length: int = 512,
    image: bool = True,
    image_size: int = 224,
    dropout: float = 0.1,
) -> LayoutLMv3Tagger:
    """Builds a LayoutLMv3 in its published size, 125 million parameters, with random weights.

    Args:
        labels: entity types of the data set.
        max_length: L, tokens of a window, at most 512.
        image: whether the page image is read.
        image_size: side of the square page image in pixels, a multiple of 16; 224 as published.
        dropout: everywhere.
    """
    subwords = Subwords.shipped()
    config = layoutlmv3_network.base_config(
        subwords, len(tags_of(labels)), image=image, image_size=image_size, dropout=dropout
    )
    most = layoutlmv3_network.positions(config)
    length = fits_positions(max_length, None, most, "layoutlmv3_base")
    network = LayoutLMv3ForTokenClassification(config)
    layoutlmv3_network.draw_visual_positions(network)
    reader = Reader(subwords, length, layoutlmv3_network.image_size(config))
    return LayoutLMv3Tagger(network, reader, labels)


def from_pretrained(
    folder: str | Path,
    labels: Sequence[str] = (),
    *,
    max_length: int | None = None,
    image: bool | None = None,
    dropout: float | None = None,
) -> LayoutLMv3Tagger:
    """Loads weights and tokenizer from a folder or a hub id (microsoft/layoutlmv3-base).

    A classification head for another number of labels, or for others, is drawn anew.

    Args:
        folder: as `LayoutLMv3Tagger.save_pretrained` or that of transformers writes it.
        labels: entity types of the data set; none: those that were saved.
        max_length: L, at most what the model's position embeddings allow; none: as saved, or that.
        image: whether the page image is read; none: if the saved network does.
        dropout: none: as saved.

    Raises:
        ValueError: if `max_length` is too long for the model, or it cannot read images.
        OSError: if there is no such folder and no such model on the hub.
    """
    saved = settings_of(folder)
    labels = labels or saved.get("labels", ())
    network = layoutlmv3_network.load(
        LayoutLMv3ForTokenClassification,
        folder,
        len(tags_of(labels)),
        image=image,
        dropout=dropout,
    )
    if saved.get("labels", list(labels)) != list(labels):
        draw_linear(network.classifier, network.config.initializer_range)
    most = layoutlmv3_network.positions(network.config)
    length = fits_positions(max_length, saved.get("max_length"), most, folder)
    side = layoutlmv3_network.image_size(network.config)
    reader = Reader(Subwords.from_pretrained(folder), length, side, saved.get("box_step", 1))
    return LayoutLMv3Tagger(network, reader, labels).train()


class LayoutLMv3Tagger(WordTagger):
    """LayoutLMv3 with a BIO tag on each word."""

    def __init__(
        self,
        network: LayoutLMv3ForTokenClassification,
        reader: Reader,
        labels: Sequence[str],
    ) -> None:
        super().__init__(reader, labels)
        self.network = network
        layoutlmv3_network.freeze_unused(network)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the tags, of shape (batch, L, tags)."""
        output = self.network(**layoutlmv3_network.inputs(self.network, batch))
        scores: Tensor = output.logits[:, : batch["input_ids"].shape[1]]
        return scores

    def blocks(self) -> list[nn.Module]:
        """Returns the Transformer layers from input to output."""
        return layoutlmv3_network.blocks(self.network)

    def head(self) -> list[nn.Module]:
        """Returns what comes after the last layer."""
        return [self.network.classifier]

    def visual(self) -> list[nn.Module]:
        """Returns the embedding of the page's patches; nothing where no image is read."""
        return layoutlmv3_network.visual(self.network)

    def reading(self) -> dict[str, Any]:
        """Returns all that decides how documents become arrays."""
        return {"model": "layoutlmv3", **super().reading()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model into a folder; `from_pretrained` reads it back."""
        save(folder, self.network, self.reader.subwords, self.reading())
