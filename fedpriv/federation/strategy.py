"""The server's half of an algorithm: Flower's `Strategy` with an action and a state to save.

The round loop, with its checkpoints, fault policy and streaming sums, needs this class. A strategy
that was written for Flower gets it from `fedpriv.federation.flower.adapter.FlowerAdapter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy as FlowerStrategy
from numpy.typing import NDArray

from fedpriv.federation.messages import Instruction, instruct, node_ids
from fedpriv.privacy.ledger import Attempt, Release
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.privacy.sampling import ClientSampling
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.vectors import ParameterLayout

SEED, ATTEMPT, KEY, MODEL = "seed", "attempt", "key", "model"
"""Keys of the config that `configure_train` gets: the run's seed, the number of the attempt at the
round and, where the strategy is private, the run's `message_key` and the digest of the model."""


class Strategy(FlowerStrategy):
    """The server's half of an algorithm.

    A round is drawn once: if it is repeated after an interruption, `configure_train` draws the same
    cohort. `aggregate_train` must consume all `replies` before it changes any state, because the
    stream ends in `TooFewClients` if the round does not count.

    Attributes:
        action: the client half's; messages are of the type `train.<action>`.
        sends: whether the clients' updates are gradients or changes of the model, for attacks.
        buffers: whether the model's buffers are part of the global vectors.
        mechanism: of differential privacy; None where there is none.
        version: of the algorithm. Raise it when its messages change.
    """

    action: ClassVar[str]
    sends: ClassVar[Literal["gradient", "delta"]] = "delta"
    buffers: bool = False
    mechanism: Mechanism | None = None
    version: ClassVar[int] = 1

    def problems(self, clients: int) -> list[str]:
        """Returns the reasons why this strategy cannot run on so many clients."""
        return []

    def prepare(self, layout: ParameterLayout) -> None:
        """Learns which tensors travel, before the first round of a run.

        Args:
            layout: of the run's model.
        """

    def cohort(self, server_round: int, config: ConfigRecord, clients: int) -> list[int]:
        """Returns the clients that `configure_train` draws, for the ledger of a private strategy.

        Args:
            server_round: from 1.
            config: as `configure_train` is given it.
            clients: how many there are.
        """
        return []

    def booked(self, attempt: Attempt) -> Release | None:
        """Returns the release of one attempt for the ledger; None without a mechanism."""
        return None

    def uncovered(self) -> list[str]:
        """Returns what else leaves the clients that no ε in the ledger covers, in words."""
        return []

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns the state that must survive a restart, such as Adam's moments, by name."""
        return {}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restores a state that `state` returned."""

    def broadcast(
        self, cohort: Iterable[int], arrays: ArrayRecord, instruction: Instruction, grid: Grid
    ) -> list[Message]:
        """Returns the same message to each client of a cohort, by number."""
        nodes = node_ids(grid)
        return [
            grid.create_message(
                instruct(arrays, instruction),
                f"train.{self.action}",
                nodes[client],
                str(instruction.round),
            )
            for client in cohort
        ]

    # fedpriv evaluates the global model on held-out documents. Clients evaluate nothing.

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


class SampledStrategy(Strategy):
    """A strategy without a mechanism, whose cohort is drawn by its setting `sampling`."""

    sampling: ClientSampling

    def problems(self, clients: int) -> list[str]:
        """Returns why the sampling does not work on so many clients."""
        problem = self.sampling.problem(clients)
        return [f"sampling: {problem}"] if problem else []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draws the cohort and sends each of its clients w_t."""
        self._global = arrays
        attempt = int(str(config[ATTEMPT]))
        rng = generator(int(str(config[SEED])), f"client sampling, attempt {attempt}", server_round)
        cohort = self.sampling.draw(len(node_ids(grid)), rng)
        return self.broadcast(cohort, arrays, self.instruction(server_round, attempt), grid)

    def instruction(self, server_round: int, attempt: int) -> Instruction:
        """Returns what each client of the cohort is told: for sums of updates, without a weight."""
        return Instruction(server_round, attempt)
