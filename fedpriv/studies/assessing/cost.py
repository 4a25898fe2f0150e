"""What an assessment costs, foretold from the first rounds of each training, and what fits in."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedpriv.report.wording import aligned, counted, show_bytes, show_seconds
from fedpriv.runtime import versions
from fedpriv.runtime.cache import PROBE, cache_folder, json_digest, write_entry
from fedpriv.runtime.refusals import Mistakes
from fedpriv.runtime.run_folder import METRICS, PLAN, RunFolder
from fedpriv.runtime.workers.jobs import reason_of
from fedpriv.studies import running
from fedpriv.studies.assessing.assessed import START
from fedpriv.studies.assessing.assessment import JSON
from fedpriv.studies.assessing.matrix import Asked, Assessment
from fedpriv.studies.trials import TRAINING, Store, Trial, carry_out, finding
from fedpriv.threat.settings import AttackSettings

LEFT_OUT = "left out to fit into"

PROBED = 3
"""Rounds of a training that are run to foretell how long it takes; transcripts hold as many."""

SLOW = 2.0
"""Minutes from which on an attack is not made to foretell how long it takes."""


@dataclass(frozen=True)
class Cost:
    """What one training under a defence costs, foretold from its first rounds.

    Attributes:
        seconds: of one training, of measuring its mechanism and of its report.
        memory: bytes of the process that trains.
        traffic: bytes of all messages.
        attacks: seconds of each attack on it that is not slow, by its overrides.
    """

    seconds: float
    memory: float
    traffic: float
    attacks: Mapping[str, float] = field(default_factory=dict)

    def of(self, one: Asked) -> float:
        """Returns the seconds of an attack; of one that was not made, those of tiny models."""
        return self.attacks.get(" ".join(one.overrides), 60 * one.minutes)


def foretold(plan: Assessment, tell: Callable[[str], None]) -> dict[str, Cost]:
    """Returns what a training under each defence costs, by its first rounds and attacks on them.

    Nothing of these is kept but how long they took, for the next time.
    """
    found = {}
    for one, trial in zip(plan.trainings, plan.trials(), strict=True):
        if one.seed == plan.seeds[0] and one.defence not in found:
            made = [attack for attack in plan.attacks if one.findings.get(attack.name)]
            made = [attack for attack in made if attack.minutes < SLOW]
            orders = {" ".join(a.overrides): one.orders[a.name] for a in made}
            about = [one.run, orders, plan.own, versions.commit(), versions.machine()]
            entry = cache_folder() / "costs" / f"{json_digest(about)}.json"
            with contextlib.suppress(OSError, ValueError, TypeError):
                found[one.defence] = Cost(**json.loads(entry.read_text("utf-8")))
                continue
            tell(f"{one.defence}: the first rounds and attacks, to estimate how long it takes")
            try:
                cost = found[one.defence] = _probe(trial, orders)
            except Exception as error:  # such as of a strategy of the user's own
                tell(f"{one.defence}: fails: {reason_of(error)}")
                found[one.defence] = Cost(0.0, 0.0, 0.0)
                continue
            except (KeyboardInterrupt, SystemExit) as end:
                end.__notes__ = ["repeat the command; what was foretold is not foretold again"]
                raise
            entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_entry(entry.parent, entry.name, json.dumps(dataclasses.asdict(cost)).encode())
    return found


def _probe(trial: Trial, orders: Mapping[str, tuple[str, ...]]) -> Cost:
    config, names = trial.config, {finding("probe", order): name for name, order in orders.items()}
    rounds = min(PROBED, config["rounds"])
    trial = dataclasses.replace(
        trial,
        config={**config, "rounds": rounds, "attack": None},
        orders={place: orders[name] for place, name in names.items()},
    )
    # Noise for all rounds takes as long to find as for a few.
    with tempfile.TemporaryDirectory(prefix=PROBE) as folder:
        store = Store(Path(folder), running.made)
        carry_out((store, trial, TRAINING))
        cost, took = store.cost(trial, TRAINING), dict[str, float]()
        for part in trial.parts[1:]:
            begun = time.monotonic()
            with contextlib.suppress(Exception):  # the assessment tells why
                carry_out((store, trial, part))
                took[part] = time.monotonic() - begun
        rows = [one for one in RunFolder(store.place(trial)).records(METRICS) if one["round"]]
    attacks = {name: took.pop(place) for place, name in names.items() if place in took}
    per_round = [sum(one["seconds"].values()) for one in rows]
    trained = min((one["seconds"]["train"] for one in rows), default=0.0)
    evaluated = max((one["seconds"]["evaluate"] for one in rows), default=0.0)
    evaluations = config["rounds"] // max(1, config["federation"]["evaluate_every"])
    left = config["rounds"] - rounds
    more = max(0, evaluations - 1) * evaluated * bool(per_round)
    seconds = cost["seconds"] + left * trained + more + sum(took.values())
    traffic = max((one["bytes_up"] + one["bytes_down"] for one in rows), default=0)
    return Cost(seconds, cost["memory"], traffic * config["rounds"], attacks)


def duration(plan: Assessment, costs: Mapping[str, Cost], workers: int) -> float:
    """Returns the seconds that an assessment takes, about."""
    made = [one for one in plan.attacks if not one.withheld]
    runs = {one.run: one for one in plan.trainings}.values()
    every = 0.0
    for one in runs:
        cost = costs[one.defence]
        every += cost.seconds + (sum(map(cost.of, made)) if one.orders else 0)
    return every / max(1, min(workers, len(runs)))


def within(
    plan: Assessment, costs: Mapping[str, Cost], hours: float, workers: int
) -> tuple[Assessment, list[str]]:
    """Returns what fits into so many hours, and what was left out for it.

    Seeds are left out first, down to two. Then attacks that can be smaller are, the longest first,
    then the longest are left out, and then the second seed.

    Raises:
        Mistakes: if one seed and one attack do not fit.
    """
    left_out: list[str] = []
    plan = dataclasses.replace(plan, hours=hours)

    def fits() -> bool:
        return duration(plan, costs, workers) <= hours * 3600

    def fewer_seeds(least: int) -> None:
        nonlocal plan
        before = len(plan.seeds)
        while not fits() and len(plan.seeds) > least:
            plan = with_seeds(plan, len(plan.seeds) - 1)
        if len(plan.seeds) < before:
            left_out.append(f"{len(plan.seeds)} seeds in place of {before}")

    def longest(some: Iterable[Asked]) -> Asked | None:
        return max((one for one in some if not one.withheld), key=_minutes, default=None)

    fewer_seeds(2)
    while not fits() and (one := longest(one for one in plan.attacks if one.smaller)):
        left_out.append(f"{one.name} with {' '.join(one.smaller)}")
        plan = smaller(plan, one.name)
    while not fits() and sum(not one.withheld for one in plan.attacks) > 1:
        if one := longest(plan.attacks):
            left_out.append(f"without {one.name}")
            plan = without(plan, one.name)
    fewer_seeds(1)
    if not fits():
        seconds = duration(plan, costs, workers)
        enough = math.ceil(1000 * seconds / 3600) / 1000
        raise Mistakes(
            plan.experiment,
            [
                f"hours={hours:g}: one seed and one attack take about {show_seconds(seconds)}: "
                f"take hours={enough:g}, or leave defences out"
            ],
        )
    return plan, left_out


def _minutes(one: Asked) -> float:
    return one.minutes


def with_seeds(plan: Assessment, count: int) -> Assessment:
    """Returns the same plan with the first seeds only."""
    kept = plan.seeds[:count]
    trainings = tuple(one for one in plan.trainings if one.seed in kept)
    return dataclasses.replace(plan, seeds=kept, trainings=trainings)


def without(plan: Assessment, attack: str) -> Assessment:
    """Returns the same plan without an attack, for lack of time."""
    reason = f"{LEFT_OUT} {plan.hours:g} hours"
    return plan.ordered(
        [
            dataclasses.replace(one, withheld=reason) if one.name == attack else one
            for one in plan.attacks
        ]
    )


def smaller(plan: Assessment, attack: str) -> Assessment:
    """Returns the same plan with an attack that takes less time, and finds less."""
    return plan.ordered([one.made_smaller() if one.name == attack else one for one in plan.attacks])


def begun(plan: Assessment, hours: float) -> Assessment | None:
    """Returns what an interrupted assessment of so many hours fitted in; None if there is none.

    How long trainings take is measured anew by each command, and would leave out something else.
    """
    for path in sorted(plan.place.glob("*/"), reverse=True):
        before = RunFolder(path).read_json(PLAN) or {}
        same = all(
            before.get(name) == value
            for name, value in (("command", plan.command), ("hours", hours), ("own", plan.own))
        )
        if same and not (path / JSON).is_file():
            fitted = with_seeds(dataclasses.replace(plan, hours=hours), len(before["seeds"]))
            then = {one["name"]: one for one in before["attacks"]}
            for one in plan.attacks:
                if list(one.overrides) != then[one.name]["overrides"]:
                    fitted = smaller(fitted, one.name)
                if then[one.name]["withheld"].startswith(LEFT_OUT):
                    fitted = without(fitted, one.name)
            return fitted
    return None


def described(plan: Assessment) -> list[str]:
    """Returns in lines who attacks, and what is trained and made and what not, and why not."""
    lines = [f"{name.replace('_', ' ')}: {one.who}" for name, one in plan.adversaries.items()]
    rows = [["attack", "adversary", "minutes", "here", "what it can tell", ""]]
    for one in plan.attacks:
        minutes = "—" if one.withheld else f"{one.minutes:g}"
        here, says = (one.outlook.here, one.outlook.says) if one.outlook else ("", "not known")
        if one.withheld and not (one.outlook and one.withheld == one.outlook.reason):
            says = f"not made: {one.withheld}"
        behind = f" (behind masks: {' '.join(one.masked)})" if one.masked else ""
        rows.append([one.name, one.adversary, minutes, here, says, f"{one.told}{behind}"])
    lines += ["", *aligned(rows), ""]
    rows = [["defence", ""]]
    for defence in plan.defences:
        rows.append([defence.name, defence.refused and f"not trained: {defence.refused}"])
        rows[-1][1] = rows[-1][1] or defence.told
    warned = [f"{one.name}: {one.warning}" for one in plan.defences if one.warning]
    return [*lines, *aligned(rows), *warned, ""]


def costed(plan: Assessment, costs: Mapping[str, Cost], workers: int) -> list[str]:
    """Returns in lines what each training costs, and how long all of it takes."""
    rows = [["defence", "trainings", "seconds a training", "memory", "messages"]]
    for name in (*(one.name for one in plan.defences if not one.refused), START):
        count, cost = sum(one.defence == name for one in plan.trainings), costs[name]
        sizes = [show_bytes(cost.memory), show_bytes(cost.traffic)]
        rows.append([name, f"{count}", f"{cost.seconds:.0f}", *sizes])
    runs = len({one.run for one in plan.trainings})
    every = show_seconds(duration(plan, costs, workers))
    last = (
        f"{counted(runs, 'training')} with {counted(len(plan.seeds), 'seed')}, "
        f"{workers or 1} at a time: about {every}. {START} is the model that trainings begin from. "
        f"Attacks of {SLOW:g} minutes or more were not tried: theirs are the minutes of tiny "
        f"models. Attacks compute on {AttackSettings().on}."
    )
    return [*aligned(rows), "", last]
