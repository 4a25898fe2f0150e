"""The run folder: the results of a run, written so that they survive `kill -9` at any moment.

A checkpoint is written to a temporary file, flushed to disk and renamed, so a file of its name is
whole. `metrics.jsonl` and `failures.jsonl` are appended before the checkpoint of their round. On
resume, lines of rounds that no checkpoint covers are dropped and those rounds are run again.

All writes are noted in log.jsonl (`fedpriv.runtime.run_log`) from the first command on. No link is
followed (`fedpriv.runtime.run_files`), because a run folder may come from somebody else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeGuard

from safetensors import SafetensorError, safe_open

from fedpriv.runtime import run_files, run_lock, run_log
from fedpriv.runtime.refusals import Refused
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_settings import settings_from, settings_text

if TYPE_CHECKING:
    from torch import Tensor

LAYOUT = "layout.json"
LAYOUT_VERSION = 1
"""To be raised when files of a run folder get another name or meaning; folders from before there
were numbers have no `layout.json`."""
CONFIG = "config.yaml"
METRICS = "metrics.jsonl"
FAILURES = "failures.jsonl"
PARTITION = "partition.json"
PREDICTION = "prediction.json"
DATA = "data.json"
"""Digests of the documents, by which a resumed run knows them again: leave it out of what you
publish."""
LEDGER = "ledger.json"
BOOKED = "booked.jsonl"
"""What has been booked since `LEDGER` was written, a line each; at the end of a run it is gone."""
CHECKPOINTS = "checkpoints"
FINAL = f"{CHECKPOINTS}/final.safetensors"
START = f"{CHECKPOINTS}/start.safetensors"
CLIENTS = "clients"
"""The folder of what simulated clients remember of their own earlier rounds, by number."""
UNITS = "units.json"
"""Whose data they were, for whoever knows the secret of the user who ran it: leave it out of what
you publish."""
SALT = "salt"
"""What noise and masks were drawn from beside the seed: whoever has both can draw them again.
Behind it stands the folder that it was drawn for. A copy of the folder, in which other clients may
answer, would send other sums under the same noise: it draws a salt of its own."""
FINDINGS = "findings"
RESULT = "result.json"
"""The name of an attack's result in its folder under `FINDINGS`."""
AUDIT = "mechanism_audit"
"""Among the findings: what an audit of the mechanism has measured."""
REPORT = "report.html"
RESULTS, PLAN = "results.json", "plan.json"
"""What the folders of a sweep and of an assessment have, which have no `CONFIG`."""

_MODEL, _STRATEGY, _META = "model/", "strategy/", "fedpriv"


class NotARunFolder(Refused):
    """The folder given holds no run."""


class OtherLayout(NotARunFolder):
    """The run folder was written by a fedpriv that names its files otherwise."""


@dataclass(frozen=True)
class Checkpoint:
    """The state after a round.

    Attributes:
        round: the last completed one; 0 before the first.
        model: the exchanged tensors by name.
        strategy: the strategy's own state by name.
        meta: values that must agree for a resume to make sense, such as the seed.
    """

    round: int
    model: Mapping[str, Tensor]
    strategy: Mapping[str, Tensor] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFolder:
    """A run's folder and the files in it.

    Attributes:
        path: of the folder.
        problems: takes in words what cannot be read, which is then taken as if it were not there;
            None if it raises `Damaged`.
    """

    path: Path
    problems: list[str] | None = field(default=None, compare=False)

    @classmethod
    def create(cls, root: Path | str, name: str) -> RunFolder:
        """Makes a new folder `root/name/<time>`; runs of the same second get a number each.

        Raises:
            ValueError: if the name is not that of a folder, and would lead out of `root`.
        """
        check_name(name)
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        parent = Path(root) / name
        parent.mkdir(parents=True, exist_ok=True)
        for suffix in ("", *(f"_{i}" for i in range(2, 1000))):
            path = parent / f"{stamp}{suffix}"
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                continue
            return cls(path)
        raise FileExistsError(f"{parent / stamp}: a thousand runs of the same second")

    @classmethod
    def made(cls, path: Path) -> Self:
        """Returns the folder at `path` to write in; it is made, for its owner, if it is not there.

        To look into a folder that there is, say `RunFolder(path)`, which changes nothing.
        """
        run_files.make_root(path)
        return cls(path)

    @classmethod
    def existing(cls, path: Path | str) -> Self:
        """Returns the folder of an earlier run.

        Raises:
            NotARunFolder: if there is no run in it.
            OtherLayout: if an older or a newer fedpriv has written it.
        """
        path = Path(path)
        if not (path / CONFIG).is_file():
            what = "no such folder" if not path.is_dir() else f"it has no {CONFIG}"
            raise NotARunFolder(f"{path} is not a run folder: {what}")
        folder = cls(path)
        version = (folder.read_json(LAYOUT) or {}).get("version")
        if version != LAYOUT_VERSION:
            found = f"{LAYOUT} says {version!r}" if version is not None else f"it has no {LAYOUT}"
            raise OtherLayout(
                f"{path} is of another layout than {LAYOUT_VERSION}, which this fedpriv reads "
                f"({found}): use the fedpriv that wrote it, which {CONFIG} names under `versions`, "
                "or run the experiment again"
            )
        return folder

    @contextmanager
    def writing(self, command: str, settings: Mapping[str, Any], what: str = "") -> Iterator[None]:
        """Keeps other writers out while the block lasts, and notes the command in the log.

        Args:
            command: such as "resume".
            settings: of the command, for the log.
            what: names a part of the folder that may be written at the same time as others, such as
                the findings of one attack; empty for the run.

        Raises:
            InUse: if another process writes the same.
        """
        with run_lock.writing(self.path, command, what):
            if command == "resume" and run_log.has_log(self.path):
                # Changes that are accepted here are written anew, and would look like fedpriv's.
                from fedpriv.runtime.verify import check

                if found := check(self.path).problems():
                    settings = {**settings, run_log.TAKEN_OVER: found}
            run_log.begin(self.path, command, settings)
            try:
                yield
            except BaseException as error:
                with suppress(OSError):  # such as the full disk that ended the command
                    run_log.end(self.path, command, error)
                raise
            run_log.end(self.path, command)

    def config(self) -> dict[str, Any]:
        """Reads the resolved settings.

        Raises:
            Damaged: if they are no YAML mapping.
        """
        text = (self.read(CONFIG) or b"").decode("utf-8", "replace")
        try:
            return settings_from(text)
        except ValueError as error:
            raise Damaged(f"{self.path / CONFIG}: {error}") from error

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Writes the resolved settings, and before the first of them the layout's version."""
        if not self.has(LAYOUT):
            self.write_json(LAYOUT, {"version": LAYOUT_VERSION})
        self.write(CONFIG, settings_text(config).encode())

    def write_json(self, name: str, value: Any) -> None:
        """Writes a JSON file in one piece."""
        self.write(
            name, json.dumps(value, ensure_ascii=False, indent=1).encode(errors="backslashreplace")
        )

    def read_json(self, name: str, kind: type = dict) -> Any:
        """Reads a JSON file, None where there is none.

        Args:
            name: of the file.
            kind: what it is to hold, `dict` or `list`.

        Raises:
            Damaged: if it holds anything else.
        """
        data, value = self.read(name), None
        with self.noting():
            if data is not None:
                try:
                    value = json.loads(data)
                except (ValueError, RecursionError) as error:
                    raise Damaged(f"{self.path / name} is not JSON: {error}") from error
                if not isinstance(value, kind):
                    value, expected = None, "object" if kind is dict else "list"
                    raise Damaged(f"{self.path / name} holds no JSON {expected}")
        return value

    def read_ledger(self) -> dict[str, Any] | None:
        """Reads the ledger as far as it has come; None where there is none.

        Of a run that is under way or was killed, `BOOKED` has what was booked since `LEDGER` was
        written: each attempt as it began, before anything was sent, and as it ended. A last line
        that was cut off is left out. If it was of a beginning, nothing had been sent; if it was of
        an end, the beginning stands, which counts as planned.

        Raises:
            Damaged: if a file is not whole.
        """
        ledger: dict[str, Any] | None
        ledger, booked = run_files.unchanged(
            self.path / LEDGER, lambda: (self.read_json(LEDGER), self.records(BOOKED))
        )
        if ledger is not None:
            with self.making_sense_of(BOOKED if booked else LEDGER):
                ledger = with_booked(ledger, booked)
        return ledger

    @contextmanager
    def making_sense_of(self, name: str) -> Iterator[None]:
        """Takes a file as `Damaged` if the block cannot use what was read from it."""
        with self.noting(), run_files.making_sense_of(self.path / name):
            yield

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Ends the block where something is `Damaged`: that is noted in `problems`, or raised."""
        try:
            yield
        except Damaged as error:
            if self.problems is None:
                raise
            self.problems.append(f"{str(error).removeprefix(f'{self.path}/'):.300}")

    def has(self, name: str) -> bool:
        """Returns whether there is such a file.

        Raises:
            Damaged: if there is a link or the like in its place.
        """
        try:
            run_files.open_file(self.path, name).close()
        except FileNotFoundError:
            return False
        return True

    def names(self, place: str, pattern: str = "*") -> list[str]:
        """Returns the names in a folder of the run folder, sorted; empty where it is not there."""
        found: list[str] = []
        with self.noting():
            found = run_files.names(self.path, place, pattern)
        return found

    def read(self, name: str) -> bytes | None:
        """Returns what a file holds, None where there is none."""
        found = None
        with self.noting():
            found = run_files.read(self.path, name)
        return found

    def write(self, name: str, data: bytes) -> None:
        """Writes a file, so that it exists as a whole or not at all."""
        run_log.write(self.path, name, data)

    def salt(self) -> str:
        """Returns the salt of the run's noise and masks; empty if this folder has none."""
        salt = place = ""
        with self.making_sense_of(SALT):
            salt, _, place = (self.read(SALT) or b"").decode("ascii").partition(" ")
        return salt if place == self._place() else ""

    def keep_salt(self, salt: str) -> None:
        """Writes the salt of this folder."""
        self.write(SALT, f"{salt} {self._place()}".encode())

    def _place(self) -> str:
        found = self.path.stat()
        return f"{found.st_dev:x}:{found.st_ino:x}"

    def remove(self, place: str) -> None:
        """Removes a file, or all files of a folder; nothing where it is not there."""
        path = run_files.folder_inside(self.path, place)
        if path.exists():
            run_log.remove(
                self.path, list(run_files.walk(self.path, place)) if path.is_dir() else [place]
            )

    def append(
        self, name: str, records: Iterable[Mapping[str, Any]], *, sync: bool = False
    ) -> None:
        """Appends one JSON object per line, in ASCII: no text in it can break a line.

        Args:
            name: of the file.
            records: one a line.
            sync: return when they are on the disk, not only on their way.
        """
        lines = "".join(json.dumps(_strict(record)) + "\n" for record in records)
        run_log.append(self.path, name, lines.encode("ascii"), sync=sync)

    def records(self, name: str) -> list[dict[str, Any]]:
        """Reads JSON lines; a last line that was cut off is left out.

        Raises:
            Damaged: if a line is no JSON object, or one of a run's files without its round.
        """
        # Not splitlines: it would also cut at characters that are part of a text, such as U+2028.
        text = (self.read(name) or b"").decode("utf-8", "replace")
        lines = text.removesuffix("\n").split("\n") if text else []
        records = []
        for number, line in enumerate(lines, 1):
            with self.noting():
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    if number < len(lines):
                        raise Damaged(f"{self.path / name}, line {number}: not JSON") from None
                    continue
                if not isinstance(record, dict):
                    raise Damaged(f"{self.path / name}, line {number}: no JSON object")
                of_a_round = Path(name).name in (METRICS, FAILURES)
                if of_a_round and not is_round(record.get("round")):
                    raise Damaged(f"{self.path / name}, line {number}: no number of a round")
                records.append(record)
        return records

    def forget_after(self, round: int) -> None:
        """Drops the lines of rounds after `round`, which will be run again."""
        for name in (METRICS, FAILURES):
            kept = [r for r in self.records(name) if r["round"] <= round]
            self.write(name, "".join(json.dumps(record) + "\n" for record in kept).encode())

    def save(self, checkpoint: Checkpoint, *, keep: int) -> None:
        """Writes a checkpoint, then removes all but the newest `keep` (0 keeps every one)."""
        tensors = {f"{_MODEL}{k}": v for k, v in checkpoint.model.items()}
        tensors |= {f"{_STRATEGY}{k}": v for k, v in checkpoint.strategy.items()}
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        notes = {"round": checkpoint.round, **checkpoint.meta}
        self.save_tensors(_file(checkpoint.round), contiguous, notes)
        if keep:
            old = [_file(round) for round in self.rounds()[:-keep]]
            run_log.remove(self.path, old)

    def latest(self) -> Checkpoint | None:
        """Returns the newest checkpoint that can be read, None if there is none."""
        for round in reversed(self.rounds()):
            try:
                return self.checkpoint(round)
            except ValueError:
                continue  # not whole: an older one will do
        return None

    def rounds(self) -> list[int]:
        """Returns the rounds of which there is a checkpoint, ascending."""
        names = self.names(CHECKPOINTS, "round-*.safetensors")
        numbers = (n.removeprefix("round-").removesuffix(".safetensors") for n in names)
        return sorted(int(n) for n in numbers if n.isascii() and n.isdigit() and len(n) == 6)

    def checkpoint(self, round: int) -> Checkpoint:
        """Reads the checkpoint of a round.

        Raises:
            Damaged: if there is none, or it is not whole, or another round's.
        """
        tensors, meta = self.tensors(_file(round))
        if meta.get("round") != round or not is_round(meta["round"]):
            raise Damaged(
                f"{self.path / _file(round)} says that it is of round {meta.get('round')!r}"
            )
        model, strategy = (
            {k.removeprefix(p): v for k, v in tensors.items() if k.startswith(p)}
            for p in (_MODEL, _STRATEGY)
        )
        del meta["round"]
        return Checkpoint(round, model, strategy, meta)

    def save_state(self, name: str, state: Mapping[str, Tensor]) -> None:
        """Saves all weights of a model, as `START` or `FINAL`."""
        own = {key: v.detach().cpu().contiguous().clone() for key, v in state.items()}
        self._write_tensors(name, own)

    def read_state(self, name: str) -> dict[str, Tensor] | None:
        """Reads a whole state, `FINAL` or `START`; None where it was not written.

        Raises:
            Damaged: if the file is not whole.
        """
        return self._tensors(name)[0] if self.has(name) else None

    def tensors(
        self, name: str, *, only_notes: bool = False
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Reads a safetensors file with the notes that stand in it as one JSON object.

        Args:
            name: of the file.
            only_notes: whether its tensors stay on the disk.

        Raises:
            Damaged: if there is none, or it is not whole, or holds no notes.
        """
        tensors, metadata = self._tensors(name, nothing=only_notes)
        try:
            notes = json.loads(metadata[_META])
        except (KeyError, ValueError, RecursionError) as error:
            raise Damaged(f"{self.path / name} has no notes of fedpriv in it") from error
        if not isinstance(notes, dict):
            raise Damaged(f"{self.path / name}: its notes are {notes!r:.100}, not an object")
        return tensors, notes

    def save_tensors(
        self, name: str, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]
    ) -> None:
        """Writes tensors and notes as one safetensors file."""
        # One entry, because safetensors writes several in an order that changes by the run.
        self._write_tensors(name, dict(tensors), {_META: json.dumps(notes)})

    def _write_tensors(self, name: str, *content: dict[str, Any]) -> None:
        from safetensors.torch import save  # imports torch, which not every command needs

        self.write(name, save(*content))

    def _tensors(
        self, name: str, *, nothing: bool = False
    ) -> tuple[dict[str, Tensor], dict[str, str]]:
        try:
            # By its descriptor, because safetensors opens a path itself, and would follow a link.
            with (
                run_files.open_file(self.path, name) as opened,
                safe_open(f"/dev/fd/{opened.fileno()}", framework="pt") as file,
            ):
                names = [] if nothing else file.keys()
                return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
        except FileNotFoundError as error:
            raise Damaged(f"{self.path} has no {name}") from error
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            if isinstance(error, Damaged):
                raise
            raise Damaged(f"{self.path / name} is not whole: {error}") from error


def with_booked(ledger: dict[str, Any], booked: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns a ledger's JSON object with what was booked later; an attempt's last line counts."""
    events = {(e["round"], e["attempt"]): e for e in (*ledger["events"], *booked)}
    return {**ledger, "events": list(events.values())}


def check_name(name: str) -> None:
    """Raises `ValueError` if a run, or findings, cannot lie in a folder of that name."""
    if name in ("", ".", "..") or Path(name).name != name or "\0" in name:
        raise ValueError(f"name={name!r}: expected the name of a folder")


def _file(round: int) -> str:
    return f"{CHECKPOINTS}/round-{round:06d}.safetensors"


def is_round(value: object) -> TypeGuard[int]:
    """Says whether a value of a run's files can be the number of a round."""
    return type(value) is int and 0 <= value < 10**9


def _strict(value: Any) -> Any:
    """Returns the value with null for NaN and infinity, which are not JSON."""
    if isinstance(value, Mapping):
        return {key: _strict(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
