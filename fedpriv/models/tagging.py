"""What every model that gives words BIO tags has in common (PrIeD-KIE, §4.2).

A label on the first sub-token of a word only, documents cut into windows of L tokens, entity-level
scores over whole documents. A tagger answers questions too: with the entity that a question's key
names.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.metrics.entities import entity_scores
from fedpriv.models.base import Answer
from fedpriv.models.readers.reader import IGNORED, Reader

EVALUATION_BATCH = 64


def tags_of(labels: Sequence[str]) -> list[str]:
    """Returns the BIO tags: O, then B- and I- of each label."""
    return ["O", *(f"{prefix}-{label}" for label in labels for prefix in "BI")]


class TaggedWord(NamedTuple):
    """A word by the positions of its document and of itself, with numbers of tags.

    Attributes:
        document: position among the documents that were encoded.
        word: position in the document.
        true: the number of the tag that it has.
        guess: the number of the tag that the model gives it.
        confidence: the probability of that guess.
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


class WordTagger(nn.Module, ABC):
    """A `fedpriv.models.base.Tagger`; a subclass says how a batch is scored.

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
        """Returns the mean cross-entropy over the labelled tokens; 0 where there are none."""
        total, count = _cross_entropy(self(batch), batch["labels"])
        return total / count.clamp(min=1)

    def losses(self, batch: Batch) -> Tensor:
        """Returns each example's mean cross-entropy over its labelled tokens, (batch,)."""
        labels = batch["labels"]
        each = nn.functional.cross_entropy(
            self(batch).transpose(1, 2), labels, ignore_index=IGNORED, reduction="none"
        )
        return each.sum(1) / (labels != IGNORED).sum(1).clamp(min=1)

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns the documents as windows; see `Reader.read`."""
        return self.reader.read(documents, self.tags)

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """Returns `loss` per labelled token and the entity scores over whole documents."""
        loss, count = 0.0, 0
        words: list[TaggedWord] = []
        for batch in examples.batches(EVALUATION_BATCH, device=self.device):
            scores = self(batch)
            total, labelled = _cross_entropy(scores, batch["labels"])
            loss, count = loss + total.item(), count + int(labelled)
            words += _tagged_words(batch, scores)
        true, predicted = self._by_document(words)
        return {"loss": loss / max(count, 1), **entity_scores(true, predicted)}

    def tag(self, document: Document) -> list[str]:
        """Returns the predicted tag of every word."""
        tags = ["O"] * len(document.words)
        for word in self._tagged([document]):
            tags[word.word] = self.tags[word.guess]
        return tags

    def answer(self, documents: Sequence[Document]) -> list[tuple[Answer, ...]]:
        """Returns, for each document, an answer to each of its questions.

        A question's key names an entity type. The answer is the text of the entity of that type
        in which the model has the most confidence, `Found.confidence`; no text and confidence 0
        where it finds none.
        """
        words: dict[int, list[TaggedWord]] = defaultdict(list)
        if any(document.questions for document in documents):
            for word in self._tagged(documents):
                words[word.document].append(word)
        return [
            self._answers(document, sorted(words[place]))
            for place, document in enumerate(documents)
        ]

    def reading(self) -> dict[str, Any]:
        """Returns all that decides how documents become arrays."""
        return {"labels": self.labels, **self.reader.settings()}

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.parameters()).device

    def _tagged(self, documents: Sequence[Document]) -> Iterator[TaggedWord]:
        examples = self.encode(documents)
        for batch in examples.batches(EVALUATION_BATCH, device=self.device):
            yield from _tagged_words(batch, self(batch))

    def _answers(self, document: Document, words: Sequence[TaggedWord]) -> tuple[Answer, ...]:
        best: dict[str, Found] = {}
        tags = [self.tags[word.guess] for word in words]
        for entity in found(tags, [word.confidence for word in words]):
            if entity.label not in best or entity.confidence > best[entity.label].confidence:
                best[entity.label] = entity
        return tuple(_answer(document, best.get(q.key)) for q in document.questions)

    def _by_document(self, words: list[TaggedWord]) -> tuple[list[list[str]], list[list[str]]]:
        true: dict[int, list[str]] = defaultdict(list)
        predicted: dict[int, list[str]] = defaultdict(list)
        for word in sorted(words):
            true[word.document].append(self.tags[word.true])
            predicted[word.document].append(self.tags[word.guess])
        return list(true.values()), list(predicted.values())


def found(tags: Sequence[str], confidences: Sequence[float]) -> list[Found]:
    """Returns the entities of a document, in order.

    Tags are read as in the scores: an I- that continues no entity of its type opens one.

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


def _answer(document: Document, entity: Found | None) -> Answer:
    if entity is None:
        return Answer("", 0.0)
    return Answer(" ".join(document.words[word].text for word in entity.words), entity.confidence)


def _cross_entropy(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the sum over labelled tokens and their number, both 0-d.

    The number stays a tensor: vmap, which takes per-example gradients, cannot turn it into an int.
    """
    total = nn.functional.cross_entropy(
        scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total, (labels != IGNORED).sum()


def _tagged_words(batch: Batch, scores: Tensor) -> list[TaggedWord]:
    rows, places = torch.nonzero(batch["word"] >= 0, as_tuple=True)
    confidences = scores.softmax(-1).amax(-1)[rows, places]
    columns: list[Any] = [
        batch["document"][rows],
        batch["word"][rows, places],
        batch["labels"][rows, places],
        scores.argmax(-1)[rows, places],
        confidences,
    ]
    return [TaggedWord(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]
