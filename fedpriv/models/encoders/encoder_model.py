"""The base of the models on an `Encoder`, for all tasks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from safetensors.torch import save_file
from torch import Tensor, nn

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.models.base import Answer, ExampleLosses
from fedpriv.models.encoders.encoder import Encoder
from fedpriv.models.encoders.roi import PatchMap, RoiVisual
from fedpriv.models.field_model import Task
from fedpriv.models.readers.reader import Reader
from fedpriv.models.saving import HEAD, VISUAL, save

OF_TRANSFORMERS = ("encoder.network.", "encoder.visual.network.image_model.")
"""Prefixes of the weights that transformers saves; the others are in `HEAD`."""


class OnEncoder:
    """Mixed into an `nn.Module` that has `encoder`, `reader` and `labels`."""

    task: ClassVar[Task]
    encoder: Encoder
    reader: Reader
    labels: list[str]

    def seen(self, batch: Batch) -> Batch:
        """Returns the batch with `visual` in place of `pixels`; see `Encoder.seen`."""
        return self.encoder.seen(batch)

    def blocks(self) -> list[nn.Module]:
        """Returns the Transformer layers from input to output."""
        return list(self.encoder.network.encoder.layer)

    def visual(self) -> list[nn.Module]:
        """Returns the visual encoder; nothing if no image is read."""
        return [] if self.encoder.visual is None else [self.encoder.visual]

    def reading(self) -> dict[str, Any]:
        """Returns all settings that decide how documents become arrays."""
        name = str(self.encoder.network.config.model_type)
        own = {"model": name, "task": self.task, "labels": self.labels}
        return {**own, **self.reader.settings()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model into a folder; its backbone's `from_pretrained` reads it back."""
        save(folder, self.encoder.network, self.reader.subwords, self.reading())
        visual = self.encoder.visual
        if isinstance(visual, RoiVisual) and isinstance(visual.network, PatchMap):
            visual.network.image_model.save_pretrained(Path(folder) / VISUAL)
        weights: dict[str, Tensor] = self.state_dict()  # type: ignore[attr-defined]
        own = {n: w.contiguous() for n, w in weights.items() if not n.startswith(OF_TRANSFORMERS)}
        save_file(own, Path(folder) / HEAD)


class EncoderModel(OnEncoder, ExampleLosses):
    """A `fedpriv.models.field_model.FieldModel` that answers no questions.

    A subclass names its `task`, adds a head to the encoder, and defines the loss of each example
    and how documents become examples.

    Args:
        encoder: turns tokens into vectors.
        reader: turns documents into windows.
        labels: entity types of the data set.
    """

    def __init__(self, encoder: Encoder, reader: Reader, labels: Sequence[str]) -> None:
        super().__init__()
        self.encoder = encoder
        self.reader = reader
        self.labels = list(labels)

    @abstractmethod
    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns the documents as windows."""

    @abstractmethod
    def evaluate(self, examples: Examples) -> dict[str, float]:
        """Returns metrics by name."""

    @abstractmethod
    def head(self) -> list[nn.Module]:
        """Returns the modules after the last layer."""

    def loss(self, batch: Batch) -> Tensor:
        """Returns the mean loss of the examples."""
        return self.losses(batch).mean()

    def answer(self, documents: Sequence[Document]) -> list[tuple[Answer, ...]]:
        """Returns an empty answer to each question."""
        return [tuple(Answer("", 0.0) for _ in document.questions) for document in documents]
