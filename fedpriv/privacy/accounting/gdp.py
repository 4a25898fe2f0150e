"""Gaussian differential privacy: the central limit's ε. An approximation, not a bound.

Bu, Dong, Long and Su 2020, "Deep Learning with Gaussian Differential Privacy", Corollary 2 with
Poisson sampling: μ² = Σ T·q²·(exp(1/σ²) - 1); without sampling the limit is exact, μ² = Σ T/σ².
Dong, Roth and Su 2019, Corollary 1, for ε of μ.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr

from fedpriv.privacy.accounting.event import ClientThenRecord, Event, History, NotAvailable

LABEL = "approximation, not a bound"
EXACT = "exact: no sampling"

LARGEST_MU = 1e5
SMALLEST_NOISE = 0.05
"""Below it exp(1 / σ²) is beyond what floats hold; no number of releases is near its limit."""


def epsilon(history: History, delta: float) -> float:
    """Returns the ε at δ of the Gaussian that the history tends to.

    Raises:
        NotAvailable: a client stage, cohorts of random size, a unit of several records, or noise
            too small for a limit.
    """
    mu = math.sqrt(sum(times * _mu2(event) for event, times in history))
    if mu > LARGEST_MU:
        raise NotAvailable(f"mu={mu:.3g}: above {LARGEST_MU:g} rounding decides")
    return gaussian_epsilon(mu, delta)


def label(history: History) -> str:
    """Returns what the number is: exact without sampling, an approximation else."""
    return EXACT if all(_unsampled(event) for event, _ in history) else LABEL


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Returns the exact ε at δ of N(0, 1) against N(μ, 1); 0 where δ allows it."""
    if mu == 0 or _log_delta(0.0, mu) <= math.log(delta):
        return 0.0
    high = mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1
    return float(brentq(lambda e: _log_delta(e, mu) - math.log(delta), 0.0, high, rtol=1e-12))


def _log_delta(epsilon: float, mu: float) -> float:
    """Logarithm of δ(ε), differences taken in logarithms so that no ε is too large."""
    upper = float(log_ndtr(mu / 2 - epsilon / mu))
    lower = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return upper + math.log(-math.expm1(min(lower - upper, -1e-300)))


def _mu2(event: Event) -> float:
    if not isinstance(event, ClientThenRecord) or event.client_rate < 1:
        raise NotAvailable("GDP cannot account for sampled clients; PLD can")
    if event.group_size > 1:
        raise NotAvailable("the central limit has no unit of several sampled records; PLD has")
    if event.noise_multiplier < SMALLEST_NOISE:
        raise NotAvailable(
            f"noise_multiplier={event.noise_multiplier:g}: GDP works from {SMALLEST_NOISE} on"
        )
    if _unsampled(event):
        return event.noise_multiplier**-2
    return event.record_rate**2 * math.expm1(event.noise_multiplier**-2)


def _unsampled(event: Event) -> bool:
    return isinstance(event, ClientThenRecord) and event.client_rate == 1 and event.record_rate == 1
