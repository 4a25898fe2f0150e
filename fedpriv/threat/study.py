"""A study: many trainings of one experiment, each a run of its own, and what they say together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from fedpriv.runtime.jobs import Pool
from fedpriv.runtime.run_folder import RunFolder

if TYPE_CHECKING:
    from fedpriv.config.experiment import Experiment

TRAININGS = "trainings"
"""Folder of the trainings' run folders, in that of the study."""


@dataclass(frozen=True)
class Variant:
    """One training of a study.

    Attributes:
        name: of its folder.
        overrides: of the experiment, as on the command line: "strategy=centralised_dp".
        values: more settings by dotted path, which no command line could hold.
        experiment: another one than the study's own, by name.
    """

    name: str
    overrides: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    experiment: str | None = None


@dataclass(frozen=True)
class Lab:
    """What a study has when all trainings are done.

    Attributes:
        base: the experiment that the trainings are variants of.
        folder: of the study.
        pool: for further work on all cores.
        tell: shows one line of progress.
    """

    base: Experiment
    folder: RunFolder
    pool: Pool
    tell: Callable[[str], None]

    def training(self, name: str) -> RunFolder:
        """Returns the run folder of a variant."""
        return RunFolder.existing(self.folder.path / TRAININGS / name)


class Study(Protocol):
    """Says what is to be trained, and then what comes of it.

    Both are called anew when a study is resumed, and must then say the same.
    """

    def variants(self, base: Experiment) -> Sequence[Variant]:
        """Returns the trainings, before anything is started.

        Raises:
            ValueError: if the experiment does not fit the study.
        """
        ...

    def conclude(self, lab: Lab) -> Mapping[str, Any]:
        """Writes the findings into the study's folder, and returns their metrics."""
        ...
