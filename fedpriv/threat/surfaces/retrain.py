"""Training again: variants of a run's experiment, for attacks that compare models.

`retrained/` in a run folder holds a run folder for each variant. What has been trained is not
trained again, whatever was killed on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fedpriv.data.document import Document
from fedpriv.runtime.verify import RETRAINED
from fedpriv.threat.attack import NotGranted
from fedpriv.threat.settings import AttackSettings, at_least
from fedpriv.threat.surfaces.base import AttackedRun, InWords, Surface
from fedpriv.threat.surfaces.models import GreyBox

PLAN = f"{RETRAINED}/plan.json"
"""The settings of every variant, by its name."""

J = TypeVar("J")
R = TypeVar("R")


@dataclass(frozen=True)
class Variant:
    """One training beside the run's own.

    Attributes:
        name: of its folder.
        overrides: of the experiment, as on the command line: "strategy=centralised_dp".
        values: more settings by dotted path, which no command line could hold.
        experiment: another one than the run's own, by name.
    """

    name: str
    overrides: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    experiment: str | None = None


class TrainedRun(Protocol):
    """A training that has come to its end. It can be sent to another process."""

    @property
    def path(self) -> Path:
        """Its run folder."""

    def box(self, target: str, device: str) -> GreyBox:
        """Returns its model, to be asked.

        Args:
            target: "final", or "loss", the model after the round with the least validation loss.
            device: where the model is.

        Raises:
            ValueError: if the run has not kept the model.
        """

    def build_model(self) -> Callable[..., Any]:
        """Returns what builds its model."""

    def described(self) -> Mapping[str, Any]:
        """Returns its "model" and "strategy", and "epsilon" and "delta" of a private one."""


class Laboratory(Protocol):
    """Rebuilds a run's experiment. `fedpriv.studies.retraining` has the one that there is."""

    @property
    def seed(self) -> int:
        """Of the run."""

    @property
    def threads(self) -> int:
        """Of torch."""

    @property
    def original(self) -> TrainedRun:
        """The run itself."""

    def documents(self) -> tuple[tuple[Document, ...], tuple[Document, ...]]:
        """Returns the training documents, and those that were held out.

        Raises:
            ValueError: if the run's data are no documents.
        """

    def train(self, variants: Sequence[Variant]) -> Mapping[str, TrainedRun]:
        """Trains what has not been trained yet, on all cores; returns all by name.

        Raises:
            ValueError: with everything that is wrong, before anything is started.
            JobsFailed: if a training failed, after all others have come to their end.
        """

    def check(self, variants: Sequence[Variant]) -> None:
        """Checks all variants without training any.

        Raises:
            ValueError: with everything that is wrong.
        """

    def map(self, function: Callable[[J], R], jobs: Mapping[str, J]) -> Mapping[str, R]:
        """Returns what a function makes of each job, on all cores."""


@dataclass(frozen=True, kw_only=True)
class RetrainSettings(AttackSettings):
    """Whether the run may be trained again, and how.

    Args:
        retrain: whether variants of the run may be trained, for attacks that compare models.
        workers: the number of variants of the run that are trained side by side, each in a process
            of its own. 0 trains them in this process; None takes the number of the run
            (`federation.workers`).
    """

    retrain: bool = False
    workers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, workers=self.workers)


@dataclass(frozen=True)
class TrainingDocuments(Surface, auditor="An auditor, who chose the training documents"):
    """The documents that the run trained on, with their questions and answers.

    No adversary has them. An audit does: it asks a model for what it was trained on, without the
    answer, and counts which answers it gives away.

    Attributes:
        training: in the order in which they were trained on.
        held_out: not trained on.
        seed: of the run.
        threads: of torch.
        device: where models are asked.
    """

    training: tuple[Document, ...]
    held_out: tuple[Document, ...]
    seed: int
    threads: int
    device: str

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[TrainingDocuments, InWords]:
        """The run's own data, read again."""
        laboratory = _laboratory(run)
        training, held_out = laboratory.documents()
        found = TrainingDocuments(
            training, held_out, laboratory.seed, laboratory.threads, run.settings.on
        )
        return found, ("an audit: what is asked for was chosen by the training documents",)

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether they can be read again."""
        _laboratory(run)


@dataclass(frozen=True)
class Retrain(Surface, takes=RetrainSettings):
    """Trains variants of the run's experiment. What was trained is not trained again.

    Attributes:
        laboratory: trains, and asks the models, on all cores.
    """

    laboratory: Laboratory

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[Retrain, InWords]:
        """Trainings of variants, where they are allowed: they take as long as the run did, each."""
        cls.check(run)
        return Retrain(_laboratory(run)), ("variants of the run's training can be trained",)

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether variants may be trained, and can be."""
        if not run.settings.of(RetrainSettings).retrain:
            raise NotGranted(
                "retrain=false: no variant of the run is trained",
                "retrain=true, which trains several models",
                take="retrain=true",
            )
        _laboratory(run)


def _laboratory(run: AttackedRun) -> Laboratory:
    if run.laboratory is None:
        raise NotGranted(
            "the run's experiment cannot be rebuilt: its folder does not say how it was composed",
            "a run that was started by `fedpriv run`",
        )
    return run.laboratory
