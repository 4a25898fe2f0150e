"""Links between the first tokens of entities: the task EL of CDMI, §2.1, with SPADE."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedpriv.data.document import Document
from fedpriv.data.examples import Batch, Examples
from fedpriv.models.base import sums_over
from fedpriv.models.heads.pointer import PointerModel, found_scores
from fedpriv.models.readers.reader import IGNORED
from fedpriv.models.tagging import EVALUATION_BATCH, mean_losses, tags_of

SOURCE = "source"
"""The column of the place that a link to each entity comes from."""

LINKS = "links"
"""The column of the number of links to entities that begin in each window."""


class SpadeLinker(PointerModel):
    """An encoder in which each entity points at the entity that a link leads to it from.

    For example, answers point at their questions. The entities are given, as the task defines it:
    only their first tokens point, and can be pointed at. An entity to which several links lead
    points at the first of their sources; other links, and links from another window, are missed.
    """

    task = "links"
    column = SOURCE

    def forward(self, batch: Batch) -> Tensor:
        """Returns the scores of the places that links come from, (batch, L, L + 1), none last."""
        scores: Tensor = self.pointer(self.dropout(self.encoder(batch)), self.pointing(batch))
        return scores

    def losses(self, batch: Batch) -> Tensor:
        """Returns the mean cross-entropy over the entities of each example, (batch,)."""
        return mean_losses(self(batch), self.pointed(batch))

    def encode(self, documents: Sequence[Document]) -> Examples:
        """Returns the documents as windows.

        Columns beside those of `Reader.read`: `source` (N, L), at the first token of an entity the
        place of the first token of the entity that a link leads from, L for none, `IGNORED`
        elsewhere; `links` (N,), how many links lead to the entities that begin in the window.

        Raises:
            ValueError: if there are words, but no links.
        """
        if any(d.words for d in documents) and not any(d.links for d in documents):
            raise ValueError(
                f"task='links': none of the {len(documents)} documents has links between its "
                "entities; FUNSD and XFUND have links; for other data take task=tags, spade or mlm"
            )
        examples = self.reader.read(documents, tags_of(self.labels))
        rows = zip(examples.column("document"), examples.column("word"), strict=True)
        sources, counts = zip(*(_sources(documents[at], word) for at, word in rows), strict=True)
        with_sources = examples.with_column(SOURCE, np.stack(sources))
        return with_sources.with_column(LINKS, np.array(counts, dtype=np.int64))

    def evaluate(self, examples: Examples) -> dict[str, float]:
        """Returns metrics by name.

        `loss` is the mean over windows with entities, `accuracy` the share of entities that point
        at the right place. `precision`, `recall` and `f1` count all links of the documents.
        """

        def scored(batch: Batch) -> dict[str, Tensor]:
            scores, source, pointing = self(batch), self.pointed(batch), self.pointing(batch)
            none, best = source.shape[1], scores.argmax(-1)
            agreed, linked = pointing & (best == source), pointing & (best != none)
            return {
                "loss": mean_losses(scores, source).sum(),
                "windows": pointing.any(1).sum(),
                "entities": pointing.sum(),
                "well": agreed.sum(),
                "right": (agreed & linked).sum(),
                "found": linked.sum(),
                "true": batch[LINKS].sum(),
            }

        sums = sums_over(map(scored, examples.batches(EVALUATION_BATCH, device=self.device)))
        return {
            "loss": sums["loss"] / max(sums["windows"], 1),
            "accuracy": sums["well"] / max(sums["entities"], 1),
            **found_scores(*(int(sums[name]) for name in ("right", "found", "true"))),
        }


def _sources(document: Document, word: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """Returns the entries of the columns `source` and `links` for one window, given its `word`."""
    none = len(word)
    places = {int(word[place]): int(place) for place in np.flatnonzero(word >= 0)}
    beginnings = [places.get(min(e.words, default=-1)) for e in document.entities]
    source = np.full(none, IGNORED, dtype=np.int64)
    source[[place for place in beginnings if place is not None]] = none
    count = 0
    for first, second in dict.fromkeys(document.links):
        start, end = beginnings[first], beginnings[second]
        if end is None:
            continue
        count += 1
        if start is not None and start != end and source[end] == none:
            source[end] = start
    return source, count
