"""The discrete mechanism between clients and server: rotation, scale and signs of one round."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.privacy.discrete import Steps, noisy, restored, signs_of
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.runtime.seeds import generator

Floats = NDArray[np.floating[Any]]


def discrete_share(
    total: Floats,
    mechanism: Mechanism,
    shares: int,
    seed: int,
    round: int,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Returns a client's sum with its share of the noise, as whole numbers of the ring.

    Args:
        total: of the clipped contributions, not divided.
        mechanism: with a `scale`.
        shares: that the noise is split into.
        seed: of the run; the rotation is public.
        round: from 1.
        rng: of the noise alone.
    """
    steps = steps_of(mechanism, total.size)
    sigma = mechanism.noise_multiplier
    share = steps.share(sigma, shares) if sigma else 0.0
    return noisy(total, steps, share, _signs(total.size, seed, round), rng)


def discrete_sum(numbers: Floats, mechanism: Mechanism, seed: int, round: int) -> Floats:
    """Returns what continuous clients would have sent together, from numbers modulo 2¹⁶."""
    steps = steps_of(mechanism, numbers.size)
    vector = restored(numbers, steps, _signs(numbers.size, seed, round))
    return np.asarray(vector / mechanism.normaliser)


def steps_of(mechanism: Mechanism, size: int) -> Steps:
    """Returns the steps of a discrete mechanism.

    Args:
        mechanism: with a `scale`.
        size: of the vectors that are sent.
    """
    return Steps(mechanism.scale, mechanism.clip_norm, size, mechanism.bands)


def _signs(size: int, seed: int, round: int) -> NDArray[np.int8]:
    return signs_of(size, generator(seed, "rotation", round))
