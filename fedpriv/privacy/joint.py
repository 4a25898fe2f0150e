"""ε of several runs on data that overlap: their ledgers, composed.

The guarantee of a run holds for that run alone. An observer of several runs, such as the person who
chose the best of a sweep, has seen the releases of all of them.

Runs are told to overlap by the traces of documents and providers in their folders, which are keyed
by a secret of the user. Each set of runs that have one unit in common is composed, and no other
unit has been in more. Where a unit of one run is part of another's, such as an example of a
provider, the larger one counts, with all of the smaller ones that it may have. Runs whose folders
have no traces, or were made by somebody else, are on the same data if the digest of the data says
so; otherwise nobody knows, which is said.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedpriv.privacy.accounting import accountants
from fedpriv.privacy.accounting.event import History
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.statement import doubts, grouped
from fedpriv.privacy.views import VIEWS, face
from fedpriv.runtime import run_files, verify
from fedpriv.runtime.run_folder import BOOKED, LEDGER, UNITS, NotARunFolder, RunFolder

APART = {
    "private": "no mechanism of differential privacy: there is no bound to compose",
    "data": "its ledger does not say on which data it was",
}

LARGER = ("example", "document", "file", "provider", "client")
"""Units, the smallest first. A file stands for a provider that nobody knows."""


@dataclasses.dataclass(frozen=True)
class _Run:
    path: Path
    ledger: Ledger
    traces: frozenset[tuple[str, str]]
    """Of what it was trained on: kind and trace."""
    secret: str
    """Names whose secret the traces are keyed by; empty where there are none."""
    doubts: dict[str, list[str]]
    """By view: why ε of this run is no guarantee."""

    @property
    def unit(self) -> str:
        """What is protected, by `LARGER`."""
        unit = self.ledger.mechanism.unit if self.ledger.mechanism else ""
        return "file" if unit == "provider" and not self.named else unit

    @property
    def named(self) -> bool:
        """Whether all of its documents say of whom they are."""
        return self.ledger.providers == "all"

    def seen(self, view: str, unit: str) -> History | None:
        """Returns what a view has seen of such a unit; None where it is not known how much."""
        if self.unit == unit:
            return self.ledger.history(view)
        # Groups of files are booked in the place of groups of providers.
        known = {"file": not self.named, "provider": self.named}.get(unit, True)
        group = self.ledger.groups.get("provider" if unit == "file" else unit)
        return grouped(self.ledger, view, group)[0] if group and known else None

    def of(self, kind: str) -> frozenset[str]:
        """Returns its traces of one kind."""
        return frozenset(trace for known, trace in self.traces if known == kind)


def joint_budget(runs: Sequence[Path]) -> dict[str, Any]:
    """Returns ε of all runs together, for each set of runs that have data in common.

    Independent runs compose as rounds do. A run that is given twice counts once.

    Args:
        runs: run folders.

    Returns:
        "together": for each set the "runs", "data", the largest "unit", the smallest "delta", and
        in "views" per view ε by accountant, "reasons", ε of each run "alone" by PLD, and the
        "doubts" about any of them, without which it is a "guarantee". "notes" say which runs have
        noise in common. "apart": runs that are in none, with the reason.

    Raises:
        NotARunFolder: (a ValueError) a folder holds no ledger that can be read.
    """
    read = [_read(path) for path in dict.fromkeys(run.resolve() for run in runs)]
    apart, private = [], list[_Run]()
    for run in read:
        missing = "private" if run.ledger.mechanism is None else "" if run.traces else "data"
        if missing:
            apart.append({"run": str(run.path), "reason": APART[missing]})
        else:
            private.append(run)
    having = defaultdict[tuple[str, str], set[int]](set)
    for place, run in enumerate(private):
        for trace in run.traces:
            if trace[0] != "encoding":
                having[trace].add(place)
    sharing = {
        frozenset(places)
        for (kind, _), places in having.items()
        # Two documents of one provider are two units where documents or less are protected.
        if kind != "providers" or any(private[i].unit != "example" for i in places)
    }
    largest = [places for places in sharing if not any(places < other for other in sharing)]
    together = []
    for places in sorted(largest, key=sorted):
        members = [private[i] for i in sorted(places)]
        others = [
            f"{run.path.name} may be on the same data: {why}"
            for i, run in enumerate(private)
            if i not in places and (why := _why_not_known(run, members))
        ]
        together.append(_composed(members, others))
    _note_unmasked(read, apart)
    return {"together": together, "apart": apart}


def _why_not_known(run: _Run, others: list[_Run]) -> str:
    """Returns why a run may have a unit in common with others although no trace says so, or ""."""
    every = [run, *others]
    units = {one.unit for one in every}
    if blank := [one.path.name for one in every if not one.secret]:
        return f"{blank[0]} has no traces of documents ({UNITS})"
    if len({one.secret for one in every}) > 1:
        return "the traces of documents were made by two users"
    if units & {"provider", "client"} and not all(one.named for one in every):
        return "not all documents say whose they are"
    return "their clients hold other documents" if "client" in units else ""


def _note_unmasked(runs: list[_Run], apart: list[dict[str, str]]) -> None:
    """Says of masked runs without noise whose masks are another's, too, that they hide nothing."""
    for told in apart:
        (own,) = (run for run in runs if str(run.path) == told["run"])
        for other in runs:
            shared = {r.attempt.key: r.attempt.survivors for r in other.ledger.releases}
            if own.ledger.mechanism is None and any(
                shared.get(one.attempt.key, one.attempt.survivors) != one.attempt.survivors
                for one in own.ledger.releases
            ):
                told["reason"] += (
                    f"; {other.path.name} has the same masks and sums of other clients, so that "
                    "the two together give single updates away"
                )


def _read(path: Path) -> _Run:
    try:
        ledger = Ledger.from_json(RunFolder(path).read_ledger())
        # From the attempts: a run that was killed has written no views.
        found = {view: doubts(ledger, view) for view in VIEWS}
        if changed := verify.altered(path, LEDGER, BOOKED, UNITS):
            told = f"its ledger is not as fedpriv wrote it: {changed[0]}"
            found = {view: [*known, told] for view, known in found.items()}
        # A run that was resumed on other data is one on both.
        traces = {("digest", one) for one in ledger.data.split(" and ") if one}
        units = json.loads(run_files.read(path, UNITS) or b"{}")
        kinds = ("data", "documents", "providers", "clients", "encoding")
        traces |= {(kind, str(one)) for kind in kinds for one in units.get(kind, ())}
        if {kind for kind, _ in traces} <= {"encoding"}:
            traces = set()
        # Of plain arrays nothing is known but whether they are the same.
        secret = str(units.get("secret", "")) if units.get("documents") else ""
        return _Run(path, ledger, frozenset(traces), secret, found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotARunFolder(f"{path}: no {LEDGER} that can be read ({error})") from error


def _composed(runs: list[_Run], others: list[str]) -> dict[str, Any]:
    """Returns ε of runs that have a unit in common.

    Args:
        runs: of them.
        others: why further runs may belong here, and ε is no guarantee.
    """
    unit = max((run.unit for run in runs), key=LARGER.index)
    if unit == "example" and len({(run.ledger.example, run.of("encoding")) for run in runs}) > 1:
        unit = "document"  # such as questions, and windows of their pages
    delta = min(run.ledger.mechanism.delta for run in runs if run.ledger.mechanism)
    # One noise under sums of different clients: who has both sums may as well have each message.
    answered = defaultdict[tuple[int, int, str], set[tuple[int, ...]]](set)
    for run in runs:
        for release in run.ledger.releases:
            answered[release.attempt.key].add(release.attempt.survivors)
    others = [*others]
    if unit == "client" and len({run.of("clients") or run.path for run in runs}) > 1:
        others.append("the runs' clients hold other documents: what one has there is not one here")
    again = {key for key, survivors in answered.items() if len(survivors) > 1}
    told = [
        f"{run.path.name}: another run has the same noise in round {one.attempt.round} and sums of "
        "other clients, so that what it sent counts as seen by itself"
        for run in runs
        for one in run.ledger.releases
        if one.attempt.key in again and not one.own_noise
    ]
    views = {}
    for view in VIEWS:
        histories, known = list[History](), [*others]
        for run in runs:
            known += [f"{run.path.name}: {doubt}" for doubt in run.doubts.get(view, ())]
            twice = any(one.attempt.key in again for one in run.ledger.releases)
            shown = "server_plain" if twice else view
            history = run.seen(shown, unit)
            if history is None:
                known.append(f"{run.path.name}: how much of it is of one {face(unit)} is not known")
            histories.append(run.ledger.history(shown) if history is None else history)
        found = accountants.estimates([entry for each in histories for entry in each], delta)
        views[view] = {
            **{name: estimate.epsilon for name, estimate in found.items()},
            "reasons": {name: e.reason for name, e in found.items() if e.reason},
            "alone": [accountants.estimates(each, delta)["pld"].epsilon for each in histories],
            "guarantee": not known,
            "doubts": known,
        }
    data = " and ".join(sorted({one for run in runs for one in run.ledger.data.split(" and ")}))
    paths = [str(run.path) for run in runs]
    found_of = {"unit": unit, "delta": delta, "views": views, "notes": told}
    return {"runs": paths, "data": data, **found_of}
