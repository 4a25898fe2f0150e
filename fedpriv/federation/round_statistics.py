"""Counts of one round: clients that were asked, that answered, and the bytes that travelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from flwr.app import Array, ArrayRecord, Message

from fedpriv.federation.grids._flwr import VectorArray
from fedpriv.federation.messages import answered_by
from fedpriv.runtime.refusals import Failed


class TooFewClients(Failed):
    """Fewer clients answered than the run accepts."""


class OtherAnswers(TooFewClients):
    """A repeated attempt got answers of other clients than before, under the same noise."""


class RoundStatistics:
    """Counts the clients of one round that were asked, answered, failed and stayed silent.

    Args:
        min_clients: with fewer answers the round does not count.
        nodes: the node ids in the order of the clients' numbers.
        before: the clients that answered an earlier try at this attempt; None for the first try.

    Attributes:
        cohort: the clients that were asked, by number.
        survivors: those that answered.
        complete: the replies have come to their end.
        down: bytes of tensors sent to each client, by number.
        up: bytes of tensors that each client sent, by number.
    """

    def __init__(
        self, min_clients: int, nodes: Iterable[int], before: set[int] | None = None
    ) -> None:
        self.min_clients, self.before = min_clients, before
        self._number = (
            nodes.index
            if isinstance(nodes, range)
            else {node: client for client, node in enumerate(nodes)}.__getitem__
        )
        self.cohort: list[int] = []
        self.survivors: list[int] = []
        self.failed, self.complete = 0, False
        self.down: Counter[int] = Counter()
        self.up: Counter[int] = Counter()

    def sending(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Passes the messages on, counting them."""
        for message in messages:
            client = self._number(message.metadata.dst_node_id)
            self.cohort.append(client)
            self.down[client] += _bytes(message)
            yield message

    def receiving(
        self,
        replies: Iterable[Message],
        tell: Callable[[int, int], None],
        book: Callable[[], None] | None,
    ) -> Iterator[Message]:
        """Passes the replies on and reports their number; raises an error at their end if too few.

        A strategy that adds up all replies before it moves has not moved then.

        Args:
            replies: of the round.
            tell: called with the number of answers and of clients that were asked.
            book: called when all replies are there and will be used, before the strategy can use
                them; None where nothing is booked.
        """
        for reply in replies:
            self.failed += reply.has_error()
            for named in answered_by(reply):
                client = self._number(reply.metadata.src_node_id) if named is None else named
                self.survivors.append(client)
                self.up[client] += _bytes(reply)
            tell(len(self.survivors), len(self.cohort))
            yield reply
            del reply  # or it would be there while the next clients train
        self.complete = True
        if self.before is not None and self.before != set(self.survivors):
            raise OtherAnswers(
                f"clients {sorted(self.survivors)} answered, and {sorted(self.before)} did before "
                "the run was interrupted: two sums under one noise would give away a client"
            )
        planned_empty = not self.cohort and self.min_clients <= 1
        if len(self.survivors) < self.min_clients and not planned_empty:
            raise TooFewClients(
                f"{len(self.survivors)} of {len(self.cohort)} clients answered, min_clients is "
                f"{self.min_clients}"
            )
        if book:
            book()

    def counts(self) -> dict[str, int]:
        """Returns the counts for metrics.jsonl."""
        sampled, answered, failed = len(self.cohort), len(self.survivors), self.failed
        missing = sampled - answered - failed
        return {"sampled": sampled, "answered": answered, "failed": failed, "missing": missing}

    def traffic(self) -> dict[str, Any]:
        """Returns the bytes of tensors sent down to the clients and up to the server.

        They are counted as on a real network: one copy per client, even if a worker sums updates.
        `bytes_by_client` is number → [down, up].
        """
        each = {str(c): [self.down[c], self.up[c]] for c in sorted(self.cohort)}
        return {
            "bytes_down": sum(self.down.values()),
            "bytes_up": sum(self.up.values()),
            "bytes_by_client": each,
        }


def _bytes(message: Message) -> int:
    if message.has_error():
        return 0
    records: list[ArrayRecord] = list(message.content.array_records.values())
    return sum(bytes_of(array) for record in records for array in record.values())


def bytes_of(array: Array) -> int:
    """Returns the size of an array without looking at its numbers."""
    if isinstance(array, VectorArray):
        return array.tensor().nbytes
    return array.numpy().nbytes
