"""What any attack on one unit can reach, whatever it computes of what a view has seen.

With f(α) the least rate of false negatives at a rate of false positives α (Dong, Roth and Su 2022,
"Gaussian Differential Privacy"), an attack that says whether the unit was there has at most

    TPR at FPR α = 1 - f(α);    AUC = 1 - ∫ f;    advantage, max TPR - FPR, = δ(0).

All three are rounded up: f is a maximum over some ε only, δ is a pessimistic one, and the integral
is a sum of f at the right end of each step, as f falls. Both directions are in f, that the unit is
added and that it is removed, so no attack gains by knowing which one it is.

A ceiling says nothing of larger units, of what others have seen, or of how well an attack guesses
what it knows beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedpriv.privacy.accounting import pld
from fedpriv.privacy.accounting.event import History, NotAvailable, merged
from fedpriv.privacy.views import rounded_up

RATES = (0.001, 0.01, 0.1)
"""Rates of false positives."""

STEPS = 10_000
"""Of the integral of f, which is at most 1 / STEPS too small."""


@dataclass(frozen=True)
class Ceiling:
    """The most that an attack on one unit reaches.

    Attributes:
        auc: from .5, of guessing, to 1.
        advantage: largest difference between the rates of true and of false positives.
        tpr: rate of true positives by rate of false positives, of `RATES`.
    """

    auc: float
    advantage: float
    tpr: dict[str, float]


def ceiling(history: History) -> Ceiling | None:
    """Returns what bounds any attack on one unit; None where nothing does.

    Args:
        history: what a view sees of the unit.
    """
    spent = merged(history)
    if not spent:
        return Ceiling(0.5, 0.0, {f"{rate:g}": rate for rate in RATES})
    if any(part.noise_multiplier == 0 for event, _ in spent for _, part in event.parts):
        return None
    try:
        misses = pld.trade_off(spent, np.arange(1, STEPS + 1) / STEPS)
        least = pld.trade_off(spent, np.array(RATES))
        return Ceiling(
            auc=float(1 - misses.mean()),
            advantage=pld.delta_at_0(spent),
            tpr={f"{rate:g}": float(1 - miss) for rate, miss in zip(RATES, least, strict=True)},
        )
    except NotAvailable:
        return None


def as_json(history: History) -> dict[str, Any] | None:
    """Returns the `ceiling` of a view as it stands in ledger.json and in the JSON of a budget."""
    found = ceiling(history)
    return None if found is None else asdict(found)


def sentence(found: Mapping[str, Any] | None) -> str:
    """Returns a ceiling in words, rounded up; "" where there is none."""
    if not found:
        return ""
    auc, share = rounded_up(found["auc"], 3), rounded_up(100 * found["tpr"]["0.01"], 0)
    return f"AUC at most {auc}, at 1 % false alarms at most {share} % found"
