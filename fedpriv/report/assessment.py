"""What an assessment shows: utility, ε and cost of each defence, and what it does to each attack.

Everything is read from the folder of `fedpriv assess`: its plan, and the run folders in it. An
attack's success is its `primary` number above its control, where nothing leaks. Over the seeds it
is a mean, whose error grows where the seeds disagree more than their own errors explain (Birge
1932). A defence is held against `none` on the same seeds. All p-values of a page are corrected
together (Holm 1979).
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pandas as pd
from pydantic import TypeAdapter, ValidationError
from scipy.stats import norm

from fedpriv.report.summary import leading_metrics
from fedpriv.report.sweep import Interval
from fedpriv.runtime.run_folder import FINDINGS, LEDGER, METRICS, RESULT, RunFolder
from fedpriv.threat.mechanism import NAME as AUDIT
from fedpriv.threat.results import LEAK, NONE_SHOWN, Number, Result, read_result
from fedpriv.threat.statistics import CONFIDENCE, LEVEL, POWER, corrected

PLAN, RUNS, ERRORS, COST = "plan.json", "runs", "errors.json", "cost.json"
PAGE, JSON, CSV = "assessment.html", "assessment.json", "assessment.csv"

NONE, START = "none", "start"
"""The defence that others are held against, and the model that all trainings begin from."""

ALARM_LEVEL = 0.9999
"""Confidence of the bounds that are held against the ledger: many trainings are measured."""

STOPS, WEAKENS, NOTHING, CANNOT_TELL = "stops", "weakens", "nothing", "cannot_tell"

REMAINS = 0.5
"""An attack counts as stopped if at most this share of its success without a defence may remain."""

ALIVE = 0.1
"""A model is alive if it has come at least this share of the way from its start to `none`."""

EDGE = float(norm.ppf((1 + CONFIDENCE) / 2))
"""How many standard errors from its value an interval ends."""

MASKED = {"server": "server_masked"}
"""Whom masking turns an adversary into."""

SUREST = 1e-11
"""Smaller p-values are not told apart, and say nothing of an error."""


@dataclass(frozen=True)
class Effect:
    """How far an attack succeeds beyond what is had without a leak, over the seeds.

    Attributes:
        value: mean of the attack's number.
        control: mean of what it is held against.
        below: standard error towards lower values: what a success is shown with.
        above: the same towards higher ones: what may remain is judged with it.
        n: units, over all seeds.
        unit: what was counted.
        reach: the ends of the seeds' own intervals.
    """

    value: float
    control: float
    below: float
    above: float
    n: int
    unit: str = ""
    reach: tuple[float, float] = (-math.inf, math.inf)

    @classmethod
    def of(cls, numbers: Sequence[Number]) -> Effect | None:
        """Returns the effect of a number from each seed; None where none is `usable`.

        Their mean is the mean over these trainings. Where they disagree by more than their own
        errors explain, the errors are as much larger.
        """
        known = [_errors(one) for one in numbers if usable(one)]
        if not known:
            return None
        count = len(known)
        value, control = (math.fsum(one[at] for one in known) / count for at in (0, 1))
        below, above = (math.hypot(*(one[at] for one in known)) / count for at in (2, 3))
        if count > 1:
            apart = [(v - c - (value - control)) / max(low, high) for v, c, low, high in known]
            wider = max(1.0, math.hypot(*apart) / math.sqrt(count - 1))
            below, above = below * wider, above * wider
        used = [one for one in numbers if usable(one)]
        ends = [cast(tuple[float, float], one.interval) for one in used]
        reach = min(low for low, _ in ends), max(high for _, high in ends)
        return cls(value, control, below, above, sum(one.n for one in used), used[0].unit, reach)

    @property
    def gain(self) -> float:
        """What is above the control."""
        return self.value - self.control

    @property
    def interval(self) -> tuple[float, float]:
        """Of the value, at 95 %, within what the seeds' own intervals reach."""
        low, high = self.value - EDGE * self.below, self.value + EDGE * self.above
        return max(low, self.reach[0]), min(high, self.reach[1])

    def detectable(self, looks: int) -> float:
        """Returns the least value that so many looks would show, in four of five cases."""
        return self.control + reach(looks) * self.below

    @property
    def p_value(self) -> float:
        """Of the gain, two-sided."""
        return _p(self.gain, self.below if self.gain > 0 else self.above)

    def less_than(self, other: Effect) -> tuple[float, float]:
        """Returns by how much this gain is less than another one, and the error of that."""
        less = other.gain - self.gain
        if less > 0:
            return less, math.hypot(self.above, other.below)
        return less, math.hypot(self.below, other.above)


def usable(number: Number) -> bool:
    """Says whether a number has a control and an interval, all of them finite."""
    ends = (number.value, number.control, *(number.interval or (None,)))
    return number.n > 0 and all(end is not None and math.isfinite(end) for end in ends)


def _errors(number: Number) -> tuple[float, float, float, float]:
    """Returns value, control, and the standard errors downwards and upwards of a usable number.

    The interval is that of the value alone. Where the control is an estimate too, the p-value knows
    it, and the errors are no smaller than those that it comes from.
    """
    low, high = cast(tuple[float, float], number.interval)
    value, control = number.value, cast(float, number.control)
    least = 0.5 / number.n
    below, above = max((value - low) / EDGE, least), max((high - value) / EDGE, least)
    if number.p_value is not None and SUREST < number.p_value < 0.5:
        told = abs(value - control) / float(norm.isf(number.p_value / 2))
        below, above = max(below, told), max(above, told)
    return value, control, below, above


def reach(looks: int) -> float:
    """Returns how many standard errors an effect must have to be shown among so many looks.

    In four of five cases. The first step of Holm's correction is that of Bonferroni.
    """
    return float(norm.isf(LEVEL / (2 * max(1, looks))) + norm.ppf(POWER))


def _p(value: float, error: float) -> float:
    return float(2 * norm.sf(abs(value) / error)) if error else float(value == 0)


@dataclass(frozen=True)
class Cell:
    """What a defence does to an attack.

    Attributes:
        attack: its name.
        adversary: who makes it under this defence.
        measure: name of the number that is its success, such as "server_series".
        verdict: "stops", "weakens", "nothing" or "cannot_tell".
        why: in words.
        value: mean success; None where it was not measured.
        control: the same where nothing leaks.
        interval: of the value, at 95 %.
        detectable: the least value that would have been shown.
        p_value: of value against control, corrected for all looks of the page.
        p_less: of the success without the defence against this one, likewise.
        n: units, over the seeds.
        unit: what was counted.
        needed: units with which it could be told; None where it is told, or nobody knows.
        runs: folders of the seeds' runs, below the assessment's.
        findings: the folder of the result in each.
        commands: that make these.
        seeds: in which it gave a number that can be used.
        asked: seeds that were planned.
        failed: seeds in which the attack or its training failed.
        own_leaks: seeds in which the attack's own verdict is a leak.
        numbers: of these seeds, which the rest is computed from.
    """

    attack: str
    adversary: str
    measure: str = ""
    verdict: str = CANNOT_TELL
    why: str = ""
    value: float | None = None
    control: float | None = None
    interval: tuple[float, float] | None = None
    detectable: float | None = None
    p_value: float | None = None
    p_less: float | None = None
    n: int = 0
    unit: str = ""
    needed: int | None = None
    runs: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    asked: int = 0
    failed: int = 0
    own_leaks: int = 0
    numbers: Mapping[int, Number] = field(default_factory=dict)

    @property
    def effect(self) -> Effect | None:
        """What was measured; None for nothing."""
        return Effect.of([*self.numbers.values()])


@dataclass(frozen=True)
class Row:
    """A defence: what it costs, what it promises, and what it does to each attack.

    Attributes:
        defence: its name.
        told: what it is.
        refused: why the experiment cannot be combined with it; "" if it can.
        metric: that utility is measured in.
        utility: mean over the seeds and 95 % interval, or with few seeds least and most.
        start: the same of the model that training begins from.
        dead: whether some seed's model is hardly better than the model that its training began
            from: it has come less than `ALIVE` of the way from there to the model of `none`.
        alive: whether it is known that it is not dead.
        unit: whom ε protects, such as "provider"; "" where nothing is promised.
        epsilon: by adversary, the largest of all seeds; None where nothing is promised.
        measured: by the ledger's view, the lower bound on ε of the audit that comes closest to the
            ledger, and the ledger's ε of a client that took part as often as its canaries' did.
        seconds: mean of all rounds of a training.
        traffic: mean bytes of a training's messages.
        memory: most bytes that a training's process held; None if not known.
        seeds: that were trained to their end.
        failed: seed → why its training failed.
        alarms: in words.
        runs: folders of the seeds' runs, below the assessment's.
        commands: that train them.
        cells: one for each attack.
    """

    defence: str
    told: str
    refused: str = ""
    metric: str = ""
    utility: Interval | None = None
    start: Interval | None = None
    dead: bool = False
    alive: bool = True
    unit: str = ""
    epsilon: Mapping[str, float | None] = field(default_factory=dict)
    measured: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    seconds: float | None = None
    traffic: float | None = None
    memory: float | None = None
    seeds: tuple[int, ...] = ()
    failed: Mapping[int, str] = field(default_factory=dict)
    alarms: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()


@dataclass(frozen=True)
class Assessed:
    """An assessment, read from its folder.

    Attributes:
        experiment: that was assessed.
        command: that made it.
        made: commit, date and machine.
        seeds: that were asked for.
        adversaries: who they are, by name.
        withheld: attack → why no training grants what it needs.
        rows: the defences.
    """

    experiment: str
    command: str
    made: Mapping[str, str]
    seeds: tuple[int, ...]
    adversaries: Mapping[str, str]
    withheld: Mapping[str, str]
    rows: tuple[Row, ...]

    @property
    def metric(self) -> str:
        """What utility is measured in."""
        return next((row.metric for row in self.rows if row.metric), "utility")

    @property
    def alarms(self) -> list[str]:
        """Results that contradict the ledger."""
        return [f"{row.defence}: {alarm}" for row in self.rows for alarm in row.alarms]

    @property
    def cells(self) -> list[tuple[Row, Cell]]:
        """Every cell with its row."""
        return [(row, cell) for row in self.rows for cell in row.cells]

    @property
    def table(self) -> pd.DataFrame:
        """A row for each cell, beside utility and cost of its defence."""
        rows = []
        for row, cell in self.cells:
            low, high = cell.interval or (None, None)
            rows.append(
                {
                    "defence": row.defence, "attack": cell.attack, "adversary": cell.adversary,
                    "verdict": cell.verdict, "value": cell.value, "low": low, "high": high,
                    "control": cell.control, "detectable": cell.detectable, "n": cell.n,
                    "p_value": cell.p_value, "p_less": cell.p_less,
                    "epsilon": row.epsilon.get(cell.adversary), "unit": row.unit,
                    "metric": row.metric, "utility": row.utility and row.utility.mean,
                    "dead": row.dead, "seconds": row.seconds, "traffic": row.traffic,
                    "memory": row.memory, "seeds": len(row.seeds), "failed": cell.failed,
                }
            )  # fmt: skip
        return pd.DataFrame(rows)

    def answer(self) -> list[str]:
        """Returns the three sentences that a decision rests on, from cells that can tell."""
        none = next((row for row in self.rows if row.defence == NONE), None)
        leaks = [cell for cell in none.cells if cell.verdict == NOTHING] if none else []
        if not leaks:
            first = (
                "No attack is shown to succeed without a defence, so nothing here says what a "
                "defence is worth."
            )
        else:
            told = _and(
                f"{cell.attack} ({cell.value:.3g}, {cell.control:.3g} without a leak)"
                for cell in leaks
            )
            verb = "succeed" if len(leaks) > 1 else "succeeds"
            first = f"Without a defence, {told} {verb}."
        return [first, self._best(leaks), self._remains(leaks)]

    def _best(self, leaks: Sequence[Cell]) -> str:
        """Returns what stops or weakens each leak, and how good the models are."""
        told = []
        for leak in leaks:
            by = {
                verb: [
                    f"{row.defence} ({row.metric} {row.utility.mean:.3f})"
                    for row, cell in self.cells
                    if cell.attack == leak.attack and cell.verdict == verb and row.utility
                ]
                for verb in (STOPS, WEAKENS)
            }
            done = [f"stopped by {_and(by[STOPS])}"] if by[STOPS] else []
            done += [f"weakened by {_and(by[WEAKENS])}"] if by[WEAKENS] else []
            if done:
                told.append(f"{leak.attack} is {_and(done)}")
        if not told:
            return "No defence with a living model is shown to stop or weaken an attack."
        none = next(row for row in self.rows if row.defence == NONE)
        with_none = f", where no defence has {none.utility.mean:.3f}" if none.utility else ""
        return f"{'; '.join(told)}{with_none}."

    def _remains(self, leaks: Sequence[Cell]) -> str:
        """Returns what is not stopped, which models are dead, and how much cannot be told."""
        told = []
        others = [(row, cell) for row, cell in self.cells if row.defence != NONE]
        for cell in leaks:
            idle = [
                r.defence for r, c in others if c.attack == cell.attack and c.verdict == NOTHING
            ]
            if idle:
                verb = "do" if len(idle) > 1 else "does"
                told.append(f"{_and(idle)} {verb} nothing against {cell.attack}")
        if dead := [row.defence for row in self.rows if row.dead]:
            told.append(f"{_and(dead)} left a dead model, which says nothing for the defence")
        unknown = sum(cell.verdict == CANNOT_TELL for _, cell in self.cells)
        told.append(f"{unknown} of {len(self.cells)} cells cannot tell")
        return f"What is left: {'; '.join(told)}."


def _and(names: Any) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else str(last)


def read(path: Path | str) -> Assessed:
    """Reads an assessment from its folder; nothing is trained or attacked.

    Raises:
        ValueError: if it is not the folder of an assessment.
    """
    folder = RunFolder.at(Path(path)) if Path(path).is_dir() else None
    plan = folder.read_json(PLAN) if folder else None
    try:
        told = TypeAdapter(_Plan).validate_python(plan)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or PLAN
        raise ValueError(
            f"{path} is not the folder of an assessment: {where}: {first['msg']}"
        ) from error
    errors = RunFolder(Path(path)).read_json(ERRORS) or {}
    trained = [_Trained.read(Path(path), one, errors.get(one.run, {})) for one in told.trainings]
    starts = {one.plan.seed: one for one in trained if one.plan.defence == START}
    rows = tuple(_row(defence, told, trained, starts) for defence in told.defences)
    rows = _with_life(rows, trained, starts)
    return Assessed(
        told.experiment,
        told.command,
        told.made,
        told.seeds,
        {name: one["who"] for name, one in told.adversaries.items()},
        {one.name: one.withheld for one in told.attacks if one.withheld},
        judged(rows),
    )


@dataclass(frozen=True)
class _PlannedDefence:
    name: str
    told: str
    refused: str = ""


@dataclass(frozen=True)
class _PlannedAttack:
    name: str
    adversary: str
    withheld: str = ""


@dataclass(frozen=True)
class _PlannedTraining:
    defence: str
    seed: int
    run: str
    overrides: tuple[str, ...]
    orders: Mapping[str, tuple[str, ...]]
    findings: Mapping[str, str]


@dataclass(frozen=True)
class _Plan:
    """What `plan.json` holds."""

    experiment: str
    command: str
    seeds: tuple[int, ...]
    adversaries: Mapping[str, Mapping[str, str]]
    defences: tuple[_PlannedDefence, ...]
    attacks: tuple[_PlannedAttack, ...]
    trainings: tuple[_PlannedTraining, ...]
    made: Mapping[str, str]


@dataclass(frozen=True)
class _Trained:
    """One training, as its run folder has it; `numbers` is empty if it did not come to its end."""

    plan: _PlannedTraining
    numbers: Mapping[str, float]
    seconds: float
    traffic: float
    memory: float | None
    ledger: Mapping[str, Any]
    masked: bool
    results: Mapping[str, Result]
    audit: Result | None
    errors: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path, plan: _PlannedTraining, errors: Mapping[str, str]) -> _Trained:
        place = folder / RUNS / plan.run
        run = RunFolder(place)
        rows = run.records(METRICS) if place.is_dir() else []
        numbers: dict[str, float] = {}
        for row in rows:  # the last round in which each was measured
            numbers |= {n: v for n, v in row.items() if isinstance(v, float | int) and n != "round"}
        every = [row for row in rows if row.get("round")]
        found = {
            name: run.read_json(f"{FINDINGS}/{at}/{RESULT}") for name, at in plan.findings.items()
        }
        audit = run.read_json(f"{FINDINGS}/{AUDIT}/{RESULT}")
        config = run.config() if (place / "config.yaml").is_file() else {}
        ended = bool(rows) and max(row["round"] for row in rows) >= config.get("rounds", math.inf)
        return cls(
            plan,
            numbers if ended and "" not in errors else {},
            math.fsum(sum(row["seconds"].values()) for row in every),
            math.fsum(row.get("bytes_up", 0) + row.get("bytes_down", 0) for row in every),
            (run.read_json(COST) or {}).get("memory"),
            run.read_json(LEDGER) or {},
            config.get("masking") is not None,
            {name: read_result(one) for name, one in found.items() if one},
            read_result(audit) if audit else None,
            errors,
        )

    @property
    def unit(self) -> str:
        """Whom the ledger's ε protects."""
        return str(self.ledger.get("unit") or "")

    def epsilon(self, view: str) -> float | None:
        """Returns what the ledger promises for a view; None for nothing."""
        # Who colludes sees a masked server's sums.
        seen = "server_masked" if view == "colluders" else view
        held = (self.ledger.get("views") or {}).get(seen) or {}
        found = held.get("pld") if held.get("applies") and held.get("guarantee") else None
        if view == "colluders" and found is not None:
            of = {row["colluders"]: row["epsilon"] for row in self.ledger.get("colluders") or ()}
            found = of.get(1)
        private = self.ledger.get("mechanism") is not None
        return float(found) if private and found is not None else None


def _row(
    defence: _PlannedDefence,
    plan: _Plan,
    trained: Sequence[_Trained],
    starts: Mapping[int, _Trained],
) -> Row:
    """Returns a defence's row, whose cells have no verdicts yet."""
    mine = [one for one in trained if one.plan.defence == defence.name]
    ended = [one for one in mine if one.numbers]
    row = Row(defence.name, defence.told, defence.refused)
    metrics = leading_metrics({name for one in ended for name in one.numbers})
    metric = metrics[0] if metrics else ""
    pairs = [
        (one.numbers[metric], starts[one.plan.seed].numbers.get(metric, math.nan))
        for one in ended
        if metric in one.numbers and one.plan.seed in starts
    ]
    views = {name: one["view"] for name, one in plan.adversaries.items()}
    masked = any(one.masked for one in mine)
    there = [
        n for n in views if n not in ({"server"} if masked else {"server_masked", "colluding"})
    ]
    epsilon: dict[str, float | None] = {}
    for name in there if ended else []:
        sizes = [one.epsilon(views[name]) for one in ended]
        known = [size for size in sizes if size is not None]
        epsilon[name] = max(known) if known and len(known) == len(sizes) else None
    audits = [one.audit for one in mine if one.audit]
    bounds: dict[str, tuple[float, float]] = {}
    for audit in audits:
        for name, number in audit.numbers.items():
            if number.control:
                one = number.value, number.control
                bounds.setdefault(view := name.removeprefix("epsilon_lower_"), one)
                bounds[view] = max(bounds[view], one, key=lambda pair: pair[0] / pair[1])
    alarms = [audit.headline for audit in audits if audit.verdict != NONE_SHOWN]
    alarms += [
        f"{name}: {result.headline}"
        for one in mine
        for name, result in one.results.items()
        if result.primary.startswith("epsilon_lower") and result.verdict == LEAK
    ]
    alarms += [
        f"seed {one.plan.seed}: the mechanism could not be measured: {one.errors[AUDIT]}"
        for one in mine
        if AUDIT in one.errors
    ]
    failed = {
        one.plan.seed: one.errors.get("", "it has not come to its end")
        for one in mine
        if not one.numbers
    }
    count = max(1, len(ended))
    return dataclasses.replace(
        row,
        metric=metric,
        utility=Interval.of([value for value, _ in pairs]) if pairs else None,
        start=Interval.of([s for _, s in pairs]) if pairs else None,
        unit=next((u for one in ended if one.ledger.get("mechanism") and (u := one.unit)), ""),
        epsilon=epsilon,
        measured=bounds,
        seconds=math.fsum(one.seconds for one in ended) / count if ended else None,
        traffic=math.fsum(one.traffic for one in ended) / count if ended else None,
        memory=max((one.memory for one in ended if one.memory), default=None),
        seeds=tuple(one.plan.seed for one in ended),
        failed=failed,
        alarms=tuple(dict.fromkeys(alarms)),
        runs=tuple(f"{RUNS}/{one.plan.run}" for one in mine),
        commands=tuple(
            shlex.join(["fedpriv", "run", plan.experiment, *one.plan.overrides]) for one in mine
        ),
        cells=tuple(
            _cell(asked, mine, plan, masked) for asked in plan.attacks if not asked.withheld
        )
        if not defence.refused
        else (),
    )


def _with_life(
    rows: Sequence[Row], trained: Sequence[_Trained], starts: Mapping[int, _Trained]
) -> tuple[Row, ...]:
    """Returns the rows, and which of them have a dead model, or one of which that is not known."""
    done = []
    for row in rows:
        better = -1.0 if row.metric.endswith("loss") else 1.0
        known, dead = True, False
        for one in trained:
            if one.plan.defence != row.defence or not one.numbers:
                continue
            seed = one.plan.seed
            bare = [o for o in trained if o.plan.defence == NONE and o.plan.seed == seed]
            where = [one, *bare, *([starts[seed]] if seed in starts else [])]
            values = [w.numbers.get(row.metric, math.nan) for w in where]
            if len(values) < 3 or not all(map(math.isfinite, values)):
                known = False
                continue
            mine, without, start = (better * value for value in values)
            way = max(without - start, 0.0)
            dead = dead or not mine > start or mine - start < ALIVE * way
        known = known and bool(row.seeds)
        done.append(dataclasses.replace(row, dead=dead, alive=known and not dead))
    return tuple(done)


def _cell(asked: _PlannedAttack, mine: Sequence[_Trained], plan: _Plan, masked: bool) -> Cell:
    """Returns a cell with its effect over the seeds, without a verdict."""
    planned = [one for one in mine if asked.name in one.plan.findings]
    made = [one for one in planned if asked.name in one.results and "" not in one.errors]
    lost = [one for one in planned if one not in made]
    results = {one.plan.seed: one.results[asked.name] for one in made}
    numbers = {
        seed: number
        for seed, result in results.items()
        if not result.refused and (number := result.numbers.get(result.primary)) and usable(number)
    }
    told = [f"not made: {r.headline}" for r in results.values() if r.refused]
    told += [
        f"without a number that has interval and control: {r.headline}"
        for seed, r in results.items()
        if not r.refused and seed not in numbers
    ]
    for one in lost:
        why = one.errors.get("") or one.errors.get(one.plan.findings[asked.name])
        told.append(f"failed: {why or 'it was not made'}")
    adversary = MASKED.get(asked.adversary, asked.adversary) if masked else asked.adversary
    return Cell(
        asked.name,
        adversary,
        measure=next((r.primary for seed, r in results.items() if seed in numbers), ""),
        why="; ".join(dict.fromkeys(told)),
        runs=tuple(f"{RUNS}/{one.plan.run}" for one in made),
        findings=tuple(
            f"{RUNS}/{one.plan.run}/{FINDINGS}/{one.plan.findings[asked.name]}" for one in made
        ),
        commands=tuple(
            shlex.join(
                ["fedpriv", "attack", f"{RUNS}/{one.plan.run}", *one.plan.orders[asked.name]]
            )
            for one in made
        ),
        seeds=tuple(numbers),
        asked=len(planned),
        failed=len(lost),
        own_leaks=sum(result.verdict == LEAK for result in results.values()),
        numbers=numbers,
    )


def judged(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Returns the rows with a verdict in each cell, all p-values of the page corrected together."""
    bare = {cell.attack: cell for row in rows if row.defence == NONE for cell in row.cells}
    held: dict[tuple[str, str], Effect] = {}
    looks: dict[tuple[str, str, str], float] = {}
    for row in rows:
        for cell in row.cells:
            if not (effect := cell.effect):
                continue
            looks[row.defence, cell.attack, "leak"] = effect.p_value
            without = bare.get(cell.attack) if row.defence != NONE else None
            same = (
                [n for seed, n in without.numbers.items() if seed in cell.seeds] if without else []
            )
            if base := Effect.of(same):  # on the same seeds
                held[row.defence, cell.attack] = base
                looks[row.defence, cell.attack, "less"] = _p(*effect.less_than(base))
    shown = dict(zip(looks, corrected([*looks.values()]), strict=True))
    done = []
    for row in rows:
        cells = []
        for cell in row.cells:
            if not (effect := cell.effect):
                cells.append(cell)
                continue
            p = shown[row.defence, cell.attack, "leak"]
            p_less = shown.get((row.defence, cell.attack, "less"))
            base = held.get((row.defence, cell.attack))
            p_base = shown.get((NONE, cell.attack, "leak"), 1.0)
            without_it = None
            if row.defence != NONE:
                without_it = (base or effect, p_base if base else 1.0, p_less or 1.0)
            verdict, why, needed = verdict_of(effect, p, without_it, looks=len(looks))
            why, verdict = _sober(verdict, why, row, cell)
            cells.append(
                dataclasses.replace(
                    cell,
                    verdict=verdict,
                    why="; ".join(filter(None, (why, cell.why))),
                    needed=needed if verdict == CANNOT_TELL else None,
                    p_value=p,
                    p_less=p_less,
                    value=effect.value,
                    control=effect.control,
                    interval=effect.interval,
                    detectable=effect.detectable(len(looks)),
                    n=effect.n,
                    unit=effect.unit,
                )
            )
        done.append(dataclasses.replace(row, cells=tuple(cells)))
    return tuple(done)


def _sober(verdict: str, why: str, row: Row, cell: Cell) -> tuple[str, str]:
    """Returns why and verdict, where one that speaks for a defence may have to be taken back."""
    if verdict not in (STOPS, WEAKENS):
        return why, verdict
    if row.dead:
        return "the model is dead, so that the attack fails says nothing", CANNOT_TELL
    if not row.alive:
        return "it is not known whether the model is dead", CANNOT_TELL
    if len(cell.seeds) < cell.asked:
        return f"only {len(cell.seeds)} of {cell.asked} seeds gave a number", CANNOT_TELL
    if verdict == STOPS and cell.own_leaks:
        return (
            f"{why}, but in {cell.own_leaks} of the seeds the attack by itself is a leak",
            WEAKENS,
        )
    return why, verdict


def verdict_of(
    effect: Effect, p: float, without: tuple[Effect, float, float] | None, *, looks: int
) -> tuple[str, str, int | None]:
    """Returns a verdict, why, and how many units could tell where these cannot.

    Args:
        effect: under the defence.
        p: of its gain, corrected.
        without: the effect without a defence on the same seeds, the p-value of its gain, and that
            of the difference between the two; None for the row without a defence.
        looks: p-values that were corrected together.
    """
    leaks = p <= LEVEL and effect.gain > 0
    if p <= LEVEL and effect.gain < 0:
        return CANNOT_TELL, "worse than its control: turned round, it would succeed", None
    if without is None:
        if leaks:
            return NOTHING, "it succeeds", None
        least = f"{effect.detectable(looks):.2g} or more would have been shown"
        more = _more(effect.n, effect.gain, effect.below, looks)
        return CANNOT_TELL, f"no success is shown; {least}", more
    bare, p_bare, p_less = without
    less = p_less <= LEVEL and effect.gain < bare.gain
    if leaks and not less:
        return NOTHING, "it succeeds as it does without the defence, as far as can be told", None
    if not (p_bare <= LEVEL and bare.gain > 0):
        return CANNOT_TELL, "it is not shown to succeed without the defence either", None
    if not less:
        ways = [_more(effect.n, effect.gain, effect.below, looks)]
        ways.append(_more(effect.n, *effect.less_than(bare), looks))
        needed = min((way for way in ways if way is not None), default=None)
        return CANNOT_TELL, "neither a success nor less of it is shown", needed
    if not leaks and effect.interval[1] - effect.control <= REMAINS * bare.gain:
        return STOPS, f"at most {effect.interval[1]:.3g} of {bare.value:.3g} remains", None
    return WEAKENS, f"from {bare.value:.3g} to {effect.value:.3g}", None


def _more(n: int, size: float, error: float, looks: int) -> int | None:
    """Returns the units that would show an effect of this size; None if these should have."""
    if size <= 0:
        return None
    needed = math.ceil(n * (reach(looks) * error / size) ** 2)
    return needed if needed > n else None


def write(path: Path | str) -> Assessed:
    """Writes page, JSON and CSV of an assessment from what its folder holds."""
    from fedpriv.report.assessment_page import html

    found = read(path)
    folder = RunFolder.at(Path(path))
    folder.write_json(JSON, as_json(found))
    folder.write(CSV, found.table.to_csv(index=False).encode())
    folder.write(PAGE, html(found).encode("utf-8", "replace"))
    return found


def as_json(found: Assessed) -> dict[str, Any]:
    """Returns an assessment as JSON has it; an infinite or missing number is null."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [plain(inner) for inner in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    content = {**dataclasses.asdict(found), "alarms": found.alarms, "answer": found.answer()}
    for row in content["rows"]:
        for cell in row["cells"]:
            # What they are computed to stands beside them.
            del cell["numbers"]
    return plain(content)  # type: ignore[no-any-return]


def from_json(content: Any) -> Assessed:
    """Returns what `as_json` has made JSON of.

    Raises:
        pydantic.ValidationError: if it is not that of an assessment.
    """
    return TypeAdapter(Assessed).validate_python(content)


def markdown(found: Assessed) -> str:
    """Returns an assessment as Markdown: the three sentences, and the matrix."""
    attacks = list(dict.fromkeys(cell.attack for _, cell in found.cells))
    rows = [["defence", found.metric, "ε", *attacks], ["---"] * (len(attacks) + 3)]
    for row in found.rows:
        by_attack = {cell.attack: cell for cell in row.cells}
        sizes = {who: size for who, size in row.epsilon.items() if size is not None}
        epsilon = "; ".join(f"{who.replace('_', ' ')} {size:.2f}" for who, size in sizes.items())
        utility = f"{row.utility}{', dead' if row.dead else ''}" if row.utility else "refused"
        told = f"{epsilon} for one {row.unit}" if epsilon else "∞"
        rows.append([f"`{row.defence}`", utility, told])
        for name in attacks:
            cell = by_attack.get(name)
            value = (
                f"<br>{cell.value:.3g} against {cell.control:.3g}"
                if cell and cell.value is not None
                else ""
            )
            rows[-1].append(f"{cell.verdict.replace('_', ' ')}{value}" if cell else "—")
    made = found.made
    lines = [*found.answer(), "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    lines.append(
        f"Under each verdict: the success against what it is without a leak. Seeds "
        f"{', '.join(map(str, found.seeds))}. Measured by `{found.command}` on {made['date']}, at "
        f"{made['commit']}, {made['machine']}."
    )
    return "\n".join(lines) + "\n"


def lines(found: Assessed) -> Iterator[str]:
    """Yields what the terminal shows: alarms, three sentences, a line for each row."""
    from fedpriv.report.wording import aligned, plain

    yield from (f"ALARM: {alarm}" for alarm in found.alarms)
    yield from map(plain, found.answer())
    attacks = list(dict.fromkeys(cell.attack for _, cell in found.cells))
    table = [["", "utility", *attacks]]
    for row in found.rows:
        by_attack = {cell.attack: cell.verdict.replace("_", " ") for cell in row.cells}
        utility = (
            f"{row.metric} {row.utility}{' (dead)' if row.dead else ''}" if row.utility else "—"
        )
        table.append([row.defence, utility, *(by_attack.get(name, "—") for name in attacks)])
    yield from aligned([[plain(cell, 60) for cell in cells] for cells in table])
    for row in found.rows:
        if row.refused:
            yield plain(f"{row.defence}: refused: {row.refused}")
        yield from (
            plain(f"{row.defence}, seed {s}: failed: {why}") for s, why in row.failed.items()
        )
    yield from (plain(f"{name}: withheld: {why}") for name, why in found.withheld.items())
