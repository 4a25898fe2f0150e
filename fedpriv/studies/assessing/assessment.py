"""Reads an assessment from its folder, and writes its page: nothing is trained or attacked.

Everything comes from the folder of `fedpriv assess`: its plan, and the run folders in it. All
p-values of a page are corrected together (Holm 1979).
"""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from fedpriv.report.folder import partition_of
from fedpriv.report.redaction import counting, names_of, public_name, renamed, stamp, without
from fedpriv.report.summary import leading_metrics
from fedpriv.report.wording import as_csv
from fedpriv.runtime import run_files
from fedpriv.runtime.run_folder import AUDIT, FINDINGS, LEDGER, METRICS, PLAN, RESULT, RunFolder
from fedpriv.studies.assessing.assessed import (
    NONE,
    START,
    Assessed,
    Cell,
    DefenceRow,
    Made,
    as_json,
)
from fedpriv.studies.assessing.effects import CANNOT_TELL, LEAKS, LEAKS_LESS, STOPS, verdict_of
from fedpriv.studies.assessing.matrix import Asked, Assessment, Defence, Training
from fedpriv.studies.assessing.page import html
from fedpriv.studies.estimate import Over, over, over_attacks, usable
from fedpriv.studies.trials import COST, RUNS
from fedpriv.threat.results import LEAK, NONE_SHOWN, Result, read_result
from fedpriv.threat.scoring.power import Units
from fedpriv.threat.statistics import corrected

ERRORS = "errors.json"
PAGE, JSON, CSV = "assessment.html", "assessment.json", "assessment.csv"
REDACTED = "assessment-redacted.html"

NOBODY = "no client took part in any round: train for more rounds, or draw clients more often"

ALIVE = 0.1
"""A model is alive if it has come at least this share of the way from its start to `none`."""


def read(path: Path | str, *, redacted: bool = False) -> Assessed:
    """Reads an assessment from its folder; nothing is trained or attacked.

    Args:
        path: of the folder.
        redacted: whether to leave out what people have written, and names and paths; see
            `_redact`.

    Raises:
        ValueError: if it is not the folder of an assessment.
    """
    plan = RunFolder(Path(path)).read_json(PLAN) if Path(path).is_dir() else None
    try:
        told = TypeAdapter(Assessment).validate_python(plan)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or PLAN
        raise ValueError(
            f"{path} is not the folder of an assessment: {where}: {first['msg']}"
        ) from error
    errors = RunFolder(Path(path)).read_json(ERRORS) or {}
    trained = [_Trained.read(Path(path), one, errors.get(one.run, {})) for one in told.trainings]
    starts = {one.plan.run: one for one in trained if one.plan.defence == START}
    rows = tuple(_row(defence, told, trained, starts) for defence in told.defences)
    rows = _with_life(rows, trained, starts)
    found = Assessed(
        told.experiment,
        told.command if told.hours is None else f"{told.command} hours={told.hours:g}",
        told.made or Made("", "", ""),
        told.seeds,
        {name: one.who for name, one in told.adversaries.items()},
        {one.name: one.told for one in told.attacks if not one.withheld},
        {one.name: one.withheld for one in told.attacks if one.withheld},
        rows,
        {one.name: one.outlook for one in told.attacks if one.outlook},
    )
    if redacted:
        found = _redact(found, Path(path))
    return dataclasses.replace(found, rows=judged(found.rows))


REASON = "the reason is left out"


def _redact(found: Assessed, folder: Path) -> Assessed:
    """Returns an assessment that may be passed on, whose cells have no verdicts yet.

    Numbers and verdicts stay, and names of defences and attacks whose words fedpriv's own
    experiments use. Others become numbers; what was typed, and what attacks say, is left out.
    """
    runs = {run for row in found.rows for run in row.runs}
    partitions = [
        partition_of(RunFolder(run_files.folder_inside(folder, run), problems=[])) for run in runs
    ]
    clean = without({n for one in partitions if one for n in names_of(one)})

    attacks = renamed([*found.attacks, *found.withheld], "attack", clean)
    shielded = [row.defence for row in found.rows if row.defence != NONE]
    defences = renamed(shielded, "defence", clean)
    observers = [*found.adversaries, *(cell.adversary for _, cell in found.cells)]
    adversaries = renamed(observers, "adversary", clean)

    def cell_of(cell: Cell) -> Cell:
        return Cell(
            attacks[cell.attack],
            adversaries[cell.adversary],
            public_name(cell.measure, "success", clean) if cell.measure else "",
            why=REASON if cell.why else "",
            seeds=cell.seeds,
            asked=cell.asked,
            failed=cell.failed,
            own_leaks=cell.own_leaks,
            certain=cell.certain,
            said=clean(cell.said) if cell.ours else "",
            ours=cell.ours,
            numbers={seed: counting(one, clean) for seed, one in cell.numbers.items()},
            shared=cell.shared,
        )

    return Assessed(
        public_name(found.experiment, "an experiment", clean),
        "fedpriv assess […]",
        Made(
            stamp(found.made.commit), stamp(found.made.date), "on a machine that is left out here"
        ),
        found.seeds,
        {adversaries[name]: public_name(who, "", clean) for name, who in found.adversaries.items()},
        {attacks[name]: public_name(said, "", clean) for name, said in found.attacks.items()},
        {attacks[name]: REASON for name in found.withheld},
        tuple(
            dataclasses.replace(
                row,
                defence=defences.get(row.defence, row.defence),
                told="",
                refused=REASON if row.refused else "",
                metric=public_name(row.metric, "its metric", clean),
                unit=public_name(row.unit, "unit", clean),
                failed=dict.fromkeys(row.failed, REASON),
                alarms=("a measurement contradicts the ledger, or is blind",) * bool(row.alarms),
                epsilon={adversaries[name]: size for name, size in row.epsilon.items()},
                ceiling={adversaries[name]: size for name, size in row.ceiling.items()},
                runs=(),
                commands=(),
                cells=tuple(map(cell_of, row.cells)),
            )
            for row in found.rows
        ),
        {
            attacks[name]: dataclasses.replace(
                one, question="", units=one.units if one.units in get_args(Units) else "units"
            )
            for name, one in found.outlooks.items()
        },
    )


@dataclass(frozen=True)
class _Trained:
    """One training, as its run folder has it.

    `numbers` is empty if it did not come to its end; `source` says which data it was on.
    """

    plan: Training
    numbers: Mapping[str, float]
    seconds: float
    traffic: float
    memory: float | None
    ledger: Mapping[str, Any]
    masked: bool
    results: Mapping[str, Result]
    audit: Result | None
    errors: Mapping[str, str]
    source: str

    @classmethod
    def read(cls, folder: Path, plan: Training, errors: Mapping[str, str]) -> _Trained:
        place = run_files.folder_inside(folder, f"{RUNS}/{plan.run}")
        run = RunFolder(place)
        rows = run.records(METRICS) if place.is_dir() else []
        numbers: dict[str, float] = {}
        for row in rows:  # the last round in which each was measured
            numbers |= {n: v for n, v in row.items() if isinstance(v, float | int) and n != "round"}
        every = [row for row in rows if row.get("round")]
        if every and not any(row["clients"]["answered"] for row in every):
            errors = {"": NOBODY, **errors}
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
            json.dumps(config.get("data"), sort_keys=True) if config else plan.run,
        )

    @property
    def unit(self) -> str:
        """Whom the ledger's ε protects."""
        return str(self.ledger.get("unit") or "")

    @property
    def promises(self) -> bool:
        """Whether it has come to its end, and the ledger promises a finite ε for some view."""
        sizes = [self.epsilon(view) for view in self.ledger.get("views") or ()]
        return bool(self.numbers) and any(one is not None and math.isfinite(one) for one in sizes)

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

    def ceiling(self, view: str) -> float | None:
        """Returns the largest AUC that any attack on one unit can reach; None for no bound."""
        if self.epsilon(view) is None or view == "colluders":
            return None
        most = self.ledger["views"][view].get("ceiling")
        return float(most["auc"]) if most else None


def _row(
    defence: Defence,
    plan: Assessment,
    trained: Sequence[_Trained],
    starts: Mapping[str, _Trained],
) -> DefenceRow:
    """Returns a defence's row, whose cells have no verdicts yet."""
    mine = [one for one in trained if one.plan.defence == defence.name]
    ended = [one for one in mine if one.numbers]
    metrics = leading_metrics({name for one in ended for name in one.numbers})
    metric = metrics[0] if metrics else ""
    pairs = [
        (one.numbers[metric], starts[one.plan.start].numbers.get(metric, math.nan))
        for one in ended
        if metric in one.numbers and one.plan.start in starts
    ]
    masked = any(one.masked for one in mine)
    asked = [one for one in plan.attacks if not one.withheld and not defence.refused]
    count = max(1, len(ended))
    return DefenceRow(
        defence.name,
        defence.told,
        defence.refused,
        metric=metric,
        utility=over([value for value, _ in pairs], metric) if pairs else None,
        start=over([start for _, start in pairs], metric) if pairs else None,
        unit=next((u for one in ended if one.ledger.get("mechanism") and (u := one.unit)), ""),
        epsilon=_promised(ended, plan, masked, _Trained.epsilon),
        ceiling=_promised(ended, plan, masked, _Trained.ceiling),
        measured=_measured([one.audit for one in mine if one.audit]),
        seconds=math.fsum(one.seconds for one in ended) / count if ended else None,
        traffic=math.fsum(one.traffic for one in ended) / count if ended else None,
        memory=max((one.memory for one in ended if one.memory), default=None),
        seeds=tuple(one.plan.seed for one in ended),
        failed={
            one.plan.seed: one.errors.get("", "it has not come to its end")
            for one in mine
            if not one.numbers
        },
        alarms=_alarms(mine),
        runs=tuple(f"{RUNS}/{one.plan.run}" for one in mine),
        commands=tuple(
            shlex.join(["fedpriv", "run", plan.experiment, *one.plan.overrides]) for one in mine
        ),
        cells=tuple(_cell(one, mine, plan, masked) for one in asked),
    )


def _promised(
    ended: Sequence[_Trained],
    plan: Assessment,
    masked: bool,
    size: Callable[[_Trained, str], float | None],
) -> dict[str, float | None]:
    """Returns a bound by adversary, the largest of all seeds; None where nothing is promised.

    Masks take one adversary away, who sees single messages, and bring two who see sums.
    """
    gone = {"server"} if masked else {"server_masked", "colluding"}
    found: dict[str, float | None] = {}
    for name, about in plan.adversaries.items() if ended else ():
        if name not in gone:
            sizes = [size(one, about.view) for one in ended]
            known = [one for one in sizes if one is not None]
            found[name] = max(known) if known and len(known) == len(sizes) else None
    return found


def _measured(audits: Sequence[Result]) -> dict[str, tuple[float, float]]:
    """Returns, by view, the bound on ε that comes closest to the ledger's ε, and that ε."""
    found: dict[str, tuple[float, float]] = {}
    for audit in audits:
        for name, number in audit.numbers.items():
            if number.control:
                view, one = name.removeprefix("epsilon_lower_"), (number.value, number.control)
                before = found.get(view, one)
                found[view] = max(before, one, key=lambda pair: pair[0] / pair[1])
    return found


def _alarms(mine: Sequence[_Trained]) -> tuple[str, ...]:
    """Returns what contradicts the ledger, or could not be held against it."""
    told = [one.audit.headline for one in mine if one.audit and one.audit.verdict != NONE_SHOWN]
    for one in mine:
        for name, result in one.results.items():
            bound = result.numbers.get(result.primary)
            # Without a promise, its control is 0, and any bound above that is a leak.
            promised = bound is not None and bool(bound.control)
            if promised and result.primary.startswith("epsilon_lower") and result.verdict == LEAK:
                told.append(f"{name}: {result.headline}")
        if one.promises and one.audit is None:
            why = one.errors.get(AUDIT, "that has not been done")
            told.append(f"seed {one.plan.seed}: the mechanism could not be measured: {why}")
    return tuple(dict.fromkeys(told))


def _with_life(
    rows: Sequence[DefenceRow], trained: Sequence[_Trained], starts: Mapping[str, _Trained]
) -> tuple[DefenceRow, ...]:
    """Returns the rows, and which of them have a dead model, or one of which that is not known.

    A defence that changes the model has a start of its own, and must come as far from there.
    """
    bare = {one.plan.seed: one for one in trained if one.plan.defence == NONE}
    done = []
    for row in rows:
        better = -1.0 if row.metric.endswith("loss") else 1.0
        known, dead = True, False
        for one in trained:
            if one.plan.defence != row.defence or not one.numbers:
                continue
            ends = [one, bare.get(one.plan.seed)]
            pairs = [(end, starts.get(end.plan.start)) for end in ends if end]
            values = [at.numbers.get(row.metric, math.nan) for pair in pairs for at in pair if at]
            if len(values) < 4 or not all(map(math.isfinite, values)):
                known = False
                continue
            mine, start, without, before = (better * value for value in values)
            short = not mine > start or mine - start < ALIVE * (without - before)
            learnt = without > before  # else the experiment itself tells nothing of a defence
            known, dead = known and learnt, dead or (short and (learnt or row.defence == NONE))
        known = known and bool(row.seeds)
        done.append(dataclasses.replace(row, dead=dead, alive=known and not dead))
    return tuple(done)


def _cell(asked: Asked, mine: Sequence[_Trained], plan: Assessment, masked: bool) -> Cell:
    """Returns a cell with its effect over the seeds, without a verdict."""
    planned = [one for one in mine if asked.name in one.plan.findings]
    made = [one for one in planned if asked.name in one.results and "" not in one.errors]
    lost = [one for one in planned if one not in made]
    results = {one.plan.seed: one.results[asked.name] for one in made}
    measures = {seed: asked.measure or result.primary for seed, result in results.items()}
    numbers = {
        seed: number
        for seed, result in results.items()
        if not result.refused and (number := result.numbers.get(measures[seed])) and usable(number)
    }
    told = [f"not made: {r.headline}" for r in results.values() if r.refused]
    told += [
        f"without a number that has interval and control: {r.headline}"
        for seed, r in results.items()
        if not r.refused and seed not in numbers
    ]
    if len(kinds := sorted({measures[seed] for seed in numbers})) > 1:  # they have no mean
        told.append(f"its seeds gave different numbers, {', '.join(kinds)}")
        numbers = {}
    for one in lost:
        why = one.errors.get("") or one.errors.get(one.plan.findings[asked.name])
        told.append(f"failed: {why or 'it was not made'}")
    adversary = {"server": "server_masked"} if masked else {"colluding": "server"}
    return Cell(
        asked.name,
        adversary.get(asked.adversary, asked.adversary),
        measure=next((measures[seed] for seed in numbers), ""),
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
        own_leaks=sum(
            result.verdict == LEAK and measures[seed] == result.primary
            for seed, result in results.items()
        ),
        certain=sum(results[seed].certain for seed in numbers),
        said=results[min(numbers, key=lambda seed: numbers[seed].value)].clause if numbers else "",
        ours=all(result.public for result in results.values()),
        numbers=numbers,
        shared=len({one.source for one in planned}) < len(planned),
    )


def judged(rows: Sequence[DefenceRow]) -> tuple[DefenceRow, ...]:
    """Returns the rows with a verdict in each cell, all p-values of the page corrected together."""
    bare = {cell.attack: cell for row in rows if row.defence == NONE for cell in row.cells}
    held: dict[tuple[str, str], Over] = {}
    looks: dict[tuple[str, str, str], float] = {}
    for row in rows:
        for cell in row.cells:
            if not (effect := cell.effect):
                continue
            looks[row.defence, cell.attack, "leak"] = effect.p_value
            without = bare.get(cell.attack) if row.defence != NONE else None
            same = [seed for seed in cell.numbers if without and seed in without.numbers]
            base = without and over_attacks([without.numbers[s] for s in same], cell.shared)
            mine = over_attacks([cell.numbers[seed] for seed in same], cell.shared)
            if base and mine:  # on the same seeds
                held[row.defence, cell.attack] = base
                looks[row.defence, cell.attack, "less"] = base.minus(mine).p_value
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
                without_it = (
                    base or effect,
                    p_base if base else 1.0,
                    1.0 if p_less is None else p_less,
                )
            verdict, why, needed = verdict_of(effect, p, without_it, looks=len(looks))
            why, verdict = _sober(verdict, why, row, cell, bare.get(cell.attack))
            if verdict == CANNOT_TELL and cell.certain:
                why = "a message was recovered to the last word or pixel, which no chance does"
                verdict = LEAKS
            cells.append(
                dataclasses.replace(
                    cell,
                    verdict=verdict,
                    why="; ".join(filter(None, (why, cell.why))),
                    needed=needed if verdict == CANNOT_TELL else None,
                    p_value=p,
                    p_less=p_less,
                    value=effect.mean,
                    control=effect.control,
                    interval=(effect.low, effect.high),
                    detectable=effect.detectable(len(looks)),
                    n=effect.n,
                    unit=effect.unit,
                )
            )
        done.append(dataclasses.replace(row, cells=tuple(cells)))
    return tuple(done)


def _sober(
    verdict: str, why: str, row: DefenceRow, cell: Cell, without: Cell | None
) -> tuple[str, str]:
    """Returns why and verdict, where one that speaks for a defence may have to be taken back."""
    if verdict not in (STOPS, LEAKS_LESS):
        return why, verdict
    if row.dead:
        return "the model is dead, so that the attack fails says nothing", CANNOT_TELL
    if not row.alive:
        return "it is not known whether the model is dead", CANNOT_TELL
    if len(cell.seeds) < cell.asked:
        return f"only {len(cell.seeds)} of {cell.asked} seeds gave a number", CANNOT_TELL
    if without and len(without.seeds) < without.asked:
        told = f"only {len(without.seeds)} of {without.asked} seeds gave a number without a defence"
        return told, CANNOT_TELL
    if verdict == STOPS and cell.own_leaks:
        return (
            f"{why}, but in {cell.own_leaks} of the seeds the attack by itself is a leak",
            LEAKS_LESS,
        )
    return why, verdict


def write_redacted(path: Path) -> Path:
    """Writes a page of an assessment that may be passed on; returns its path."""
    text = html(read(path, redacted=True), redacted=True)
    RunFolder(path).write(REDACTED, text.encode("utf-8", "replace"))
    return path / REDACTED


def write(path: Path | str) -> Assessed:
    """Writes page, JSON and CSV of an assessment from what its folder holds."""
    found = read(path)
    folder = RunFolder(Path(path))
    folder.write_json(JSON, as_json(found))
    folder.write(CSV, as_csv(found.table, index=False))
    folder.write(PAGE, html(found).encode("utf-8", "replace"))
    return found
