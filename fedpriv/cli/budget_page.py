"""An answer of `budget` as a table, as JSON and as a plot."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from fedpriv.federation.budget import Answer, epsilon_by_round
from fedpriv.privacy.accounting.accountants import ACCOUNTANTS
from fedpriv.privacy.views import VIEWS

PLOTTED = 24


def as_json(answer: Answer) -> str:
    """Returns the answer as JSON; an infinite ε is the string "inf"."""
    return json.dumps(_finite(answer), indent=2, allow_nan=False)


def as_table(answer: Answer) -> str:
    """Returns the answer for a person to read."""
    parts = [_headline(answer), "", *_epsilons(answer["views"]), "", *_notes(answer)]
    if "by_colluders" in answer:
        parts += ["", *_colluders(answer)]
    if "signal" in answer:
        parts += ["", *answer["signal"]["lines"]]
    if "traffic" in answer:
        parts += ["", _traffic(answer)]
    if answer["warnings"]:
        parts += ["", *(f"WARNING: {warning}" for warning in answer["warnings"])]
    if "by_round" in answer:
        parts += ["", f"epsilon by round ({answer['accountant']})", *_rounds(answer["by_round"])]
    return "\n".join(parts)


def as_joint_table(answer: Answer) -> str:
    """Returns ε of several runs together for a person to read."""
    parts: list[str] = []
    for group in answer["together"]:
        many = len(group["runs"])
        parts += [
            f"{many} run{'s' * (many > 1)} on the data {group['data'][:16]}, one {group['unit']}, "
            f"delta {group['delta']:g}: epsilon of all together",
            *(f"  {run}" for run in group["runs"]),
            "",
            *_epsilons(group["views"]),
            "",
        ]
        for view, told in group["views"].items():
            alone = ", ".join(_number(epsilon) for epsilon in told["alone"])
            parts.append(f"{view}: each alone (pld): {alone}")
            parts += [f"  no guarantee: {doubt}" for doubt in told["doubts"]]
        parts.append("")
    parts += [f"apart: {run['run']}: {run['reason']}" for run in answer["apart"]]
    return "\n".join(parts).rstrip()


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
    steps = f" of {answer['steps']} steps" if answer["steps"] is not None else ""
    return (
        f"noise_multiplier {answer['noise_multiplier']!r}{asked}\n"
        f"{answer['rounds']} rounds{steps}, client rate {answer['client_rate']:g}, record rate "
        f"{answer['record_rate']:g}{_cohort(answer)}{unit}, delta {answer['delta']:g}"
    )


def _cohort(answer: Answer) -> str:
    cohort, clients, colluders = (answer[name] for name in ("cohort", "clients", "colluders"))
    words = f", cohort {cohort}" if cohort is not None else ""
    words += f", {clients} clients ({answer['sampling']})" if clients is not None else ""
    words += f", threshold {answer['threshold']:g}" if answer["threshold"] != 1 else ""
    return words + (f", {colluders} colluders" if colluders else "")


def _epsilons(views: Answer) -> list[str]:
    head = f"{'epsilon':<14}" + "".join(f"{name:>10}" for name in ACCOUNTANTS)
    rows = [
        f"{view:<14}" + "".join(f"{_number(told[name]):>10}" for name in ACCOUNTANTS)
        for view, told in views.items()
    ]
    return [head, *rows]


def _colluders(answer: Answer) -> list[str]:
    rows = answer["by_colluders"]
    return [
        "epsilon of the masked server, by clients that tell it their noise (1: also a curious "
        "client by itself)",
        "colluders" + "".join(f"{row['colluders']:>9}" for row in rows),
        "epsilon  " + "".join(f"{_number(row['epsilon']):>9}" for row in rows),
    ]


def _traffic(answer: Answer) -> str:
    """What masking costs: words of 4 bytes, as many as floats would take, and keys."""
    traffic = answer["traffic"]
    words = (
        f"masked: {traffic['update']:,} bytes up for a client and round, 4 a coordinate, as many "
        "as unmasked floats"
    )
    if "keys_up" in traffic:
        words += (
            f"; keys and shares: {traffic['keys_up']:,} up, {traffic['keys_down']:,} down at the "
            "expected cohort"
        )
    return f"{words}; epsilon is that of the sum, masking takes no noise away"


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
