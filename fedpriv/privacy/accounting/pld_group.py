"""The loss of a unit of several records: a mixture of Gaussians, by dp-accounting.

Choquette-Choo, Ganesh, Steinke and Thakurta 2023, "Privacy Amplification for Matrix Mechanisms":
0 to n records of the unit enter, each shifting the sum by one clip norm; all shifts the same way
is the worst case.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution, privacy_loss_mechanism
from numpy.typing import NDArray
from scipy.special import gammaln

ADD, REMOVE = (
    privacy_loss_mechanism.AdjacencyType.ADD,
    privacy_loss_mechanism.AdjacencyType.REMOVE,
)
HALVINGS = 50


def from_group(sigma: float, q: float, size: int, interval: float, log_tail: float) -> Any:
    """Returns the distribution for `size` records that each enter with probability `q`.

    Args:
        sigma: noise multiplier.
        q: in (0, 1).
        size: of the unit, 2 at least.
        interval: width of the loss grid.
        log_tail: logarithm of the mass that may be counted as infinite loss.
    """
    k = np.arange(size + 1)
    log_choose = gammaln(size + 1) - gammaln(k + 1) - gammaln(size - k + 1)
    weights = np.exp(log_choose + k * math.log(q) + (size - k) * math.log1p(-q))
    loss = {
        way: _Loss(
            sigma,
            k.astype(float),
            weights / weights.sum(),
            log_mass_truncation_bound=log_tail,
            adjacency_type=way,
        )
        for way in (REMOVE, ADD)
    }
    return privacy_loss_distribution.PrivacyLossDistribution(
        dots(loss[REMOVE], interval), dots(loss[ADD], interval)
    )


def dots(loss: Any, interval: float) -> Any:
    """Returns the loss on a grid, every straight line between two points above its δ(ε)."""
    bounds = loss.connect_dots_bounds()
    first = math.floor(bounds.epsilon_lower / interval)
    last = math.ceil(bounds.epsilon_upper / interval)
    deltas = loss.get_delta_for_epsilon(np.arange(first, last + 1) * interval)
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, deltas)


class _Loss(privacy_loss_mechanism.MixtureGaussianPrivacyLoss):  # type: ignore[misc]
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
