"""Whether what was recovered fits its own message better than others: one test for pages and text.

Every claim is scored against every truth that shares no document with the claim's message: what it
gets there is its control, and the truths are dealt out anew for the p-value
(`fedpriv.threat.statistics.matching`). Where messages are few, held-out documents are truths too.

Messages of one client are one unit, and so are those with a document in common: to see a client
again is no new evidence, and no control.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedpriv.threat.results import Number
from fedpriv.threat.scoring.verdicts import number
from fedpriv.threat.statistics import Estimate, matching, share
from fedpriv.threat.truth import Truth

C = TypeVar("C")
T = TypeVar("T")

Table = NDArray[np.float64]


def units_of(truths: Sequence[Truth], clients: Sequence[int | None]) -> list[int]:
    """Returns the unit of each truth, -1 of those that are left out.

    Truths are of one unit if they share a document, or are of one client: its own words are in all
    that it sends. One that belongs to several units, such as a sum of clients that were in other
    sums, is left out, so that no later message takes evidence away.

    Args:
        truths: in the order of their messages.
        clients: of each, None of a sum and of held-out documents.
    """
    units: list[tuple[set[str], set[int]]] = []
    found = []
    for truth, client in zip(truths, clients, strict=True):
        own, whose = set(truth.documents), set() if client is None else {client}
        linked = [n for n, (has, of) in enumerate(units) if has & own or of & whose]
        if not linked:
            linked = [len(units)]
            units.append((set(), set()))
        found.append(linked[0] if len(linked) == 1 else -1)
        if len(linked) == 1:
            units[linked[0]][0].update(own)
            units[linked[0]][1].update(whose)
    return found


def table_of(
    claims: Sequence[C], truths: Sequence[T], units: Sequence[int], score: Callable[[C, T], float]
) -> Table:
    """Returns how well claims of a unit fit each unit's truths, (claimed units, units).

    The claimed units come first in both directions. A value is a mean over the unit's claims: its
    own is that of each against its own truth, another's that of each against one of the other's.
    NaN where no score applies.

    Args:
        claims: n.
        truths: m; the first n are those of the claims.
        units: of each truth; those of -1 are left out.
        score: of a claim against a truth, in [0, 1]; NaN where it does not apply.
    """
    members: dict[int, list[int]] = {}
    for place, unit in enumerate(units):
        if unit >= 0:
            members.setdefault(unit, []).append(place)
    claimed = list(dict.fromkeys(unit for unit in units[: len(claims)] if unit >= 0))
    found = np.full((len(claimed), len(members)), np.nan)
    for row, unit in enumerate(claimed):
        own = [place for place in members[unit] if place < len(claims)]
        for column, other in enumerate([*claimed, *(u for u in members if u not in claimed)]):
            there = own if other == unit else members[other]
            pairs = [(place, there[k % len(there)]) for k, place in enumerate(own)]
            values = np.array([score(claims[one], truths[with_]) for one, with_ in pairs])
            if not np.isnan(values).all():
                found[row, column] = np.nanmean(values)
    return found


def against_others(table: Table, unit: str) -> Number | None:
    """Returns the share that claims get on their own truth, with that on others as its control.

    None where nothing is left to be scored.

    Args:
        table: of `table_of`. Units to whose own truth no score applies are left out, and others'
            truths that some claim has no score on.
        unit: what a unit is called.
    """
    kept = ~np.isnan(np.diagonal(table))
    others = np.ones(table.shape[1], np.bool_)
    others[: len(table)] = kept
    table = table[kept][:, others]
    table = table[:, ~np.isnan(table).any(0) | (np.arange(table.shape[1]) < len(table))]
    if not len(table):
        return None
    # A claimed unit on which another claim has no score is held against that claim's mean.
    table = np.where(np.isnan(table), np.nanmean(table, axis=1, keepdims=True), table)
    elsewhere = ~np.eye(*table.shape, dtype=np.bool_)
    control = Estimate.known(float(table[elsewhere].mean())) if elsewhere.any() else None
    own = share(np.diagonal(table).clip(0, 1))
    return number(own, unit, control, matching(table) if control else None)
