"""What fedpriv asks of a strategy beyond Flower's `Strategy`: an action, and a state to save.

A stock Flower strategy runs on fedpriv's grids through its own `start`; the round loop, with its
checkpoints, fault policy and streaming sums, wants this class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import NDArray

from fedpriv.federation.messages import Instruction, instruct
from fedpriv.privacy.ledger import Attempt, Release
from fedpriv.privacy.mechanism import Mechanism

SEED, ATTEMPT, KEY, MODEL = "seed", "attempt", "key", "model"
"""What `configure_train` is told: the run's seed, which attempt at the round this is and, where the
strategy is private, the run's `message_key` and the digest of the model that is sent."""


class Strategy(FlowerStrategy):
    """The server's half of an algorithm.

    A round is drawn once: `configure_train` draws the same cohort again where a round is made again
    after an interruption. `aggregate_train` must use up `replies` before it changes any state: the
    stream ends in `TooFewClients` when the round does not count.

    Attributes:
        action: what the client half must answer, `train.<action>`.
        sends: what the clients' updates are, for who looks at them.
        buffers: whether the model's buffers are part of the global vectors.
        mechanism: what makes it private; None where nothing does.
        version: of the algorithm, to be raised when its messages change.
    """

    action: ClassVar[str]
    sends: ClassVar[Literal["gradient", "delta"]] = "delta"
    buffers: bool = False
    mechanism: Mechanism | None = None
    version: ClassVar[int] = 1

    def problems(self, clients: int) -> list[str]:
        """Returns what keeps this strategy from running on so many clients."""
        return []

    def cohort(self, server_round: int, config: ConfigRecord, clients: int) -> list[int]:
        """Returns the clients that `configure_train` draws, for the ledger of a private strategy.

        Args:
            server_round: from 1.
            config: as `configure_train` is given it.
            clients: how many there are.
        """
        return []

    def booked(self, attempt: Attempt) -> Release | None:
        """Returns what one attempt released, for the ledger; None where nothing is private."""
        return None

    def uncovered(self) -> list[str]:
        """Returns what else leaves the clients, of which no ε in the ledger speaks."""
        return []

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns what must survive a restart (a server optimiser's moments), by name."""
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Takes back what `state` returned."""

    def broadcast(
        self, cohort: Iterable[int], arrays: ArrayRecord, instruction: Instruction, grid: Grid
    ) -> list[Message]:
        """Returns the same message to each client of a cohort, by number."""
        nodes = list(grid.get_node_ids())
        return [
            grid.create_message(
                instruct(arrays, instruction),
                f"train.{self.action}",
                nodes[client],
                str(instruction.round),
            )
            for client in cohort
        ]

    # fedpriv evaluates the global model on held-out documents; clients evaluate nothing.

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Sends no evaluation messages."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Has nothing to aggregate."""
        return None

    def summary(self) -> None:
        """The settings are in the run folder's config.yaml."""
