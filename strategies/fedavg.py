"""FedAvg: McMahan et al. 2017, Algorithm 1, as used in PrIeD-KIE, App. B and PFL-DocVQA, §6.1.

Each round, clients S_t are drawn; client k trains from w_t on its own data and sends
Δ_k = w_k - w_t. The server sets w_{t+1} = w_t + Σ_k (n_k / n) Δ_k with n = Σ_k n_k, which is the
paper's weighted mean of the w_k. No privacy beyond what is not sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from fedpriv.federation.messages import (
    NUM_EXAMPLES,
    Instruction,
    sum_of,
    to_array_record,
    to_vectors,
)
from fedpriv.federation.strategy import SampledStrategy
from fedpriv.privacy.sampling import ClientSampling, FixedSize
from fedpriv.runtime.vectors import Vectors, over_

LOSS = "train-loss"


@dataclass
class FedAvg(SampledStrategy):
    """The server's half of FedAvg; `fedpriv.clients.fedavg.LocalTraining` is the other.

    Args:
        sampling: the rule by which the clients of a round are drawn.
        weighted: whether clients are weighted by their numbers of examples, which the server then
            learns. Otherwise all weights are equal.
        buffers: whether the model's buffers, such as the statistics of BatchNorm, are averaged as
            well. The mean of an integer buffer is rounded to the nearest integer.
    """

    action: ClassVar[str] = "local_training"

    sampling: ClientSampling = field(default_factory=FixedSize)
    weighted: bool = True
    buffers: bool = True

    def instruction(self, server_round: int, attempt: int) -> Instruction:
        """Asks for n_k, where it is the weight, and for the loss."""
        return Instruction(
            server_round,
            attempt,
            weight=NUM_EXAMPLES if self.weighted else "",
            buffers=self.buffers,
            metrics=(NUM_EXAMPLES, LOSS) if self.weighted else (LOSS,),
        )

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """w_{t+1} = w_t + Σ (n_k / n) Δ_k; w_t itself where nobody answered."""
        total = sum_of(replies)
        weights = total.metrics.get(NUM_EXAMPLES, [1] * len(total.clients))
        if sum(weights) == 0:
            return self._global, MetricRecord()
        moved = self.moved(to_vectors(self._global), total.vectors, sum(weights))
        loss = float(np.average(total.metrics[LOSS], weights=weights))
        return to_array_record(moved), MetricRecord({LOSS: loss})

    def moved(self, start: Vectors, total: Vectors, weight: float) -> Vectors:
        """Returns the new global vectors: `start` plus the weighted mean of the updates.

        Args:
            start: w_t.
            total: Σ n_k Δ_k, of the same names.
            weight: n.
        """
        moved: Vectors = {}
        for name, old in start.items():
            vector = total[name]
            if not vector.is_floating_point():
                mean = (vector.double() / weight).round().to(vector.dtype)
            else:
                mean = over_(vector.clone(), weight)
            moved[name] = old + mean
        return moved
