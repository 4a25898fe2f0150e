"""Individual ε: what a run has cost one unit, by what that unit really gave.

The ledger's ε holds for any unit, as if each contribution were as long as the clip norm C. A unit
that was drawn k times, with clipped contributions of norms s_1 … s_k, has met k Gaussian releases
of shift s_j under noise σC. Here it is no secret in which rounds it was drawn, and a round in which
it was not drawn costs it nothing. Together the releases are μ-GDP with

    μ² = Σ_j (s_j / σC)²,

and ε follows from μ exactly (Dong, Roth and Su 2022, Corollary 1). Norms may depend on all that was
released before: that is fully adaptive composition, which needs μ to be bounded beforehand by a
*filter* (Feldman and Zrnic 2021; for Gaussians Koskela, Tobaben and Honkela 2023).
`Mechanism.individual_epsilon` is such a filter: each contribution is clipped to what the unit has
left, at most C, and a unit with nothing left gives no more. Then **every unit's ε is at most that,
for adding or removing it**, against whoever sees the sums under all of their noise and knows when
the unit was drawn. That is nobody who knows shares of the noise: no client, and no server without
masks. Without a filter, the ε told here is what a filter would have had to allow.

How long contributions are depends on the data, so individual ε are as private as the data: **each
is for its own unit's eyes**, and for whoever holds all data anyway, and no server gets them. (They
are in the run folder of a simulation.) A unit must be at one client, and keep its number when a run
is resumed. The promise to everybody is the ledger's ε, which may be smaller, since it counts on
drawing being secret.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from fedpriv.privacy.accounting.gdp import gaussian_epsilon
from fedpriv.runtime.client_memory import ClientMemory, OnDisk

GIVEN = "given"
"""Name of what a client remembers: (rows, 4), round, attempt, unit, (s / C)² of each contribution.
A repeated attempt releases the units' contributions again."""

MEANS = (
    "by how long its own contributions were, and by when it was drawn, which is no secret here. It "
    "is as private as its data: for its own eyes, and for whoever holds all data"
)

Rows = NDArray[np.float64]


@dataclass(frozen=True)
class Spent:
    """What one unit has given in a run.

    Attributes:
        releases: in how many it was.
        given: Σ (s / C)² of its contributions there.
    """

    releases: int
    given: float


def epsilon(given: float, noise_multiplier: float, delta: float) -> float:
    """Returns the ε of a unit.

    Args:
        given: Σ (s / C)² of its contributions.
        noise_multiplier: σ of the noise that they are under.
        delta: δ.
    """
    if not given:
        return 0.0
    if not noise_multiplier:
        return math.inf
    return gaussian_epsilon(math.sqrt(given) / noise_multiplier, delta)


def most_given(epsilon: float, noise_multiplier: float, delta: float) -> float:
    """Returns the largest Σ (s / C)² whose ε is at most this.

    Args:
        epsilon: ε.
        noise_multiplier: σ.
        delta: δ.
    """
    high = 1.0
    while gaussian_epsilon(high, delta) < epsilon:
        high *= 2
    mu = brentq(lambda mu: gaussian_epsilon(mu, delta) - epsilon, 0.0, high, xtol=1e-12)
    # What rounding adds must not exceed it.
    return float((mu * noise_multiplier) ** 2 * (1 - 1e-9))


def remember(memory: ClientMemory, round: int, attempt: int, given: Mapping[int, float]) -> None:
    """Notes what the units gave in one attempt at a round; noted again, it is the same.

    Args:
        memory: of the client.
        round: from 1.
        attempt: from 0.
        given: by unit, (s / C)².
    """
    now = np.array([[round, attempt, unit, share] for unit, share in given.items()]).reshape(-1, 4)
    rows = remembered(memory)
    own = _of(rows, round, attempt)
    if own.any():  # in their place: what came later has counted them
        first = int(np.argmax(own))
        rows = np.vstack([rows[:first], now, rows[first:][~own[first:]]])
    else:
        rows = np.vstack([rows, now])
    memory.write(GIVEN, 0, rows)


def remembered(memory: ClientMemory) -> Rows:
    """Returns all that the units of a client have given."""
    rows = memory.read(GIVEN, 0)
    return np.empty((0, 4)) if rows is None else rows


def given_before(rows: Rows, round: int, attempt: int = 0) -> dict[int, float]:
    """Returns Σ (s / C)² by unit, of all that was written before an attempt at a round.

    A repeated attempt counts later rounds that were run before it.
    """
    own = _of(rows, round, attempt)
    earlier = rows[: int(np.argmax(own))] if own.any() else rows
    found: dict[int, float] = {}
    for unit, share in earlier[:, 2:].tolist():
        found[int(unit)] = found.get(int(unit), 0.0) + share
    return found


def _of(rows: Rows, round: int, attempt: int) -> NDArray[np.bool_]:
    return np.asarray((rows[:, 0] == round) & (rows[:, 1] == attempt))


def of_clients(folder: Path, names: Mapping[int, str] | None) -> dict[str, Spent]:
    """Returns what each unit of simulated clients has given in all, by its name.

    Args:
        folder: with a folder of each client.
        names: of the units, by number; a unit without a name is a number. None where each client is
            a unit.
    """
    found: dict[str, Spent] = {}
    for own in sorted(folder.glob("*/")):
        for unit, share in remembered(OnDisk(own))[:, 2:].tolist():
            number = int(unit) if names is not None else int(own.name)
            name = (names or {}).get(number, str(number))
            before = found.get(name, Spent(0, 0.0))
            found[name] = Spent(before.releases + (share > 0), before.given + share)
    return dict(sorted(found.items()))
