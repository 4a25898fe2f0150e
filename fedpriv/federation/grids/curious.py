"""A grid around any grid that shows an honest-but-curious observer what the server receives.

The observer changes nothing. Where a worker would sum updates, they travel singly and are summed
here, in the same chunks and the same order, so that the bits are the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

from flwr.app import Message, RecordDict

from fedpriv.federation.grids._flwr import readdressed
from fedpriv.federation.grids.base import Failure, RoundGrid
from fedpriv.federation.messages import INSTRUCTION, Chunk, instruction_of

Sent = Callable[[Message], bool]
Received = Callable[[int, Message], None]


class CuriousGrid(RoundGrid):
    """Shows an observer the training messages and the answers that it wants to see.

    Args:
        inner: any of our grids.
        sent: called with each training message before it leaves; returns whether the observer wants
            the answer.
        received: called with the client's number and its reply for each of those answers.
    """

    def __init__(self, inner: RoundGrid, sent: Sent, received: Received) -> None:
        super().__init__(inner.clients, inner.chunk_size)
        self._inner, self._run, self._ids = inner, inner.run, inner._ids
        self._sent, self._received = sent, received

    def take_failures(self) -> list[Failure]:
        """Returns the inner grid's failures since the last call."""
        return self._inner.take_failures()

    def get_node_ids(self) -> Iterable[int]:
        """Returns the node ids in the order of the clients' numbers."""
        return self._inner.get_node_ids()

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterator[Message]:
        """Yields the same replies as the inner grid, after showing the observer the single ones."""
        asked = list(messages)
        training = [m for m in asked if m.metadata.message_type.startswith("train")]
        # The observer may want some clients only, so it is shown all messages.
        wanted = [self._sent(message) for message in training]
        if not any(wanted):
            yield from self._inner.send_and_receive(asked, timeout=timeout)
            return
        kept = {m.metadata.dst_node_id for m, w in zip(training, wanted, strict=True) if w}
        # Sums single replies chunk by chunk as they come: grids yield chunks in order.
        client_of = {node: client for client, node in enumerate(self.get_node_ids())}
        chunks = self.chunked(asked)
        chunk_of = {m.metadata.dst_node_id: i for i, chunk in enumerate(chunks) for m in chunk}
        at, chunk = 0, Chunk(asked[0])
        for reply in self._inner.send_and_receive(map(_single, asked), timeout=timeout):
            node = reply.metadata.src_node_id
            if chunk_of[node] != at:
                yield from chunk.replies()
                at, chunk = chunk_of[node], Chunk(asked[0])
            if node in kept and not reply.has_error():
                self._received(client_of[node], reply)
            chunk.add(client_of[node], reply)
            del reply  # or it would be there while the next clients train
        yield from chunk.replies()


def _single(message: Message) -> Message:
    """Returns the same message, but asking for a single update."""
    instruction = instruction_of(message)
    if instruction is None or not instruction.summed:
        return message
    content = RecordDict(dict(message.content))
    content[INSTRUCTION] = dataclasses.replace(instruction, summed=False).to_record()
    return readdressed(content, message)
