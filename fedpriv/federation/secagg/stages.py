"""The server's side of one masked attempt: keys and shares before it, the unmasking after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedpriv.federation.messages import INSTRUCTION, Instruction, instruction_of
from fedpriv.federation.round_statistics import TooFewClients
from fedpriv.federation.secagg import messages
from fedpriv.federation.secagg.messages import ADVERTISE, REVEAL, SECAGG, SHARE, Ask
from fedpriv.federation.secagg.protocol import Roster, Session, TooFewSurvivors, forward, unmask
from fedpriv.federation.secagg.ring import Ring

T = TypeVar("T")


@dataclass
class MaskedRound:
    """One attempt at a round of a cohort.

    Args:
        grid: reaches the clients.
        session: round, attempt and threshold.
        ring: how vectors are encoded.
        nodes: client number → node id, of the cohort.
        model: digest of the parameters that are sent, see `Instruction`.

    Attributes:
        roster: the public keys of the clients that have sent them.
        boxes: receiver → (sender → encrypted shares); the receivers are the peers.
    """

    grid: Grid
    session: Session
    ring: Ring
    nodes: Mapping[int, int]
    model: str = ""
    roster: Roster = field(default_factory=dict)
    boxes: Mapping[int, Mapping[int, bytes]] = field(default_factory=dict)

    def exchange_shares(self) -> None:
        """Stages 0 and 1: public keys, then encrypted shares of every client's secrets.

        Raises:
            TooFewClients: if fewer than the threshold have taken part.
        """
        ask = Ask(self.session.threshold)
        self.roster = self._query(ADVERTISE, dict.fromkeys(self.nodes, ask), messages.keys_of)
        self._require(len(self.roster), "sent their keys")
        ask = Ask(self.session.threshold, self.roster)
        sent = self._query(SHARE, dict.fromkeys(self.roster, ask), messages.boxes_of)
        self._require(len(sent), "shared their secrets")
        self.boxes = forward(sent)

    def asking(self, asked: Iterable[Message]) -> list[Message]:
        """Stage 2: returns the training messages of the peers, which ask for masked updates."""
        ask = Ask(self.session.threshold, self.roster, set(self.boxes), ring=self.ring).to_record()
        peers = {self.nodes[client] for client in self.boxes}
        kept = [message for message in asked if message.metadata.dst_node_id in peers]
        for message in kept:
            message.content[SECAGG] = ask
            if told := instruction_of(message):  # what all stages of an attempt have in common
                record = replace(told, model=self.model).to_record()
                message.content[INSTRUCTION] = record
        return kept

    def unmasked(self, survivors: list[int], total: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Stage 3: the survivors reveal what removes the masks that are left in their sum.

        Raises:
            TooFewClients: if fewer than the threshold survived, or answered.
        """
        self._require(len(survivors), "sent their masked updates")
        asks = {
            client: Ask(
                self.session.threshold, self.roster, boxes=self.boxes[client], survivors=survivors
            )
            for client in survivors
        }
        answers = list(self._query(REVEAL, asks, messages.revealed_of).values())
        self._require(len(answers), "revealed their shares")
        try:
            return unmask(self.session, self.roster, set(self.boxes), survivors, total, answers)
        except TooFewSurvivors as error:
            raise TooFewClients(str(error)) from error

    def _query(
        self, action: str, asks: Mapping[int, Ask], read: Callable[[ConfigRecord], T]
    ) -> dict[int, T]:
        """Sends each client its question; returns the answers by client, without missing ones."""
        session = self.session
        instruction = Instruction(
            session.round, session.attempt, summed=False, model=self.model
        ).to_record()
        sent = [
            self.grid.create_message(
                RecordDict({INSTRUCTION: instruction, SECAGG: ask.to_record()}),
                f"query.{action}",
                self.nodes[client],
                str(session.round),
            )
            for client, ask in asks.items()
        ]
        client_of = {node: client for client, node in self.nodes.items()}
        return {
            client_of[reply.metadata.src_node_id]: read(reply.content.config_records[SECAGG])
            for reply in self.grid.send_and_receive(sent)
            if not reply.has_error()
        }

    def _require(self, clients: int, what: str) -> None:
        needed = self.session.threshold
        if clients < needed:
            raise TooFewClients(
                f"{clients} of {len(self.nodes)} clients {what}, and it takes {needed} to remove "
                "the masks: nothing was learned from this attempt"
            )
