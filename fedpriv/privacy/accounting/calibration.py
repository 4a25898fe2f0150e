"""The noise that a budget asks for: a search that always ends.

Opacus' `get_noise_multiplier` step by step (20, doubled until it is enough, then halved intervals
from 0), with an end to each of its loops. Published noise multipliers are on its grid, 20·k/2ⁿ.
"""

from __future__ import annotations

import math
from collections.abc import Callable

TOLERANCE = 0.01
FIRST = 20.0
LARGEST = 1e6
SMALLEST = 1e-4
"""Below this no accountant gives a usable ε. Only targets above 1e7 would need it."""


def search(epsilon_at: Callable[[float], float], target: float, tolerance: float) -> float:
    """Returns a noise multiplier with `target - tolerance <= epsilon_at(it) <= target`.

    Where `epsilon_at` jumps over that interval, this is the first noise multiplier after the jump.
    It is 0 if no noise is needed.

    Raises:
        ValueError: target or tolerance are no positive numbers, or no such noise multiplier is
            in [1e-4, 1e6].
    """
    for name, value in (("epsilon", target), ("tolerance", tolerance)):
        if not 0 < value < math.inf:
            raise ValueError(f"{name}={value!r}: expected a finite number > 0")
    if epsilon_at(0.0) <= target:
        return 0.0
    high = FIRST
    while (reached := epsilon_at(high)) > target:
        if high > LARGEST:
            raise ValueError(
                f"epsilon={target:g} is below what this accountant can show: a noise multiplier "
                f"of {high:g} still gives {reached:.3g}. A larger epsilon, a larger delta or the "
                "accountant pld would do"
            )
        high *= 2
    low = 0.0 if high == FIRST else high / 2
    while target - reached > tolerance and high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle < SMALLEST:
            raise ValueError(
                f"epsilon={target:g} needs next to no noise: a noise multiplier of {high:.3g} "
                f"gives {reached:.3g} already. A smaller epsilon or a smaller delta would do"
            )
        found = epsilon_at(middle)
        if found < target:
            high, reached = middle, found
        else:
            low = middle
    return high
