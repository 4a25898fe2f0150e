"""The top of the report: how far the run came, its final metrics, its size, what went wrong."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedpriv.metrics.learnt import LEARN_MORE, little_learnt
from fedpriv.report.folder import Row, Run
from fedpriv.report.rounds import (
    all_curves,
    client_count,
    metric_groups,
    metric_label,
    refused_rounds,
)
from fedpriv.report.wording import MOST_LISTED, counted, plural, show_rounds, show_value
from fedpriv.runtime.run_folder import is_round

FIRST_METRICS = ("f1", "anls", "accuracy", "loss", "precision", "recall", "train_loss")
MOST_TILES = 6


def run_name(run: Run) -> str:
    """Returns the name in the settings, else the folder's."""
    name = run.config.get("name")
    named = isinstance(name, str | int) and str(name).strip()
    return str(name) if named else run.folder.resolve().name


def run_date(folder: Path, config: Mapping[str, Any]) -> str:
    """Returns when the run began: as config.yaml says, else from its folder's name or age."""
    if config.get("started"):
        return str(config["started"])[:16]
    found = re.search(
        r"(20\d\d)-?([01]\d)-?([0-3]\d)(?:[T_ -]?([0-2]\d)[-:.h]?([0-5]\d))?",
        folder.resolve().name,
    )
    if found:
        year, month, day, hour, minute = found.groups()
        return f"{year}-{month}-{day}" + (f" {hour}:{minute}" if hour else "")
    written = (folder / "config.yaml").stat().st_mtime
    return f"{datetime.fromtimestamp(written).astimezone():%Y-%m-%d %H:%M}"


def run_state(run: Run) -> tuple[str, bool]:
    """Returns how far the run came, in words, and whether that is to its end.

    "interrupted" is said of a run that is still going, too: its folder looks the same.
    """
    planned = run.config.get("rounds")
    done = max(run.rounds, default=0)
    if not is_round(planned):
        return f"{counted(done, 'round')} done, number planned not recorded", False
    if done >= planned:
        return f"complete: {done} of {counted(planned, 'round')}", True
    if not done:
        return f"no round done of {planned}", False
    return f"interrupted after round {done} of {planned}", False


@dataclass(frozen=True)
class Tile:
    """A final metric: its name, its last value, and a remark on round or best value."""

    label: str
    value: str
    note: str


def tiles(rounds: Mapping[int, Row]) -> list[Tile]:
    """Returns the final scores and losses, the best known first."""
    groups = metric_groups(rounds)
    held = {**groups.scores, **groups.losses}
    order = leading_metrics(held)
    order += sorted(set(groups.scores) - set(order)) + sorted(set(groups.losses) - set(order))
    shown = []
    for name in order[:MOST_TILES]:
        curve, last = held[name], max(held[name])
        finite = {at: value for at, value in curve.items() if math.isfinite(value)}
        notes = [] if last == max(rounds) else [f"in round {last}"]
        if finite:
            best = (max if name in groups.scores else min)(finite, key=lambda at: finite[at])
            if finite[best] != curve[last]:
                notes.append(f"best {show_value(finite[best])} in round {best}")
        shown.append(Tile(metric_label(name), show_value(curve[last]), ", ".join(notes)))
    return shown


def leading_metrics(names: Iterable[str]) -> list[str]:
    """Returns the metrics to tell first: the main one, of seen and unseen providers, then others.

    >>> leading_metrics({"loss", "f1", "f1_unseen", "recall_seen"})
    ['f1', 'f1_unseen', 'loss']
    """
    there = set(names)
    known = [name for name in FIRST_METRICS if name in there]
    apart = [f"{name}_{group}" for name in known[:1] for group in ("seen", "unseen")]
    return [*known[:1], *(name for name in apart if name in there), *known[1:]]


def facts(run: Run) -> list[tuple[str, str]]:
    """Returns (number, what it counts) for clients, providers and documents."""
    part = run.partition
    if part is None:
        sampled = max((client_count(row, "sampled") for row in run.rounds.values()), default=0)
        return [(f"{sampled}", "clients in the largest round")] if sampled else []
    numbers = {
        "client": len(part.clients),
        "supplier": len({name for held in part.clients.values() for name in held}),
        "training document": sum(sum(held.values()) for held in part.clients.values()),
        "held-out document": sum(part.test.values()),
    }
    return [(f"{number:,}", plural(noun, number)) for noun, number in numbers.items()]


def warnings(run: Run) -> list[str]:
    """Returns what a reader should know before trusting the numbers, in sentences."""
    said = []
    refused = refused_rounds(run.rounds)
    if refused:
        verb = "was" if len(refused) == 1 else "were"
        said.append(f"{counted(len(refused), 'round')} {verb} refused ({show_rounds(refused)}).")
    for kind, words in (("failed", "failed"), ("missing", "did not answer")):
        times = _unanswered(run, kind)
        if times:
            told = counted(sum(times.values()), "time")
            said.append(f"Clients {words} {told}, in {show_rounds(times)}.")
    broken = [
        name
        for name, curve in all_curves(run.rounds).items()
        if not all(map(math.isfinite, curve.values()))
    ]
    if broken:
        names = ", ".join(metric_label(name) for name in broken[:MOST_LISTED])
        said.append(f"Some rounds have no finite value of: {names}.")
    if little := little_learnt(run.rounds[at] for at in sorted(run.rounds)):
        said.append(f"{little} {LEARN_MORE}")
    if run.problems:
        said.append("Some of the run's files could not be read; Settings lists them.")
    return said


def _unanswered(run: Run, kind: str) -> dict[int, int]:
    """Returns, by round, how many clients were "failed" or "missing".

    `failures.jsonl` knows also the attempts that were repeated, and a round that never ended.
    """
    listed = Counter(
        row["round"]
        for row in run.failures
        if row.get("kind") == kind and is_round(row.get("round"))
    )
    times = {
        at: max(client_count(run.rounds.get(at, {}), kind), listed[at])
        for at in sorted({*run.rounds, *listed})
    }
    return {at: number for at, number in times.items() if number}
