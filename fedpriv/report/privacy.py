"""The ledger as a section of the page: ε for each view, and how far each may be relied on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedpriv.privacy.accounting import ceiling
from fedpriv.privacy.views import face, rounded_up
from fedpriv.report import figures
from fedpriv.report.folder import Row
from fedpriv.report.wording import counted
from fedpriv.threat.results import Table

ACCOUNTANTS = ("pld", "rdp", "prv", "gdp")

OBSERVERS = {
    "paper": "the papers' own accounting",
    "global": "whoever sees the global models",
    "server masked": "the server, which sees sums only",
    "server plain": "the server, which sees each update",
}
"""Name of a view → who is looking."""

SPENT = (
    "Every round spends some of the budget, so the lines only rise. A lower line is more privacy."
)


@dataclass(frozen=True)
class Promise:
    """What is promised against one observer.

    Attributes:
        view: name of the view.
        name: who is looking.
        epsilon: as text, never rounded down.
        size: ε as a number; infinite where there is none.
        guaranteed: whether it may be relied on.
    """

    view: str
    name: str
    epsilon: str
    size: float
    guaranteed: bool


def privacy_view(ledger: Row | None) -> dict[str, Any] | None:
    """Returns table, sentences and chart of a ledger; None where there is none to be read.

    The table's ε are `ledger.json`'s own. A run that was cut short has its events there, but no ε:
    `fedpriv report` computes them before it comes here.
    """
    try:
        return _view_of(ledger) if ledger and ledger.get("views") else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def promised(view: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Returns the unit and a `Promise` for each observer there is; None where nothing is promised.

    Args:
        view: of `privacy_view`.
    """
    if view is None or not view["private"]:
        return None
    rows = []
    for row in view["rows"]:
        if row["applies"]:
            epsilon = next((e for e in row["epsilons"] if e != "–"), "–")
            size = float(epsilon) if epsilon not in "–∞" else math.inf
            sure = row["guarantee"] and math.isfinite(size)
            name = OBSERVERS.get(row["name"], row["name"])
            rows.append(Promise(row["name"], name, epsilon, size, sure))
    # The papers' accounting is nobody's view: it comes last.
    rows.sort(key=lambda row: row.view == "paper")
    return {"unit": view["unit"], "delta": view["delta"], "rows": rows}


def planned(budget: Row | None) -> dict[str, Any] | None:
    """Returns what a plan beside the run would promise; None where there is none to be read.

    Args:
        budget: as `fedpriv budget --json` prints it; "strategy" names what the plan is of.
    """
    try:
        if not budget:
            return None
        server = "server_masked" if budget.get("masked") else "server_plain"
        rows = [
            (OBSERVERS[view.replace("_", " ")], rounded_up(budget["views"][view]["pld"]))
            for view in ("global", server)
            if budget["views"][view]["pld"] is not None
        ]
        numbers = budget["noise_multiplier"], budget["rounds"], budget["delta"]
        noise, rounds, delta = (f"{float(number):.4g}" for number in numbers)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    unit, strategy = face(str(budget.get("unit") or "provider")), str(budget.get("strategy") or "")
    return {
        "strategy": strategy,
        "unit": unit,
        "rows": rows,
        "terms": f"noise multiplier {noise}, {rounds} round{'s' * (rounds != '1')}, δ = {delta}",
    }


def _view_of(ledger: Row) -> dict[str, Any]:
    views, mechanism = ledger["views"], ledger.get("mechanism") or {}
    asked = mechanism.get("asked_epsilon")
    asked_view = str(mechanism.get("asked_view", "")).replace("_", " ")
    return {
        "private": ledger.get("mechanism") is not None,
        "meaning": ledger.get("meaning") or "",
        "delta": ledger.get("delta"),
        "accountants": ACCOUNTANTS,
        "rows": [_row(name, view) for name, view in views.items()],
        "unit": face(ledger.get("unit") or "example"),
        "larger": [
            {
                "name": name,
                "records": unit["records"],
                "how": unit["how"],
                "epsilons": _epsilons(unit),
            }
            for name, unit in (ledger.get("larger_units") or {}).items()
        ],
        "colluders": [
            (row["colluders"], rounded_up(row["epsilon"])) for row in ledger.get("colluders") or []
        ],
        "chart": _chart(ledger.get("by_round") or []),
        "uncovered": ledger.get("uncovered") or [],
        "not_covered": ledger.get("not_covered") or [],
        "given": _given(ledger.get("given_participation")),
        "individual": _individual(ledger),
        "asked": f"The noise was found for ε = {asked:g}, {asked_view}." if asked else "",
    }


def _row(name: str, view: Mapping[str, Any]) -> dict[str, Any]:
    doubts = list(view.get("doubts") or [])
    return {
        "name": name.replace("_", " "),
        "epsilons": [rounded_up(view.get(accountant)) for accountant in ACCOUNTANTS],
        "note": view.get("note", ""),
        "guarantee": bool(view.get("guarantee")),
        "applies": view.get("applies", True),
        "ceiling": ceiling.sentence(view.get("ceiling")),
        "doubts": doubts,
        "reasons": [f"{who}: {why}" for who, why in (view.get("reasons") or {}).items()],
    }


def _epsilons(held: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns view and ε for the page."""
    return [(view.replace("_", " "), rounded_up(value)) for view, value in held["epsilon"].items()]


def _given(given: Mapping[str, Any] | None) -> str:
    """Returns a sentence on the client that took part most often, empty where there is none."""
    if not given:
        return ""
    epsilons = ", ".join(f"{view} {epsilon}" for view, epsilon in _epsilons(given))
    return (
        "The table averages over the drawing of clients, as a promise made beforehand does. Now "
        f"that the drawing is known, ε is largest for client {given['client']}, which was in "
        f"{counted(given['rounds'], 'round')}: {epsilons}."
    )


def _individual(ledger: Row) -> dict[str, Any] | None:
    """Returns each unit's own ε, the largest first, in a sentence and a table; None without any."""
    view = "server_masked" if ledger.get("masked") else "global"
    told, spent = (ledger["views"].get(view) or {}).get("individual"), ledger.get("spent") or {}
    if not told or not told["epsilon"]:
        return None
    sizes = {n: math.inf if e == "inf" else float(e) for n, e in told["epsilon"].items()}
    order = sorted(sizes, key=lambda name: -sizes[name])
    least, middle, most = (rounded_up(told["epsilon"][order[i]]) for i in (-1, len(order) // 2, 0))
    unit, limit = face(ledger.get("unit") or "unit"), told.get("limit")
    sentence = (
        f"What each {unit} that was drawn has spent by itself, against {OBSERVERS[words(view)]}: ε "
        f"{least} at least, {middle} at the median, {most} at most."
    )
    if limit:
        out = sum(size > limit * 0.999 for size in sizes.values())
        sentence += f" {out} of {len(order)} have reached the limit of {limit:g}, and give no more."
    rows = [
        (name, str(spent[name]["releases"]), rounded_up(told["epsilon"][name])) for name in order
    ]
    table = Table((unit, "releases", "ε"), tuple(rows))
    return {"sentence": sentence, "means": told.get("means", ""), "table": table}


def words(view: str) -> str:
    """Returns the name of a view as pages show it."""
    return view.replace("_", " ")


def _chart(by_round: list[Mapping[str, Any]]) -> figures.Chart | None:
    """Returns ε by round for each view, where it is finite."""
    curves: dict[str, dict[int, float]] = {}
    for point in by_round:
        for view, epsilon in point.items():
            if view != "round" and isinstance(epsilon, int | float):
                curves.setdefault(view.replace("_", " "), {})[point["round"]] = float(epsilon)
    return (
        figures.line_chart("ε by round (by RDP, an upper bound)", curves, see=SPENT)
        if max(map(len, curves.values()), default=0) > 1
        else None
    )
