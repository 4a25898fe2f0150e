"""Partitions: documents are held out first, and the rest is dealt out to clients.

All of these are functions of (documents, seed) and return positions into the list of documents.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from fedpriv.data.document import Document
from fedpriv.runtime.seeds import generator

Deal = tuple[tuple[int, ...], ...]
"""For each client, ascending positions into the list of documents."""


class Partition(Protocol):
    """Deals documents out to clients; a frozen dataclass of settings."""

    def deal(self, documents: Sequence[Document], seed: int) -> Deal:
        """Returns each client's documents: every document exactly once, no client without any.

        Raises:
            ValueError: if there are too few documents (or providers) for the clients.
        """


@dataclass(frozen=True)
class ByProvider:
    """Each client holds whole providers, disjoint from all others' (as in PFL-DocVQA).

    Providers are dealt out from the largest to the smallest, each to the client that then has the
    fewest documents; the seed orders providers of equal size. So the clients' sizes are as equal
    as the providers' sizes allow.

    Args:
        clients: the number of clients, each of which needs at least one provider.
    """

    clients: int

    def __post_init__(self) -> None:
        _at_least_one(self.clients)

    def deal(self, documents: Sequence[Document], seed: int) -> Deal:
        """Deals out the providers."""
        groups = by_provider(documents, range(len(documents)))
        self.check_providers(len(groups))
        return _to_the_smallest([[] for _ in range(self.clients)], list(groups.values()), seed)

    def check_providers(self, count: int) -> None:
        """Checks that each client can have a provider of its own.

        Raises:
            ValueError: if there are fewer providers than clients.
        """
        if count < self.clients:
            raise ValueError(
                f"clients={self.clients}, but the documents are of {count} providers: each client "
                f"needs one of its own; expected data.partition.clients of {count} or fewer"
            )


@dataclass(frozen=True)
class ByClient:
    """Each client holds the documents that name it (`Document.client`), whoever issued them.

    A provider may then be at several clients, which mechanisms that protect providers refuse.
    Clients are numbered in the order of their names. Documents that name none, such as planted
    ones, go to the client that then has the fewest documents, those of a provider together.

    Args:
        clients: how many clients the training documents name. None takes as many as they name.
    """

    clients: int | None = None

    def __post_init__(self) -> None:
        if self.clients is not None:
            _at_least_one(self.clients)

    def deal(self, documents: Sequence[Document], seed: int) -> Deal:
        """Gives each client what names it."""
        named: dict[str, list[int]] = defaultdict(list)
        for position, document in enumerate(documents):
            named[document.client].append(position)
        unnamed = by_provider(documents, named.pop("", []))
        if not named:
            raise ValueError("no document names its client: set data.source.client")
        if self.clients not in (None, len(named)):
            some = ", ".join(map(repr, sorted(named)[:5])) + (", …" if len(named) > 5 else "")
            raise ValueError(
                f"clients={self.clients}, but the training documents name {len(named)}: {some}; "
                f"expected data.partition.clients={len(named)}, or null for as many as they name"
            )
        return _to_the_smallest([named[name] for name in sorted(named)], [*unnamed.values()], seed)


@dataclass(frozen=True)
class Iid:
    """Shuffles the documents and cuts them into equal parts, regardless of their providers.

    Args:
        clients: the number of clients, each of which needs at least one document.
    """

    clients: int

    def __post_init__(self) -> None:
        _at_least_one(self.clients)

    def deal(self, documents: Sequence[Document], seed: int) -> Deal:
        """Deals out the documents."""
        _enough(self.clients, documents)
        order = generator(seed, "partition").permutation(len(documents))
        return _sorted([part.tolist() for part in np.array_split(order, self.clients)])


@dataclass(frozen=True)
class DirichletOverProviders:
    """Each provider's documents are spread over the clients in proportions ~ Dirichlet(alpha).

    With a small alpha, nearly all of a provider's documents are at one client; with a large alpha,
    the partition is nearly iid. A client without documents gets one from the largest client.

    Args:
        clients: the number of clients, each of which needs at least one document.
        alpha: the parameter of the Dirichlet distribution, above 0. The smaller it is, the more of
            a provider's documents are at one client.
    """

    clients: int
    alpha: float = 0.5

    def __post_init__(self) -> None:
        _at_least_one(self.clients)
        if not 0 < self.alpha < float("inf"):
            raise ValueError(f"alpha={self.alpha}: expected a positive, finite number")

    def deal(self, documents: Sequence[Document], seed: int) -> Deal:
        """Deals out each provider's documents."""
        _enough(self.clients, documents)
        rng = generator(seed, "partition")
        hands: list[list[int]] = [[] for _ in range(self.clients)]
        for group in by_provider(documents, range(len(documents))).values():
            shares = rng.dirichlet(np.full(self.clients, self.alpha))
            for document in rng.permutation(group):
                hands[int(rng.choice(self.clients, p=shares))].append(int(document))
        for hand in hands:
            if not hand:
                hand.append(max(hands, key=len).pop())
        return _sorted(hands)


@dataclass(frozen=True)
class HoldOut:
    """Keeps documents back for evaluation.

    Args:
        by: how documents are held out: "document" draws single documents at random, so that most of
            their providers are seen in training; "provider" draws whole providers, which are then
            unseen; "split" takes the documents of the official test split.
        fraction: the share of the documents or, with by="provider", of the providers that is held
            out, in [0, 1). It is ignored with by="split".
        unseen: the share of the providers all of whose documents are held out, in addition to those
            that `by` holds out, in [0, 1). Metrics are then also given for seen and unseen
            providers separately. A gap between the two shows what the model has memorised.
    """

    by: Literal["document", "provider", "split"] = "document"
    fraction: float = 0.2
    unseen: float = 0.0

    def __post_init__(self) -> None:
        if self.by not in ("document", "provider", "split"):
            raise ValueError(f"by={self.by!r}: expected 'document', 'provider' or 'split'")
        for name, value in {"fraction": self.fraction, "unseen": self.unseen}.items():
            if not 0 <= value < 1:
                raise ValueError(f"{name}={value}: expected a value in [0, 1)")
        if self.unseen and self.by == "provider":
            raise ValueError(
                f"unseen={self.unseen}: with by='provider' all held-out providers are unseen; "
                "take by='document' for some documents of the others, or unseen=0"
            )

    def split(self, documents: Sequence[Document], seed: int) -> tuple[list[int], list[int]]:
        """Returns the positions of the training and of the held-out documents.

        Raises:
            ValueError: if nothing is left to train on, or `unseen` is less than one provider.
        """
        held = self._held(documents, seed)
        if self.unseen:
            groups = list(by_provider(documents, range(len(documents))).values())
            count = self.unseen_of(len(groups))
            rng = generator(seed, "held-out providers")
            chosen = rng.choice(len(groups), count, replace=False)
            held |= {i for group in chosen for i in groups[group]}
        train = [i for i in range(len(documents)) if i not in held]
        if not train:
            raise ValueError(
                f"holding out by {self.by!r} leaves none of {len(documents)} documents to train on"
            )
        return train, sorted(held)

    def unseen_of(self, providers: int) -> int:
        """Returns how many of so many providers `unseen` holds out.

        Raises:
            ValueError: if it is to hold out some, and would hold out none.
        """
        count = round(self.unseen * providers)
        if self.unseen and count == 0:
            raise ValueError(
                f"unseen={self.unseen} of {providers} providers is none: take at least "
                f"{1 / providers:.3g}"
            )
        return count

    def asked(self, documents: Sequence[Document], seed: int) -> list[int]:
        """Returns the positions of the documents that an adversary may ask about.

        These are the documents that `by` keeps back, of providers of which it also leaves some:
        each of these providers could be trained on and still be asked about. They do not depend on
        `unseen`. Otherwise their number alone would tell who is a member.
        """
        held = self._held(documents, seed)
        groups = by_provider(documents, range(len(documents))).values()
        split = [group for group in groups if not held.issuperset(group)]
        return sorted(held.intersection(i for group in split for i in group))

    def groups(
        self, documents: Sequence[Document], train: Iterable[int], held: Iterable[int]
    ) -> dict[str, list[int]]:
        """Returns the held-out documents of "seen" and of "unseen" providers.

        A provider is seen if any of its documents is trained on. Empty without `unseen`; a group
        without documents is left out.
        """
        if not self.unseen:
            return {}
        known = {documents[i].provider for i in train}
        groups: dict[str, list[int]] = {"seen": [], "unseen": []}
        for i in held:
            groups["seen" if documents[i].provider in known else "unseen"].append(i)
        return {name: group for name, group in groups.items() if group}

    def _held(self, documents: Sequence[Document], seed: int) -> set[int]:
        """Returns the documents that `by` keeps back, regardless of `unseen`."""
        rng = generator(seed, "held-out documents")
        if self.by == "split":
            return {i for i, document in enumerate(documents) if document.split == "test"}
        if self.by == "document":
            size = round(self.fraction * len(documents))
            return set(rng.choice(len(documents), size, replace=False).tolist())
        groups = list(by_provider(documents, range(len(documents))).values())
        chosen = rng.choice(len(groups), round(self.fraction * len(groups)), replace=False)
        return {i for group in chosen for i in groups[group]}


def by_provider(documents: Sequence[Document], positions: Iterable[int]) -> dict[str, list[int]]:
    """Groups positions by provider, providers in order of first appearance."""
    groups: dict[str, list[int]] = defaultdict(list)
    for position in positions:
        groups[documents[position].provider].append(position)
    return dict(groups)


def table(
    method: str, documents: Sequence[Document], deal: Deal, held: Iterable[int]
) -> dict[str, Any]:
    """Returns the document ids by client and provider, as written to partition.json."""

    def ids(positions: Iterable[int]) -> dict[str, list[str]]:
        groups = by_provider(documents, positions)
        return {provider: [documents[i].id for i in group] for provider, group in groups.items()}

    clients = {str(client): ids(hand) for client, hand in enumerate(deal)}
    return {"method": method, "clients": clients, "test": ids(held)}


def _at_least_one(clients: int) -> None:
    if clients < 1:
        raise ValueError(f"clients={clients}: expected at least 1")


def _enough(clients: int, documents: Sequence[Document]) -> None:
    if len(documents) < clients:
        raise ValueError(
            f"clients={clients}: expected at most {len(documents)}, one for each document"
        )


def _to_the_smallest(
    hands: Sequence[list[int]], groups: Sequence[Sequence[int]], seed: int
) -> Deal:
    """Deals out groups, the largest first, each to the hand that then has the fewest documents."""
    order = generator(seed, "partition").permutation(len(groups))
    smallest = [(len(hand), client) for client, hand in enumerate(hands)]
    heapq.heapify(smallest)
    for group in sorted((groups[i] for i in order), key=len, reverse=True):
        held, client = smallest[0]
        hands[client].extend(group)
        heapq.heapreplace(smallest, (held + len(group), client))
    return _sorted(hands)


def _sorted(hands: Iterable[Iterable[int]]) -> Deal:
    return tuple(tuple(sorted(hand)) for hand in hands)
