"""What other ways of drawing units could save: random allocation, and bands with a least distance.

fedpriv draws each unit by a coin in every round or, with b bands, in the rounds of its turn, one of
b (`fedpriv.privacy.banded`). Two newer schemes draw otherwise:

- *random allocation* (balls and bins; Chua et al. 2025): each unit is in exactly one of T rounds,
  an epoch, drawn at random;
- *b-min-sep* (Dong and Ganesh 2026): with bands, a coin in each round, after a draw none for b - 1
  rounds.

Each is compared at the same expected number of draws and the same noise. ε of fedpriv's draws is by
its accountant, an upper bound. ε of the others is by Monte Carlo, for contributions of full norm in
one fixed direction: whatever an adversary could gain by choosing them adaptively is left out, so it
says at best what the scheme could save. The interval is that of the sampling error, at 99 %.

    python benchmarks/sampling_schemes.py
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedpriv.privacy.accounting.accountants import epsilon
from fedpriv.privacy.accounting.event import ClientThenRecord
from fedpriv.privacy.banded import coefficients

DELTA, SAMPLES, CHUNK = 1e-5, 2_000_000, 200_000
Z = 2.576

Losses = NDArray[np.float64]


def allocation(rounds: int, sigma: float, rng: np.random.Generator) -> tuple[Losses, Losses]:
    """Returns privacy losses under "in one round of T" and under "in none", up to the sign."""

    def loss(x: NDArray[np.float64]) -> Losses:
        found: Losses = np.logaddexp.reduce(x / sigma**2, axis=1) - math.log(rounds)
        return found - 1 / (2 * sigma**2)

    inside, outside = [], []
    for _ in range(SAMPLES // CHUNK):
        x = sigma * rng.standard_normal((CHUNK, rounds))
        outside.append(loss(x))
        x[:, 0] += 1  # by symmetry
        inside.append(loss(x))
    return np.concatenate(inside), np.concatenate(outside)


def least_distance(
    rounds: int, bands: int, rate: float, sigma: float, rng: np.random.Generator
) -> tuple[Losses, Losses]:
    """Returns the same of b-min-sep, with a coin of this rate where a unit may be drawn."""
    weights = coefficients(bands)

    def loss(x: NDArray[np.float64]) -> Losses:
        padded = np.pad(x, ((0, 0), (0, bands)))
        free: list[Losses] = [np.zeros(len(x))] * (rounds + bands + 1)
        for t in range(rounds - 1, -1, -1):
            own = weights[: rounds - t]
            seen = padded[:, t : t + len(own)] @ own / sigma**2 - own @ own / (2 * sigma**2)
            stay = math.log1p(-rate) + free[t + 1] if rate < 1 else np.full(len(x), -np.inf)
            free[t] = np.logaddexp(stay, math.log(rate) + seen + free[t + bands])
        return free[0]

    inside, outside = [], []
    for _ in range(SAMPLES // CHUNK):
        x = sigma * rng.standard_normal((CHUNK, rounds))
        outside.append(loss(x))
        waits = np.zeros(CHUNK, int)
        for t in range(rounds):
            drawn = (waits == 0) & (rng.random(CHUNK) < rate)
            own = weights[: rounds - t]
            x[drawn, t : t + len(own)] += own
            waits = np.where(drawn, bands - 1, np.maximum(waits - 1, 0))
        inside.append(loss(x))
    return np.concatenate(inside), np.concatenate(outside)


def measured(inside: Losses, outside: Losses) -> tuple[float, float, float]:
    """Returns ε at δ of the worse direction, and where it lies given the sampling error."""

    def delta(eps: float) -> tuple[float, float]:
        worst = (0.0, 0.0)
        for losses in (inside, -outside):
            gaps = -np.expm1(np.minimum(0.0, eps - losses))
            worst = max(worst, (float(gaps.mean()), Z * float(gaps.std()) / math.sqrt(gaps.size)))
        return worst

    def solve(shift: float) -> float:
        low, high = 0.0, 60.0
        for _ in range(40):
            middle = (low + high) / 2
            value, error = delta(middle)
            low, high = (middle, high) if value + shift * error > DELTA else (low, middle)
        return high

    return solve(0), solve(-1), solve(1)


def main() -> None:
    """Prints both tables."""
    rng = np.random.default_rng(0)
    print("| T, σ | coins with rate 1/T | random allocation |\n|---|---|---|")
    for rounds, sigma in [(10, 0.6), (10, 1.0), (10, 2.0), (100, 0.5), (100, 0.8), (100, 1.5)]:
        ours = epsilon([(ClientThenRecord(1.0, 1 / rounds, sigma), rounds)], DELTA)
        value, low, high = measured(*allocation(rounds, sigma, rng))
        print(f"| {rounds}, {sigma:g} | {ours:.3f} | {value:.3f} [{low:.3f}, {high:.3f}] |")
    print("\n| T, b, rate, σ | turns and coins | b-min-sep |\n|---|---|---|")
    for rounds, bands, rate, sigma in [
        (16, 2, 0.2, 1.0),
        (24, 4, 0.1, 1.0),
        (24, 4, 0.2, 1.0),
        (120, 3, 0.3, 3.0),
        (120, 8, 0.08, 1.5),
    ]:
        turns = math.ceil(rounds / bands)
        ours = epsilon([(ClientThenRecord(1.0, min(1.0, bands * rate), sigma), turns)], DELTA)
        coin = 1 / (1 / rate - bands + 1)
        value, low, high = measured(*least_distance(rounds, bands, coin, sigma, rng))
        named = f"{rounds}, {bands}, {rate:g}, {sigma:g}"
        print(f"| {named} | {ours:.3f} | {value:.3f} [{low:.3f}, {high:.3f}] |", flush=True)


if __name__ == "__main__":
    main()
