"""Entities as chains of tokens, each pointing at its predecessor: EE-SPADE of CDMI, §2.1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.models.encoders.encoder import Encoder
from fedpriv.models.heads.pointer import PointerModel, found_scores
from fedpriv.models.readers.reader import IGNORED, Reader, words_of_tokens
from fedpriv.models.saving import draw_linear
from fedpriv.models.tagging import EVALUATION_BATCH, mean_losses, tags_of

INITIAL, PREVIOUS = "initial", "previous"
"""Columns: the label of each entity's first token, and the place of each token's predecessor."""

Chain = tuple[int, tuple[int, ...]]
"""An entity: the number of its label, from 1, and the positions of its words, ascending."""


class SpadeExtractor(PointerModel):
    """An encoder that finds the first token of each entity, and each token's predecessor in it.

    All tokens take part, also those within words. Where entities share words, the last has them,
    as in `Document.tags`. Windows are independent: the part of an entity that lies in a window is
    an entity there, but the end of a cut word is not. A window's tokens before the first beginning
    of a word have no label, and no token points at them.

    Args:
        encoder: of tokens.
        reader: turns documents into windows.
        labels: entity types of the data set.
    """

    task = "spade"
    column = PREVIOUS

    def __init__(self, encoder: Encoder, reader: Reader, labels: Sequence[str]) -> None:
        super().__init__(encoder, reader, labels)
        config = encoder.network.config
        self.classifier = nn.Linear(config.hidden_size, len(self.labels) + 1)
        draw_linear(self.classifier, config.initializer_range)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the scores of labels and of predecessors.

        Of shape (batch, L, 1 + labels), none being the first, and (batch, L, L + 1), none being
        the last.
        """
        vectors = self.dropout(self.encoder(batch))
        return self.classifier(vectors), self.pointer(vectors, self.pointing(batch))

    def losses(self, batch: Batch) -> Tensor:
        """Returns the losses of the examples, (batch,).

        Each is a sum of two means over the tokens: the cross-entropy of the label, and that of the
        predecessor.
        """
        labels, predecessors = self(batch)
        return self._losses(labels, predecessors, batch)

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns the documents as windows.

        Columns beside those of `Reader.read`: `initial` (N, L), 0 or the number of a label, counted
        from 1, at the first token of an entity; `previous` (N, L), the place of a token's
        predecessor in its entity, or L. Both are `IGNORED` at tokens that take no part.
        """
        examples = self.reader.read(documents, tags_of(self.labels))
        words = words_of_tokens(examples.column("word"), examples.column("attention_mask"))
        numbers = {label: number for number, label in enumerate(self.labels, start=1)}
        owners = []
        for document in documents:
            # The entity of each word, and -1 at the end, for what is no word.
            owner_of = np.full(len(document.words) + 1, -1, dtype=np.int64)
            for number, entity in enumerate(document.entities):
                owner_of[list(entity.words)] = number
            owners.append(owner_of)
        initial = np.where(words >= 0, 0, IGNORED)
        previous = np.where(words >= 0, words.shape[1], IGNORED)
        for row, position in enumerate(examples.column("document")):
            labels = [numbers[entity.label] for entity in documents[position].entities]
            last: dict[int, int] = {}
            for place, owner in enumerate(owners[position][words[row]].tolist()):
                if owner in last:
                    previous[row, place] = last[owner]
                elif owner >= 0:
                    initial[row, place] = labels[owner]
                if owner >= 0:
                    last[owner] = place
        return examples.with_column(INITIAL, initial).with_column(PREVIOUS, previous)

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """Returns metrics by name.

        `loss` is the mean over windows with tokens; `accuracy` the share of tokens of which both
        label and predecessor are right; `precision`, `recall` and `f1` are of entities, which are
        right if their label and all their words are, in their window.
        """
        total, count = 0.0, Counter[str]()
        for batch in examples.batches(EVALUATION_BATCH, device=self.device):
            labels, predecessors = self(batch)
            total += self._losses(labels, predecessors, batch).sum().item()
            count += self._counts(labels, predecessors, batch)
        return {
            "loss": total / max(count["windows"], 1),
            "accuracy": count["tokens right"] / max(count["tokens"], 1),
            **found_scores(count["right"], count["found"], count["true"]),
        }

    def head(self) -> list[nn.Module]:
        """Returns the modules after the last layer."""
        return [self.classifier, self.pointer]

    def _losses(self, labels: Tensor, predecessors: Tensor, batch: Batch) -> Tensor:
        of_predecessors = mean_losses(predecessors, self.pointed(batch))
        return mean_losses(labels, batch[INITIAL]) + of_predecessors

    def _counts(self, labels: Tensor, predecessors: Tensor, batch: Batch) -> Counter[str]:
        taking_part = self.pointing(batch)
        initial = torch.where(taking_part, labels.argmax(-1), IGNORED)
        certainty, best = predecessors.softmax(-1).max(-1)
        previous = torch.where(taking_part, best, IGNORED)
        labelled, pointed = batch[INITIAL], self.pointed(batch)
        right = (initial == labelled) & (previous == pointed) & taking_part
        found = _chains_of(initial, previous, certainty, batch["word"])
        true = _chains_of(labelled, pointed, torch.ones_like(certainty), batch["word"])
        return Counter(
            {
                "windows": int(taking_part.any(1).sum()),
                "tokens": int(taking_part.sum()),
                "tokens right": int(right.sum()),
                "found": sum(map(len, found)),
                "true": sum(map(len, true)),
                "right": sum(len(a & b) for a, b in zip(found, true, strict=True)),
            }
        )


def chains(
    initial: NDArray[np.int64],
    previous: NDArray[np.int64],
    certainty: NDArray[np.float64],
    word: NDArray[np.int64],
) -> set[Chain]:
    """Returns the entities of one window of L tokens.

    An entity begins with a labelled token; where that token points does not matter. It continues
    with the token that points at its last one, or with the most certain of several. So each token
    is in one entity at most, and tokens that point at each other in a circle are in none. A word
    belongs to the entity of its first token.

    Args:
        initial: (L,), the numbers of labels; less than 1 for none.
        previous: (L,), the place that each token points at; no place for none.
        certainty: (L,), of `previous`.
        word: (L,), the index of the word at its first token, -1 elsewhere.
    """
    following: dict[int, int] = {}
    for token in np.argsort(certainty, kind="stable").tolist():
        if initial[token] < 1 and 0 <= previous[token] < len(initial):
            following[int(previous[token])] = token
    found: set[Chain] = set()
    for start in np.flatnonzero(initial >= 1).tolist():
        chain = [start]
        while chain[-1] in following:
            chain.append(following[chain[-1]])
        words = sorted(int(word[token]) for token in chain if word[token] >= 0)
        if words:
            found.add((int(initial[start]), tuple(words)))
    return found


def _chains_of(*columns: Tensor) -> list[set[Chain]]:
    """Returns the entities of each window, given the arguments of `chains` for a batch."""
    rows = zip(*(column.detach().cpu().numpy() for column in columns), strict=True)
    return [chains(*row) for row in rows]
