"""What our own grids share: a fixed list of clients, numbered from 0, behind Flower's `Grid`."""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal, TypeVar

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedpriv.federation.grids._flwr import SERVER_NODE_ID, Run, enter_run, set_message_id
from fedpriv.federation.messages import chunks
from fedpriv.runtime.refusals import Failed

CHUNKS = 8
"""Chunks of a cohort by default: enough to keep a few workers evenly busy."""

T = TypeVar("T")


class WorkersDied(Failed):
    """Workers die before they can serve anybody, so no client is at fault."""


@dataclass(frozen=True)
class Failure:
    """A client that did not answer, or with a remark, for the person who runs the simulation.

    The server learns the kind of error at most, because a traceback can quote a document.

    Attributes:
        round: of the message.
        client: its number.
        kind: "failed" (it raised an error, or its worker died), "missing" (no answer in time), or
            "noted" (it answered, with a remark).
        reason: the kind of error.
        traceback: where it happened, with the text of the error.
        cut: the share of its update's coordinates that `masking.bound` has cut off.
    """

    round: int
    client: int
    kind: Literal["failed", "missing", "noted"]
    reason: str
    traceback: str = ""
    cut: float = 0.0

    def to_json(self) -> dict[str, str | int]:
        """Returns the failure as a JSON object; what was cut stands in the round's metrics."""
        return {name: value for name, value in asdict(self).items() if name != "cut"}


class RoundGrid(Grid):
    """A Flower grid that the round loop can run on.

    `get_node_ids()` lists the clients in the order of their numbers. `send_and_receive` yields
    replies in the order of the messages; where the messages ask for sums only
    (`Instruction.summed`), it yields the sums of the cohort's chunks instead.

    Args:
        clients: how many clients there are.
        chunk_size: how many consecutive clients of a cohort are summed before the sum of the
            chunks; None for an eighth of the cohort. It decides the order of additions, hence the
            bits; the number of workers does not.

    Attributes:
        deadline: seconds for the answers to a `send_and_receive` without a timeout; None waits for
            ever.
        prepare: changes each message before it is sent, such as one to a client that is to fail.
    """

    deadline: float | None = None
    _run: Run

    def __init__(self, clients: int, chunk_size: int | None) -> None:
        if clients < 1 or (chunk_size is not None and chunk_size < 1):
            raise ValueError(f"{clients=} and {chunk_size=} must be at least 1")
        self.clients = clients
        self.chunk_size = chunk_size
        self._failures: list[Failure] = []
        self._pushed: dict[str, Message] = {}
        self._ids = itertools.count(1)
        self.prepare: Callable[[Message], Message] = lambda message: message

    def take_failures(self) -> list[Failure]:
        """Returns the failures since the last call, sorted by round and client: workers race."""
        failures, self._failures = self._failures, []
        return sorted(failures, key=lambda failure: (failure.round, failure.client))

    def chunked(self, cohort: Sequence[T]) -> list[list[T]]:
        """Cuts a cohort into chunks, the same way in all grids."""
        return list(chunks(cohort, self.chunk_size or max(1, math.ceil(len(cohort) / CHUNKS))))

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Returns a message from the server to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def close(self) -> None:
        """Releases the workers."""

    def set_run(self, run: Run) -> None:
        """Sets the run, as Flower's engines do."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run that this grid belongs to."""
        return self._run

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Keeps the messages until they are pulled; returns their ids."""
        stamped = {message.metadata.message_id: message for message in self._stamped(messages)}
        self._pushed |= stamped
        return list(stamped)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Serves the messages of these ids; returns their replies."""
        return list(self.send_and_receive([self._pushed.pop(id_) for id_ in message_ids]))

    def _stamped(self, messages: Iterable[Message]) -> Iterator[Message]:
        for message in map(self.prepare, messages):
            if not message.metadata.message_id:
                set_message_id(message, f"message-{next(self._ids)}")
            yield message


class ClientGrid(RoundGrid):
    """A grid over simulated clients of our own.

    Node ids follow the client numbers, so `get_node_ids()` lists the clients in order, in every
    process and every run. Replies stream: `send_and_receive` yields each when it is needed, in the
    order of the messages, and keeps none.
    """

    def __init__(self, clients: int, chunk_size: int | None = None) -> None:
        super().__init__(clients, chunk_size)
        self._run = enter_run(run_id=1)

    def client_of(self, node_id: int) -> int:
        """Returns the client's number."""
        client = node_id - SERVER_NODE_ID - 1
        if not 0 <= client < self.clients:
            raise ValueError(f"node id {node_id} is none of the {self.clients} clients'")
        return client

    # Flower's interface

    def get_node_ids(self) -> Iterable[int]:
        """Returns the node ids in the order of the clients' numbers."""
        return range(SERVER_NODE_ID + 1, SERVER_NODE_ID + 1 + self.clients)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterator[Message]:
        """Returns the replies in the order of the messages, each when it is asked for.

        Args:
            messages: to the clients of one round.
            timeout: seconds for all of them together; `deadline` if None. Clients that have not
                answered by then are missing, and there is no reply for them.
        """
        timeout = self.deadline if timeout is None else timeout
        return self._deliver(list(self._stamped(messages)), timeout)

    @abstractmethod
    def _deliver(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        """Serves stamped messages."""
