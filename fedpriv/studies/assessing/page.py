"""The page of an assessment: the answer, the matrix of defences and attacks, and what each cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from fedpriv.privacy.views import face, rounded_up
from fedpriv.report.figures import Chart
from fedpriv.report.figures.canvas import colour, legible, style, svg
from fedpriv.report.render import page
from fedpriv.report.wording import counted, show_bytes, show_seconds, show_value
from fedpriv.studies.assessing.advice import advice
from fedpriv.studies.assessing.assessed import NONE, Assessed, Cell
from fedpriv.studies.assessing.effects import LEAKS
from fedpriv.threat.results import Table

MOST_PANELS = 6
"""Attacks that the figure shows."""


def html(found: Assessed, *, redacted: bool = False) -> str:
    """Returns the page; a redacted one says that it is."""
    attacks = found.columns
    return page(
        "assessment.html.j2",
        found=found,
        redacted=redacted,
        answer=found.answer(),
        advice=advice(found),
        attacks=attacks,
        matrix=[
            (row, [(f"cell-{at}-{n}", row.cell(name)) for n, name in enumerate(attacks)])
            for at, row in enumerate(found.rows)
        ],
        adversaries=_adversaries(found),
        chart=_chart(found, attacks),
        cost=_cost(found),
        seeds=counted(len(found.seeds), "seed"),
        numbers=_numbers,
        epsilon=_shown,
    )


def _numbers(cell: Cell) -> str:
    """Returns a cell's number with its interval, and what it could have shown."""
    if cell.value is None or cell.interval is None:
        return ""
    between = f"{cell.value:.3g} [{cell.interval[0]:.3g}, {cell.interval[1]:.3g}]"
    told = f"{between}, {cell.control:.3g} without a leak"
    if cell.verdict == LEAKS:  # the size of what could have been shown no longer matters
        return told
    could = "no leak of any size could have been shown"
    if cell.detectable is not None:
        could = f"from {cell.detectable:.3g} on, a leak would have been shown"
    return f"{told}; {could}"


def _shown(epsilon: float | None) -> str:
    return rounded_up(math.inf if epsilon is None else epsilon, 3)


def _ceiling(auc: float | None) -> str:
    return "" if auc is None else f", AUC at most {rounded_up(auc, 3)}"


def _adversaries(found: Assessed) -> Table:
    """Returns ε of each defence against each adversary, beside what was measured."""
    names = list(found.adversaries)
    rows = []
    for row in found.rows:
        if row.refused:
            continue
        cells = [
            _shown(row.epsilon[name]) + _ceiling(row.ceiling.get(name))
            if name in row.epsilon
            else "—"
            for name in names
        ]
        bounds = [
            f"{view.replace('_', ' ')} {math.floor(bound * 1000) / 1000:.3f} of {_shown(ledger)}"
            for view, (bound, ledger) in row.measured.items()
        ]
        rows.append((row.title, face(row.unit) or "—", *cells, ", ".join(bounds) or "—"))
    return Table(
        (
            "defence",
            "protects one",
            *(name.replace("_", " ") for name in names),
            "measured at least",
        ),
        tuple(rows),
    )


def _cost(found: Assessed) -> Table:
    """Returns what each defence costs beside utility."""
    rows = [
        (
            row.title,
            f"{row.utility}" if row.utility else "—",
            f"{row.start}" if row.start else "—",
            show_seconds(row.seconds) if row.seconds is not None else "—",
            show_bytes(row.traffic) if row.traffic is not None else "—",
            show_bytes(row.memory) if row.memory else "—",
            f"{len(row.seeds)} of {len(found.seeds)}",
        )
        for row in found.rows
        if not row.refused
    ]
    metric = found.metric
    return Table(
        ("defence", metric, f"{metric} of the start", "training", "messages", "memory", "seeds"),
        tuple(rows),
    )


def _chart(found: Assessed, attacks: Sequence[str]) -> Chart | None:
    """Returns utility against the success of each attack, a point for each defence."""
    shown = [
        name
        for name in attacks
        if any(c.value is not None and r.utility for r, c in found.cells if c.attack == name)
    ][:MOST_PANELS]
    if not shown:
        return None
    with style():
        columns = min(3, len(shown))
        lines = math.ceil(len(shown) / columns)
        figure = Figure(figsize=(3.6 * columns, 2.9 * lines), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False).flat
        for name, axes in zip(shown, panels, strict=False):
            _panel(axes, found, name)
        for axes in list(panels):
            axes.set_axis_off()
        told = "; ".join(
            f"{row.title}: {row.metric} {show_value(row.utility.mean)}, "
            + ", ".join(f"{c.attack} {c.value:.3g}" for c in row.cells if c.value is not None)
            for row in found.rows
            if row.utility
        )
        drawn = svg(figure, f"Utility against the success of attacks. {told}.")
    return Chart(
        "Utility against the success of each attack",
        drawn,
        see="Bottom right is best: a useful model that the attack gains nothing from. The broken "
        "line is where nothing leaks. A cross is a dead model.",
    )


def _panel(axes: Any, found: Assessed, attack: str) -> None:
    axes.set_title(legible(attack), fontsize=9)
    controls = []
    for row in found.rows:
        cell = row.cell(attack)
        if cell is None or cell.value is None or cell.interval is None or row.utility is None:
            continue
        shade = colour("c1" if row.defence == NONE else "c0")
        x, y = row.utility.mean, cell.value
        axes.plot([row.utility.low, row.utility.high], [y, y], color=shade, linewidth=1)
        axes.plot([x, x], cell.interval, color=shade, linewidth=1)
        axes.plot(x, y, "X" if row.dead else "o", color=shade, markersize=6)
        axes.annotate(
            legible(row.title, 24), (x, y), xytext=(4, 4), textcoords="offset points",
            fontsize=7, color=colour("ink"),
        )  # fmt: skip
        if cell.control is not None:
            controls.append(cell.control)
    if controls:
        axes.axhline(
            sum(controls) / len(controls), color=colour("muted"), linestyle="--", linewidth=1
        )
    axes.set_xlabel(legible(found.metric), fontsize=8)
    axes.tick_params(labelsize=7)
    axes.margins(0.18)
