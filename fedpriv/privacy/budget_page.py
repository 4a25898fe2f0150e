"""An answer of `budget` as a table, as JSON and as a plot."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from fedpriv.privacy.accounting import ACCOUNTANTS
from fedpriv.privacy.budget import Answer, epsilon_by_round
from fedpriv.privacy.views import VIEWS

PLOTTED = 24


def as_json(answer: Answer) -> str:
    """Returns the answer as JSON; an infinite ε is the string "inf"."""
    return json.dumps(_finite(answer), indent=2, allow_nan=False)


def as_table(answer: Answer) -> str:
    """Returns the answer for a person to read."""
    parts = [_headline(answer), "", *_epsilons(answer), "", *_notes(answer)]
    if "by_round" in answer:
        parts += ["", f"epsilon by round ({answer['accountant']})", *_rounds(answer["by_round"])]
    return "\n".join(parts)


def plot(answer: Answer, path: Path) -> None:
    """Draws ε by round for each view; the suffix of `path` decides the format."""
    # The plot alone needs matplotlib, which takes a second to import.
    from matplotlib.figure import Figure

    rows = epsilon_by_round(answer, PLOTTED)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for view in VIEWS:
        points = [(row["round"], row[view]) for row in rows if _drawable(row[view])]
        if points:
            # It lies on top of `global`: dashes let that be seen.
            style = "--" if view == "server_masked" else "-"
            axes.plot(*zip(*points, strict=True), style, label=view.replace("_", " "))
    axes.set(xlabel="round", ylabel=f"epsilon at delta {answer['delta']:g}")
    axes.set_title(f"noise multiplier {answer['noise_multiplier']:.6g}, {answer['accountant']}")
    axes.set_ylim(bottom=0)
    if axes.lines:
        axes.legend()
    figure.savefig(path, dpi=150)


def _drawable(epsilon: float | None) -> bool:
    return epsilon is not None and math.isfinite(epsilon)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _headline(answer: Answer) -> str:
    asked = ""
    if answer["epsilon"] is not None:
        asked = f"  (for epsilon {answer['epsilon']:g} in the view {answer['view']})"
    unit = f", {answer['group_size']} records a unit" if answer["group_size"] > 1 else ""
    cohort = f", cohort {answer['cohort']}" if answer["cohort"] is not None else ""
    return (
        f"noise_multiplier {answer['noise_multiplier']!r}{asked}\n"
        f"{answer['rounds']} rounds, client rate {answer['client_rate']:g}, record rate "
        f"{answer['record_rate']:g}{cohort}{unit}, delta {answer['delta']:g}"
    )


def _epsilons(answer: Answer) -> list[str]:
    head = f"{'epsilon':<14}" + "".join(f"{name:>10}" for name in ACCOUNTANTS)
    rows = [
        f"{view:<14}" + "".join(f"{_number(told[name]):>10}" for name in ACCOUNTANTS)
        for view, told in answer["views"].items()
    ]
    return [head, *rows]


def _notes(answer: Answer) -> list[str]:
    lines = [f"{view}: {told['note']}" for view, told in answer["views"].items()]
    where: dict[str, list[tuple[str, str]]] = {}
    for view, told in answer["views"].items():
        for accountant, reason in told["reasons"].items():
            where.setdefault(reason, []).append((accountant, view))
    for reason, places in where.items():
        accountants, seen = (dict.fromkeys(names) for names in zip(*places, strict=True))
        lines.append(f"{', '.join(accountants)} ({', '.join(seen)}): {reason}")
    return lines


def _rounds(rows: list[Answer]) -> list[str]:
    head = f"{'round':<8}" + "".join(f"{view:>15}" for view in VIEWS)
    return [
        head,
        *(f"{row['round']:<8}" + "".join(f"{_number(row[v]):>15}" for v in VIEWS) for row in rows),
    ]


def _number(epsilon: float | None) -> str:
    return "-" if epsilon is None else f"{epsilon:.4g}" if epsilon < 10 else f"{epsilon:.2f}"
