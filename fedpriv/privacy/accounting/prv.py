"""Privacy random variables: Gopi, Lee and Wutschitz 2021, "Numerical Composition of DP".

Composed by Microsoft's prv-accountant, with two things of ours. Its mean of the loss is wrong
for large ε (microsoft/prv_accountant issues 14, 36 and 42: it raises, or shifts ε upwards by up
to 2.4), so the mean is integrated here; and the client stage is an atom at loss 0. Every value
is checked against the reference; where it does not hold, Opacus is asked.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fedpriv.privacy.accounting import opacus_prv, pld, rdp
from fedpriv.privacy.accounting.event import Event, History, NotAvailable

EPSILON_ERROR = 0.01
"""Half the width of the bracket, Opacus' default; what is reported is its upper end."""

WIDENED = 3000
"""The bracket of an ε above 30 is ε / 3000 wide instead, up to .5: the grid grows with ε²."""

DELTA_SHARE = 1e-3
"""The error in δ that the bracket allows for, as a share of δ (Opacus' default too)."""

WIDTH = 2.2
"""Of a bracket in units of its error: two, and what the error in δ adds."""

LARGEST = float(np.log(np.finfo(np.longdouble).max)) - 1
"""Its loss is a long double: where `exp` of it overflows, the reason is given instead."""

SMALLEST_DELTA = 1e-11
GRID = 2**21
"""Most points of the loss grid."""

Floats = NDArray[np.float64]


def epsilon(history: History, delta: float) -> tuple[float, str]:
    """Returns the upper end of the bracket of ε at δ, and who computed it if not prv-accountant.

    Raises:
        NotAvailable: a unit of several records, or nothing that agrees with the reference.
    """
    if any(part.group_size > 1 for event, _ in history for _, part in event.parts):
        raise NotAvailable("PRV is not implemented for a unit of several records; PLD is")
    reference = pld.epsilon(history, delta)
    try:
        low, _, high = bracket(tuple(history), delta)
        return _agreeing(low, high, reference), ""
    except (ArithmeticError, AssertionError, MemoryError, RuntimeError, ValueError) as error:
        failure = f"prv-accountant failed: {error}"
    try:
        value = opacus_prv.epsilon(history, delta)
        return _agreeing(value - WIDTH * opacus_prv.EPSILON_ERROR, value, reference), (
            f"by Opacus: {failure}"
        )
    except (NotAvailable, RuntimeError) as error:
        raise NotAvailable(f"{failure}; {error}") from error


@lru_cache(maxsize=1024)
def bracket(history: tuple[tuple[Event, int], ...], delta: float) -> tuple[float, float, float]:
    """Returns a lower bound, an estimate and an upper bound of ε at δ."""
    from prv_accountant import composers, discretisers

    if delta < SMALLEST_DELTA:
        raise NotAvailable(f"delta={delta}: PRV needs delta >= {SMALLEST_DELTA}")
    error = min(0.5, max(EPSILON_ERROR, rdp.epsilon(history, delta) / WIDENED))
    domain = _domain(history, delta, error)
    ends = float(domain.t_min()), float(domain.t_max())
    losses = [_Truncated(event, *ends) for event, _ in history]
    discrete = [discretisers.CellCentred().discretise(loss, domain) for loss in losses]
    composed = composers.Heterogeneous(discrete).compute_composition([n for _, n in history])
    # Its exp overflows far to the left of any ε that is looked for.
    with np.errstate(over="ignore", invalid="ignore"):
        low, estimate, high = composed.compute_epsilon(delta, delta * DELTA_SHARE, error)
    return low, estimate, high


def _agreeing(low: float, high: float, reference: float) -> float:
    """Returns the upper bound, if the bracket holds the reference.

    The reference lies above the true value by at most twice its tolerance.
    """
    slack = 2 * pld.TOLERANCE * max(1.0, reference)
    high = max(0.0, high)
    if not (low - 1e-4 <= reference <= high + slack):
        raise RuntimeError(
            f"its bracket [{low:.6g}, {high:.6g}] excludes the reference {reference:.6g}"
        )
    return high


def _domain(history: tuple[tuple[Event, int], ...], delta: float, error: float) -> Any:
    """The grid of theorem 5.5 on the domain of remark 5.6, its tails bounded by RDP."""
    from prv_accountant.domain import Domain

    tail = delta * DELTA_SHARE
    releases = sum(times for _, times in history)
    reach = rdp.epsilon(history, tail / 4)
    for event, _ in history:
        reach = max(reach, rdp.epsilon([(event, 1)], tail / (8 * releases)))
    reach = max(reach, error) + 3
    if not reach < LARGEST:
        raise NotAvailable(f"epsilon is up to {reach:.4g}: PRV works below {LARGEST:.4g}")
    mesh = error / math.sqrt(releases / 2 * math.log(12 / tail))
    if not 2 * reach / mesh < GRID:
        raise NotAvailable(f"it needs {2 * reach / mesh:.3g} grid points, more than {GRID}")
    return Domain.create_aligned(-reach, reach, mesh)


class _Truncated:
    """The loss of one release given that it lies in the domain, as prv-accountant wants it.

    The parts of a `OneOf` mix. Where nothing is released, or the client is absent, it is 0.
    """

    pm_inf = 0.0

    def __init__(self, event: Event, low: float, high: float) -> None:
        self.low, self.high = low, high
        self.drawn = [
            (weight * part.client_rate, part.record_rate, part.noise_multiplier)
            for weight, part in event.parts
        ]
        self.mass = float(self._cdf(np.array(high)) - self._cdf(np.array(low)))

    def probability(self, left: Any, right: Any) -> Floats:
        """Mass between `left` and `right`."""
        ends = [np.clip(np.asarray(t, float), self.low, self.high) for t in (left, right)]
        return (self._cdf(ends[1]) - self._cdf(ends[0])) / self.mass

    def mean(self) -> float:
        """Mean of the loss; the atom at 0 adds nothing to it."""
        means = (rate * _loss_mean(q, sigma, self.low, self.high) for rate, q, sigma in self.drawn)
        return sum(means) / self.mass

    def _cdf(self, t: Floats) -> Floats:
        absent = 1 - sum(rate for rate, _, _ in self.drawn)
        result: Floats = np.where(t >= 0, absent, 0.0)
        for rate, q, sigma in self.drawn:
            x = _outcome(t, q, sigma)
            result = result + rate * (q * ndtr((x - 1) / sigma) + (1 - q) * ndtr(x / sigma))
        return result


def _outcome(t: Floats, q: float, sigma: float) -> Floats:
    """The noisy value x at which the loss is t: σ²·log((e^t - 1 + q) / q) + 1/2."""
    with np.errstate(all="ignore"):
        log_ratio = t - math.log(q) + np.log1p(-(1 - q) * np.exp(-t))
    return np.where(np.isnan(log_ratio), -np.inf, log_ratio) * sigma**2 + 0.5


def _loss_mean(q: float, sigma: float, low: float, high: float) -> float:
    """E[loss; low < loss < high] over x ~ q·N(1, σ²) + (1 - q)·N(0, σ²), by Gauss-Legendre."""
    ends = _outcome(np.array([low, high]), q, sigma)
    left, right = max(ends[0], -12 * sigma), min(ends[1], 1 + 12 * sigma)
    knots = np.linspace(left, right, PANELS + 1)
    nodes, weights = np.polynomial.legendre.leggauss(8)
    half = np.diff(knots)[:, None] / 2
    x = (knots[:-1, None] + half) + half * nodes
    bell = q * np.exp(-(((x - 1) / sigma) ** 2) / 2) + (1 - q) * np.exp(-((x / sigma) ** 2) / 2)
    log_absent = math.log1p(-q) if q < 1 else -math.inf
    loss = np.logaddexp(log_absent, math.log(q) + (2 * x - 1) / (2 * sigma**2))
    return float(np.sum(half * weights * bell * loss) / (sigma * math.sqrt(2 * math.pi)))


PANELS = 4000
"""Of the mean's integral; narrow enough for σ of 0.05, where the loss bends within σ²."""
