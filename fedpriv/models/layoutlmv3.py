"""LayoutLMv3 for key information extraction as token classification (002 §4.2).

BIO tags, a label on the first sub-token of a word only, documents cut into windows of L tokens,
2-D positions of text lines scaled to 0…1000, the page image beside them; lower-cased text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from transformers import LayoutLMv3Config, LayoutLMv3ForTokenClassification

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.metrics.entities import entity_scores
from fedpriv.models.subwords import Subwords, Window, windows

IGNORED = -100
"""The label of tokens that carry none, which the loss leaves out."""

EVALUATION_BATCH = 64


def layoutlmv3_tiny(
    labels: Sequence[str],
    *,
    max_length: int = 128,
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
        image_size: side of the square page image in pixels, a multiple of 8.
        hidden_size: width, a multiple of 16; the feed-forward layer is twice as wide.
        layers: Transformer layers.
        dropout: in the embeddings, the layers and the head.
        initializer_range: standard deviation of the drawn weights. The usual 0.02 is made for
            768 dimensions; in 32 it costs the first two epochs.
    """
    if hidden_size % 16 or image_size % 8:
        raise ValueError(
            f"{hidden_size=} must be a multiple of 16 and {image_size=} a multiple of 8"
        )
    subwords = Subwords.shipped()
    shape_size = hidden_size // 8
    config = LayoutLMv3Config(
        vocab_size=subwords.size,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=max_length + 2,
        coordinate_size=(hidden_size - 2 * shape_size) // 4,
        shape_size=shape_size,
        input_size=image_size,
        patch_size=8,
        initializer_range=initializer_range,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=subwords.pad,
        bos_token_id=subwords.cls,
        eos_token_id=subwords.sep,
        num_labels=len(tags_of(labels)),
    )
    network = LayoutLMv3ForTokenClassification(config)
    _draw_visual_positions(network)
    reader = Reader(subwords, max_length, image_size, box_step=40)
    return LayoutLMv3Tagger(network, reader, labels)


def from_pretrained(
    folder: str | Path, labels: Sequence[str], *, max_length: int = 512
) -> LayoutLMv3Tagger:
    """Loads weights and tokenizer from a folder or a hub id (microsoft/layoutlmv3-base).

    A classification head for another number of labels is drawn anew.

    Args:
        folder: as `save_pretrained` of transformers writes it.
        labels: entity types of the data set.
        max_length: L, at most what the model's position embeddings allow.

    Raises:
        ValueError: if `max_length` is too long for the model.
        OSError: if there is no such folder and no such model on the hub.
    """
    network = LayoutLMv3ForTokenClassification.from_pretrained(
        str(folder),
        num_labels=len(tags_of(labels)),
        ignore_mismatched_sizes=True,
        dtype=torch.float32,
    )
    # Positions count from the padding id + 1, as in RoBERTa.
    most = network.config.max_position_embeddings - network.config.pad_token_id - 1
    if max_length > most:
        raise ValueError(f"max_length={max_length}: {folder} has positions for {most} tokens")
    subwords = Subwords.from_pretrained(folder)
    reader = Reader(subwords, max_length, network.config.input_size)
    return LayoutLMv3Tagger(network, reader, labels)


def tags_of(labels: Sequence[str]) -> list[str]:
    """Returns the BIO tags: O, then B- and I- of each label."""
    return ["O", *(f"{prefix}-{label}" for label in labels for prefix in "BI")]


@dataclass(frozen=True)
class Reader:
    """Turns documents into arrays.

    Args:
        subwords: tokenizer.
        max_length: L.
        image_size: side of the square image.
        box_step: coordinates (0…1000) are rounded down to multiples of this.
    """

    subwords: Subwords
    max_length: int
    image_size: int
    box_step: int = 1

    def read(self, documents: Sequence[Document], tags: Sequence[str]) -> Examples:
        """Returns one row per window.

        Columns (N windows, L = max_length, D documents): input_ids, attention_mask, labels and
        word (index into the document's words, -1 where none) of shape (N, L); bbox (N, L, 4), in
        0…1000; document (N,). Shared: pixels (D, 3, image_size, image_size), uint8.

        Raises:
            ValueError: if a document has a label that is not among the tags.
        """
        numbers = {tag: number for number, tag in enumerate(tags)}
        rows = [
            row
            for position, document in enumerate(documents)
            for row in self._rows(document, position, numbers)
        ]
        columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        pages = np.stack([self._pixels(document.image()) for document in documents])
        return Examples.of(columns, shared={"pixels": (pages, "document")})

    def _rows(
        self, document: Document, position: int, numbers: dict[str, int]
    ) -> list[dict[str, NDArray[np.int64]]]:
        unknown = {entity.label for entity in document.entities} - {
            tag[2:] for tag in numbers if tag != "O"
        }
        if unknown:
            raise ValueError(
                f"document {document.id}: labels {sorted(unknown)} are not the model's"
            )
        labels = np.array([numbers[tag] for tag in document.tags()], dtype=np.int64)
        boxes = self._scaled_boxes(document)
        pieces = self.subwords.pieces([word.text for word in document.words])
        return [
            {**self._row(window, boxes, labels), "document": np.array(position, dtype=np.int64)}
            for window in windows(pieces, self.max_length - 2)
        ]

    def _row(
        self, window: Window, boxes: NDArray[np.int64], labels: NDArray[np.int64]
    ) -> dict[str, NDArray[np.int64]]:
        end = len(window.ids) + 1
        row = {
            "input_ids": np.full(self.max_length, self.subwords.pad, dtype=np.int64),
            "attention_mask": np.zeros(self.max_length, dtype=np.int64),
            "bbox": np.zeros((self.max_length, 4), dtype=np.int64),
            "labels": np.full(self.max_length, IGNORED, dtype=np.int64),
            "word": np.full(self.max_length, -1, dtype=np.int64),
        }
        row["input_ids"][0], row["input_ids"][end] = self.subwords.cls, self.subwords.sep
        row["attention_mask"][: end + 1] = 1
        if window.ids:
            words, first = np.array(window.words), np.array(window.first)
            row["input_ids"][1:end] = window.ids
            row["bbox"][1:end] = boxes[words]
            row["labels"][1:end] = np.where(first, labels[words], IGNORED)
            row["word"][1:end] = np.where(first, words, -1)
        return row

    def _scaled_boxes(self, document: Document) -> NDArray[np.int64]:
        width, height = document.size
        boxes = np.array(document.segment_boxes(), dtype=np.float64).reshape(-1, 4)
        scaled = np.clip(boxes / [width, height, width, height], 0, 1) * 1000
        return scaled.astype(np.int64) // self.box_step * self.box_step

    def _pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        side = (self.image_size, self.image_size)
        pixels = np.asarray(image.resize(side, Image.Resampling.BILINEAR), dtype=np.uint8)
        return np.moveaxis(pixels, -1, 0)


class LayoutLMv3Tagger(nn.Module):
    """LayoutLMv3 with a BIO tag on each word; a `fedpriv.models.base.DocumentModel`."""

    def __init__(
        self,
        network: LayoutLMv3ForTokenClassification,
        reader: Reader,
        labels: Sequence[str],
    ) -> None:
        super().__init__()
        self.network = network
        self.reader = reader
        self.tags = tags_of(labels)
        # transformers looks these tables up without gradient: they can never learn, so they must
        # not travel, be clipped or get noise.
        for name, parameter in self.network.named_parameters():
            if "rel_pos" in name:
                parameter.requires_grad_(False)

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the tags, of shape (batch, L, tags)."""
        pixels = (batch["pixels"].float() / 255 - 0.5) / 0.5
        output = self.network(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            bbox=batch["bbox"],
            pixel_values=pixels,
        )
        scores: Tensor = output.logits[:, : batch["input_ids"].shape[1]]
        return scores

    def loss(self, batch: Batch) -> Tensor:
        """Returns the mean cross-entropy over the labelled tokens; 0 where there are none."""
        total, count = _cross_entropy(self(batch), batch["labels"])
        return total / count.clamp(min=1)

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns the documents as windows; see `Reader.read`."""
        return self.reader.read(documents, self.tags)

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """Returns `loss` per labelled token and the entity scores over whole documents."""
        loss, count = 0.0, 0
        words: list[tuple[int, int, int, int]] = []
        for batch in examples.batches(EVALUATION_BATCH, device=self._device()):
            scores = self(batch)
            total, labelled = _cross_entropy(scores, batch["labels"])
            loss, count = loss + total.item(), count + int(labelled)
            words += _word_tags(batch, scores)
        true, predicted = self._by_document(words)
        return {"loss": loss / max(count, 1), **entity_scores(true, predicted)}

    def tag(self, document: Document) -> list[str]:
        """Returns the predicted tag of every word."""
        examples = self.encode([document])
        tags = ["O"] * len(document.words)
        for batch in examples.batches(EVALUATION_BATCH, device=self._device()):
            for _, word, _, guess in _word_tags(batch, self(batch)):
                tags[word] = self.tags[guess]
        return tags

    def _device(self) -> torch.device:
        return next(self.parameters()).device

    def _by_document(
        self, words: list[tuple[int, int, int, int]]
    ) -> tuple[list[list[str]], list[list[str]]]:
        true: dict[int, list[str]] = {}
        predicted: dict[int, list[str]] = {}
        for document, _, label, guess in sorted(words):
            true.setdefault(document, []).append(self.tags[label])
            predicted.setdefault(document, []).append(self.tags[guess])
        return list(true.values()), list(predicted.values())


def _cross_entropy(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sum over labelled tokens and their number, both 0-d.

    The number stays a tensor: vmap, which takes per-example gradients, cannot turn it into an int.
    """
    total = nn.functional.cross_entropy(
        scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total, (labels != IGNORED).sum()


def _word_tags(batch: Batch, scores: Tensor) -> list[tuple[int, int, int, int]]:
    """Returns (document, word, true tag, predicted tag) for every word of a batch."""
    rows, places = torch.nonzero(batch["word"] >= 0, as_tuple=True)
    columns: list[Any] = [
        batch["document"][rows],
        batch["word"][rows, places],
        batch["labels"][rows, places],
        scores.argmax(-1)[rows, places],
    ]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _draw_visual_positions(network: LayoutLMv3ForTokenClassification) -> None:
    """Draws cls_token and pos_embed, which transformers leaves at zero.

    At zero they stand in front of a LayerNorm, where the gradient is about 500 times that of all
    other parameters together: clipping and inversion would see nothing else.
    """
    base = network.layoutlmv3
    std = network.config.initializer_range
    nn.init.normal_(base.cls_token, std=std)
    nn.init.normal_(base.pos_embed, std=std)
