"""The reference: privacy loss distributions by Google's dp-accounting, rounded up.

Doroshenko et al. 2022, "Connect the Dots". Both directions, adding and removing, are composed
and the larger ε is taken. The client stage is a mixture with the identity: with probability
1 - client_rate the loss is 0 (an adversary who sees who took part gains nothing from absence).
The loss of a `OneOf` is the mixture of its parts': the adversary sees which one it was.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.privacy.accounting import rdp
from fedpriv.privacy.accounting.event import Event, History, NotAvailable, each_part

TOLERANCE = 5e-4
"""Aimed at: ε too high by at most this, or by this share of ε. The promise is twice as much."""

SMALLEST_DELTA = 1e-11
"""Below it the rounding of the Fourier transform is no longer small against δ."""

GRID = 2**21
"""Most points of a distribution. Beyond, the grid is coarser: ε stays an upper bound."""

LARGEST = 1e9
"""Largest ε that is tried. Where its `exp` overflows, `NotAvailable` says so."""

SMALLEST_SPREAD = 2e-4
"""Least standard deviation of the total loss. Below it, ε is below the tolerance."""

TAIL = 1e-15

SLOPES = np.linspace(-6.0, 6.0, 241)
"""The ε whose lines make up a trade-off curve; where both errors are alike, ε is near 0."""

SLOPES_DELTA, SLOPES_TOLERANCE = 1e-5, 1e-3
"""What the grid of losses for a trade-off curve is fine enough for."""

OVERFLOW = 700.0
"""Near log(2^1024) = 709.8, dp-accounting's ε at δ may be ∞ or off by more than the grid."""


def epsilon(history: History, delta: float, tolerance: float = TOLERANCE) -> float:
    """Returns ε at δ, never below the true one and at most `tolerance` (or that share) above.

    Raises:
        NotAvailable: δ is too small for several releases, or ε too large for float64.
    """
    return _epsilon(tuple(history), delta, tolerance)


@lru_cache(maxsize=4096)
def _epsilon(history: tuple[tuple[Event, int], ...], delta: float, tolerance: float) -> float:
    if sum(times for _, times in history) > 1 and delta < SMALLEST_DELTA:
        raise NotAvailable(f"delta={delta}: PLD needs delta >= {SMALLEST_DELTA}; RDP has no limit")
    composed = _composed(history, delta, tolerance)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # where it overflows, ε is ∞; see below
        found = float(composed.get_epsilon_for_delta(delta))
    return max(0.0, found) if found < OVERFLOW else _searched(composed, delta, history)


def trade_off(
    history: History, false_positives: float | NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns the least rate of false negatives that a test may have at a rate of false positives.

    Dong, Roth and Su 2022, "Gaussian Differential Privacy", Proposition 2.12: f(α) is the supremum
    of 1 - δ(ε) - e^ε α over ε. Only some ε are tried and δ is rounded up, so the true f is higher.

    Args:
        history: what the tester sees.
        false_positives: α, in [0, 1], of any shape.
    """
    deltas = _deltas_of_slopes(tuple(history))
    lines = 1 - deltas - np.exp(SLOPES) * np.asarray(false_positives)[..., None]
    misses: NDArray[np.float64] = np.maximum(0.0, lines.max(-1))
    return misses


def delta_at_0(history: History) -> float:
    """Returns δ at ε = 0, rounded up: the total variation distance."""
    return float(_deltas_of_slopes(tuple(history))[len(SLOPES) // 2])


@lru_cache(maxsize=256)
def _deltas_of_slopes(history: tuple[tuple[Event, int], ...]) -> NDArray[np.float64]:
    composed = _composed(history, SLOPES_DELTA, SLOPES_TOLERANCE)
    # One by one: for many ε at once, dp-accounting goes through the losses in Python.
    return np.array([composed.get_delta_for_epsilon(slope) for slope in SLOPES.tolist()])


def _composed(history: tuple[tuple[Event, int], ...], delta: float, tolerance: float) -> Any:
    interval = _interval(history, delta, tolerance)
    released = [_released(event, times, interval, delta) for event, times in history]
    return reduce(lambda left, right: left.compose(right, TAIL), released)


def _searched(composed: Any, delta: float, history: History) -> float:
    """Returns ε by halving: dp-accounting's own inverse is not to be relied on from `OVERFLOW` on.

    Raises:
        NotAvailable: δ is below the mass of infinite loss.
    """
    single = _of_single_records(history)
    size = max(part.group_size for event, _ in history for _, part in event.parts)
    low, high = 0.0, 2 * size**2 * rdp.epsilon(single, delta) + 1
    if composed.get_delta_for_epsilon(high) > delta:
        raise NotAvailable(f"delta={delta}: too small for PLD here; RDP has no limit")
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        enough = composed.get_delta_for_epsilon(middle) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high


def _interval(history: tuple[tuple[Event, int], ...], delta: float, tolerance: float) -> float:
    """Width of the loss grid.

    Rounding up costs at most one width per release, and adds about width² / 4 to the variance of
    the loss: ε grows by T·width² over the loss' own standard deviation, about that of GDP's limit,
    where that is less than 1.
    """
    single = _of_single_records(history)
    scale = rdp.epsilon(single, delta)
    if not scale < LARGEST:
        raise NotAvailable(
            f"epsilon is about {scale:.4g}: PLD works below {LARGEST}; RDP has no limit"
        )
    allowed = tolerance * max(1.0, scale / 2)
    releases = sum(times for _, times in history)
    variance = sum(
        times
        * weight
        * part.client_rate
        * part.record_rate**2
        * math.expm1(min(part.noise_multiplier**-2, 100))
        for event, times in history
        for weight, part in event.parts
    )
    spread = min(1.0, max(SMALLEST_SPREAD, math.sqrt(variance)))
    wanted = min(allowed, math.sqrt(allowed * spread / releases))
    return max(wanted, 2 * rdp.epsilon(single, TAIL) / GRID)


def _of_single_records(history: History) -> History:
    return [(each_part(e, lambda part: replace(part, group_size=1)), times) for e, times in history]


def _released(event: Event, times: int, interval: float, delta: float) -> Any:
    # dp-accounting is imported here: it takes a second, and RDP and GDP do without it.
    from dp_accounting.pld import privacy_loss_distribution as pld

    from fedpriv.privacy.accounting.pld_losses import of_one_release

    log_tail = max(-700.0, min(-50.0, math.log(delta / times) - 30))
    mixed = pld.identity(interval)
    total = 1 - sum(weight * part.client_rate for weight, part in event.parts)
    for weight, part in event.parts:
        sampled = (part.noise_multiplier, part.record_rate, part.group_size)
        present = of_one_release(*sampled, interval, log_tail)
        total += weight * part.client_rate
        mixed = present.compute_mixture(mixed, min(1.0, weight * part.client_rate / total))
    return mixed if times == 1 else mixed.self_compose(times, min(TAIL, delta / 1e4))
