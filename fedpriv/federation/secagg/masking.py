"""Masking around a strategy: the server learns the sum of the updates, and no update.

`Masking` is the setting (`masking=on`); `Masked` is the strategy that stands between the round loop
and the strategy inside, which sees one decoded sum and does not notice. It runs the stages of
`fedpriv.federation.secagg.protocol` (whose docstring has the threat model) before and after the
training messages.

**Rounding to the ring costs no privacy.** Client u sends y_u = round(x_u + z_u), in steps of the
ring, with its share z_u ~ N(0, s²) of the noise in it *before* it is rounded. The others' sum W is
a vector of whole steps, and rounding commutes with adding those:

    y_u + W = round(x_u + z_u + W)

So the masked sum is a function of x_u + (z_u + W), and z_u + W is noise that does not depend on
x_u: a Gaussian plus a sum of rounded Gaussians. Each of these is the Gaussian plus a uniform number
below one step, seen on the grid; by Poisson's summation formula a convolution of n of them in d
coordinates is that of the continuous ones but for n·d·1.01·exp(−(π s/step)²) in total variation.
From s = 4 steps on that is below 10⁻⁵⁰ for any model. (Reals stand for float32 here, as they do
for the noise itself.) What is left is N(0, n s²) and further,
independent noise: at least as private as the unmasked sum. In the published settings s is 10⁴ steps
and more; a ring that would be coarser than 4 steps is refused before the run.

That holds while no coordinate is clamped to the bound of the ring. Clamping is post-processing of
one message, but of the sum it takes the others' noise away. So the bound is so large that a sum of
up to 4 E + 16 units, E being expected of a client, reaches it with probability 2⁻⁴⁰ in a round, and
a smaller `masking.bound` is refused where the noise is shared.

A cohort of one client is not masked: its sum is its vector.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedpriv.federation.messages import (
    UPDATE,
    RunningSum,
    node_ids,
    sum_of,
    sum_record,
    to_array_record,
    to_vectors,
)
from fedpriv.federation.private_strategy import PrivateStrategy
from fedpriv.federation.secagg.discrete import discrete_sum, steps_of
from fedpriv.federation.secagg.messages import MASKED, words_of
from fedpriv.federation.secagg.protocol import Session
from fedpriv.federation.secagg.ring import (
    LEAST_BOUND,
    MODULUS,
    MOST_BOUND,
    Ring,
    coordinate_bound,
)
from fedpriv.federation.secagg.stages import MaskedRound
from fedpriv.federation.strategy import ATTEMPT, MODEL, SEED, Strategy
from fedpriv.privacy.banded import coefficients
from fedpriv.privacy.discrete import BITS, Steps
from fedpriv.privacy.ledger import Attempt, Release
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.runtime.vectors import ParameterLayout, as_tensor, on_host

LEAST_STEPS = 4
"""The least standard deviation of a client's share of the noise in steps of the ring, see above."""


@dataclass(frozen=True)
class Masking:
    """Secure aggregation around whatever strategy is chosen.

    Args:
        threshold: the share of a round's clients that must stay to the end, in (0.5, 1]. If the
            strategy has a threshold too, the one that needs more clients counts.
        bound: the largest absolute value that a coordinate of one client's update may have; larger
            values are cut off. It is a public constant, and a smaller bound rounds updates less.
            None takes the bound from the strategy's mechanism. Strategies that clip nothing, such
            as FedAvg, need a number.
        mechanism: how noise is drawn where the clients share it: "gaussian" draws floating-point
            numbers and rounds them to 32 bits, "discrete" draws whole numbers in a ring of 16 bits
            (`fedpriv.privacy.discrete`), for the same ε and half the traffic.
    """

    threshold: float = 0.67
    bound: float | None = None
    mechanism: Literal["gaussian", "discrete"] = field(default="gaussian", metadata={"new": True})

    def __post_init__(self) -> None:
        if not 0.5 < self.threshold <= 1:
            raise ValueError(f"threshold={self.threshold}: expected a value in (0.5, 1]")
        if self.mechanism not in ("gaussian", "discrete"):
            raise ValueError(f"mechanism={self.mechanism!r}: expected 'gaussian' or 'discrete'")
        if self.bound is not None and not LEAST_BOUND <= self.bound <= MOST_BOUND:
            raise ValueError(f"bound={self.bound}: expected a number in [2^-64, 2^64]")

    def problems(self, strategy: Strategy) -> list[str]:
        """Returns the settings of a strategy that cannot be masked, and what to set instead."""
        found = []
        if strategy.buffers:
            found.append("strategy.buffers=true: buffers cannot be masked; set it to false")
        if isinstance(strategy, PrivateStrategy):
            weighted, instead = strategy.weight and strategy.variant == "paper", "variant=sound"
        else:
            weighted, instead = getattr(strategy, "weighted", False), "weighted=false"
        if weighted:
            found.append(
                "strategy: the server cannot weight masked updates by numbers of examples; set "
                f"strategy.{instead}"
            )
        if self.mechanism == "discrete":
            if not isinstance(strategy, PrivateStrategy) or not _clips(strategy):
                found.append(
                    "masking.mechanism=discrete: the clients of this strategy share no noise; take "
                    "gaussian"
                )
            elif strategy.variant == "paper":
                found.append("masking.mechanism=discrete: take strategy.variant=sound")
            if self.bound is not None:
                found.append("masking.bound: masking.mechanism=discrete has its own; take null")
        elif self.bound is None and not _clips(strategy):
            found.append(
                "masking.bound=null: the strategy does not bound what a client sends; set "
                "masking.bound to a number, such as 1.0"
            )
        return found

    def around(self, strategy: Strategy) -> Masked:
        """Returns the strategy behind masks; its own mechanism stays as it is."""
        return Masked(copy.copy(strategy), self)


class Masked(Strategy):
    """A strategy whose clients' updates are masked.

    Args:
        inner: the strategy; it must need the sum only, unweighted, and no buffers.
        masking: the settings.

    Attributes:
        revealed: the sum that the server learned in the last attempt; None if it was not masked.
    """

    action: str  # type: ignore[misc]  # the inner strategy's
    sends: Literal["gradient", "delta"]  # type: ignore[misc]
    revealed: RunningSum | None = None

    def __init__(self, inner: Strategy, masking: Masking) -> None:
        self.inner, self.masking = inner, masking
        self.action, self.sends = inner.action, inner.sends
        self.mechanism = inner.mechanism
        self._round: MaskedRound | None = None

    # What passes through

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns the inner strategy's state."""
        return self.inner.state()

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Hands the state to the inner strategy."""
        self.inner.load_state(state)

    def uncovered(self) -> list[str]:
        """Returns what the inner strategy gives away beside the updates."""
        return self.inner.uncovered()

    def problems(self, clients: int) -> list[str]:
        """Returns the inner strategy's problems."""
        return self.inner.problems(clients)

    def prepare(self, layout: ParameterLayout) -> None:
        """Tells the inner strategy which tensors travel."""
        self.inner.prepare(layout)

    # One round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Lets the cohort exchange keys and shares; then asks for masked updates."""
        nodes = node_ids(grid)
        self._start, self._round = to_vectors(arrays)["float"], None
        self._seed, self._number = int(str(config[SEED])), server_round
        asked = list(self.inner.configure_train(server_round, arrays, config, grid))
        if len(asked) < 2:
            return asked
        # Above half of them, and never less than the noise's own threshold.
        noise = self.inner.shares(len(asked)) if isinstance(self.inner, PrivateStrategy) else 0
        threshold = max(2, noise, math.ceil(self.masking.threshold * len(asked)))
        session = Session(server_round, int(str(config[ATTEMPT])), threshold)
        cohort = {nodes.index(m.metadata.dst_node_id): m.metadata.dst_node_id for m in asked}
        ring = self.ring(len(nodes), self._start.numel())
        self._round = MaskedRound(grid, session, ring, cohort, str(config.get(MODEL, "")))
        self._round.exchange_shares()
        return self._round.asking(asked)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Adds up the masked updates, removes the masks, hands the sum to the inner strategy."""
        self.revealed = None
        discrete = self.mechanism if self.mechanism and self.mechanism.scale else None
        if self._round is None:
            if discrete:
                replies = [self._whole(reply, discrete, server_round) for reply in replies]
            return self.inner.aggregate_train(server_round, replies)
        total = sum_of(replies)
        words = words_of(total.vectors.get(MASKED)).astype(np.uint32)
        words = self._round.unmasked(total.clients, words)
        if discrete:
            numbers = words.astype(np.uint16).view(np.int16).astype(np.float64)
            found = discrete_sum(numbers, discrete, self._seed, server_round)
        else:
            found = self._round.ring.decode(words, on_host(self._start[:0]).dtype)
        total.vectors = {"float": as_tensor(found).to(self._start)}
        self.revealed = total
        node = next(iter(self._round.nodes.values()))
        reply = self._round.grid.create_message(
            sum_record(total), f"train.{self.action}", node, str(server_round)
        )
        return self.inner.aggregate_train(server_round, [reply])

    def _whole(self, reply: Message, discrete: Mechanism, round: int) -> Message:
        """Returns the answer of a client that was alone, with what its whole numbers stand for."""
        if not reply.has_error():
            numbers = to_vectors(reply.content.array_records[UPDATE])["float"]
            found = discrete_sum(on_host(numbers), discrete, self._seed, round)
            reply.content[UPDATE] = to_array_record({"float": as_tensor(found).to(self._start)})
        return reply

    def cohort(self, server_round: int, config: ConfigRecord, clients: int) -> list[int]:
        """Returns the clients that the inner strategy draws."""
        return self.inner.cohort(server_round, config, clients)

    def booked(self, attempt: Attempt) -> Release:
        """Returns the inner strategy's release, or one without noise: masks hide once, too."""
        return self.inner.booked(attempt) or Release(attempt, 1.0, 1.0, 0.0, 0.0, 0.0)

    def settle(self, clients: int, size: int) -> None:
        """Chooses the steps of a discrete mechanism, once it is known what is added up.

        Args:
            clients: of the federation.
            size: of the vectors that are sent.
        """
        if self.masking.mechanism == "gaussian" or self.mechanism is None:
            return
        made = self.mechanism
        steps = Steps.fitting(
            made.clip_norm,
            made.noise_multiplier,
            size,
            units=_expected(made, clients) * clients,
            clients=clients,
            threshold=getattr(self.inner, "threshold", 1.0),
            bands=made.bands,
        )
        self.inner.mechanism = replace(made, scale=steps.scale)
        self.mechanism = self.inner.mechanism

    def coarse(self, clients: int, size: int) -> list[str]:
        """Returns a problem if the ring would cost privacy, by clamping noise or by coarse steps.

        Args:
            clients: of the federation.
            size: of the vectors that are sent.
        """
        if self.mechanism is None or not self.mechanism.noise_std or not _clips(self.inner):
            return []
        if self.mechanism.scale:
            steps = steps_of(self.mechanism, size)
            return steps.problems(self.mechanism.noise_multiplier, clients)
        least = _bound(self.mechanism, clients, size)
        if self.masking.bound is not None and self.masking.bound < least:
            return [
                f"masking.bound={self.masking.bound:g} cuts off what noisy updates reach, and with "
                f"it noise that others rely on: take {least:.3g} or more, or null, which is that"
            ]
        step = self.ring(clients, size).step
        share = self.mechanism.noise_std / math.sqrt(clients) / self.mechanism.normaliser
        if share >= LEAST_STEPS * step:
            return []
        return [
            f"masking: a client's share of the noise, {share:.3g}, is {share / step:.2g} steps of "
            f"a ring of 32 bits, and must be {LEAST_STEPS} or more for its rounding to cost no "
            "privacy: take fewer clients or more noise, and masking.bound=null"
        ]

    def ring(self, clients: int, size: int) -> Ring:
        """Returns the ring for sums over at most so many clients of vectors of that size."""
        if self.mechanism and self.mechanism.scale:  # of whole numbers, whose sums wrap around
            return Ring(1.0, (MODULUS - 1) // 2 // clients, clients, BITS)
        bound = self.masking.bound or _bound(self.mechanism, clients, size)
        return Ring.fitting(bound, clients)


def _expected(mechanism: Mechanism, clients: int) -> float:
    """Returns how many units a client is expected to have in a round."""
    expected = mechanism.normaliser
    if mechanism.unit == "example":  # of all clients together, where the others' is of one client
        expected /= mechanism.client_rate * clients
    return expected


def _bound(mechanism: Mechanism | None, clients: int, size: int) -> float:
    """Returns a bound that a coordinate of a client's noisy sum exceeds only rarely.

    It allows for four times the expected number of units of a client and 16 more.
    """
    if mechanism is None:
        raise ValueError(
            "masking.bound is missing: without differential privacy nothing bounds an update, so "
            "set it to the largest coordinate that one may have, such as 1.0"
        )
    expected = _expected(mechanism, clients)
    reach = float(coefficients(mechanism.bands).sum())
    norm = (4 * expected + 16) * mechanism.clip_norm * reach
    return coordinate_bound(norm, mechanism.noise_std, clients, size) / mechanism.normaliser


def _clips(strategy: Strategy) -> bool:
    """Whether what one client sends is bounded by its mechanism: a noisy sum of clipped parts."""
    return isinstance(strategy, PrivateStrategy) and not strategy.own_noise
