"""What a client remembers of its own earlier rounds; nobody else sees it.

On disk it is a file for each name and round, in a folder of the client's own. On a grid of Flower's
it is the state that Flower keeps for the node. What a client sends may depend on it. So a round
that is repeated after an interruption sends the same only if the memory is as it was: `state_of`
tells whether it is, and a client refuses to answer one attempt in two ways (`ClientMemory.same`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

from fedpriv.runtime import run_files
from fedpriv.runtime.tensors import digest

Vector = NDArray[Any]

ANSWERED = "answered"
"""Name of the digest of what an answer depended on, by attempt and round."""


class ClientMemory(ABC):
    """Vectors of a client's earlier rounds, by name and round; round 0 is for what has none."""

    def write(self, name: str, round: int, vector: Vector, *, needed_from: int = 0) -> None:
        """Remembers a vector of a round.

        Args:
            name: without a hyphen.
            round: from 1, or 0.
            vector: what is remembered.
            needed_from: the first round of which vectors of this name are needed from now on.
        """
        self._put(f"{name}-{round}", vector)
        self._tidy(name, needed_from)

    def read(self, name: str, round: int) -> Vector | None:
        """Returns the vector of a round; None if there is none."""
        return self._get(f"{name}-{round}")

    def same(self, round: int, attempt: int, depends: str) -> None:
        """Notes what the answer to an attempt depends on.

        Raises:
            ValueError: if it was something else when the same attempt was answered before. Two
                answers under one noise would give away their difference.
        """
        now = np.frombuffer(bytes.fromhex(depends), np.uint8)
        before = self.read(f"{ANSWERED} {attempt}", round)
        if before is not None and not np.array_equal(before, now):
            raise ValueError(
                f"round {round}, attempt {attempt} was answered before, and what this client "
                "remembers of earlier rounds was not the same then"
            )
        self.write(f"{ANSWERED} {attempt}", round, now, needed_from=round - 1)

    @abstractmethod
    def _put(self, name: str, vector: Vector) -> None: ...

    @abstractmethod
    def _get(self, name: str) -> Vector | None: ...

    @abstractmethod
    def _tidy(self, name: str, needed_from: int) -> None: ...


@dataclass(frozen=True)
class OnDisk(ClientMemory):
    """The memory of a client that is simulated.

    A run that is resumed may need what this client no longer does, so whoever knows the checkpoints
    tidies up (`forget`).

    Attributes:
        folder: of this client alone.
    """

    folder: Path

    def _put(self, name: str, vector: Vector) -> None:
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(mode=0o700, exist_ok=True)
        half = self.folder / f"{name}.npy.{os.getpid()}"
        with run_files.output(half) as file:
            np.save(file, vector, allow_pickle=False)
        half.replace(self.folder / f"{name}.npy")  # whoever reads finds all of it, or nothing

    def _get(self, name: str) -> Vector | None:
        path = self.folder / f"{name}.npy"
        return np.load(path, allow_pickle=False) if path.is_file() else None

    def _tidy(self, name: str, needed_from: int) -> None:
        """Keeps all."""


@dataclass(frozen=True)
class InState(ClientMemory):
    """The memory of a node of Flower's.

    Attributes:
        state: that Flower keeps for the node.
    """

    state: RecordDict

    def _put(self, name: str, vector: Vector) -> None:
        self.state[name] = ArrayRecord({name: Array(vector)})

    def _get(self, name: str) -> Vector | None:
        found = self.state.array_records.get(name)
        return None if found is None else found[name].numpy()

    def _tidy(self, name: str, needed_from: int) -> None:
        for other in list(self.state.array_records):
            kind, round = _parts(other)
            if kind == name and round < needed_from:
                self.state.array_records.pop(other)


def forget(folder: Path, before: int) -> None:
    """Removes what simulated clients remember of rounds before one, but of round 0.

    Args:
        folder: with a folder of each client.
        before: the first round that is kept.
    """
    for path in folder.glob("*/*.npy"):
        if 0 < _parts(path.stem)[1] < before:
            path.unlink()


def state_of(folder: Path, since: int, until: int) -> str:
    """Returns a digest of what simulated clients remember of some rounds.

    Vectors of round 0 have a row for each thing remembered, with its round in front. Of those, all
    rounds up to the last count.

    Args:
        folder: with a folder of each client.
        since: the first round that counts.
        until: the last one.
    """
    found = {}
    for path in folder.glob("*/*.npy"):
        vector, (_, round) = np.load(path, allow_pickle=False), _parts(path.stem)
        if round == 0:
            vector = vector[vector[:, 0] <= until]
        if (round == 0 or since <= round <= until) and len(vector):
            found[f"{path.parent.name}/{path.stem}"] = vector
    return digest(found)


def _parts(name: str) -> tuple[str, int]:
    kind, _, round = name.rpartition("-")
    return kind, int(round)
