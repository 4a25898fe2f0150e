"""Data sets bound to a model and dealt out to clients: documents, or plain arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedpriv.checkpoint import RunFolder
from fedpriv.client import seeded_model
from fedpriv.data.cache import cache_folder, encode_cached
from fedpriv.data.document import Document, DocumentSet, DocumentSource
from fedpriv.data.examples import PROVIDER, Examples
from fedpriv.data.partition import Deal, HoldOut, Partition, by_provider, table
from fedpriv.models.base import DocumentModel, Tagger
from fedpriv.report.showcase import write_showcase


@dataclass(frozen=True)
class Bound:
    """Data and model brought together.

    Attributes:
        build_model: returns a fresh model that fits the data.
        train: every training example.
        rows: for each client, its positions in `train`.
        test: held-out examples; None where nothing is held out.
        partition: the table of who holds what, for the run folder; None where there is none.
        showcase: writes files about one held-out page into the run folder, given the final model.
        test_groups: positions in `test` by the name of the group, each evaluated by itself too.
        documents: what the column `document` of `train` counts; empty where there are none.
        labels: of the entities, with which the model is built.
    """

    build_model: Callable[[], nn.Module]
    train: Examples
    rows: tuple[NDArray[np.int64], ...]
    test: Examples | None = None
    partition: Mapping[str, Any] | None = None
    showcase: Callable[[nn.Module, RunFolder], None] | None = None
    test_groups: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    documents: tuple[Document, ...] = ()
    labels: tuple[str, ...] = ()


class Data(Protocol):
    """Knows its examples and whose they are; two kinds are below."""

    def bind(self, build_model: Callable[..., nn.Module], seed: int) -> Bound:
        """Encodes the data for the model and deals it out."""
        ...


@dataclass(frozen=True)
class DocumentData:
    """Documents from a reader, some held out, the others dealt out to clients.

    Args:
        source: reads or makes the documents.
        partition: deals the training documents out.
        test: keeps documents back for evaluation.
        cache: folder for encoded pages; None for the default (`fedpriv.data.cache`), "off" for
            none.
        pooled: one client holds what the partition would deal out: centralised training, the upper
            bound that federated training is compared with.
    """

    source: DocumentSource
    partition: Partition
    test: HoldOut = HoldOut()  # noqa: RUF009 - frozen
    cache: str | Path | None = None
    pooled: bool = False

    def bind(self, build_model: Callable[..., nn.Module], seed: int) -> Bound:
        """Reads, deals and encodes; the model is built with `labels=` the data set's labels."""
        loaded = self.source.load()
        train, held = self.test.split(loaded.documents, seed)
        hands: Deal = (tuple(range(len(train))),)
        if not self.pooled:
            hands = self.partition.deal([loaded.documents[i] for i in train], seed)
        deal = tuple(tuple(train[i] for i in hand) for hand in hands)
        build = functools.partial(build_model, labels=loaded.labels)
        model = seeded_model(build, seed)
        if not isinstance(model, DocumentModel):
            raise TypeError(f"{type(model).__name__} cannot encode documents")
        if isinstance(model, Tagger) and not loaded.labels:
            raise ValueError(
                f"{loaded.name} has no entities to tag, only questions: take a model that answers "
                "(model=vt5, model=donut, model.task=answers)"
            )
        rows, examples = self._encode(model, loaded.documents, deal)
        test = [loaded.documents[i] for i in held]
        encoded = encode_cached(model, test, self._folder()) if test else None
        groups = self.test.groups(loaded.documents, train, held)
        return Bound(
            build_model=build,
            train=examples,
            rows=rows,
            test=encoded,
            partition=self._table(loaded, deal, held, groups),
            showcase=functools.partial(write_showcase, test[0]) if test else None,
            test_groups=_rows_of(groups, held, encoded) if encoded else {},
            documents=tuple(loaded.documents[i] for hand in deal for i in hand),
            labels=loaded.labels,
        )

    def _folder(self) -> Path | None:
        if self.cache == "off":
            return None
        return Path(self.cache) if self.cache is not None else cache_folder() / "examples"

    def _table(
        self,
        loaded: DocumentSet,
        deal: Deal,
        held: Iterable[int],
        groups: Mapping[str, list[int]],
    ) -> dict[str, Any]:
        skipped = [str(error) for error in loaded.skipped]
        named = {name: list(by_provider(loaded.documents, group)) for name, group in groups.items()}
        method = "pooled: one client holds all" if self.pooled else repr(self.partition)
        return table(method, loaded.documents, deal, held) | {
            "skipped": skipped,
            "test_groups": named,
        }

    def _encode(
        self, model: DocumentModel, documents: tuple[Document, ...], deal: Deal
    ) -> tuple[tuple[NDArray[np.int64], ...], Examples]:
        """Encodes all training documents once, client by client; returns each one's rows."""
        order = [position for hand in deal for position in hand]
        examples = encode_cached(model, [documents[i] for i in order], self._folder())
        _, owner_of = np.unique([documents[i].provider for i in order], return_inverse=True)
        examples = examples.with_column(PROVIDER, owner_of[examples.column("document")])
        # A document may give several rows (windows); `document` counts the documents encoded.
        ends = np.cumsum([len(hand) for hand in deal])
        owner = np.searchsorted(ends, examples.column("document"), side="right")
        return tuple(np.flatnonzero(owner == client) for client in range(len(deal))), examples


def _rows_of(
    groups: Mapping[str, list[int]], held: list[int], test: Examples
) -> dict[str, NDArray[np.int64]]:
    """Returns the positions in `test` of each group's documents."""
    places = {document: place for place, document in enumerate(held)}
    of_document = test.column("document")
    return {
        name: np.flatnonzero(np.isin(of_document, [places[i] for i in group]))
        for name, group in groups.items()
    }


@dataclass(frozen=True)
class ArrayData:
    """Arrays already in memory, for models that are not of documents.

    Args:
        train: columns of equal length.
        rows: for each client, its rows of `train`.
        test: held-out columns.
    """

    train: Mapping[str, NDArray[Any]]
    rows: tuple[NDArray[np.int64], ...]
    test: Mapping[str, NDArray[Any]] | None = None

    def bind(self, build_model: Callable[..., nn.Module], seed: int) -> Bound:
        """Returns the arrays as they are."""
        test = Examples.of(self.test) if self.test is not None else None
        return Bound(build_model, Examples.of(self.train), self.rows, test)
