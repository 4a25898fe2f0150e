"""FeAm-DP: PrIeD-KIE (Saifullah et al.), Algorithm 1. Protects single examples.

Server, each round: draw m = C·K clients; each sends one noisy gradient with σ_k = σ/√m;
g = Σ_k (n_k/n) g_k; one step of Adam on g, bias-corrected, its moments kept at the server.
Client k: `fedpriv.clients.feam_dp.ExampleGradients`.

The paper's σ is found for the rate q = C·q_k. That holds for who sees the global models only if
C = 1, and never for the server, which sees every g_k under σ/√m alone: see the ledger's views.

Variant "sound": g = (1/B) Σ_k (Σ ḡ + noise share) with B the expected batch over all clients, a
public constant (Eq. 4), so that unequal clients need no weights. Variant "paper": as the
listing reads, with B_k the size of the batch that was drawn and weights n_k/n over those who
answered (its Eqs. 1 and 2 take the expected size q_k n_k). Then the server learns n_k, and B_k from
the noise's scale: no ε covers either, and the ledger calls no view of it a guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from fedpriv.federation.messages import NUM_EXAMPLES, RunningSum
from fedpriv.federation.private_strategy import PrivateStrategy
from fedpriv.runtime.vectors import Vectors, over_
from fedpriv.training.loops import Optimizer
from fedpriv.training.server_optimizer import ServerOptimizer


@dataclass
class FeAmDP(PrivateStrategy):
    """The server's half of FeAm-DP.

    Args:
        mechanism: the clip norm, the sampling and the noise: an `example_gaussian`.
        variant: "sound" divides by the expected batch, a public constant, and counts a round only
            if the answers carry all of the noise. "paper" divides by the batch that was drawn,
            weights clients by their numbers of examples and uses whatever arrives; no ε covers
            that.
        threshold: the share of a round's clients whose answers must carry all of the noise, in (0,
            1]; 1 in the paper. With less than 1, clients may drop out, and the sum has more noise
            when nobody does.
        lr: the learning rate of Adam at the server (η); 5e-4 to 1e-3 in the paper.
        weight_decay: the weight decay (L2 penalty) of Adam at the server; 0 in the paper.
    """

    action: ClassVar[str] = "example_gradients"
    sends: ClassVar[Literal["gradient", "delta"]] = "gradient"
    units: ClassVar[tuple[str, ...]] = ("example",)
    metrics: ClassVar[tuple[str, ...]] = (NUM_EXAMPLES,)
    weight: ClassVar[str] = NUM_EXAMPLES

    lr: float = 1e-3
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise ValueError(f"lr={self.lr}: expected a positive number")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay={self.weight_decay}: expected 0 or more")
        self._adam = ServerOptimizer(Optimizer("adam", self.lr, self.weight_decay))

    def moved(self, start: Vectors, total: RunningSum) -> Vectors:
        """GlobalAdamUpdate(η, θ, g)."""
        weights = total.metrics.get(NUM_EXAMPLES, [1])
        gradient = over_(total.vectors["float"], max(1, sum(weights)))
        return {"float": self._adam.step(start["float"], gradient)}

    def uncovered(self) -> list[str]:
        """Returns what the paper's variant gives away beside the noisy gradients."""
        if self.variant == "sound":
            return []
        return [
            "each client's number of examples n_k, sent as its weight",
            "the size of each drawn batch B_k, which can be read off the noise's scale",
            "weights and divisors that differ by client, with which less noise is left in the sum "
            "than is booked",
        ]

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns Adam's moments and step count."""
        return self._adam.state()

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Takes back what `state` returned."""
        self._adam.load_state(state)
