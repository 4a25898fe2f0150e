"""Counts of one round: who was asked, who answered, what travelled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from flwr.app import ArrayRecord, Message

from fedpriv.messages import answered_by


class TooFewClients(RuntimeError):
    """Fewer clients answered than the run accepts."""


class Tally:
    """Counts who was asked, who answered, who failed and who was never heard of, in one round."""

    def __init__(self, min_clients: int) -> None:
        self.min_clients = min_clients
        self.sampled = self.answered = self.failed = 0
        self.down = self.up = 0

    def sending(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Passes the messages on, counting them."""
        for message in messages:
            self.sampled += 1
            self.down += _bytes(message)
            yield message

    def receiving(
        self, replies: Iterable[Message], tell: Callable[[int, int], None]
    ) -> Iterator[Message]:
        """Passes the replies on and tells how many have come; at their end, raises if too few.

        So a strategy that adds up the replies first and then moves has not moved.
        """
        for reply in replies:
            self.failed += reply.has_error()
            self.answered += answered_by(reply)
            self.up += _bytes(reply) * answered_by(reply)
            tell(self.answered, self.sampled)
            yield reply
        planned_empty = self.sampled == 0 and self.min_clients <= 1
        if self.answered < self.min_clients and not planned_empty:
            raise TooFewClients(
                f"{self.answered} of {self.sampled} clients answered, min_clients is "
                f"{self.min_clients}"
            )

    def counts(self) -> dict[str, int]:
        """Returns the counts for metrics.jsonl."""
        missing = self.sampled - self.answered - self.failed
        return {
            "sampled": self.sampled,
            "answered": self.answered,
            "failed": self.failed,
            "missing": missing,
        }

    def traffic(self) -> dict[str, int]:
        """Returns the bytes of tensors sent down to the clients and up to the server.

        As a real network would carry them: one copy per client, sums in the worker or not.
        """
        return {"down": self.down, "up": self.up}


def _bytes(message: Message) -> int:
    if message.has_error():
        return 0
    records: list[ArrayRecord] = list(message.content.array_records.values())
    return sum(array.numpy().nbytes for record in records for array in record.values())
