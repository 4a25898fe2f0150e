"""A discrete Gaussian mechanism for sums in a ring of 16 bits: exact, and half the traffic.

A client has a sum x of clipped contributions, of d coordinates. It rotates x by signs and Hadamard
matrices that are public, which spreads it evenly over the coordinates, scales it to steps of the
ring, rounds it to 1/256 of a step, and sends a draw of the *discrete Gaussian around that*,

    Y ~ N_Z(x, s²):  P(Y = y) ∝ exp(-(y - x)² / 2s²)  for whole y,      modulo 2¹⁶.

The sum over the clients comes back modulo 2¹⁶ too, as a number in -2¹⁵ … 2¹⁵ - 1. The noise is of
whole numbers, drawn with whole numbers (`DrawTable`), so that its low bits give nothing away, as
those of continuous noise may (Mironov 2012). What the clients add up before is floating point all
the same: providers' changes in double precision, gradients of examples in single precision.

**ε is the Gaussian mechanism's, exactly.** Let s² = s₁² + 4. Draw G ~ N(x, s₁²) and then, given G,
a whole number around it from N_Z(G, 4). By Poisson's summation formula Σ_k exp(-(k - g)² / 8) is
the same for all g up to a factor of 1 ± 2 exp(-8π²) < 1 ± 10⁻³³, so the result is distributed as
N_Z(x, s²) up to such a factor for each coordinate (Peikert 2010, Theorem 3.1, has the general
case; by it, too, a draw may be made of two, one around the fraction of x with s = 4 and one around
0). So a draw is post-processing of a Gaussian release with standard deviation s₁, and so is a
sum of draws: added numbers do not depend on the protected unit. What else is sent is modulo 2¹⁶,
post-processing again. A share of the noise has s² = (σΔ)² / t + 4, so that any t of them cover the
noise σΔ, as few as remain after dropouts and without those of colluders.

The sensitivity Δ is the clip norm in steps, plus √d / 256 for the rounding, at which two sums may
part by 1/256 in each coordinate: a fraction of a percent (`Steps.inflation`). Where a contribution
reaches b rounds (`fedpriv.privacy.banded`), it is rounded in each, which makes it √(b d) / 256.

A sum that wraps around is wrong, and no less private. The steps are so small that this happens
with probability 2⁻⁴⁰ in a round of up to 6 standard deviations more units than are expected.

The distributed discrete Gaussian of Kairouz, Liu and Steinke 2021 rounds each contribution and adds
N_Z(0, s²); to be as exact, it needs steps that are √d / 2 times finer than the clip norm, so that
20 bits are needed at d = 2²⁸ where these are 16. Rotation and modulus are theirs.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.privacy.banded import coefficients

BITS = 16
"""Of the ring."""

PART = 256
"""Parts of a step to which sums are rounded before noise."""

SMALL = 4.0
"""s of the noise around a rounded number; all the rest is around 0."""

LEAST = 8.0
"""The least s of a client's share, in steps."""

MOST_CLIENTS = 1 << 15
"""Whose numbers are added in 32 bits without being cut off."""

MOST_INFLATION = 1.05
"""Of the noise, which is more noise for the same ε."""

TINY = 2.0**-100
"""No steps are so large: where even these do not fit, `LEAST` tells."""

RARE = 2.0**-40
"""Probability that any coordinate of a round wraps around."""

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Steps:
    """How sums are written in steps, the same at every client and at the server.

    Attributes:
        scale: steps for 1 in the units of the vectors; a power of two.
        clip_norm: C, in the units of the vectors.
        size: d.
        bands: rounds that a contribution reaches.
    """

    scale: float
    clip_norm: float
    size: int
    bands: int = 1

    @property
    def rounding(self) -> float:
        """What rounding may add to a contribution's norm, in the units of the vectors.

        With a margin for what a rotation in double precision is off.
        """
        return math.sqrt(self.size * self.bands) * (1 / PART + 1e-6) / self.scale

    @property
    def sensitivity(self) -> float:
        """Δ, in steps."""
        return self.scale * (self.clip_norm + self.rounding)

    @property
    def inflation(self) -> float:
        """How much larger the noise is than the continuous mechanism's, as a factor."""
        return self.sensitivity / (self.scale * self.clip_norm)

    def share(self, noise_multiplier: float, shares: int) -> float:
        """Returns s of one of so many shares of the noise."""
        return math.sqrt((noise_multiplier * self.sensitivity) ** 2 / shares + 4)

    def problems(self, noise_multiplier: float, clients: int) -> list[str]:
        """Returns why sums of so many clients cannot have this noise in a ring of 16 bits."""
        name = "masking.mechanism=discrete"
        if clients > MOST_CLIENTS:
            return [
                f"{name}: {clients} clients, and its messages are summed in 32 bits, of "
                f"{MOST_CLIENTS} at most; take gaussian"
            ]
        if self.inflation > MOST_INFLATION:
            return [
                f"{name}: rounding to a ring of {BITS} bits would take {self.inflation:.3g} times "
                f"the noise, and may take {MOST_INFLATION:g} times: take less noise, or "
                "masking.mechanism=gaussian"
            ]
        share = self.share(noise_multiplier, clients)
        if share < LEAST:
            return [
                f"{name}: a client's share of the noise is {share:.2g} steps of a ring of {BITS} "
                f"bits, and must be {LEAST:g} or more: take fewer clients or units, or "
                "masking.mechanism=gaussian"
            ]
        return []

    @classmethod
    def fitting(
        cls,
        clip_norm: float,
        noise_multiplier: float,
        size: int,
        *,
        units: float,
        clients: int,
        threshold: float = 1.0,
        bands: int = 1,
    ) -> Steps:
        """Returns the smallest steps with which a sum fits into the ring.

        Args:
            clip_norm: C.
            noise_multiplier: σ of the whole noise.
            size: d.
            units: contributions expected in a sum of all clients.
            clients: that may be in a sum.
            threshold: the share of them that must carry all of the noise.
            bands: rounds that a contribution reaches.
        """
        tail = math.sqrt(2 * math.log(2 * size / RARE))
        most = units + 6 * math.sqrt(units) + 16
        norm = most * clip_norm * float(coefficients(bands).sum()) / math.sqrt(_window(size))
        scale = 2.0 ** math.ceil(math.log2(2**BITS / clip_norm) + 1)
        while True:
            found = cls(scale, clip_norm, size, bands)
            noise = (noise_multiplier * found.sensitivity) ** 2 / threshold + 4 * clients
            if tail * (math.sqrt(noise) + scale * norm) < 2 ** (BITS - 1) or scale < TINY:
                return found
            scale /= 2


class DrawTable:
    """Exact draws from N_Z(c, s²), for c in 0, 1/`parts`, … below 1.

    Whole numbers of 128 bits are compared with the cumulative distribution, computed with as many:
    what they are off is below 2⁻¹²⁰, whatever a processor does with floating-point numbers.

    Args:
        s: as in `Steps.share`.
        parts: how many centres there are.
    """

    def __init__(self, s: float, parts: int = 1) -> None:
        self._reach = math.ceil(14 * s) + 1
        values = range(-self._reach, self._reach + 2)
        high, low = [], []
        with localcontext(prec=80):
            twice = -2 * Decimal(s) ** 2
            for part in range(parts):
                apart = (Decimal(value) - Decimal(part) / parts for value in values)
                weights = [(x * x / twice).exp() for x in apart]
                whole, so_far = sum(weights), Decimal(0)
                for weight in weights[:-1]:
                    so_far += weight
                    edge = min(int(so_far / whole * 2**128), 2**128 - 1)
                    high.append(edge >> 64)
                    low.append(edge & (2**64 - 1))
        shape = (parts, len(values) - 1)
        self._high = np.array(high, np.uint64).reshape(shape)
        self._low = np.array(low, np.uint64).reshape(shape)

    def draw(self, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
        """Returns so many draws around 0."""
        top = rng.integers(0, 2**64, size, np.uint64)
        at = np.searchsorted(self._high[0], top, side="right")
        return self._settled(rng, top, at, np.zeros(size, np.int64))

    def around(self, rng: np.random.Generator, parts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns a draw around each of the centres, given by their numbers."""
        top = rng.integers(0, 2**64, parts.size, np.uint64)
        at = np.empty(parts.size, np.int64)
        order = np.argsort(parts, kind="stable")
        ends = np.searchsorted(parts[order], np.arange(len(self._high) + 1))
        for part, (start, end) in enumerate(pairwise(ends)):
            mine = order[start:end]
            at[mine] = np.searchsorted(self._high[part], top[mine], side="right")
        return self._settled(rng, top, at, parts)

    def _settled(
        self,
        rng: np.random.Generator,
        top: NDArray[np.uint64],
        at: NDArray[np.int64],
        parts: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Returns the numbers; lower 64 bits are compared where the upper ones are the same."""
        before = np.maximum(at - 1, 0)
        for place in np.flatnonzero(self._high[parts, before] == top):
            part, row = int(parts[place]), self._high[int(parts[place])]
            own = int(rng.integers(0, 2**64, dtype=np.uint64))
            same = np.flatnonzero(row == top[place])
            at[place] = same[0] + int(np.sum(self._low[part, same] <= own))
        return at.astype(np.int64) - self._reach


@functools.lru_cache(maxsize=64)  # one for each size that a cohort has had
def table(s: float, parts: int = 1) -> DrawTable:
    """Returns a table, made once."""
    return DrawTable(s, parts)


def noisy(
    total: Floats, steps: Steps, share: float, signs: NDArray[np.int8], rng: np.random.Generator
) -> NDArray[np.float32]:
    """Returns a client's message: whole numbers in -2¹⁵ … 2¹⁵ - 1, exactly as floats.

    Args:
        total: Σ of the clipped contributions, (d,).
        steps: of this run.
        share: s of the client's share of the noise, from `Steps.share`; 0 for none.
        signs: of `signs_of`.
        rng: of this use alone.
    """
    parts = np.rint(_rotated(total, signs) * (steps.scale * PART)).astype(np.int64)
    if not share:
        return _wrapped(np.rint(parts / PART).astype(np.int64))
    whole, part = np.divmod(parts, PART)
    found = whole + table(SMALL, PART).around(rng, part)
    found += table(math.sqrt(share**2 - SMALL**2)).draw(rng, found.size)
    return _wrapped(found)


def restored(numbers: Floats, steps: Steps, signs: NDArray[np.int8]) -> NDArray[np.float64]:
    """Returns the sum of vectors, in their own units, of a sum of messages modulo 2¹⁶."""
    wrapped = _wrapped(np.asarray(numbers).astype(np.int64))
    return _unrotated(wrapped.astype(np.float64), signs) / steps.scale


def signs_of(size: int, rng: np.random.Generator) -> NDArray[np.int8]:
    """Returns the signs of a rotation, (2, d); public, and the same for all of a round.

    Args:
        size: d.
        rng: that everybody has.
    """
    return (2 * rng.integers(0, 2, (2, size), np.int8) - 1).astype(np.int8)


def _wrapped(numbers: NDArray[np.int64]) -> NDArray[np.float32]:
    return numbers.astype(np.uint16).view(np.int16).astype(np.float32)


def _window(size: int) -> int:
    """Returns the largest power of two that is at most d."""
    return 1 << (size.bit_length() - 1)


def _rotated(vector: Floats, signs: NDArray[np.int8]) -> NDArray[np.float64]:
    """Spreads a vector: its first coordinates by one Hadamard matrix, then its last ones."""
    found, window = vector.astype(np.float64), _window(vector.size)
    found *= signs[0]
    found[:window] = _hadamard(found[:window])
    found *= signs[1]
    found[-window:] = _hadamard(found[-window:])
    return found


def _unrotated(vector: NDArray[np.float64], signs: NDArray[np.int8]) -> NDArray[np.float64]:
    found, window = vector.copy(), _window(vector.size)
    found[-window:] = _hadamard(found[-window:])
    found *= signs[1]
    found[:window] = _hadamard(found[:window])
    found *= signs[0]
    return found


def _hadamard(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the normalised Walsh-Hadamard transform, which is its own inverse."""
    found, half = vector.copy(), 1
    while half < found.size:
        pairs = found.reshape(-1, 2, half)
        found = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), axis=1).reshape(-1)
        half *= 2
    return found / math.sqrt(found.size)
