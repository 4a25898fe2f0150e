"""The progress of a run for its user: a live display, or plain lines without a terminal."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from fedpriv.runtime.terminal import escaping_stderr, visible, visible_output

SHOWN = ("loss", "f1", "anls", "accuracy", "train_loss")
"""Metrics shown on the line, in this order."""


class Progress:
    """Shows nothing; the displays below override what they show."""

    @contextmanager
    def following(self, run_dir: Path, done: int, rounds: int, clients: int) -> Iterator[Progress]:
        """Follows a run from after its `done`-th round to its `rounds`-th."""
        yield self

    def client_answered(self, answered: int, sampled: int) -> None:
        """Notes that so many of the round's clients have answered."""

    def round(self, record: Mapping[str, Any]) -> None:
        """Notes a finished round, as in metrics.jsonl."""

    def note(self, line: str) -> None:
        """Shows a remark to the user."""


class Lines(Progress):
    """One plain line per round on standard error, for logs and pipes."""

    @contextmanager
    def following(self, run_dir: Path, done: int, rounds: int, clients: int) -> Iterator[Progress]:
        """Prints the folder of the run and how far it is."""
        self._rounds, self._done, self._began = rounds, done, time.monotonic()
        begin = f"round {done + 1} of {rounds}" if done < rounds else "nothing left to run"
        begin = begin if rounds else "evaluation of the starting model"
        self._say(f"{run_dir}: {clients} client{'s' * (clients != 1)}, {begin}")
        yield self

    def round(self, record: Mapping[str, Any]) -> None:
        """Prints the round's metrics and the time left."""
        # The only record of a run without rounds is the evaluation of its start.
        per_round = (time.monotonic() - self._began) / max(record["round"] - self._done, 1)
        left = per_round * (self._rounds - record["round"])
        self._say(f"round {record['round']}/{self._rounds}  {describe(record)}  {left:.0f} s left")

    def note(self, line: str) -> None:
        """Prints the line."""
        self._say(line)

    def _say(self, line: str) -> None:
        print(visible(line), file=sys.stderr, flush=True)


class Display(Progress):
    """A live display in a terminal: rounds, clients of this round, metrics, time left."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def following(self, run_dir: Path, done: int, rounds: int, clients: int) -> Iterator[Progress]:
        """Shows the bars while the run lasts."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        many = f"{clients} client{'s' * (clients != 1)}, {rounds} round{'s' * (rounds != 1)}"
        line = visible(f"{run_dir}: {many}")
        self._console.print(line, markup=False, highlight=False)
        # Output that is printed meanwhile appears above the bars.
        with Bars(*columns, console=self._console) as bars, visible_output():
            self._bars = bars
            self._rounds: TaskID = bars.add_task("rounds", total=rounds, completed=done, note="")
            self._clients: TaskID = bars.add_task("clients", total=clients, note="")
            yield self

    def client_answered(self, answered: int, sampled: int) -> None:
        """Moves the clients' bar."""
        self._bars.update(self._clients, completed=answered, total=sampled)

    def round(self, record: Mapping[str, Any]) -> None:
        """Moves the rounds' bar and shows the metrics."""
        self._bars.update(self._rounds, completed=record["round"], note=describe(record))

    def note(self, line: str) -> None:
        """Prints the line above the bars."""
        self._console.print(line, markup=False)


def for_this_terminal() -> Progress:
    """Returns a live display on a terminal or in a notebook, and plain lines elsewhere.

    All go to standard error. In a notebook rich needs ipywidgets for what moves, and there are
    lines without them.
    """
    console = Console(file=escaping_stderr())
    widgets = console.is_jupyter and importlib.util.find_spec("ipywidgets") is not None
    return Display(console) if console.is_terminal or widgets else Lines()


def describe(record: Mapping[str, Any]) -> str:
    """Returns a round in a few words: its metrics, and the number of clients without an answer."""
    words = [f"{name} {record[name]:.4f}" for name in SHOWN if isinstance(record.get(name), float)]
    clients = record["clients"]
    words.append(f"{clients['answered']}/{clients['sampled']} clients")
    words += [f"{clients[kind]} {kind}" for kind in ("failed", "missing") if clients[kind]]
    if not record["accepted"]:
        words.append("REFUSED: too few answers, the model is unchanged")
    return "  ".join(words)
