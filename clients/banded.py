"""The clients' part of banded matrix factorisation, see `fedpriv.privacy.banded`.

In round t, some of a client's units whose turn it is are drawn. Their clipped contributions add up
to x_t, which the client remembers for b - 1 rounds. Under fresh noise it sends c_0 x_t +
c_1 x_{t-1} + … + c_{b-1} x_{t-b+1}. A round in which it was not asked, or failed, has no x.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.federation.client import ClientContext
from fedpriv.privacy.banded import coefficients, turn
from fedpriv.runtime.client_memory import ClientMemory
from fedpriv.runtime.vectors import Vector, as_tensor, on_host

SUM = "sum"
"""Name of what a client remembers of a round: the sum of its clipped contributions."""


def in_turn(context: ClientContext, units: NDArray[np.int64], bands: int) -> NDArray[np.int64]:
    """Returns those of the units whose turn this round is."""
    now = (context.instruction.round - 1) % bands
    own = [unit for unit in units.tolist() if turn(context.seed, unit, bands) == now]
    return np.array(own, np.int64)


def owed(context: ClientContext, bands: int) -> dict[int, NDArray[Any]]:
    """Returns the sums of earlier rounds of which this one still tells, by round.

    A repeated round tells of itself alone. What it would add has been released before, and whoever
    is in it would have to be charged for it again.

    Args:
        context: of the client, which remembers.
        bands: b.
    """
    asked = context.instruction
    first = asked.round if asked.attempt else max(1, asked.round - bands + 1)
    found = {t: memory_of(context).read(SUM, t) for t in range(first, asked.round)}
    return {t: past for t, past in found.items() if past is not None}


def with_owed(
    context: ClientContext, own: Vector, earlier: Mapping[int, NDArray[Any]], bands: int
) -> Vector:
    """Returns c_0 x_t + … + c_{b-1} x_{t-b+1}, and remembers x_t.

    Args:
        context: of the client.
        own: x_t.
        earlier: of `owed`.
        bands: b.
    """
    round, weights = context.instruction.round, coefficients(bands).tolist()
    memory_of(context).write(SUM, round, on_host(own), needed_from=round - bands + 2)
    total: Vector = own * weights[0]
    for t, past in earlier.items():
        total += as_tensor(past).to(own) * weights[round - t]
    return total


def memory_of(context: ClientContext) -> ClientMemory:
    """Returns the client's memory.

    Raises:
        ValueError: if it is not to remember anything.
    """
    if context.memory is None:
        raise ValueError(
            "bands and individual_epsilon need clients that remember their earlier rounds, and "
            "this grid's do not: let the federation start its own grid, or take one of Flower's"
        )
    return context.memory
