"""Opacus' PRV accountant: the value that Tito et al. calibrate to, and a second opinion."""

from __future__ import annotations

import math
import warnings

from fedpriv.privacy.accounting import rdp
from fedpriv.privacy.accounting.event import History, NotAvailable, OneOf

EPSILON_ERROR = 0.01
"""Its default: half the width of its bracket."""

LARGEST = 600.0
"""Its `exp` overflows silently a little above: it then reports 707.49 for any ε."""

GRID = 2**22
"""Most points of its loss grid, which takes seconds; it has no limit of its own."""


def epsilon(history: History, delta: float) -> float:
    """Returns the upper end of Opacus' bracket of ε at δ.

    Raises:
        NotAvailable: a client stage, a unit of several records, an ε out of its range, a
            grid that is too long, or Opacus raised.
    """
    steps: list[tuple[float, float, int]] = []
    for event, times in history:
        if isinstance(event, OneOf) or event.client_rate < 1 or event.group_size > 1:
            raise NotAvailable("Opacus has no client stage and no unit of several records")
        steps.append((event.noise_multiplier, event.record_rate, times))
    bound = rdp.epsilon(history, delta)
    if not bound < LARGEST:
        raise NotAvailable(f"epsilon is up to {bound:.4g}: Opacus overflows above {LARGEST:g}")
    releases = sum(times for _, times in history)
    tail = delta / 1000  # its default
    mesh = EPSILON_ERROR / math.sqrt(releases / 2 * math.log(12 / tail))
    points = 2 * (rdp.epsilon(history, tail / 4) + 3) / mesh
    if points > GRID:
        raise NotAvailable(f"Opacus would need {points:.3g} grid points, more than {GRID}")
    # Opacus imports torch, which takes seconds that the other accountants do not need.
    from opacus.accountants import PRVAccountant

    accountant = PRVAccountant()
    accountant.history = steps
    try:
        # It warns that RDP's orders, with which it sizes its grid, could be more.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            value = float(accountant.get_epsilon(delta, eps_error=EPSILON_ERROR))
    except (ArithmeticError, MemoryError, RuntimeError, ValueError) as error:
        raise NotAvailable(f"Opacus failed: {error}") from error
    if math.isnan(value):
        raise NotAvailable("Opacus returned no number")
    return max(0.0, value)
