"""The parts of a federation: what `Federation` takes and an experiment file names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flwr.serverapp.strategy import Strategy as FlowerStrategy

from fedpriv.federation.client import Client
from fedpriv.federation.dataset import Data
from fedpriv.federation.faults import Faults
from fedpriv.federation.keep import Keeper
from fedpriv.federation.secagg.masking import Masking
from fedpriv.runtime.outside import OutputSetting
from fedpriv.runtime.workers.ray_session import RaySettings
from fedpriv.training.adapters import FineTuning
from fedpriv.training.pretraining import Pretraining


@dataclass(kw_only=True, eq=False, repr=False)
class Parts:
    """The parts of a federation.

    This is the one place where a part is declared: `Federation` and
    `fedpriv.config.experiment.Experiment` inherit the fields, and defaults, checks and the
    reference of settings (`fedpriv.config.reference`) come from them.

    Args:
        data: the documents, and how they are dealt out to clients, such as
            `fedpriv.federation.dataset.DocumentData`.
        model: the function that builds the model, given what the data knows of it (`labels=…` for
            documents); in YAML it is a section with `_partial_: true`.
        strategy: the server's half of the algorithm: it draws the clients of a round and aggregates
            their updates. One of fedpriv's (`fedpriv.federation.strategy.Strategy`), or any that
            was written for Flower's message API, such as `flwr.serverapp.strategy.FedAdam`.
        client: the client's half of the algorithm: it trains on one client's documents.
        name: the name of the run, and of its folder in the folder `runs`.
        seed: the seed of all random choices in the run.
        runs: the folder in which each run gets a folder of its own.
        ray: where Ray runs.
        masking: secure aggregation, which hides single updates from the server. With None, the
            server sees every update.
        finetuning: the part of the model that is trained. None trains every parameter that the
            model itself leaves trainable.
        pretraining: training on public documents before round 1, unless the cache holds its result
            already. None starts round 1 from the model's own weights.
        keep: what stays in the run folder for attacks, each under a name of its own
            (`fedpriv.threat.surfaces`). If empty, nothing is kept.
        faults: a rule that makes clients fail on purpose. None makes no client fail.
    """

    data: Data
    model: Callable[..., Any]
    strategy: FlowerStrategy
    client: Client
    name: str = "federation"
    seed: int = 0
    runs: OutputSetting = "runs"
    ray: RaySettings = RaySettings()  # noqa: RUF009 - frozen
    masking: Masking | None = None
    finetuning: FineTuning | None = None
    pretraining: Pretraining | None = None
    keep: Mapping[str, Keeper] | Sequence[Keeper] = ()
    faults: Faults | None = None

    @property
    def keepers(self) -> tuple[Keeper, ...]:
        """What is kept, without names."""
        return tuple(self.keep.values() if isinstance(self.keep, Mapping) else self.keep)
