"""ε of several runs on the same data: their ledgers, composed.

The guarantee of a run holds for that run alone. An observer of several runs, such as the person who
chose the best of a sweep, has seen the releases of all of them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpriv.privacy.accounting import accountants
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.statement import doubts
from fedpriv.privacy.views import VIEWS
from fedpriv.runtime import run_files, run_log, verify
from fedpriv.runtime.run_folder import LEDGER, NotARunFolder

APART = {
    "private": "no mechanism of differential privacy: there is no bound to compose",
    "data": "its ledger does not say on which data it was",
}


@dataclasses.dataclass(frozen=True)
class _Run:
    path: Path
    ledger: Ledger
    data: str
    doubts: dict[str, list[str]]
    """By view: why ε of this run is no guarantee."""

    @property
    def kind(self) -> tuple[str, float]:
        """Unit and δ. Runs that agree in both, and share data, are composed."""
        mechanism = self.ledger.mechanism
        return (mechanism.unit, mechanism.delta) if mechanism else ("", 0.0)


def joint_budget(runs: Sequence[Path]) -> dict[str, Any]:
    """Returns ε of all runs together, for each data set, unit and δ.

    Independent runs compose as rounds do. A run that is given twice counts once.

    Args:
        runs: run folders.

    Returns:
        "together": for each group the runs, "data", "unit", "delta", and in "views" per view ε by
        accountant, "reasons", ε of each run "alone" by PLD, and the "doubts" about any of them,
        without which it is a "guarantee". "apart": runs that are in none, with the reason.

    Raises:
        NotARunFolder: (a ValueError) a folder holds no ledger that can be read.
    """
    groups: dict[tuple[str, float], list[tuple[set[str], list[_Run]]]] = {}
    apart = []
    for path in dict.fromkeys(run.resolve() for run in runs):
        run = _read(path)
        missing = "private" if run.ledger.mechanism is None else "" if run.data else "data"
        if missing:
            apart.append({"run": str(path), "reason": APART[missing]})
        else:
            # A run that was resumed on other data is one on both, and joins those on either.
            data, members = set(run.data.split(" and ")), [run]
            known = groups.setdefault(run.kind, [])
            for group in [group for group in known if group[0] & data]:
                known.remove(group)
                data, members = group[0] | data, [*group[1], *members]
            known.append((data, members))
    together = [
        _composed(" and ".join(sorted(data)), *kind, members)
        for kind, known in groups.items()
        for data, members in known
    ]
    return {"together": together, "apart": apart}


def _read(path: Path) -> _Run:
    try:
        content = json.loads(run_files.read(path, LEDGER) or b"")
        ledger = Ledger.from_json(content)
        # From the attempts: a run that was killed has written no views.
        found = {view: doubts(ledger, view) for view in VIEWS}
        changed = verify.check(path, LEDGER.__eq__).problems() if run_log.has_log(path) else []
        if changed:
            told = f"its ledger is not as fedpriv wrote it: {changed[0]}"
            found = {view: [*known, told] for view, known in found.items()}
        return _Run(path, ledger, str(content.get("data") or ""), found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotARunFolder(f"{path}: no {LEDGER} that can be read ({error})") from error


def _composed(data: str, unit: str, delta: float, runs: list[_Run]) -> dict[str, Any]:
    views = {}
    for view in VIEWS:
        histories = [run.ledger.history(view) for run in runs]
        found = accountants.estimates([entry for each in histories for entry in each], delta)
        known = [f"{run.path.name}: {doubt}" for run in runs for doubt in run.doubts.get(view, ())]
        views[view] = {
            **{name: estimate.epsilon for name, estimate in found.items()},
            "reasons": {name: e.reason for name, e in found.items() if e.reason},
            "alone": [accountants.estimates(each, delta)["pld"].epsilon for each in histories],
            "guarantee": not known,
            "doubts": known,
        }
    paths = [str(run.path) for run in runs]
    return {"runs": paths, "data": data, "unit": unit, "delta": delta, "views": views}
