"""A lower bound on ε from guesses of coins: what one training run can show.

Steinke, Nasr and Jagielski 2023, "Privacy Auditing with One (1) Training Run". Each of m canaries
is put into the training set or left out, by a fair coin of its own. Whoever looks at the result
guesses r of the coins and abstains from the others. Theorem 5.2: if training is (ε, δ)-DP for
each canary, then for every number v

    P[at least v guesses are right] ≤ β + 2 m δ α,    B ~ Binomial(r, e^ε / (1 + e^ε)),
    β = P[B ≥ v],    α = max over i = 1…v of P[v > B ≥ v - i] / i.

Where that is below 1 - confidence, the run would have been too lucky: ε is rejected. The largest ε
that is rejected is the bound. It holds whatever the guesses are made from, as long as they do not
depend on the coins in another way than through what training gave out.
"""

from __future__ import annotations

import numpy as np
from scipy.special import bdtr, expit

CONFIDENCE = 0.95

HALVINGS = 60
"""Of the interval that holds the bound; below what floats tell apart."""


def p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float = 0.0) -> float:
    """Returns the largest probability that (ε, δ)-DP allows for so many right guesses or more.

    Args:
        canaries: m, each in or out by a fair coin.
        guesses: r, of m; fixed beforehand.
        right: v, of r.
        epsilon: ε, 0 or more.
        delta: δ, in [0, 1].

    Raises:
        ValueError: if the counts do not fit each other, or ε or δ is none.

    >>> round(p_value(10, 10, 10, 0.0), 6)  # ten coins by pure luck: 1 / 1024
    0.000977
    """
    if canaries < 1 or not 0 <= right <= guesses <= canaries:
        raise ValueError(
            f"canaries={canaries}, guesses={guesses}, right={right}: expected 1 canary or more, no "
            "more guesses than canaries, and no more right ones than guesses"
        )
    if not epsilon >= 0:
        raise ValueError(f"epsilon={epsilon}: expected 0 or more")
    if not 0 <= delta <= 1:
        raise ValueError(f"delta={delta}: expected a value in [0, 1]")
    # Wrong guesses are counted: for large ε, 1 - e^ε / (1 + e^ε) would be rounded to 0.
    wrong, chance = guesses - right, float(expit(-epsilon))
    beta = float(bdtr(wrong, guesses, chance))
    if delta == 0 or right == 0:
        return min(beta, 1.0)
    steps = np.arange(1, right + 1)
    alpha = float(np.max((bdtr(wrong + steps, guesses, chance) - beta) / steps))
    return min(beta + 2 * canaries * delta * alpha, 1.0)


def epsilon_lower(
    canaries: int, guesses: int, right: int, delta: float = 0.0, confidence: float = CONFIDENCE
) -> float:
    """Returns the largest ε that so many right guesses reject; 0 where they reject none.

    Args:
        canaries: m.
        guesses: r.
        right: v; with all of r right, the bound is the most that so many guesses can show.
        delta: δ that ε is a bound at.
        confidence: with which training is not (ε, δ)-DP for any smaller ε, in (0, 1).

    Raises:
        ValueError: if an argument is out of its range.

    >>> round(epsilon_lower(100, 100, 90), 2)
    1.63
    >>> epsilon_lower(100, 100, 50)
    0.0
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence}: expected a value between 0 and 1")

    def rejected(epsilon: float) -> bool:
        return p_value(canaries, guesses, right, epsilon, delta) <= 1 - confidence

    if not rejected(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while rejected(high):
        low, high = high, 2 * high
    # What is rejected also rejects every smaller ε, because (ε, δ)-DP is (ε', δ)-DP for ε' > ε.
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low
