"""FL-PROVIDER-DP: PFL-DocVQA (Tito et al. 2024), Algorithm 1 and App. F. Protects whole providers.

Server, each round: draw K, every client with probability q_c; send w_{t-1} and |K|;
w_t = w_{t-1} + (1/|K|) Σ_{k∈K} u_k. With K empty, the noise is added all the same (§6.2.2).
Client k: `fedpriv.clients.fl_provider_dp.ProviderUpdates`.

The paper's ε does not hold against an adversary who sees the global models: all providers of a
client enter together, so the rate q_c·|M|/min|P_k| amplifies far less than the accountant assumes.
The ledger's view `paper` gives the paper's ε, the other views give the true ones.

Departures of the variant "sound": see `PrivateStrategy`. Where K is empty, w_t = w_{t-1} + N(0,
σ²C²I/M²); the paper does not say what the noise is divided by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from numpy.typing import NDArray

from fedpriv.federation.messages import RunningSum
from fedpriv.federation.private_strategy import PrivateStrategy
from fedpriv.runtime.vectors import Vectors, over_
from fedpriv.training.loops import Optimizer
from fedpriv.training.server_optimizer import ServerOptimizer


@dataclass
class FLProviderDP(PrivateStrategy):
    """The server's half of FL-PROVIDER-DP, and of DP-FedAvg with `client_gaussian`.

    Args:
        mechanism: the clip norm, the sampling and the noise: a `provider_gaussian`, or a
            `client_gaussian` for DP-FedAvg.
        variant: what happens if clients fail to answer: "sound" counts a round only if the answers
            carry all of the noise, "paper" uses whatever arrives, even if noise is missing.
        threshold: the share of a round's clients whose answers must carry all of the noise, in (0,
            1]; 1 in the paper. With less than 1, clients may drop out, and the sum has more noise
            when nobody does.
        optimizer: the optimiser at the server, whose gradient is the noisy mean with its sign
            turned. It works on what is released already, so it costs no privacy. None adds the mean
            to the model, as the paper does; so does "sgd" with lr=1.
    """

    action: ClassVar[str] = "provider_updates"
    units: ClassVar[tuple[str, ...]] = ("provider", "client")

    # The clients' messages depend on the model that they get, not on how it came about.
    optimizer: Optimizer | None = field(default=None, metadata={"message": False})

    def __post_init__(self) -> None:
        super().__post_init__()
        self._server = ServerOptimizer(self.optimizer) if self.optimizer else None

    def moved(self, start: Vectors, total: RunningSum) -> Vectors:
        """w_t = w_{t-1} + (1/|K|) Σ u_k, over those who answered; or a step of the optimiser."""
        mean = over_(total.vectors["float"], max(1, len(total.clients)))
        if self._server is None:
            return {"float": start["float"] + mean}
        return {"float": self._server.step(start["float"], -mean)}

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns the state of the server's optimiser."""
        return self._server.state() if self._server else {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Takes back what `state` returned."""
        if self._server:
            self._server.load_state(state)
