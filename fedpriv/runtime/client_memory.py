"""What a client remembers of its own earlier rounds; nobody else sees it.

On disk it is a file for each name and round, in a folder of the client's own. A round that is
computed again writes the same file again, so a run that was killed and resumed finds what it left.
On a grid of Flower's it is the state that Flower keeps for each node.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, RecordDict
from numpy.typing import NDArray

Vector = NDArray[Any]


class ClientMemory(ABC):
    """Vectors of a client's earlier rounds, by name and round."""

    def write(self, name: str, round: int, vector: Vector, *, oldest: int) -> None:
        """Remembers a vector of a round, and forgets those of the same name from before `oldest`.

        A later round may be there already, from a run that goes on from an earlier checkpoint.
        """
        self._put(f"{name}-{round}", vector)
        for other in self._names():
            kind, _, number = other.rpartition("-")
            if kind == name and int(number) < oldest:
                self._drop(other)

    def read(self, name: str, round: int) -> Vector | None:
        """Returns the vector of a round; None if there is none."""
        return self._get(f"{name}-{round}")

    @abstractmethod
    def _put(self, name: str, vector: Vector) -> None: ...

    @abstractmethod
    def _get(self, name: str) -> Vector | None: ...

    @abstractmethod
    def _names(self) -> list[str]: ...

    @abstractmethod
    def _drop(self, name: str) -> None: ...


@dataclass(frozen=True)
class OnDisk(ClientMemory):
    """The memory of a client that is simulated.

    Attributes:
        folder: of this client alone.
    """

    folder: Path

    def _put(self, name: str, vector: Vector) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / f"{name}.npy.{os.getpid()}"
        with half.open("wb") as file:
            np.save(file, vector, allow_pickle=False)
        half.replace(self.folder / f"{name}.npy")  # whoever reads finds all of it, or nothing

    def _get(self, name: str) -> Vector | None:
        path = self.folder / f"{name}.npy"
        return np.load(path, allow_pickle=False) if path.is_file() else None

    def _names(self) -> list[str]:
        return [path.stem for path in self.folder.glob("*.npy")]

    def _drop(self, name: str) -> None:
        (self.folder / f"{name}.npy").unlink(missing_ok=True)


@dataclass(frozen=True)
class InState(ClientMemory):
    """The memory of a node of Flower's.

    Attributes:
        state: that Flower keeps for the node; without it, nothing outlives the message.
    """

    state: RecordDict = field(default_factory=RecordDict)

    def _put(self, name: str, vector: Vector) -> None:
        self.state[name] = ArrayRecord({name: Array(vector)})

    def _get(self, name: str) -> Vector | None:
        found = self.state.array_records.get(name)
        return None if found is None else found[name].numpy()

    def _names(self) -> list[str]:
        return list(self.state.array_records)

    def _drop(self, name: str) -> None:
        self.state.array_records.pop(name, None)
