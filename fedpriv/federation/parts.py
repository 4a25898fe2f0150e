"""The parts of a federation: what `Federation` takes and an experiment file names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.federation.client import Client
from fedpriv.federation.dataset import Data
from fedpriv.federation.faults import Faults
from fedpriv.federation.keep import Keeper
from fedpriv.federation.secagg.masking import Masking
from fedpriv.federation.strategy import Strategy
from fedpriv.runtime.ray_session import RaySettings
from fedpriv.training.adapters import FineTuning
from fedpriv.training.pretraining import Pretraining


@dataclass(kw_only=True, eq=False, repr=False)
class Parts:
    """The parts of a federation.

    This is the one place where a part is declared: `Federation` and
    `fedpriv.config.experiment.Experiment` inherit the fields, and defaults, checks and the
    reference of settings (`fedpriv.config.reference`) come from them.

    Args:
        data: the documents and whose they are, such as `fedpriv.federation.dataset.DocumentData`.
        model: builds the model, given what the data knows of it (`labels=…` for documents); in YAML
            with `_partial_: true`.
        strategy: the server's half of the algorithm.
        client: the client's half.
        name: the run's, and of its folder under `runs`.
        seed: the seed of everything random.
        runs: the folder for run folders.
        ray: where Ray runs.
        masking: secure aggregation around the strategy; None lets the server see every update.
        finetuning: what of the model is trained; None trains all that the model leaves trainable.
        pretraining: trains the model on public documents before round 1, unless the cache holds the
            result; None does without.
        keep: what stays in the run folder for attacks (`fedpriv.threat.keep`), in YAML by name.
        faults: clients that fail on purpose; None leaves it to chance.
    """

    data: Data
    model: Callable[..., Any]
    strategy: Strategy
    client: Client
    name: str = "federation"
    seed: int = 0
    runs: Path | str = "runs"
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
