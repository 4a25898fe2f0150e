"""Serving clients, the same in every grid: one message to one client, one chunk to one worker."""

from __future__ import annotations

import builtins
import traceback
from dataclasses import asdict, dataclass
from typing import Any, Literal

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedpriv.federation.client import NOTES, NUM_PARTITIONS, PARTITION_ID
from fedpriv.federation.faults import Fault
from fedpriv.federation.grids._flwr import readdressed, timeless
from fedpriv.federation.messages import RunningSum, add_reply, instruction_of, sum_record

CLIENT_FAILED = 2
"""Flower's own code for a client app that raised."""


KNOWN_ERRORS = {
    *(name for name, kind in vars(builtins).items() if isinstance(kind, type)),
    *("Crash", "ActorDiedError", "OutOfMemoryError"),
}
"""Kinds of errors of which the server is told: Python's own, ours, and the ends of a worker."""


@dataclass(frozen=True)
class Failure:
    """What became of a client that did not answer, or not as it should have.

    For the person who runs the simulation.

    The server is told of `KNOWN_ERRORS` only: a traceback can quote a document.

    Attributes:
        round: of the message.
        client: its number.
        kind: "failed" (raised, or took its worker down), "missing" (no answer in time), or
            "noted": it did answer, but not as it should have.
        reason: the kind of error.
        traceback: where it happened, with the text of the error.
    """

    round: int
    client: int
    kind: Literal["failed", "missing", "noted"]
    reason: str
    traceback: str = ""

    def to_json(self) -> dict[str, str | int]:
        """Returns the failure as a JSON object."""
        return asdict(self)


def context_of(client: int, node_id: int, clients: int) -> Context:
    """Returns a client's Flower context: fresh for each message, so clients keep no state."""
    return Context(
        run_id=1,
        node_id=node_id,
        node_config={PARTITION_ID: client, NUM_PARTITIONS: clients},
        state=RecordDict(),
        run_config={},
    )


def round_of(message: Message) -> int:
    """Returns the round of a message, 0 where it names none (a stock Flower strategy)."""
    instruction = instruction_of(message)
    return instruction.round if instruction else 0


def serve(
    app: ClientApp, message: Message, context: Context
) -> tuple[Message | None, Failure | None]:
    """Lets one client answer; what it raises becomes an error reply and a `Failure`.

    A client that is made to be missing (`fedpriv.federation.faults`) replies nothing.
    """
    client = int(context.node_config[PARTITION_ID])
    fault = Fault.of(message)
    if fault and fault.missing:
        return None, Failure(round_of(message), client, "missing", fault.reason)
    try:
        if fault:
            fault.strike()
        return timeless(app(message, context), message), _noted(message, context)
    except (Exception, SystemExit) as error:
        where = traceback.format_exc()
        failure = Failure(round_of(message), client, "failed", type(error).__name__, where)
        return error_reply(message, failure), failure


def _noted(message: Message, context: Context) -> Failure | None:
    """Returns what a client that did answer wants the person who runs the simulation to know."""
    record = context.state.config_records.get(NOTES)
    if record is None:
        return None
    notes: Any = record[NOTES]
    client = int(context.node_config[PARTITION_ID])
    return Failure(round_of(message), client, "noted", "; ".join(notes))


def error_reply(message: Message, failure: Failure) -> Message:
    """Returns the error message that the server gets instead of an answer.

    It names the kind of error if everybody knows that kind, else "Exception": a class's name is a
    text like any other, and could be made of what a client holds.
    """
    reason = failure.reason if failure.reason in KNOWN_ERRORS else "Exception"
    return timeless(Message(Error(CLIENT_FAILED, reason), reply_to=message), message)


class Chunk:
    """Collects the replies of one chunk of clients in the form that the strategy asked for.

    Args:
        sent: any message of the chunk; its instruction says whether single updates are wanted or
            only their sum.
    """

    def __init__(self, sent: Message) -> None:
        instruction = instruction_of(sent)
        self._weight = instruction.weight if instruction else ""
        self._sum = RunningSum() if instruction and instruction.summed else None
        self._first: Message | None = None
        self._single: list[Message] = []

    def add(self, client: int, reply: Message | None) -> None:
        """Adds a reply, if there is one; the calls must come in the order of the cohort."""
        if reply is None:
            return
        if reply.has_error() or self._sum is None:
            self._single.append(reply)
            return
        add_reply(self._sum, client, reply, self._weight)
        self._first = self._first or reply

    def replies(self) -> list[Message]:
        """Returns the sum of those who answered (if anybody did), then all that travels singly."""
        if self._sum is None or self._first is None:
            return self._single
        # The sum stands in for the first reply that went into it.
        total = readdressed(sum_record(self._sum), self._first)
        return [total, *self._single]
