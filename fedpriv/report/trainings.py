"""Variants of a run that an attack trained: run folders with reports of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from fedpriv.report.folder import Training
from fedpriv.report.summary import tiles
from fedpriv.runtime.verify import RETRAINED

MOST_METRICS = 4


@dataclass(frozen=True)
class TrainingRow:
    """One training: its name, the address of its report or "", how far it came, its metrics."""

    name: str
    address: str
    rounds: str
    values: Sequence[str]


@dataclass(frozen=True)
class Trainings:
    """The table: the metrics' names, and a row for each training."""

    headings: Sequence[str]
    rows: Sequence[TrainingRow]


def trainings_view(trainings: Sequence[Training]) -> Trainings | None:
    """Returns the table of trainings with their last metrics; None without trainings."""
    if not trainings:
        return None
    shown = [{tile.label: tile.value for tile in tiles(training.rounds)} for training in trainings]
    headings = list(dict.fromkeys(label for values in shown for label in values))[:MOST_METRICS]
    rows = []
    for training, values in zip(trainings, shown, strict=True):
        address = f"{RETRAINED}/{quote(training.name)}/report.html" if training.has_report else ""
        planned = "" if training.planned is None else f" of {training.planned}"
        progress = f"{max(training.rounds, default=0)}{planned}"
        cells = [values.get(label, "—") for label in headings]
        rows.append(TrainingRow(training.name, address, progress, cells))
    return Trainings(headings, rows)
