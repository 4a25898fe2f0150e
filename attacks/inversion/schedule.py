"""How a weight changes over an inversion, as a function of the share of the budget that is spent.

Shares, not iterations: a method keeps its shape when it is given another budget.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


class Schedule(Protocol):
    """A factor for each moment."""

    def at(self, done: float) -> float:
        """Returns the factor when this share of the evaluations is done, 0 ≤ done < 1."""


@dataclass(frozen=True)
class Constant:
    """Always the same factor."""

    factor: float = 1.0

    def at(self, done: float) -> float:
        """Returns the factor."""
        return self.factor


@dataclass(frozen=True)
class Exponential:
    """α exp(-λ k) with λ = decay / evaluations (Ben Hemo et al. 2025, the priors' scheduler).

    Args:
        decay: λ times the evaluations; the factor ends at α exp(-decay).
        factor: α.
    """

    decay: float
    factor: float = 1.0

    @classmethod
    def to(cls, end: float) -> Exponential:
        """Returns the decay from 1 to `end`, which must be in (0, 1]."""
        if not 0 < end <= 1:
            raise ValueError(f"end={end}: expected a value in (0, 1]")
        return cls(-math.log(end))

    def at(self, done: float) -> float:
        """Returns the factor at a share of the evaluations."""
        return self.factor * math.exp(-self.decay * done)


@dataclass(frozen=True)
class Late:
    """0 at first and `factor` from `start` on: GradViT's (Hatamizadeh et al. 2022) delay."""

    start: float = 0.5
    factor: float = 1.0

    def at(self, done: float) -> float:
        """Returns 0 or the factor."""
        return self.factor * (done >= self.start)


@dataclass(frozen=True)
class Steps:
    """Multiplied by `factor` at each of these shares (Geiping et al. 2020)."""

    places: tuple[float, ...]
    factor: float = 0.1

    def at(self, done: float) -> float:
        """Returns the factor at a share of the evaluations."""
        return self.factor ** sum(done >= place for place in self.places)
