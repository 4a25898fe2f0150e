"""FL-PROVIDER-DP with banded matrix factorisation: noise that cancels from round to round.

The clients send sums that tell of b rounds each, y_t = c_0 x_t + … + c_{b-1} x_{t-b+1} + z_t
(`fedpriv.clients.banded`). The server solves for the round's own sum,

    x̂_t = (y_t - c_1 x̂_{t-1} - … - c_{b-1} x̂_{t-b+1}) / c_0,

and moves the model by it as FL-PROVIDER-DP does. Guarantee, adjacency, assumptions and what happens
with clients that drop out are in `fedpriv.privacy.banded`. In short: ε of T rounds is that of ⌈T/b⌉
releases under the whole noise, for one provider added or removed, against every view of the ledger,
whoever stays away. The clients must be able to remember b - 1 sums. A round that is repeated after
an interruption, with other noise, tells of itself alone, and costs a release more.

Choquette-Choo et al. 2023 correlate noise at one trusted place. That every client takes part in
every round, as it does between companies, lets clients correlate what they send instead, so that it
works under masks [ours].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedpriv.federation.messages import RunningSum
from fedpriv.federation.strategy import ATTEMPT
from fedpriv.privacy.banded import coefficients
from fedpriv.runtime.vectors import Vector, Vectors, as_tensor, on_host
from fedpriv.strategies.fl_provider_dp import FLProviderDP


@dataclass
class ProviderBandMF(FLProviderDP):
    """The server's half of FL-PROVIDER-DP with banded matrix factorisation.

    Args:
        mechanism: a `provider_gaussian` with `bands`, and client_rate=1. With bands=1, this is
            FL-PROVIDER-DP.
    """

    solves: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant != "sound":
            raise ValueError(
                f"variant={self.variant!r}: where noise is missing, the theorem that ε rests on is "
                "void; take variant='sound'"
            )
        self._solved: dict[int, Vector] = {}  # x̂ by round, the last b - 1

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Asks every client for what it has to send in this round."""
        self._round, self._repeated = server_round, int(str(config[ATTEMPT])) > 0
        return super().configure_train(server_round, arrays, config, grid)

    def moved(self, start: Vectors, total: RunningSum) -> Vectors:
        """w_t = w_{t-1} + x̂_t / |K|, or a step of the optimiser along it.

        Of a round that did not count there is no x̂; what clients still owe of it comes late. A
        repeated round tells of itself alone.
        """
        weights = coefficients(self.mechanism.bands)
        # In double precision: what is subtracted here was added by others in single precision.
        sum_ = total.vectors["float"].to(torch.float64, copy=True)
        for age, weight in enumerate(weights[1:], 1):
            past = self._solved.get(self._round - age)
            if past is not None and not self._repeated:
                sum_ -= weight * past.to(sum_.device)
        sum_ /= weights[0]
        kept = {r: v for r, v in self._solved.items() if r > self._round - self.mechanism.bands + 1}
        self._solved = {**kept, self._round: sum_} if len(weights) > 1 else {}
        # A copy, since `super` goes on in place.
        total.vectors = {"float": sum_.to(start["float"].dtype, copy=True)}
        return super().moved(start, total)

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns the sums that later rounds still tell of, and the optimiser's state."""
        solved = {f"solved {round}": on_host(sum_) for round, sum_ in self._solved.items()}
        return {**super().state(), **solved}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Takes back what `state` returned."""
        solved = {name: array for name, array in state.items() if name.startswith("solved ")}
        self._solved = {int(n.removeprefix("solved ")): as_tensor(a) for n, a in solved.items()}
        super().load_state({name: a for name, a in state.items() if name not in solved})
