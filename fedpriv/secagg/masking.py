"""Masking around a strategy: the server learns the sum of the updates, and no update.

`Masking` is the setting (`masking=on`); `Masked` is the strategy that stands between the round loop
and the strategy inside, which sees one decoded sum and does not notice. It runs the stages of
`fedpriv.secagg.protocol` (whose docstring has the threat model) before and after the training
messages.

The rounding to the ring is not free: it can raise the sensitivity of the sum from C to C + √d·step,
so the ledger books the noise multiplier divided by as much. A cohort of one client is not masked:
its sum is its vector.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedpriv.messages import (
    INSTRUCTION,
    Instruction,
    RunningSum,
    sum_of,
    sum_record,
    to_vectors,
)
from fedpriv.privacy.ledger import Attempt, Release
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.privacy.strategy import PrivateStrategy
from fedpriv.secagg import messages
from fedpriv.secagg.messages import ADVERTISE, MASKED, REVEAL, SECAGG, SHARE, Ask
from fedpriv.secagg.protocol import Session, TooFewSurvivors, forward, unmask
from fedpriv.secagg.ring import Ring, coordinate_bound
from fedpriv.strategy import ATTEMPT, Strategy
from fedpriv.tally import TooFewClients

T = TypeVar("T")


@dataclass(frozen=True)
class Masking:
    """Secure aggregation around whatever strategy is chosen.

    Args:
        threshold: share of the cohort that must stay to the end, above one half; for a strategy
            with a threshold of its own, the larger of the two numbers of clients counts.
        bound: the most that a coordinate of one client's update can be, beyond which it is cut off;
            a public constant. None takes it from the strategy's mechanism; strategies that clip
            nothing need it. The smaller, the finer the ring.
    """

    threshold: float = 0.67
    bound: float | None = None

    def __post_init__(self) -> None:
        if not 0.5 < self.threshold <= 1:
            raise ValueError(f"threshold={self.threshold}: expected a value in (0.5, 1]")
        if self.bound is not None and not (self.bound > 0 and math.isfinite(self.bound)):
            raise ValueError(f"bound={self.bound}: expected a positive, finite number")

    def problems(self, strategy: Strategy) -> list[str]:
        """Returns what of a strategy cannot be masked, and what to set instead."""
        found = []
        if strategy.buffers:
            found.append("strategy.buffers=true: buffers cannot be masked; set it to false")
        if _weighted(strategy):
            found.append(
                "strategy: the server cannot weight masked updates by numbers of examples; set "
                "strategy.weighted=false, or strategy.variant=sound"
            )
        if self.bound is None and not _clips(strategy):
            found.append(
                f"masking.bound=null: {type(strategy).__name__} does not bound what a client "
                "sends; set masking.bound to a number, such as 1.0"
            )
        return found

    def around(self, strategy: Strategy) -> Masked:
        """Returns the strategy behind masks."""
        return Masked(strategy, self)


class Masked(Strategy):
    """A strategy whose clients' updates are masked.

    Args:
        inner: the strategy; it must need the sum only, unweighted, and no buffers.
        masking: the settings.
    """

    action: str  # type: ignore[misc]  # the inner strategy's

    def __init__(self, inner: Strategy, masking: Masking) -> None:
        self.inner, self.masking = inner, masking
        self.action = inner.action
        self.mechanism = inner.mechanism
        self._session: Session | None = None
        self._rings: dict[tuple[int, int], Ring] = {}

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

    # One round

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Lets the cohort exchange keys and shares; then asks for masked updates."""
        asked = list(self.inner.configure_train(server_round, arrays, config, grid))
        self._grid, self._dtype = grid, to_vectors(arrays)["float"].dtype
        self._session = None
        if len(asked) < 2:
            return asked
        nodes = list(grid.get_node_ids())
        self._node = {nodes.index(m.metadata.dst_node_id): m.metadata.dst_node_id for m in asked}
        attempt = int(str(config[ATTEMPT]))
        self._session = Session(server_round, attempt, self._threshold(len(asked)))
        self._ring = self.ring(len(asked), to_vectors(arrays)["float"].size)
        self._exchange_shares()
        ask = Ask(self._session.threshold, self._roster, self._peers, ring=self._ring)
        return [
            _with(message, ask)
            for client, message in zip(self._node, asked, strict=True)
            if client in self._peers
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Adds up the masked updates, removes the masks, hands the sum to the inner strategy."""
        if self._session is None:
            return self.inner.aggregate_train(server_round, replies)
        total = sum_of(replies)
        words = self._unmasked(total)
        total.vectors = {"float": self._ring.decode(words, self._dtype)}
        return self.inner.aggregate_train(server_round, [self._as_reply(total)])

    def booked(self, attempt: Attempt) -> Release | None:
        """Returns the inner strategy's release, with what the ring's rounding costs."""
        if self._session is None or self.mechanism is None:
            return self.inner.booked(attempt)
        # Who was drawn, also where some fell away before they were asked for an update: the
        # noise was split for all of them.
        drawn = dataclasses.replace(attempt, cohort=tuple(sorted(self._node)))
        release = self.inner.booked(drawn)
        if release is None or release.own_noise:
            return release
        clip = self.mechanism.clip_norm / self.mechanism.normaliser
        rounding = self._ring.rounding_norm(self._size)
        return dataclasses.replace(
            release, noise_multiplier=release.noise_multiplier * clip / (clip + rounding)
        )

    def ring(self, cohort: int, size: int) -> Ring:
        """Returns the ring for sums over so many clients of vectors of that size."""
        self._size = size
        bound = self.masking.bound or _bound(self.inner.mechanism, cohort, size)
        return Ring.fitting(bound, cohort)

    def _threshold(self, cohort: int) -> int:
        """Returns t: above half, and never less than the noise's own threshold."""
        own = self.inner.shares(cohort) if isinstance(self.inner, PrivateStrategy) else 0
        return max(2, own, math.ceil(self.masking.threshold * cohort))

    # The stages

    def _exchange_shares(self) -> None:
        """Stages 0 and 1: public keys, then encrypted shares of every client's secrets."""
        session = self._session_now()
        ask = Ask(session.threshold)
        self._roster = self._query(ADVERTISE, dict.fromkeys(self._node, ask), messages.keys_of)
        self._require(len(self._roster), "sent their keys")
        ask = Ask(session.threshold, self._roster)
        sent = self._query(SHARE, dict.fromkeys(self._roster, ask), messages.boxes_of)
        self._require(len(sent), "shared their secrets")
        self._boxes = forward(sent)
        self._peers = set(sent)

    def _unmasked(self, total: RunningSum) -> NDArray[np.uint32]:
        """Stage 3: the survivors reveal what removes the masks that are left in the sum."""
        session, survivors = self._session_now(), total.clients
        self._require(len(survivors), "sent their masked updates")
        asks = {
            client: Ask(
                session.threshold, self._roster, boxes=self._boxes[client], survivors=survivors
            )
            for client in survivors
        }
        answers = self._query(REVEAL, asks, messages.revealed_of)
        self._require(len(answers), "revealed their shares")
        try:
            words = total.vectors[MASKED]
            return unmask(
                session, self._roster, self._peers, survivors, words, list(answers.values())
            )
        except TooFewSurvivors as error:
            raise TooFewClients(str(error)) from error

    def _query(
        self, action: str, asks: Mapping[int, Ask], read: Callable[[ConfigRecord], T]
    ) -> dict[int, T]:
        """Sends each client its question; returns the answers of those who gave one."""
        session = self._session_now()
        instruction = Instruction(session.round, session.attempt, summed=False).to_record()
        sent = [
            self._grid.create_message(
                RecordDict({INSTRUCTION: instruction, SECAGG: ask.to_record()}),
                f"query.{action}",
                self._node[client],
                str(session.round),
            )
            for client, ask in asks.items()
        ]
        client_of = {node: client for client, node in self._node.items()}
        replies = self._grid.send_and_receive(sent)
        return {
            client_of[reply.metadata.src_node_id]: read(reply.content.config_records[SECAGG])
            for reply in replies
            if not reply.has_error()
        }

    def _session_now(self) -> Session:
        if self._session is None:
            raise RuntimeError("no masked round is under way")
        return self._session

    def _require(self, clients: int, what: str) -> None:
        needed = self._session_now().threshold
        if clients < needed:
            raise TooFewClients(
                f"{clients} of {len(self._node)} clients {what}, and it takes {needed} to remove "
                "the masks: nothing was learned from this attempt"
            )

    def _as_reply(self, total: RunningSum) -> Message:
        node = next(iter(self._node.values()))
        return self._grid.create_message(sum_record(total), f"train.{self.action}", node, "")


def _with(message: Message, ask: Ask) -> Message:
    """Returns the training message with the request to mask the answer."""
    message.content[SECAGG] = ask.to_record()
    return message


def _bound(mechanism: Mechanism | None, cohort: int, size: int) -> float:
    """Returns the most that a coordinate of a client's noisy sum can be, but rarely.

    As many units as a client may plausibly add up: four times the expected number, and some.
    """
    if mechanism is None:
        raise ValueError("a strategy without a mechanism needs masking.bound")
    units = 4 * mechanism.normaliser + 16
    norm = units * mechanism.clip_norm
    bound = coordinate_bound(norm, mechanism.noise_std, cohort, size)
    return bound / mechanism.normaliser


def _clips(strategy: Strategy) -> bool:
    """Whether what one client sends is bounded by its mechanism: a noisy sum of clipped parts."""
    return isinstance(strategy, PrivateStrategy) and not strategy.own_noise


def _weighted(strategy: Strategy) -> bool:
    if isinstance(strategy, PrivateStrategy):
        return bool(strategy.weight) and strategy.variant == "paper"
    return bool(getattr(strategy, "weighted", False))
