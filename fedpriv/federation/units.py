"""The protected units in a federation's data: whether they lie as the mechanism assumes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.examples import PROVIDER
from fedpriv.federation.dataset import PLANTED, FederatedDataset
from fedpriv.privacy.ledger import Group, Providers
from fedpriv.privacy.mechanism import Mechanism

DOCUMENT, QUESTION = "document", "question"
"""Columns by which models say what page and what question a row is of."""


def unit_problems(mechanism: Mechanism | None, bound: FederatedDataset) -> list[str]:
    """Says so if one provider is at several clients: each would clip its part to the whole norm."""
    owners = bound.train.columns.get(PROVIDER)
    if owners is None or mechanism is None or mechanism.unit != "provider":
        return []
    held = np.concatenate([np.unique(owners[rows]) for rows in bound.rows])
    shared = int(np.sum(np.unique(held, return_counts=True)[1] > 1))
    if not shared:
        return []
    return [
        f"data.partition: the number of providers with documents at several clients is {shared}, "
        "and the mechanism protects only those at one: take fedpriv.data.partition.ByProvider, "
        "without data.source.client"
    ]


def example_meaning(bound: FederatedDataset) -> str:
    """Returns what one training example is, for this model and data.

    Models that tag words cut a page into windows. Models that answer questions have a row for each
    question, or several where the page does not fit beside it.
    """
    if QUESTION in bound.train.columns:
        rows = np.unique(bound.train.column(QUESTION), return_counts=True)[1]
        if rows.max(initial=1) > 1:
            return "a question beside one window of its page, neither the question nor the page"
        return "one question about a page with its answer, not a page or a document"
    if DOCUMENT in bound.train.columns:
        return "a window of at most L tokens, not a document"
    return "one row of the training data"


def named_providers(bound: FederatedDataset) -> Providers:
    """Returns how many of the training documents say who issued them."""
    own = [page for page in bound.documents if not page.provider.startswith(PLANTED)]
    # In a deployment the server does not know the clients' documents.
    named = {page.names_provider for page in own} or {True, bool(len(bound.train))}
    return "all" if named == {True} else "none" if named == {False} else "some"


def largest_groups(mechanism: Mechanism | None, bound: FederatedDataset) -> dict[str, Group]:
    """Returns the sizes of larger things than the unit: of the largest question, document, ….

    All that is trained on of a document counts as the document: its pages, and whatever an
    augmentation has made of them. For the person who runs the simulation: these numbers are
    computed from private data, and no ε covers them.
    """
    held_by = np.full(len(bound.train), -1)
    for client, rows in enumerate(bound.rows):
        held_by[rows] = client
    held = np.flatnonzero(held_by >= 0)  # what nobody holds is not trained on
    if mechanism is None or mechanism.unit == "client" or not len(held):
        return {}
    columns = bound.train.columns
    larger: dict[str, NDArray[np.int64]] = {}
    if len(bound.rows) > 1:  # the only client is who trains: nobody to be protected from it
        larger["client"] = held_by
    if mechanism.unit == "provider":
        # One record for each provider, wherever its first example is.
        _, first = np.unique(bound.train.column(PROVIDER)[held], return_index=True)
        records = held[first]
    else:
        records = held
        if PROVIDER in columns:
            larger["provider"] = bound.train.column(PROVIDER)
        if DOCUMENT in columns:
            pages = bound.train.column(DOCUMENT)
            names = [page.whole for page in bound.documents]
            larger["document"] = np.unique(names, return_inverse=True)[1][pages] if names else pages
        if QUESTION in columns:
            larger["question"] = bound.train.column(QUESTION)
    groups = {}
    for unit, named in reversed(larger.items()):
        members = named[records]
        # Each pair of a group and a client once, so that the clients of a group are counted.
        at_clients = np.unique(np.stack([members, held_by[records]]), axis=1)[0]
        sizes, clients = (np.unique(m, return_counts=True)[1] for m in (members, at_clients))
        group = Group(int(sizes.max()), int(clients.max()))
        if unit != "question" or group.records > 1:  # one example alone is the unit itself
            groups[unit] = group
    return groups
