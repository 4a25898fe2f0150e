"""Serving clients in this process, one after the other: for tests, for debugging, for one GPU.

`serve` lets one client answer one message, the same in every grid: `RayGrid` calls it in the
processes of its workers.
"""

from __future__ import annotations

import builtins
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from flwr.app import ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedpriv.federation.client import (
    CUT,
    NOTES,
    NUM_PARTITIONS,
    PARTITION_ID,
    REMEMBERS,
    Job,
    WorkerApp,
)
from fedpriv.federation.faults import Fault
from fedpriv.federation.grids._flwr import readdressed, timeless
from fedpriv.federation.grids.base import ClientGrid, Failure
from fedpriv.federation.messages import FAULT, Chunk, round_of

CLIENT_FAILED = 2
"""Flower's own code for a client app that raised."""

KNOWN_ERRORS = {
    *(name for name, kind in vars(builtins).items() if isinstance(kind, type)),
    *("Crash", "ActorDiedError", "OutOfMemoryError", "WorkerDied"),
}
"""Kinds of errors that the server may learn: Python's own, ours, and the ends of a worker."""


class InlineGrid(ClientGrid):
    """Serves every message in the calling thread.

    A client that raises an error loses the round. One that hangs or ends the process takes the run
    with it; only separate workers (`RayGrid`) protect against that.
    """

    def __init__(self, app: ClientApp, clients: int, chunk_size: int | None = None) -> None:
        super().__init__(clients, chunk_size)
        self._app = app

    def _deliver(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        deadline = None if timeout is None else time.monotonic() + timeout
        numbered = [(self.client_of(m.metadata.dst_node_id), m) for m in messages]
        for batch in self.chunked(numbered):
            chunk = Chunk(batch[0][1])
            announce(self._app, batch)
            for client, message in batch:
                if deadline is not None and time.monotonic() > deadline:
                    missing = Failure(round_of(message), client, "missing", "RoundTimeout")
                    self._failures.append(missing)
                    continue
                reply, failure = serve(self._app, _own_copy(message), client, self.clients)
                if failure:
                    self._failures.append(failure)
                chunk.add(client, reply)
                del reply  # or it would be there while the next client trains
            yield from chunk.replies()


def announce(app: ClientApp, jobs: Sequence[Job]) -> None:
    """Tells an app of ours which messages it is served next, so that cohorts train at once."""
    if isinstance(app, WorkerApp):
        app.expect(jobs)


def _own_copy(message: Message) -> Message:
    """Returns the message with records of its own, as if it had travelled; arrays are shared.

    All clients of a round may get the same record, and a client may remove what it reads from it.
    """
    content = RecordDict(dict(message.content))
    for name, record in content.array_records.items():
        shell = ArrayRecord()
        for key, array in record.items():
            shell[key] = array
        content[name] = shell
    return readdressed(content, message)


def serve(
    app: ClientApp, message: Message, client: int, clients: int, state: RecordDict | None = None
) -> tuple[Message | None, Failure | None]:
    """Lets one client answer. An error becomes an error reply and a `Failure`.

    A client that is missing on purpose (`fedpriv.federation.faults`) does not reply. Each message
    gets a fresh Flower context.

    Args:
        app: the clients' app.
        message: to the client.
        client: its number.
        clients: how many there are.
        state: of the client, that outlives the message; None for none.
    """
    lasting = state is not None
    context = Context(
        run_id=1,
        node_id=message.metadata.dst_node_id,
        node_config={PARTITION_ID: client, NUM_PARTITIONS: clients, REMEMBERS: lasting},
        state=RecordDict() if state is None else state,
        run_config={},
    )
    fault = Fault.of(message) if FAULT in message.content else None
    if fault and fault.missing:
        return None, Failure(round_of(message), client, "missing", fault.reason)
    try:
        if fault:
            fault.strike()
        reply = timeless(app(message, context), message)
    except (Exception, SystemExit) as error:
        where = traceback.format_exc()
        failure = Failure(round_of(message), client, "failed", type(error).__name__, where)
        return error_reply(message, failure), failure
    if NOTES not in context.state.config_records:
        return reply, None
    noted: Any = context.state.config_records.pop(NOTES)
    said = "; ".join(noted[NOTES])
    return reply, Failure(round_of(message), client, "noted", said, cut=noted[CUT])


def error_reply(message: Message, failure: Failure) -> Message:
    """Returns the error message that the server gets instead of an answer.

    It names the kind of error if that is one of `KNOWN_ERRORS`, else "Exception": the name of a
    class is a text like any other, and could be made of private data.
    """
    reason = failure.reason if failure.reason in KNOWN_ERRORS else "Exception"
    return timeless(Message(Error(CLIENT_FAILED, reason), reply_to=message), message)
