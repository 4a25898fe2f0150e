"""What an attack has found so far, on disk: one line of JSON for each field."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat.claims import Attempt, Reconstruction


@dataclass(frozen=True)
class Done:
    """A field that was attacked.

    Attributes:
        found: what was made of it.
        evaluations: candidates that were given to the target for it.
        asked: as many as there had been if no two attempts had shared any.
        seconds: of wall time, its share of its chunk's.
    """

    found: Reconstruction
    evaluations: int
    asked: int
    seconds: float


@dataclass(frozen=True)
class Progress:
    """The file of one attack.

    Args:
        folder: where it lies.
        name: of the file, without its ending: a fingerprint of all that the attack depends on.
    """

    folder: Path
    name: str

    def read(self) -> dict[int, Done]:
        """Returns what was done, by the field's number; a line that was cut off is taken away."""
        folder, path = RunFolder.at(self.folder), self.folder / self._file
        lines = path.read_bytes() if path.is_file() else b""
        whole = lines[: lines.rfind(b"\n") + 1]
        if whole != lines:  # or the next line would be written behind half of one
            folder.write(self._file, whole)
        return {record["number"]: _done(record) for record in folder.records(self._file)}

    def add(self, done: Iterable[Done]) -> None:
        """Appends fields."""
        RunFolder.at(self.folder).append(self._file, [_record(one) for one in done])

    @property
    def _file(self) -> str:
        return f"{self.name}.jsonl"


def _record(done: Done) -> dict[str, Any]:
    return {
        **dataclasses.asdict(done.found),
        "evaluations": done.evaluations,
        "asked": done.asked,
        "seconds": done.seconds,
    }


def _done(record: Mapping[str, Any]) -> Done:
    attempts, baseline = (_attempts(record[name]) for name in ("attempts", "baseline"))
    found = Reconstruction(record["number"], attempts, baseline)
    return Done(found, record["evaluations"], record["asked"], record["seconds"])


def _attempts(records: Sequence[Mapping[str, Any]]) -> tuple[Attempt, ...]:
    return tuple(Attempt(tuple(one["tokens"]), one["confidence"]) for one in records)
