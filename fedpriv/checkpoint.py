"""The run folder: what a run leaves, written so that it survives `kill -9` at any moment.

A checkpoint is written beside its place, flushed to disk and renamed, so a file of that name is
whole. `metrics.jsonl` and `failures.jsonl` are appended before the checkpoint of their round; on
resume, lines of rounds that no checkpoint covers are dropped and those rounds are run again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

CONFIG = "config.yaml"
METRICS = "metrics.jsonl"
FAILURES = "failures.jsonl"
PARTITION = "partition.json"
LEDGER = "ledger.json"
CHECKPOINTS = "checkpoints"
FINAL = f"{CHECKPOINTS}/final.safetensors"
START = f"{CHECKPOINTS}/start.safetensors"

_MODEL, _STRATEGY, _META = "model/", "strategy/", "fedpriv"


class NotARunFolder(ValueError):
    """The folder given holds no run."""


@dataclass(frozen=True)
class Checkpoint:
    """The state after a round.

    Attributes:
        round: the last completed one; 0 before the first.
        model: the exchanged tensors by name.
        strategy: the strategy's own state by name.
        meta: what must agree for a resume to make sense (the seed).
    """

    round: int
    model: Mapping[str, Tensor]
    strategy: Mapping[str, Tensor] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFolder:
    """A run's folder and the files in it."""

    path: Path

    @classmethod
    def create(cls, root: Path | str, name: str) -> RunFolder:
        """Makes a new folder `root/name/<time>`; runs of the same second get a number each."""
        stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
        parent = Path(root) / name
        parent.mkdir(parents=True, exist_ok=True)
        for suffix in ("", *(f"_{i}" for i in range(2, 1000))):
            path = parent / f"{stamp}{suffix}"
            try:
                path.mkdir()
            except FileExistsError:
                continue
            return cls.at(path)
        raise FileExistsError(f"{parent / stamp}: a thousand runs of the same second")

    @classmethod
    def at(cls, path: Path) -> RunFolder:
        """Returns the folder at `path`, made if it is not there."""
        path.mkdir(parents=True, exist_ok=True)
        return cls(path)

    @classmethod
    def existing(cls, path: Path | str) -> RunFolder:
        """Returns the folder of an earlier run.

        Raises:
            NotARunFolder: if there is no run in it.
        """
        path = Path(path)
        if not (path / CONFIG).is_file():
            what = "no such folder" if not path.is_dir() else f"it has no {CONFIG}"
            raise NotARunFolder(f"{path} is not a run folder: {what}")
        return cls.at(path)

    def config(self) -> dict[str, Any]:
        """Reads the resolved settings."""
        loaded: dict[str, Any] = yaml.safe_load((self.path / CONFIG).read_text("utf-8"))
        return loaded

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Writes the resolved settings."""
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        self.write(CONFIG, text.encode())

    def write_json(self, name: str, value: Any) -> None:
        """Writes a JSON file in one piece."""
        self.write(
            name, json.dumps(value, ensure_ascii=False, indent=1).encode(errors="backslashreplace")
        )

    def read_json(self, name: str) -> Any:
        """Reads a JSON file, None where there is none."""
        path = self.path / name
        return json.loads(path.read_text("utf-8")) if path.is_file() else None

    def write(self, name: str, data: bytes) -> None:
        """Writes a file so that it is there whole or not at all."""
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(f".{path.name}.part")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def append(self, name: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Appends one JSON object per line, in ASCII: no text in it can break a line."""
        with (self.path / name).open("a", encoding="ascii") as file:
            file.writelines(json.dumps(_strict(record)) + "\n" for record in records)

    def records(self, name: str) -> list[dict[str, Any]]:
        """Reads JSON lines; a last line that was cut off is left out."""
        path = self.path / name
        lines = path.read_text("ascii", errors="replace").splitlines() if path.is_file() else []
        records = []
        for number, line in enumerate(lines, 1):
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                if number < len(lines):
                    raise ValueError(f"{path}, line {number}: not JSON") from None
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
        # One entry, because safetensors writes several in an order that changes by the run.
        meta = {_META: json.dumps({"round": checkpoint.round, **checkpoint.meta})}
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        self.write(_file(checkpoint.round), save(contiguous, meta))
        for old in self._checkpoints()[keep:] if keep else []:
            old.unlink()

    def latest(self) -> Checkpoint | None:
        """Returns the newest checkpoint that can be read, None if there is none."""
        for path in self._checkpoints():
            try:
                return _read(path)
            except (SafetensorError, KeyError, ValueError, TypeError):
                continue  # not whole: an older one will do
        return None

    def rounds(self) -> list[int]:
        """Returns the rounds of which there is a checkpoint, ascending."""
        return sorted(int(path.stem.removeprefix("round-")) for path in self._checkpoints())

    def checkpoint(self, round: int) -> Checkpoint:
        """Reads the checkpoint of a round.

        Raises:
            ValueError: if there is none, or it is not whole.
        """
        path = self.path / _file(round)
        if not path.is_file():
            raise ValueError(f"{self.path} has no checkpoint of round {round}")
        try:
            return _read(path)
        except (SafetensorError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not whole: {error}") from error

    def save_final(self, state: Mapping[str, Tensor]) -> None:
        """Writes the final model's whole state, tied weights once for each name."""
        self._save_state(FINAL, state)

    def save_start(self, state: Mapping[str, Tensor]) -> None:
        """Writes the whole state of the model that round 1 starts from."""
        self._save_state(START, state)

    def read_state(self, name: str) -> dict[str, Tensor] | None:
        """Reads a whole state, `FINAL` or `START`; None where it was not written.

        Raises:
            ValueError: if the file is not whole.
        """
        path = self.path / name
        try:
            return load_file(path) if path.is_file() else None
        except SafetensorError as error:
            raise ValueError(f"{path} is not whole: {error}") from error

    def _save_state(self, name: str, state: Mapping[str, Tensor]) -> None:
        own = {key: v.detach().cpu().contiguous().clone() for key, v in state.items()}
        self.write(name, save(own))

    def _checkpoints(self) -> list[Path]:
        return sorted((self.path / CHECKPOINTS).glob("round-*.safetensors"), reverse=True)


def _file(round: int) -> str:
    return f"{CHECKPOINTS}/round-{round:06d}.safetensors"


def _read(path: Path) -> Checkpoint:
    with safe_open(path, framework="pt") as file:
        meta: dict[str, Any] = json.loads(file.metadata()[_META])
        tensors: dict[str, torch.Tensor] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    model, strategy = (
        {k.removeprefix(p): v for k, v in tensors.items() if k.startswith(p)}
        for p in (_MODEL, _STRATEGY)
    )
    return Checkpoint(meta.pop("round"), model, strategy, meta)


def _strict(value: Any) -> Any:
    """Returns the value with null for NaN and infinity, which are not JSON."""
    if isinstance(value, Mapping):
        return {key: _strict(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
