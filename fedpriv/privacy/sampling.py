"""Which clients take part in a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


class ClientSampling(Protocol):
    """Draws the cohort of a round."""

    def draw(self, clients: int, rng: np.random.Generator) -> list[int]:
        """Returns the numbers of the chosen clients, ascending. There may be none."""

    def problem(self, clients: int) -> str | None:
        """Returns why this sampling cannot work on so many clients, None if it can."""


@dataclass(frozen=True)
class FixedSize:
    """The same number of clients in every round, without replacement.

    Args:
        count: the number of clients in each round. None takes `fraction` of all clients.
        fraction: the share of all clients that take part in each round, in (0, 1]; their number is
            rounded, to at least one.
    """

    count: int | None = None
    fraction: float = 1.0

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 1:
            raise ValueError(f"count={self.count}: a round needs at least 1 client")
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction={self.fraction}: expected a value in (0, 1]")

    def draw(self, clients: int, rng: np.random.Generator) -> list[int]:
        """Returns `count` clients, each set of that size equally likely."""
        size = self.count if self.count is not None else max(1, round(self.fraction * clients))
        return sorted(rng.choice(clients, size=size, replace=False).tolist())

    def problem(self, clients: int) -> str | None:
        """Says so if more clients are asked for than there are."""
        if self.count is not None and self.count > clients:
            return f"count={self.count}, but the federation has {clients} clients"
        return None


@dataclass(frozen=True)
class Poisson:
    """Each client independently with probability `rate`: what privacy amplification assumes.

    A cohort may be empty. That is an outcome like any other and is not drawn again.

    Args:
        rate: the probability with which each client takes part in a round, in [0, 1].
    """

    rate: float

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate={self.rate}: expected a probability in [0, 1]")

    def draw(self, clients: int, rng: np.random.Generator) -> list[int]:
        """Returns the clients whose coin came up."""
        return np.flatnonzero(rng.random(clients) < self.rate).tolist()

    def problem(self, clients: int) -> str | None:
        """Poisson sampling works on any number of clients."""
        return None
