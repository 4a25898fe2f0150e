"""A study's trainings: each a run folder with a report of its own, which the table leads to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from fedpriv.report.folder import Run, Training
from fedpriv.report.summary import tiles
from fedpriv.report.wording import counted

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


def is_study(run: Run) -> bool:
    """Says whether a folder is a study's, which holds trainings and no round of its own."""
    return bool(run.trainings) and not run.rounds


def trainings_view(trainings: Sequence[Training]) -> Trainings | None:
    """Returns the table of trainings with their last metrics; None without trainings."""
    if not trainings:
        return None
    shown = [{tile.label: tile.value for tile in tiles(training.rounds)} for training in trainings]
    headings = list(dict.fromkeys(label for values in shown for label in values))[:MOST_METRICS]
    rows = []
    for training, values in zip(trainings, shown, strict=True):
        address = f"trainings/{quote(training.name)}/report.html" if training.has_report else ""
        planned = "" if training.planned is None else f" of {training.planned}"
        progress = f"{max(training.rounds, default=0)}{planned}"
        cells = [values.get(label, "—") for label in headings]
        rows.append(TrainingRow(training.name, address, progress, cells))
    return Trainings(headings, rows)


def study_state(run: Run) -> tuple[str, bool]:
    """Returns how far a study came, in words, and whether that is to its end."""
    total = len(run.trainings)
    done = sum(training.is_done for training in run.trainings)
    if done < total:
        return f"{done} of {counted(total, 'training')} done", False
    if not run.found and not run.findings:
        return f"all {counted(total, 'training')} done, nothing concluded", False
    return f"complete: {counted(total, 'training')}", True
