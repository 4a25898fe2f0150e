"""FedSGD: clients send the gradient of one batch, the server takes the step (GI-DQA, Eq. 1 and 2).

Each round, the drawn clients compute ∇_k = (1/B) Σ ∇L(w_t; x_i) on a batch of their own, and
w_{t+1} = w_t - η (1/|K|) Σ_k ∇_k. The paper prints a plus and no mean. No privacy beyond what is
not sent: it is the setting in which gradients are inverted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from flwr.app import ArrayRecord, Message, MetricRecord

from fedpriv.federation.messages import sum_of, to_array_record, to_vectors
from fedpriv.federation.strategy import SampledStrategy
from fedpriv.privacy.sampling import ClientSampling, FixedSize


@dataclass
class FedSGD(SampledStrategy):
    """The server's half of FedSGD; `fedpriv.clients.fedsgd.BatchGradient` is the other.

    Args:
        lr: the learning rate with which the server takes its step (η).
        sampling: the rule by which the clients of a round are drawn.
    """

    action: ClassVar[str] = "batch_gradient"
    sends: ClassVar[Literal["gradient", "delta"]] = "gradient"

    lr: float = 0.1
    sampling: ClientSampling = field(default_factory=FixedSize)

    def __post_init__(self) -> None:
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise ValueError(f"lr={self.lr}: expected a positive number")

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """w_{t+1} = w_t - η (1/|K|) Σ ∇_k; w_t itself where nobody answered."""
        total = sum_of(replies)
        if not total.clients:
            return self._global, MetricRecord()
        start = to_vectors(self._global)["float"]
        moved = start - total.vectors["float"] * (self.lr / len(total.clients))
        return to_array_record({"float": moved}), MetricRecord()
