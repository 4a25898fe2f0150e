"""Rényi accounting of the Poisson-subsampled Gaussian, with a client stage before it.

Mironov, Talwar and Zhang 2019, "Rényi Differential Privacy of the Sampled Gaussian Mechanism":
the moment A(α) = E over N(0, σ²) of ((1 - q) + q·exp((2x - 1) / 2σ²))^α. Conversion to (ε, δ):
Canonne, Kamath and Steinke 2020, Proposition 12 (= Balle et al. 2020, Theorem 21).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from fedpriv.privacy.accounting.event import Event, History, NotAvailable

Floats: TypeAlias = NDArray[np.float64]

FRACTIONAL = np.array([1.01, 1.02, 1.05] + [k / 10 for k in range(11, 110) if k % 10])
WHOLE = np.array([*range(2, 65), 72, 80, 96, 128, 160, 192, 256, 384, 512, 768, 1024], float)
ORDERS = np.concatenate([FRACTIONAL, WHOLE])
"""Orders α that are tried. Those above 64 serve small ε: they set its floor, log(1/δ) / 1023."""

STEP = 0.1
REACH = 140
"""Grid of the fractional moments, in units of σ, and points each side of a peak: 14 σ."""


def epsilon(history: History, delta: float) -> float:
    """Returns an upper bound of ε at δ; never NaN, 0 at least, ∞ without noise.

    Raises:
        NotAvailable: the protected unit has more than one record.
    """
    total = sum((times * renyi(event) for event, times in history), np.zeros_like(ORDERS))
    bounds = total + np.log1p(-1 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1)
    return max(0.0, float(np.min(bounds)))


@lru_cache(maxsize=4096)
def renyi(event: Event) -> Floats:
    """Returns the Rényi divergence of one release at each of `ORDERS`.

    The client stage mixes the moments of a release with the moment 1 of none: who knows that
    the client was absent has learned nothing. So do the parts of a `OneOf` mix.
    """
    if any(part.group_size > 1 for _, part in event.parts):
        raise NotAvailable("RDP has no closed form for a unit of several records; PLD has")
    present = [weight * part.client_rate for weight, part in event.parts]
    with np.errstate(divide="ignore"):
        total = np.log1p(-np.float64(min(1.0, sum(present))))
        for rate, (_, part) in zip(present, event.parts, strict=True):
            inner = _log_moments(part.record_rate, part.noise_multiplier)
            total = np.logaddexp(total, np.log(np.float64(rate)) + inner)
    result: Floats = np.maximum(total, 0.0) / (ORDERS - 1)
    return result


@lru_cache(maxsize=4096)
def _log_moments(q: float, sigma: float) -> Floats:
    """Logarithm of A(α) at each of `ORDERS`."""
    if q == 0:
        return np.zeros_like(ORDERS)
    if sigma < 1e-145:  # its moments are beyond what floats hold
        return np.full_like(ORDERS, np.inf)
    if q == 1:
        result: Floats = ORDERS * (ORDERS - 1) / (2 * sigma**2)
        return result
    return np.concatenate([_fractional(q, sigma), _whole(q, sigma)])


def _whole(q: float, sigma: float) -> Floats:
    """The binomial sum of the paper's section 3.3, for all whole orders at once."""
    a, k = WHOLE[:, None], np.arange(WHOLE[-1] + 1)[None, :]
    inside = k <= a
    j = np.where(inside, k, 0)
    log_choose = gammaln(a + 1) - gammaln(j + 1) - gammaln(a - j + 1)
    terms = log_choose + j * np.log(q) + (a - j) * np.log1p(-q) + (j * j - j) / (2 * sigma**2)
    result: Floats = logsumexp(np.where(inside, terms, -np.inf), axis=1)
    return result


def _fractional(q: float, sigma: float) -> Floats:
    """The moment's integral by the trapezoid rule; its alternating series need not converge.

    The integrand peaks at x = 0 and at x = α. On one grid around both, 14 σ each side, the rule
    is exact to rounding: the nearest pole is πσ² away from the real line, and where that is less
    than the step, the integrand has died away between the peaks.
    """
    offsets = np.arange(-REACH, REACH + 1)
    second = np.round(FRACTIONAL / sigma / STEP)[:, None] + offsets
    first = np.broadcast_to(offsets, second.shape)
    grid = STEP * np.concatenate([first, second], axis=1)
    once = np.concatenate([np.ones_like(first, bool), second > REACH], axis=1)
    loss = np.logaddexp(np.log1p(-q), np.log(q) + grid / sigma - 1 / (2 * sigma**2))
    density = -(grid**2) / 2 + np.log(STEP / np.sqrt(2 * np.pi))
    terms = density + FRACTIONAL[:, None] * loss
    result: Floats = logsumexp(np.where(once, terms, -np.inf), axis=1)
    return result
