"""The losses of one release by dp-accounting, but quickly: of a record, or of several as a unit.

Choquette-Choo, Ganesh, Steinke and Thakurta 2023, "Privacy Amplification for Matrix Mechanisms":
0 to n records of the unit enter, each shifting the sum by one clip norm; all shifts the same way
is the worst case.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution, privacy_loss_mechanism
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType
from numpy.typing import NDArray
from scipy.special import gammaln

from fedpriv.privacy.accounting.event import NotAvailable

MOST_DOTS = 10_000_000
"""Losses of one release on the grid, as of a unit of some hundred records under little noise."""

ADD, REMOVE = AdjacencyType.ADD, AdjacencyType.REMOVE
HALVINGS = 50


def of_one_release(sigma: float, q: float, size: int, interval: float, log_tail: float) -> Any:
    """Returns the distribution for `size` records that each enter with probability `q`.

    Args:
        sigma: noise multiplier.
        q: in (0, 1]; below 1 for several records.
        size: of the unit.
        interval: width of the loss grid.
        log_tail: logarithm of the mass that may be counted as infinite loss.
    """
    ways = (REMOVE, ADD) if q < 1 else (REMOVE,)  # without sampling both ways are the same
    losses: list[Any] = []
    for way in ways:
        rest = {"log_mass_truncation_bound": log_tail, "adjacency_type": way}
        if size == 1:
            losses.append(_SampledLoss(sigma, sampling_prob=q, **rest))
        else:
            k = np.arange(size + 1)
            log_choose = gammaln(size + 1) - gammaln(k + 1) - gammaln(size - k + 1)
            weights = np.exp(log_choose + k * math.log(q) + (size - k) * math.log1p(-q))
            losses.append(_GroupLoss(sigma, k.astype(float), weights / weights.sum(), **rest))
    return privacy_loss_distribution.PrivacyLossDistribution(
        *(_dots(loss, interval) for loss in losses)
    )


def _dots(loss: Any, interval: float) -> Any:
    """Returns the loss on a grid, every straight line between two points above its δ(ε)."""
    bounds = loss.connect_dots_bounds()
    first = math.floor(bounds.epsilon_lower / interval)
    last = math.ceil(bounds.epsilon_upper / interval)
    if last - first > MOST_DOTS:
        raise NotAvailable(
            f"the losses of one release reach from {bounds.epsilon_lower:.3g} to "
            f"{bounds.epsilon_upper:.3g}, too many for PLD"
        )
    deltas = loss.get_delta_for_epsilon(np.arange(first, last + 1) * interval)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, deltas)


class _SampledLoss(privacy_loss_mechanism.GaussianPrivacyLoss):  # type: ignore[misc]
    """dp-accounting's loss, inverted for all values at once instead of one by one (10 times)."""

    def get_delta_for_epsilon(self, epsilon: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns δ at each ε, the mass beyond the x at which the loss is ε.

        With q < 1 the loss lies above log(1 - q) where the record is removed, and below
        -log(1 - q) where it is added.
        """
        q, variance = self.sampling_prob, self._standard_deviation**2
        sign = -1.0 if self.adjacency_type == ADD else 1.0
        with np.errstate(all="ignore"):
            # sign · log((e^(sign·ε) - 1 + q) / q): the loss had the record been drawn for sure.
            drawn = sign * (
                sign * epsilon - math.log(q) + np.log1p(-(1 - q) * np.exp(-sign * epsilon))
            )
        beyond = np.isnan(drawn) | np.isinf(drawn)
        x = np.where(beyond, 0.0, -0.5 - drawn * variance) + (1.0 if sign < 0 else 0.0)
        with np.errstate(over="ignore", under="ignore"):
            found = self.mu_upper_cdf(x) - np.exp(epsilon + self.mu_lower_log_cdf(x))
        outside = 0.0 if sign < 0 else -np.expm1(np.minimum(epsilon, 0.0))
        return np.clip(np.where(beyond, outside, found), 0.0, 1.0)


class _GroupLoss(privacy_loss_mechanism.MixtureGaussianPrivacyLoss):  # type: ignore[misc]
    """dp-accounting's loss, inverted for all values at once instead of one by one (100 times)."""

    def inverse_privacy_losses(
        self, privacy_losses: NDArray[np.float64], precision: float = 0.0
    ) -> NDArray[np.float64]:
        """Returns the largest x whose loss is at least each of `privacy_losses`."""
        reach = 60 * self._standard_deviation + self.sensitivities.max()
        low = np.full(len(privacy_losses), -reach)
        high = -low
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            enough = self._losses(middle) >= privacy_losses
            low, high = np.where(enough, middle, low), np.where(enough, high, middle)
        return low

    def _losses(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        sign = 1.0 if self.adjacency_type == ADD else -1.0
        k = self.sensitivities
        terms = [
            math.log(weight) + (sign * size * x - size * size / 2) / self._variance
            for size, weight in zip(k, self.sampling_probs, strict=True)
        ]
        total: NDArray[np.float64] = -sign * np.logaddexp.reduce(terms)
        return total
