"""FedAvg-DP: the baseline of PrIeD-KIE (Saifullah et al., §4.5 and Fig. 1).

Every client trains by DP-SGD or DP-Adam on its own data, with noise enough to protect it all by
itself, and sends the change of its model; the server averages as in FedAvg. A client's batch is
q·|D_k|, which shrinks as the clients grow in number while the noise on it stays: so it degrades.

Client k: `fedpriv.clients.fedavg_dp.DPLocalTraining`.

Each message is private by itself, so masking adds nothing and a client that drops out takes no
noise away. Nothing is amplified by the sampling of clients: the ledger counts the steps of the
client that took part most often.

Variant "sound": equal weights, and a client divides by q·|D|/K, a public constant. Variant "paper":
weights n_k/n, and a client divides by q·n_k; the numbers of examples reach the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedpriv.federation.messages import NUM_EXAMPLES, RunningSum
from fedpriv.federation.private_strategy import BATCH, STEPS, PrivateStrategy
from fedpriv.privacy.ledger import Attempt, Release
from fedpriv.runtime.vectors import Vectors, over_


@dataclass
class FedAvgDP(PrivateStrategy):
    """The server's half of FedAvg-DP.

    Args:
        mechanism: the clip norm, the sampling and the noise: an `example_gaussian`. The expected
            batch of a client is record_rate · examples / clients.
        variant: "sound" gives all clients equal weights and divides by the same expected batch, a
            public constant. "paper" weights clients by their numbers of examples, which the server
            then learns, and divides by the batch expected of each.
        threshold: always 1: the message of each client carries all of its noise, so clients that do
            not answer take none away.
        steps: the number of noisy steps that a client takes in a round; 1 / record_rate steps make
            an epoch.
    """

    action: ClassVar[str] = "dp_local_training"
    units: ClassVar[tuple[str, ...]] = ("example",)
    metrics: ClassVar[tuple[str, ...]] = (NUM_EXAMPLES,)
    weight: ClassVar[str] = NUM_EXAMPLES
    own_noise: ClassVar[bool] = True

    steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 1:
            raise ValueError(f"steps={self.steps}: expected at least 1")
        if self.threshold != 1:
            raise ValueError(
                f"threshold={self.threshold}: FedAvg-DP has none, each client's noise is complete"
            )

    def shares(self, cohort: int) -> int:
        """Returns 1: no noise is shared."""
        return 1

    def settings(self, cohort: int, clients: int) -> dict[str, Any]:
        """Returns what the clients are told of this round: their steps and their batch too."""
        batch = self.mechanism.normaliser / (self.mechanism.client_rate * clients)
        return {**super().settings(cohort, clients), STEPS: self.steps, BATCH: batch}

    def moved(self, start: Vectors, total: RunningSum) -> Vectors:
        """w_{t+1} = w_t + Σ (n_k/n) Δ_k; w_t itself where no client was drawn."""
        if not total.clients:
            return start
        weights = total.metrics.get(NUM_EXAMPLES, [1] * len(total.clients))
        mean = over_(total.vectors["float"], max(1, sum(weights)))
        return {"float": start["float"] + mean}

    def booked(self, attempt: Attempt) -> Release:
        """Returns one attempt's release: `steps` noisy steps by every client that answered."""
        mechanism = self.mechanism
        return Release(
            attempt,
            mechanism.client_rate,
            mechanism.record_rate,
            planned=mechanism.noise_multiplier,
            noise_multiplier=mechanism.noise_multiplier,
            share=mechanism.noise_multiplier,
            steps=self.steps,
            own_noise=True,
        )

    def uncovered(self) -> list[str]:
        """Returns what the paper's variant gives away beside the noisy updates."""
        counts = "each client's number of examples n_k, sent as its weight and used as its divisor"
        return [counts] if self.variant == "paper" else []
