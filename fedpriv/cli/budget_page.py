"""Formats an answer of `budget` as a table, as JSON and as a plot."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from fedpriv.federation.budget import Answer, epsilon_by_round
from fedpriv.privacy.accounting.accountants import ACCOUNTANTS
from fedpriv.privacy.views import VIEWS, face, rounded_up
from fedpriv.report.wording import plural

PLOTTED = 24
"""Rounds at which the plot shows ε."""


def as_json(answer: Answer) -> str:
    """Returns the answer as JSON; an infinite ε is the string "inf"."""
    return json.dumps(_finite(answer), indent=2, allow_nan=False)


def as_table(answer: Answer) -> str:
    """Formats the answer as text."""
    blocks = [_headline(answer), _epsilons(answer["views"]), _notes(answer["views"])]
    if "by_colluders" in answer:
        rows = answer["by_colluders"]
        title = (
            "epsilon against the masked server, by the number of clients that tell it their noise "
            "(1: also against any curious client alone)"
        )
        numbers = "".join(f"{row['colluders']:>9}" for row in rows)
        epsilons = "".join(f"{_number(row['epsilon']):>9}" for row in rows)
        blocks.append([title, f"colluders{numbers}", f"epsilon  {epsilons}"])
    if "signal" in answer:
        blocks.append(answer["signal"]["lines"])
    if "without_bands" in answer:
        plain, bands = answer["without_bands"], answer["bands"]
        blocks.append(
            [
                f"bands: with {bands}, the model has {plain['noise_left']:.0%} of the noise that "
                f"it has without (noise_multiplier {plain['noise_multiplier']:.4g}) at the same "
                "epsilon of the global models"
            ]
        )
    if "traffic" in answer:
        traffic, whole = answer["traffic"], answer.get("whole_numbers")
        keys = ""
        if "keys_up" in traffic:
            keys = (
                f"; keys and shares: {traffic['keys_up']:,} up, {traffic['keys_down']:,} down at "
                "the expected cohort"
            )
        size = "2 a coordinate, half of" if whole else "4 a coordinate, as many as"
        lines = [
            f"masked: {traffic['update']:,} bytes up for a client and round, {size} unmasked "
            f"floats{keys}; epsilon is that of the sum, masking takes no noise away"
        ]
        if whole:
            lines.append(
                f"discrete: rounding makes the noise {whole['noise']:.4g} times as large at the "
                f"same epsilon; a client's share of it is {whole['steps']:.4g} steps of the ring "
                "wide"
            )
        blocks.append(lines)
    if answer["warnings"]:
        blocks.append([f"WARNING: {warning}" for warning in answer["warnings"]])
    if "by_round" in answer:
        title = f"epsilon by round ({answer['accountant']})"
        head = f"{'round':<8}" + "".join(f"{view:>15}" for view in VIEWS)
        rows = [
            f"{row['round']:<8}" + "".join(f"{_number(row[view]):>15}" for view in VIEWS)
            for row in answer["by_round"]
        ]
        blocks.append([title, head, *rows])
    return "\n\n".join("\n".join(block) for block in blocks)


def as_joint_table(answer: Answer) -> str:
    """Formats the joint ε of several runs as text."""
    parts: list[str] = []
    for group in answer["together"]:
        many = len(group["runs"])
        parts += [
            f"{many} run{'s' * (many > 1)} on the data {group['data'][:16]}, "
            f"one {face(group['unit'])}, delta {group['delta']:g}: "
            + ("joint epsilon" if many > 1 else "epsilon"),
            *(f"  {run}" for run in group["runs"]),
            "",
            *_epsilons(group["views"]),
            "",
        ]
        for view, result in group["views"].items():
            alone = ", ".join(_number(epsilon) for epsilon in result["alone"])
            parts.append(f"{view}: each alone (pld): {alone}")
            parts += [f"  no guarantee: {doubt}" for doubt in result["doubts"]]
        parts += [*group["notes"], ""]
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
        points = [
            (row["round"], row[view])
            for row in rows
            if row[view] is not None and math.isfinite(row[view])
        ]
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


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _headline(answer: Answer) -> list[str]:
    """Returns two lines: the noise, and the sampling for which it was computed."""
    noise = f"noise_multiplier {answer['noise_multiplier']!r}"
    if answer["epsilon"] is not None:
        noise += f"  (for epsilon {answer['epsilon']:g} in the view {answer['view']})"
    steps = ""
    if answer["steps"] is not None:
        steps = f" of {answer['steps']} {plural('step', answer['steps'])}"
    sampling = [
        f"{answer['rounds']} {plural('round', answer['rounds'])}{steps}",
        f"client rate {answer['client_rate']:g}",
        f"record rate {answer['record_rate']:g}",
    ]
    if answer["bands"] > 1:
        rate = min(1.0, answer["bands"] * answer["record_rate"])
        sampling.append(f"in {answer['bands']} bands, so {rate:g} at a turn")
    if answer["cohort"] is not None:
        sampling.append(f"cohort {answer['cohort']}")
    if answer["clients"] is not None:
        clients = plural("client", answer["clients"])
        sampling.append(f"{answer['clients']} {clients} ({answer['sampling']})")
    if answer["threshold"] != 1:
        sampling.append(f"threshold {answer['threshold']:g}")
    if answer["colluders"]:
        sampling.append(f"{answer['colluders']} {plural('colluder', answer['colluders'])}")
    if answer["group_size"] > 1:
        sampling.append(f"{answer['group_size']} records a unit")
    return [noise, ", ".join([*sampling, f"delta {answer['delta']:g}"])]


def _epsilons(views: Answer) -> list[str]:
    head = f"{'epsilon':<14}" + "".join(f"{name:>10}" for name in ACCOUNTANTS)
    rows = [
        f"{view:<14}" + "".join(f"{_number(result[name]):>10}" for name in ACCOUNTANTS)
        for view, result in views.items()
    ]
    return [head, *rows]


def _notes(views: Answer) -> list[str]:
    """Returns the note of each view, and every reason for a missing ε once."""
    lines = [f"{view}: {result['note']}" for view, result in views.items()]
    places_of: dict[str, list[tuple[str, str]]] = {}
    for view, result in views.items():
        for accountant, reason in result["reasons"].items():
            places_of.setdefault(reason, []).append((accountant, view))
    for reason, places in places_of.items():
        accountants, seen = (dict.fromkeys(names) for names in zip(*places, strict=True))
        lines.append(f"{', '.join(accountants)} ({', '.join(seen)}): {reason}")
    return lines


def _number(epsilon: float | None) -> str:
    return rounded_up(epsilon, 3 if (epsilon or 0) < 10 else 2)
