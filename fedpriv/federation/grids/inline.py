"""Clients in this process, one after the other: for tests, for debugging, for one GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator

from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedpriv.federation.grids._flwr import readdressed
from fedpriv.federation.grids.base import ClientGrid
from fedpriv.federation.grids.serving import Chunk, Failure, context_of, round_of, serve


class InlineGrid(ClientGrid):
    """Serves every message in the calling thread.

    A client that raises costs itself that round. One that hangs or ends the process takes the run
    along: only a worker of its own (`RayGrid`) protects from that.
    """

    def __init__(self, app: ClientApp, clients: int, chunk_size: int | None = None) -> None:
        super().__init__(clients, chunk_size)
        self._app = app

    def _deliver(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        deadline = None if timeout is None else time.monotonic() + timeout
        for batch in self.chunked(messages):
            chunk = Chunk(batch[0])
            for message in batch:
                if deadline is not None and time.monotonic() > deadline:
                    self._miss(message)
                    continue
                self._serve_into(chunk, message)
            yield from chunk.replies()

    def _serve_into(self, chunk: Chunk, message: Message) -> None:
        node_id = message.metadata.dst_node_id
        client = self.client_of(node_id)
        context = context_of(client, node_id, self.clients)
        reply, failure = serve(self._app, _own_copy(message), context)
        if failure:
            self._failures.append(failure)
        chunk.add(client, reply)

    def _miss(self, message: Message) -> None:
        client = self.client_of(message.metadata.dst_node_id)
        self._failures.append(Failure(round_of(message), client, "missing", "RoundTimeout"))


def _own_copy(message: Message) -> Message:
    """Returns the message with records of its own, as if it had travelled; arrays are shared.

    The clients of a round may be sent one record, and a client may take out of it what it reads.
    """
    content = RecordDict(dict(message.content))
    for name, record in content.array_records.items():
        shell = ArrayRecord()
        for key, array in record.items():
            shell[key] = array
        content[name] = shell
    return readdressed(content, message)
