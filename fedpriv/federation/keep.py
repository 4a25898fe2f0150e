"""What a run keeps for attacks: the round loop knows keepers, and nothing of attacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from flwr.app import Message
from torch import nn

from fedpriv.federation.client import WorkerSpec
from fedpriv.federation.dataset import FederatedDataset
from fedpriv.federation.grids.base import RoundGrid
from fedpriv.federation.messages import RunningSum
from fedpriv.federation.strategy import Strategy
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.vectors import ParameterLayout


@dataclass(frozen=True)
class Prepared:
    """A run that is about to begin or to go on, or that has come to its end.

    Attributes:
        folder: of the run.
        bound: its data and its model.
        spec: what the clients are built from, with the client half, the seed and the keys.
        strategy: the server's half.
        model: as round 1 starts from it; after the run, as its last round left it.
        layout: cuts vectors into the model's tensors.
        settings: what everybody in the federation knows of it.
        tell: shows one line to the person in front of the run.
    """

    folder: RunFolder
    bound: FederatedDataset
    spec: WorkerSpec
    strategy: Strategy
    model: nn.Module
    layout: ParameterLayout
    settings: Mapping[str, Any]
    tell: Callable[[str], None]


class Watcher(Protocol):
    """Accompanies one run and looks at what the server sees."""

    def around(self, grid: RoundGrid) -> RoundGrid:
        """Returns the grid with the watcher on it."""

    def summing(self, round: int, attempt: int, replies: Iterable[Message]) -> Iterator[Message]:
        """Passes on the replies that the strategy adds up."""

    def aggregated(self, round: int, attempt: int, total: RunningSum) -> None:
        """Looks at the sum that the strategy has decoded, where the server sees no other."""


class Keeper(Protocol):
    """Keeps something of a run for attacks: a frozen dataclass of settings."""

    def problems(self, bound: FederatedDataset, seed: int) -> list[str]:
        """Returns what leaves nothing to keep, each problem with the setting that it is about."""

    def before(self, run: Prepared) -> Watcher | None:
        """Writes what is known before the first round; returns what watches the run, if any."""

    def after(self, run: Prepared) -> None:
        """Writes what can wait until the rounds are over.

        Of a run that was killed it is called when the run has been resumed and comes to its end.
        """
