"""What a tracker is, and those there are; each library is imported when a run begins to use it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

TRACKERS = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
"""The trackers by name, each with the package that it needs."""


@dataclass(frozen=True)
class Tracked:
    """A run that is followed.

    Attributes:
        run_dir: its folder.
        runs: the folder that the runs lie in, each under its name.
        name: of the run.
        done: the last round that was done before, 0 for a new run.
        settings: of the run, as in config.yaml.
    """

    run_dir: Path
    runs: Path
    name: str
    done: int
    settings: Mapping[str, Any]


class Board(Protocol):
    """Where one run is written."""

    def round(self, record: Mapping[str, Any]) -> None:
        """Writes a round, given as in metrics.jsonl."""


Follow = Callable[[Tracked], AbstractContextManager[Board]]
"""What each module of a tracker has as `follow`."""


def problems(names: Sequence[str]) -> list[str]:
    """Returns why trackers cannot be used, each with what would work."""
    return [
        f"federation.trackers: {name} needs the package {TRACKERS[name]}, which is not installed: "
        "pip install 'fedpriv[trackers]'"
        for name in names
        if importlib.util.find_spec(TRACKERS[name]) is None
    ]


@contextmanager
def following(names: Sequence[str], run: Tracked) -> Iterator[list[Board]]:
    """Follows a run with all trackers of these names."""
    with ExitStack() as stack:
        follows: list[Follow] = [
            importlib.import_module(f"fedpriv.runtime.trackers.{name}").follow for name in names
        ]
        yield [stack.enter_context(follow(run)) for follow in follows]


def numbers(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yields every number of a round's record, nested ones as `group/name`."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name != "round":
            yield f"{prefix}{name}", float(value)


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every setting under its dotted name."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
