"""The base of all models that give words BIO tags (PrIeD-KIE, §4.2).

Only the first sub-token of a word has a label, documents are cut into windows of L tokens, and
scores are of entities in whole documents. A tagger also answers questions, with the entity that a
question's key names.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.metrics.entities import entity_scores
from fedpriv.models.base import Answer, ExampleLosses, sums_over
from fedpriv.models.readers.reader import IGNORED, Reader
from fedpriv.models.saving import save

EVALUATION_BATCH = 64


def tags_of(labels: Sequence[str]) -> list[str]:
    """Returns the BIO tags: O, then B- and I- of each label."""
    return ["O", *(f"{prefix}-{label}" for label in labels for prefix in "BI")]


class TaggedWord(NamedTuple):
    """A word by the positions of its document and of itself, with numbers of tags.

    Attributes:
        document: position among the documents that were encoded.
        word: position in the document.
        true: the number of its true tag.
        guess: the number of the tag that the model gives it.
        confidence: the probability of the guess.
    """

    document: int
    word: int
    true: int
    guess: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Found:
    """An entity that a model found.

    Attributes:
        label: its type.
        words: positions in the document, ascending.
        confidence: the product of the probabilities of its words' tags.
    """

    label: str
    words: tuple[int, ...]
    confidence: float


class WordTagger(ExampleLosses):
    """A `fedpriv.models.base.Tagger`; a subclass scores a batch in `forward`.

    Args:
        reader: turns documents into windows.
        labels: entity types of the data set.
    """

    def __init__(self, reader: Reader, labels: Sequence[str]) -> None:
        super().__init__()
        self.reader = reader
        self.labels = list(labels)
        self.tags = tags_of(labels)

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the tags, of shape (batch, L, tags)."""

    def loss(self, batch: Batch) -> Tensor:
        """Returns the mean cross-entropy over the labelled tokens; 0 if there are none."""
        total, count = self.summed_loss(batch)
        return total / count.clamp(min=1)

    def summed_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the cross-entropy summed over the labelled tokens, and their number."""
        return _cross_entropy(self(batch), batch["labels"])

    def losses(self, batch: Batch) -> Tensor:
        """Returns each example's mean cross-entropy over its labelled tokens, (batch,)."""
        return mean_losses(self(batch), batch["labels"])

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns the documents as windows; see `Reader.read`."""
        return self.reader.read(documents, self.tags)

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """Returns `loss` per labelled token and the entity scores over whole documents."""
        loss, count, words = self._tagged(examples)
        true: dict[int, list[str]] = defaultdict(list)
        predicted: dict[int, list[str]] = defaultdict(list)
        for word in sorted(words):
            true[word.document].append(self.tags[word.true])
            predicted[word.document].append(self.tags[word.guess])
        scores_by_entity = entity_scores([*true.values()], [*predicted.values()])
        return {"loss": loss / max(count, 1), **scores_by_entity}

    def tag(self, document: Document) -> list[str]:
        """Returns the predicted tag of every word."""
        tags = ["O"] * len(document.words)
        for word in self._tagged(self.encode([document]))[2]:
            tags[word.word] = self.tags[word.guess]
        return tags

    def answer(self, documents: Sequence[Document]) -> list[tuple[Answer, ...]]:
        """Returns, for each document, an answer to each of its questions.

        A question's key names an entity type. The answer is the text of the entity of that type
        with the highest `Found.confidence`. If the model finds none, the text is empty and the
        confidence 0.
        """
        words: dict[int, list[TaggedWord]] = defaultdict(list)
        if any(document.questions for document in documents):
            for word in self._tagged(self.encode(documents))[2]:
                words[word.document].append(word)
        answers: list[tuple[Answer, ...]] = []
        for position, document in enumerate(documents):
            tagged = sorted(words[position])
            entities = found(
                [self.tags[word.guess] for word in tagged], [word.confidence for word in tagged]
            )
            best: dict[str, Answer] = {}
            for entity in entities:
                if entity.label not in best or entity.confidence > best[entity.label].confidence:
                    text = " ".join(document.words[word].text for word in entity.words)
                    best[entity.label] = Answer(text, entity.confidence)
            answers.append(tuple(best.get(q.key, Answer("", 0.0)) for q in document.questions))
        return answers

    def reading(self) -> dict[str, Any]:
        """Returns all settings that decide how documents become arrays."""
        return {"labels": self.labels, **self.reader.settings()}

    def _tagged(self, examples: Examples) -> tuple[float, float, list[TaggedWord]]:
        """Returns the summed loss, the number of labelled tokens, and what each word is taken for.

        The device is waited for at the end only.
        """
        tags: list[Tensor] = []
        confidences: list[Tensor] = []

        def scored(batch: Batch) -> dict[str, Tensor]:
            scores = self(batch)
            tags.append(scores.argmax(-1))
            confidences.append(scores.softmax(-1).amax(-1))
            loss, labelled = _cross_entropy(scores, batch["labels"])
            return {"loss": loss, "labelled": labelled}

        sums = sums_over(map(scored, examples.batches(EVALUATION_BATCH, device=self.device)))
        if not tags:
            return 0.0, 0, []
        word = examples.column("word")
        at = np.nonzero(word >= 0)
        columns: list[NDArray[Any]] = [
            examples.column("document")[at[0]],
            word[at],
            examples.column("labels")[at],
            torch.cat(tags).cpu().numpy()[at],
            torch.cat(confidences).cpu().numpy()[at],
        ]
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return sums["loss"], sums["labelled"], [TaggedWord(*row) for row in rows]


class NetworkTagger(WordTagger):
    """A token classifier of transformers that gives each word a BIO tag.

    Attributes:
        name: of the architecture.

    Args:
        network: with one output for each tag.
        reader: turns documents into windows.
        labels: entity types of the data set.
    """

    name: ClassVar[str]

    def __init__(self, network: PreTrainedModel, reader: Reader, labels: Sequence[str]) -> None:
        super().__init__(reader, labels)
        self.network: Any = network

    @abstractmethod
    def inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the network's arguments for a batch."""

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the tags, of shape (batch, L, tags)."""
        scores: Tensor = self.network(**self.inputs(batch)).logits
        return scores[:, : batch["input_ids"].shape[1]]  # not those of the page's patches

    def head(self) -> list[nn.Module]:
        """Returns the modules after the last layer."""
        return [self.network.classifier]

    def reading(self) -> dict[str, Any]:
        """Returns all settings that decide how documents become arrays."""
        return {"model": self.name, **super().reading()}

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the model into a folder; the function of its name reads it back (`pretrained`)."""
        save(folder, self.network, self.reader.subwords, self.reading())


def mean_losses(scores: Tensor, labels: Tensor) -> Tensor:
    """Returns each example's mean cross-entropy over its labelled tokens, (batch,); 0 without any.

    Args:
        scores: (batch, L, classes).
        labels: (batch, L), `IGNORED` where there is no label.
    """
    # Scores of (batch, classes, L) would be copied first, which is slow where tokens are classes.
    each = nn.functional.cross_entropy(
        scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
    ).view(labels.shape)
    return each.sum(1) / (labels != IGNORED).sum(1).clamp(min=1)


def found(tags: Sequence[str], confidences: Sequence[float]) -> list[Found]:
    """Returns the entities of a document, in order.

    Tags are read as for the scores: an I- tag that continues no entity of its type begins one.

    Args:
        tags: one per word.
        confidences: the probability of each tag.

    >>> found(["B-date", "O", "I-total", "I-total"], [0.5, 1.0, 0.5, 0.5])
    [Found(label='date', words=(0,), confidence=0.5), Found(label='total', words=(2, 3), \
confidence=0.25)]
    """
    runs: list[list[int]] = []
    before = "O"
    for word, tag in enumerate(tags):
        if tag.startswith("I-") and before[2:] == tag[2:] and before != "O":
            runs[-1].append(word)
        elif tag != "O":
            runs.append([word])
        before = tag
    return [
        Found(tags[run[0]][2:], tuple(run), math.prod(confidences[word] for word in run))
        for run in runs
    ]


def _cross_entropy(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sum over labelled tokens and their number, both 0-d.

    The number stays a tensor, because vmap, which computes per-example gradients, cannot turn it
    into an int.
    """
    total = nn.functional.cross_entropy(
        scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total, (labels != IGNORED).sum()
