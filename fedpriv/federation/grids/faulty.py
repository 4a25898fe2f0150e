"""A grid around any grid whose clients fail on purpose (`fedpriv.federation.faults`)."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import Message

from fedpriv.federation.faults import TRAIN, Faults
from fedpriv.federation.grids._flwr import readdressed
from fedpriv.federation.grids.base import RoundGrid, WrappedGrid
from fedpriv.federation.messages import round_of


class FaultyGrid(WrappedGrid):
    """Decides on the server's side which client fails at which message.

    The fault travels in the message, so that cohorts are cut into the same chunks as without it.

    Args:
        inner: any of our grids.
        faults: decide which client fails, when and how.
        seed: of the run.
    """

    def __init__(self, inner: RoundGrid, faults: Faults, seed: int) -> None:
        super().__init__(inner)
        self._faults, self._seed = faults, seed
        self._client_of = {node: client for client, node in enumerate(inner.get_node_ids())}

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Passes the messages on, with their faults."""
        return super().push_messages(map(self._struck, messages))

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Returns the replies of the inner grid with these faults."""
        return self._inner.send_and_receive(map(self._struck, messages), timeout=timeout)

    def _struck(self, message: Message) -> Message:
        """Returns the message with the fault of its client, or unchanged if it has none."""
        client = self._client_of[message.metadata.dst_node_id]
        kind, _, action = message.metadata.message_type.partition(".")
        stage = TRAIN if kind == TRAIN else action
        fault = self._faults.fault(self._seed, round_of(message), client, stage)
        return readdressed(fault.into(message), message) if fault else message
