"""Gaussian noise, and one client's share of it.

Drawn from `fedpriv.runtime.seeds.generator`: 128 bits of key, where torch's CPU generator keeps 32.
This is the noise of a simulation: it is reproducible from the run's seed, so it is no secret to
anybody who knows the seed, and it is a Gaussian in double precision, not a discrete one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 1 << 16
"""Elements drawn at a time: they stay in a core's cache."""


def share_std(noise_std: float, shares: int) -> float:
    """Returns the standard deviation of one of `shares` noises that add up to `noise_std`.

    PFL-DocVQA, Alg. 1 line 18 with shares = |K|, PrIeD-KIE, Alg. 1 (σ_k = σ/√m) with shares = m.
    If fewer than |K| answers must suffice, `shares` is that number, so that any so many survivors
    carry all the noise.

    Raises:
        ValueError: if `shares` is below 1.
    """
    if shares < 1:
        raise ValueError(f"shares={shares}: expected at least 1")
    return noise_std / math.sqrt(shares)


def shares(threshold: float, cohort: int) -> int:
    """Returns the number of shares of a cohort's noise: t = ⌈threshold · |K|⌉, at least 1.

    Any t answers carry all of the noise.
    """
    return max(1, math.ceil(threshold * cohort - 1e-9))  # .1 · 30 is above 3


def add_gaussian(vector: Tensor, std: float, rng: np.random.Generator) -> Tensor:
    """Adds N(0, std² I) to a vector in place, and returns it.

    Noise is drawn and added in double precision. The result is rounded once, to the vector's type.

    Args:
        vector: of floats, shape (d,).
        std: standard deviation of each element's noise.
        rng: of this use alone.

    Raises:
        ValueError: if `std` is negative or not finite.
    """
    if not (std >= 0 and math.isfinite(std)):
        raise ValueError(f"std={std}: expected 0 or more")
    if std > 0:
        if vector.device.type != "cpu":
            from fedpriv.privacy import philox  # torch is imported where there are tensors

            key = int.from_bytes(rng.bytes(16), "little")  # of this call alone
            return philox.add_gaussian_(vector, std, key)
        array = vector.numpy()  # over the same memory
        for start in range(0, array.size, BLOCK):
            part = array[start : start + BLOCK]
            part += std * rng.standard_normal(part.size)
    return vector
