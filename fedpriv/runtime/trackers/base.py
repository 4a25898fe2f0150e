"""What a tracker is, and those there are; each library is imported when a run begins to use it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

TRACKERS = {"tensorboard": "tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
"""The trackers by name, each with the package that it needs."""


SERVERS = {
    "mlflow": ("MLFLOW_TRACKING_URI", "", "MLFLOW_TRACKING_URI"),
    "wandb": ("WANDB_BASE_URL", "https://api.wandb.ai", "WANDB_MODE"),
}
"""Trackers that may be on a server: the variable with its address, which one it is without, and the
variable to unset for no server."""

PATIENCE = 5.0
"""Seconds in which a server must answer before a run begins."""


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
    found = [
        f"federation.trackers: {name} needs the package {TRACKERS[name]}, which is not installed: "
        "pip install 'fedpriv[trackers]'"
        for name in names
        if importlib.util.find_spec(TRACKERS[name]) is None
    ]
    for name in names:
        variable, usual, off = SERVERS.get(name, ("", "", ""))
        server = urlsplit(os.environ.get(variable) or usual)
        if server.scheme not in ("http", "https") or (name == "wandb" and not online()):
            continue
        if server.scheme in getproxies() and not proxy_bypass(server.hostname or ""):
            continue  # what is behind a proxy need not be reached from here
        port = 443 if server.scheme == "https" else 80
        try:
            socket.create_connection((server.hostname, server.port or port), PATIENCE).close()
        except (OSError, ValueError) as error:
            found.append(
                f"federation.trackers: {name}: nobody answers at {_public(server.geturl())} "
                f"({error}): start it, or unset {off} to write files beside the runs"
            )
    return found


def online() -> bool:
    """Returns whether Weights & Biases is to send what it writes."""
    return os.environ.get("WANDB_MODE") == "online"


@contextmanager
def following(
    names: Sequence[str], run: Tracked, tell: Callable[[str], None]
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Follows a run with all trackers of these names; one that fails is told, and left out.

    Yields:
        What takes the record of a round.
    """
    opened: dict[str, AbstractContextManager[Board]] = {}
    boards: dict[str, Board] = {}

    @contextmanager
    def tolerated(name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever a library or its server does
            boards.pop(name, None)
            why = _public(f"{type(error).__name__}: {error}").partition("\n")[0]
            tell(f"the tracker {name} failed, and the run goes on without it: {why:.300}")

    def take(record: Mapping[str, Any]) -> None:
        for name, board in [*boards.items()]:
            with tolerated(name):
                board.round(record)

    for name in names:
        follow: Follow = importlib.import_module(f"fedpriv.runtime.trackers.{name}").follow
        with tolerated(name):
            board = follow(run)
            boards[name] = board.__enter__()
            opened[name] = board
    try:
        yield take
    finally:
        for name, entered in opened.items():
            with tolerated(name):
                entered.__exit__(*sys.exc_info())


def _public(text: str) -> str:
    """Returns a text in which addresses have no names, passwords and queries, such as a token."""
    return re.sub(r"(//[^\s?#]+)[?#]\S+", r"\1", re.sub(r"//[^/@\s]*@", "//", text))


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
