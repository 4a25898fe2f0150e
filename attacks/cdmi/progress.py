"""What an attack has found so far, on disk: one line of JSON for each field."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from fedpriv.attacks.cdmi.decoding import Say
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat.claims import Reconstruction


@dataclass(frozen=True)
class Done:
    """A field that was attacked.

    Attributes:
        found: what was made of it.
        evaluations: candidates that were given to the target for it.
        asked: as many as there had been if no two attempts had shared any.
        seconds: of wall time, its share of its chunk's.
        say: the target's, at each place that the attack came to.
    """

    found: Reconstruction
    evaluations: int
    asked: int
    seconds: float
    say: tuple[Say, ...] = ()


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
        folder, path = RunFolder.made(self.folder), self.folder / self._file
        lines = path.read_bytes() if path.is_file() else b""
        whole = lines[: lines.rfind(b"\n") + 1]
        if whole != lines:  # or the next line would be written behind half of one
            folder.write(self._file, whole)
        one_of = TypeAdapter(Done).validate_python
        return {one.found.number: one for one in map(one_of, folder.records(self._file))}

    def add(self, done: Iterable[Done]) -> None:
        """Appends fields."""
        RunFolder.made(self.folder).append(self._file, [dataclasses.asdict(one) for one in done])

    @property
    def _file(self) -> str:
        return f"{self.name}.jsonl"
