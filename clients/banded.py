"""The clients' part of banded matrix factorisation, see `fedpriv.privacy.banded`.

In round t, some of a client's units whose turn it is are drawn. Their clipped contributions add up
to x_t, which the client remembers for b - 1 rounds. Under fresh noise it sends c_0 x_t +
c_1 x_{t-1} + … + c_{b-1} x_{t-b+1}. A round in which it was not asked, or failed, has no x.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedpriv.federation.client import ClientContext
from fedpriv.privacy.banded import coefficients, turn
from fedpriv.runtime.tensors import digest
from fedpriv.runtime.vectors import Vector

SUM = "sum"
"""Name of what a client remembers of a round: the sum of its clipped contributions."""


def in_turn(context: ClientContext, units: NDArray[np.int64], bands: int) -> NDArray[np.int64]:
    """Returns those of the units whose turn this round is."""
    now = (context.instruction.round - 1) % bands
    own = [u for u in units.tolist() if turn(context.seed, context.key, u, bands) == now]
    return np.array(own, np.int64)


def with_owed(context: ClientContext, own: Vector, bands: int) -> tuple[Vector, str]:
    """Adds what earlier rounds still owe to a round's sum, and remembers that sum.

    Returns what is sent before noise, and a name of what was added. The noise must depend on it:
    two messages that differ may not have the same noise.

    Args:
        context: of the client.
        own: x_t.
        bands: b.
    """
    round, weights = context.instruction.round, coefficients(bands).astype(own.dtype)
    context.memory.write(SUM, round, own, oldest=round - bands + 1)
    found = {t: context.memory.read(SUM, t) for t in range(max(1, round - bands + 1), round)}
    owed = {t: past for t, past in found.items() if past is not None}
    total = own * weights[0]
    for t, past in owed.items():
        total += past * weights[round - t]
    return total, digest({str(t): past for t, past in owed.items()})
