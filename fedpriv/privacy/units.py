"""The protected units in a federation's data: whether they lie as the mechanism assumes."""

from __future__ import annotations

import numpy as np

from fedpriv.data.examples import PROVIDER
from fedpriv.data.federated import Bound
from fedpriv.privacy.mechanism import Mechanism


def unit_problems(mechanism: Mechanism | None, bound: Bound) -> list[str]:
    """Says so if one provider is at several clients: each would clip its part to the whole norm."""
    owners = bound.train.columns.get(PROVIDER)
    if owners is None or mechanism is None or mechanism.unit != "provider":
        return []
    held = np.concatenate([np.unique(owners[rows]) for rows in bound.rows])
    shared = int(np.sum(np.unique(held, return_counts=True)[1] > 1))
    if not shared:
        return []
    return [
        f"data.partition: {shared} providers are at several clients, and the mechanism protects a "
        "provider at one: take fedpriv.data.partition.ByProvider"
    ]


def largest_groups(mechanism: Mechanism | None, bound: Bound) -> dict[str, int]:
    """Returns how many examples the largest document and the largest provider have.

    Where the unit is an example. For the person who runs the simulation: these two numbers are
    computed from private data, and no ε covers them.
    """
    if mechanism is None or mechanism.unit != "example":
        return {}
    columns = bound.train.columns
    named = {"document": columns.get("document"), "provider": columns.get(PROVIDER)}
    return {
        unit: int(np.unique(column, return_counts=True)[1].max())
        for unit, column in named.items()
        if column is not None and len(column)
    }
