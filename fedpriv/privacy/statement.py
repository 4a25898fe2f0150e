"""The ε of a ledger: in each view, by each accountant, for the unit and for larger ones.

Together with the events it is the content of ledger.json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from fedpriv.privacy import individual
from fedpriv.privacy.accounting import accountants, ceiling
from fedpriv.privacy.accounting.event import ClientThenRecord, History, each_part, merged
from fedpriv.privacy.individual import Spent
from fedpriv.privacy.ledger import Group, Ledger
from fedpriv.privacy.views import NOT_A_GUARANTEE, SENTENCES, VIEWS, face, rounded_up
from fedpriv.runtime import verify
from fedpriv.runtime.run_folder import BOOKED, LEDGER, RunFolder

UNITS = {
    "example": "one training example",
    "question": "one question: all windows of its page beside which it is asked",
    "document": "a whole document: all that is trained on of its pages, and made of them",
    "file": "one file: nothing says which files are of one company, for which ε is larger",
    "provider": "all documents of one supplier, such as the company that issued them",
    "provider or file": "all documents of one supplier, or one file where nothing says whose it is",
    "client": "all that one client holds",
}
OF_CONTINUOUS = (
    "the rounding of noise in floating-point numbers",
    "with masks, a client that has more than 4 E + 16 units in a round, where E are expected",
)
"""What no ε covers where noise is continuous."""
NOT_COVERED = (
    "when a client answers, and how long it takes; whether it answers at all, where that depends "
    "on its data, such as a time-out that grows with the number of its documents",
    "the type of a client's error, and that there was one",
    "the number and the sizes of messages",
    "that the run exists, with its settings, its constants and who its clients are",
    "what was chosen by looking at the data or at other runs on it: tuning, stopping, the best of "
    "several runs. Runs on the same data add up (`fedpriv budget RUN RUN …`)",
    "the sizes of groups in this ledger, and all else in the run folder that is not a released "
    "model: it is for whoever holds the data",
    "what pretrained weights and public documents were made from, beyond what is found to be the "
    "same",
    *OF_CONTINUOUS,
    "the rounding of floating-point numbers where contributions are computed, clipped and added",
    "with dropout, an adversary who tries all 2^32 numbers from which torch may draw it",
    "anybody who does not follow the protocol",
)
"""What no ε covers in any run. Unlike `Ledger.uncovered`, it is no reason to doubt a run's ε."""
DRAWN_FROM = {
    "seed": "the seed of this run: whoever has it has the noise too (privacy.entropy=os adds a "
    "secret)",
    "run": "the salt of this run, in its folder or with its clients: whoever has it and the seed "
    "has the noise too",
    "os": None,
}
"""What no ε covers, by where noise is drawn from."""
IN_SHORT = (
    "timing, absence and errors that depend on the data, sizes of messages, tuning over several "
    "runs, floating point"
)
NOT_PRIVATE = "nothing is clipped and no noise is added: there is no bound"
ONLY_UNNOTICED = "holds only where nobody knows which clients took part"
POINTS = 12
"""Rounds at which ε by round is given."""
LARGEST_GROUP = 16
"""Up to this many records, the mixture of a group is accounted exactly; above, by a bound."""

Json = dict[str, Any]


def statement(ledger: Ledger, spent: Mapping[str, Spent] | None = None) -> Json:
    """Returns the ledger with its ε as a JSON object; infinity is the string "inf".

    Args:
        ledger: of a run.
        spent: what single units have given, by name, for their own ε; None where nobody knows.
    """
    if ledger.mechanism is None:
        epsilons = dict.fromkeys(accountants.ACCOUNTANTS, "inf")
        known = {"reasons": {}, "guarantee": False, "doubts": [], "applies": True}
        views = {view: {**epsilons, **known, "note": NOT_PRIVATE} for view in VIEWS}
        return {"unit": None, "views": views, **ledger.to_json()}
    mechanism = ledger.mechanism
    meaning = UNITS[ledger.name_of(mechanism.unit)]
    if mechanism.unit == "example" and ledger.example:
        meaning = f"{meaning}: {ledger.example}"
    views = {view: _view(ledger, view, mechanism.delta) for view in VIEWS}
    for view in views if spent else ():
        views[view]["individual"] = _individual(ledger, view, spent or {})
    return {
        "unit": ledger.name_of(mechanism.unit),
        "meaning": f"adding or removing {meaning}",
        "delta": mechanism.delta,
        "views": views,
        "larger_units": {
            ledger.name_of(unit): _group(ledger, unit, mechanism.delta) for unit in ledger.groups
        },
        "colluders": _colluders(ledger, mechanism.delta),
        "not_covered": [
            *(item for item in NOT_COVERED if not (mechanism.scale and item in OF_CONTINUOUS)),
            *filter(None, [DRAWN_FROM[ledger.entropy]]),
        ],
        "given_participation": _given_participation(ledger, mechanism.delta),
        "by_round": _by_round(ledger, mechanism.delta),
        "by_round_accountant": "rdp",
        "spent": {name: asdict(one) for name, one in (spent or {}).items()},
        **ledger.to_json(),
    }


def _individual(ledger: Ledger, view: str, spent: Mapping[str, Spent]) -> Json:
    """Returns ε of each unit by what it gave, for its own eyes (`fedpriv.privacy.individual`)."""
    shown = [r for r in ledger.releases if r.shown] or ledger.releases
    plain = view == "server_plain"
    noise = min(r.share if plain else min(r.planned, r.noise_multiplier) for r in shown)
    mechanism = ledger.mechanism
    limit = mechanism.individual_epsilon if mechanism and not plain else 0.0
    delta = mechanism.delta if mechanism else 0.0
    return {
        "epsilon": {
            name: number(individual.epsilon(one.given, noise, delta)) for name, one in spent.items()
        },
        "limit": limit or None,
        "doubts": doubts(ledger, view),
        "means": individual.MEANS,
    }


def account(folder: RunFolder) -> None:
    """Computes ε from the events in a run folder's ledger; a killed run has none yet.

    A ledger that is not as fedpriv wrote it stays as it is, so that `fedpriv verify` tells.

    Raises:
        Damaged: if the file holds no ledger.
    """
    content = folder.read_ledger()
    if content is not None and not verify.altered(folder.path, LEDGER, BOOKED):
        with folder.making_sense_of(LEDGER):
            spent = {name: Spent(**one) for name, one in content.get("spent", {}).items()}
            content = statement(Ledger.from_json(content), spent)
        folder.write_json(LEDGER, content)
        folder.remove(BOOKED)


def _view(ledger: Ledger, view: str, delta: float) -> Json:
    """Returns ε of one view by every accountant, and whether it may be relied on."""
    history = ledger.history(view)
    estimates = accountants.estimates(history, delta)
    applies = {"server_masked": ledger.masked, "server_plain": not ledger.masked}.get(view, True)
    known = doubts(ledger, view)
    if estimates["pld"].epsilon == math.inf:
        known.append("without noise there is no bound")
    return {
        **{name: number(estimate.epsilon) for name, estimate in estimates.items()},
        "reasons": {name: e.reason for name, e in estimates.items() if e.reason},
        "guarantee": not known,
        "doubts": known,
        "applies": applies,
        "ceiling": ceiling.as_json(history),
        "note": SENTENCES[view],
    }


def doubts(ledger: Ledger, view: str) -> list[str]:
    """Returns why ε of this view is not a guarantee; empty where it is one."""
    found = [f"not covered: {leak}" for leak in ledger.uncovered]
    shared = [r for r in ledger.releases if not r.own_noise]
    if view == "paper" and any(release.client_rate < 1 for release in shared):
        alone = ledger.mechanism is not None and ledger.mechanism.unit == "client"
        found.append(ONLY_UNNOTICED if alone else NOT_A_GUARANTEE)
    short = [r.attempt.round for r in shared if r.shown and r.short]
    if short and view != "server_plain":
        more = ", …" if len(short) > 10 else ""
        named = f"round{'s' * (len(short) > 1)} {', '.join(map(str, short[:10]))}{more}"
        found.append(f"noise was missing in {named}: not all clients answered")
    return found


def grouped(ledger: Ledger, view: str, group: Group) -> tuple[History, bool]:
    """Returns what a view has seen of a group of units, as if it were one unit.

    For a large group it is an upper bound: one Gaussian of `size` times the norm.

    Where contributions reach several rounds, those of a group may meet in one. Then it is an upper
    bound too: all of the group is counted as if it were drawn at every turn, and in one turn.

    A group at several clients is counted as if it were at one client that is drawn whenever any of
    them is, which is at most that many times as probable. With all of its records in one place, its
    part of the sum, and of any message, is at least as large.

    Returns:
        The history, and whether it counts all of the group as if it were always drawn.
    """
    size = group.records
    always = size > LARGEST_GROUP or (
        ledger.mechanism is not None and ledger.mechanism.bands > 1 and size > 1
    )

    def as_one(part: ClientThenRecord) -> ClientThenRecord:
        if always:
            return ClientThenRecord(1.0, 1.0, part.noise_multiplier / size)
        rate = min(1.0, group.clients * part.client_rate)
        return replace(part, client_rate=rate, group_size=size)

    return [(each_part(event, as_one), times) for event, times in ledger.history(view)], always


def _group(ledger: Ledger, unit: str, delta: float) -> Json:
    """Returns ε of a group of units in each view; None where PLD reaches its limits."""
    group = ledger.groups[unit]
    seen = {view: grouped(ledger, view, group) for view in VIEWS}
    always, accountant = any(always for _, always in seen.values()), "pld"
    if always:
        how, accountant = "by RDP, as if all were always drawn", "rdp"
    elif group.clients > 1:
        how = f"by PLD, as if all were drawn whenever one of its {group.clients} clients is"
    else:
        how = "by PLD, exact for the mixture"
    return {
        "means": UNITS[ledger.name_of(unit)],
        "records": group.records,
        "clients": group.clients,
        "epsilon": {
            view: number(accountants.epsilon_or_none(history, delta, accountant))
            for view, (history, _) in seen.items()
        },
        "how": how,
    }


def _colluders(ledger: Ledger, delta: float) -> list[Json]:
    """Returns ε against a reader of the sums with which clients collude, by their number.

    The numbers range from 0 to t - 1 in the largest cohort, all but the client of the protected
    unit. If there are many, some are left out. One colluder also stands for any single client that
    sees the global models. The list is empty where every message carries all of its noise.
    """
    others = max((release.shares for release in ledger.releases), default=1) - 1
    if not others:
        return []
    steps = min(others, POINTS - 1)
    rows = []
    asked = ledger.mechanism.asked_colluders if ledger.mechanism else 0
    told = {math.ceil(others * k / steps) for k in range(steps + 1)} | {1, min(asked, others)}
    for colluding in sorted(told):
        history = ledger.history("server_masked", colluders=colluding)
        epsilon = accountants.epsilon_or_none(history, delta, "pld")
        rows.append({"colluders": colluding, "epsilon": number(epsilon)})
    return rows


def _given_participation(ledger: Ledger, delta: float) -> Json | None:
    """Returns ε by PLD for the units of the client that each observer has seen most often.

    The views average over the drawing of clients, like any guarantee that is given in advance. This
    is the ε that remains once the drawn clients are known.
    """
    found: dict[str, tuple[int, int, float | str | None]] = {}
    for view in ("server_plain", "server_masked", "global"):
        if rounds := ledger.participation(view):
            client, often = max(rounds.items(), key=lambda item: item[1])
            estimate = accountants.estimates(ledger.history_of(client, view), delta)["pld"]
            found[view] = client, often, number(estimate.epsilon)
    if not found:
        return None
    epsilons = {view: epsilon for view, (*_, epsilon) in found.items()}
    client, often, _ = found.get("global", found["server_plain"])
    return {"client": client, "rounds": often, "epsilon": epsilons}


def summary(content: Mapping[str, Any]) -> list[str]:
    """Summarises ledger.json in a few lines for the end of a run."""
    views, mechanism = content["views"], content["mechanism"]
    if mechanism is None:
        return ["privacy: no ε; the strategy has no mechanism of differential privacy"]
    server = _server(content)
    lines = [
        f"privacy of one {face(content['unit'])}, ε at δ = {content['delta']:g} (pld): "
        f"against the server {_shown(views[server])} ({server}), "
        f"from the global models {_shown(views['global'])}"
    ]
    if mechanism["asked_epsilon"]:
        lines.append(_kept(content, server))
    released = views["global"]
    if released["guarantee"] and (most := ceiling.sentence(released.get("ceiling"))):
        lines.append(f"  any attack on one {face(content['unit'])}, from the global models: {most}")
    own = content["views"]["global"].get("individual") or {}
    if limit := own.get("limit"):
        spent = [e == "inf" or e >= limit * (1 - 1e-6) for e in own["epsilon"].values()]
        lines.append(
            f"  limit: {limit:g} for each {face(content['unit'])}; of {len(spent)} that were "
            f"drawn, {sum(spent)} have reached it, and give no more"
        )
    if content["uncovered"]:
        lines.append(f"  not guaranteed, because no ε covers: {'; '.join(content['uncovered'])}")
    if helped := content["colluders"][1:]:
        told = [f"with {r['colluders']} {rounded_up(r['epsilon'])}" for r in helped]
        few = told if len(told) < 4 else [*told[:2], f"… {told[-1]}"]
        lines.append("  from the sums, if clients reveal their noise: " + ", ".join(few))
    seed = ", the seed" if content["entropy"] == "seed" else ""
    lines.append(f"  covered by no ε: {IN_SHORT}{seed}")
    return lines


def in_short(content: Mapping[str, Any] | None) -> dict[str, str]:
    """Returns ε of a private run against its server and from its models, for a table of runs."""
    if content is None or content["mechanism"] is None:
        return {}
    return {view: _shown(content["views"][view]) for view in (_server(content), "global")}


def _server(content: Mapping[str, Any]) -> str:
    """Returns the view of the server that this run had."""
    return "server_masked" if content["masked"] else "server_plain"


def _kept(content: Mapping[str, Any], server: str) -> str:
    """Returns a line on whether the run held the ε that it was asked for."""
    mechanism = content["mechanism"]
    asked, view = mechanism["asked_epsilon"], mechanism["asked_view"]
    spent, helped = content["views"][view]["pld"], mechanism["asked_colluders"]
    whom = f"{view} with {helped} colluder{'s' * (helped != 1)}" if helped else view
    if helped:
        rows = {row["colluders"]: row["epsilon"] for row in content["colluders"]}
        most = max(rows, default=0)
        spent = rows.get(min(helped, most), spent)
    if isinstance(spent, float) and spent <= asked:
        line = f"  budget: {asked:g} for {whom}; kept"
    else:
        line = f"  budget: {asked:g} for {whom}; EXCEEDED: {rounded_up(spent)}"
    other = view in ("server_masked", "server_plain") and view != server
    return f"{line}. This run's server is {server}, not {view}" if other else line


def _shown(view: Json) -> str:
    return rounded_up(view["pld"])


def _by_round(ledger: Ledger, delta: float) -> list[Json]:
    """Returns ε by RDP after some of the rounds: it is quick, and never below PLD's."""
    last = max((r.attempt.round for r in ledger.releases), default=0)
    rounds = sorted({math.ceil(last * k / POINTS) for k in range(1, POINTS + 1)} - {0})
    rows = []
    for round in rounds:
        row: Json = {"round": round}
        for view in VIEWS:
            history = merged(ledger.history(view, until=round))
            row[view] = number(accountants.epsilon(history, delta, "rdp"))
        rows.append(row)
    return rows


def number(epsilon: float | None) -> float | str | None:
    """Returns ε as a JSON value: infinity is the string "inf"."""
    return "inf" if epsilon == math.inf else epsilon
