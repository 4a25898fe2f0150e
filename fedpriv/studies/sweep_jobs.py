"""Runs a sweep: its jobs, which are rows under seeds, trained and attacked once.

Every mistake in any row is told before anything starts. Rows with the same settings and the same
seed share a run, and what is done is found again by those settings: repeating the command goes on
with a sweep that was interrupted.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpriv.config import attack, experiment
from fedpriv.config.attack import Order
from fedpriv.config.experiment import Mistakes
from fedpriv.data.document import found_in
from fedpriv.report.wording import show_seconds
from fedpriv.runtime import run_lock, versions
from fedpriv.runtime.memory import release_free_blocks, watched_memory
from fedpriv.runtime.progress import Progress
from fedpriv.runtime.run_folder import (
    CONFIG,
    FINAL,
    FINDINGS,
    LEDGER,
    METRICS,
    RESULT,
    RunFolder,
)
from fedpriv.runtime.workers.jobs import JobsFailed, Pool
from fedpriv.runtime.workers.ray_session import RaySettings
from fedpriv.studies import attacking, running
from fedpriv.studies import claims as claiming
from fedpriv.studies import sweep_page as report
from fedpriv.studies.claims import Measured
from fedpriv.studies.resumable import digest, newest
from fedpriv.studies.retraining import MOST_WAIT
from fedpriv.studies.sweep import Row, Sweep
from fedpriv.studies.sweep_page import RESULTS, Column, Recorded
from fedpriv.threat.results import Result, read_result

PLAN, RUNS, COST = "plan.json", "runs", "cost.json"

STARTED_FROM = ("pretrained", "visual")
"""Settings of a model that name weights."""

WORTH_TELLING = 60.0
"""Seconds that a sweep has left from which on it says so."""


@dataclass(frozen=True)
class Job:
    """A row under a seed, with everything resolved.

    Attributes:
        row: of the table.
        seed: of run and attack.
        config: of the run.
        order: of the attack, named by its settings; None runs none.
        run: name of the run's folder, the same for the same settings.
    """

    row: Row
    seed: int
    config: dict[str, Any] = field(repr=False)
    order: Order | None
    run: str


def plan(sweep: Sweep) -> list[Job]:
    """Resolves every row under every seed, and builds what it names; reads no data or weights.

    Raises:
        Mistakes: with everything that is wrong, by row.
    """
    load = functools.cache(lambda seed, run: _checked(sweep.experiment, (*run, f"seed={seed}")))
    ordered = functools.cache(_ordered)
    jobs, problems = [], dict[str, str]()
    try:
        experiment.find(sweep.experiment)
    except Mistakes as error:
        raise Mistakes(
            sweep.name, [f"experiment={sweep.experiment}: {one}" for one in error.problems]
        ) from None
    for seed, row in itertools.product(sweep.seeds, sweep.rows):
        try:
            config, order = load(seed, row.run), None
            if row.attack is not None:
                seeded = any(text.startswith("seed=") for text in row.attack)
                settings = (*row.attack, *(() if seeded else (f"seed={seed}",)))
                order = ordered(settings)
        except Mistakes as error:
            for problem in error.problems:
                problems.setdefault(problem, row.name)
            continue
        kept = {k: v for k, v in config.items() if k not in ("runs", experiment.COMPOSED)}
        jobs.append(Job(row, seed, config, order, digest(kept)))
    _refuse(sweep, problems)
    return jobs


def _refuse(sweep: Sweep, problems: Mapping[str, str]) -> None:
    """Raises `Mistakes` if there are problems: rows share them, and each is told with the first.

    A problem names the place of a value in the experiment, so what was given stands above.
    """
    if problems:
        given = " ".join((sweep.name, *sweep.varied))
        raise Mistakes(given, [f"{row}: {problem}" for problem, row in problems.items()])


def checked(
    sweep: Sweep, kept: Mapping[str, Any] | None = None, shared: Path | None = None
) -> list[Job]:
    """Returns what `plan` does, of a sweep whose weights and claims are fine, too.

    Args:
        sweep: to be run.
        kept: a result of it that is kept elsewhere, as results.json has it.
        shared: see `run`.

    Raises:
        Mistakes: with everything that is wrong in the rows; or with data sets that are not there
            and that a row still needs; or with weights that are not there or of another model; or
            with claims that were changed since a result without a note.
    """
    jobs = plan(sweep)
    last = newest(Path(sweep.runs) / "sweeps" / sweep.name, lambda one: bool(_results(one)))
    runs = shared or (last and last.path / RUNS)
    _check_folders(sweep, [one for one in jobs if not (runs and _is_done(one, runs / one.run))])
    _check_weights(sweep, jobs)
    earlier = {"the result that is kept": kept or {}}
    earlier |= {str(last.path): _results(last)} if last else {}
    for where, result in earlier.items():
        if problems := [*claiming.unexplained(sweep.claims, result)]:
            raise Mistakes(sweep.name, [f"claims, since {where}: {one}" for one in problems])
    return jobs


def _is_done(job: Job, place: Path) -> bool:
    return (place / FINAL).is_file() and _is_attacked(job, place)


def _is_attacked(job: Job, place: Path) -> bool:
    return job.order is None or (place / FINDINGS / job.order.name / RESULT).is_file()


def _check_folders(sweep: Sweep, jobs: Sequence[Job]) -> None:
    """Looks for the folders of data sets, which readers miss only when they read."""
    problems = dict[str, str]()
    for job in {one.row.name: one for one in jobs}.values():  # seeds change no folder
        attacked = {} if job.row.attack is None else attack.compose(job.row.attack)
        for root in map(Path, _roots([job.config, attacked])):
            if not root.exists():
                problems.setdefault(found_in(root), job.row.name)
    _refuse(sweep, problems)


def _roots(config: Any) -> Iterator[str]:
    """Yields what readers of data sets are given as `root`."""
    if isinstance(config, Mapping):
        if isinstance(config.get("root"), str):
            yield config["root"]
        config = [*config.values()]
    if isinstance(config, list):
        for one in config:
            yield from _roots(one)


def _check_weights(sweep: Sweep, jobs: Sequence[Job]) -> None:
    """Loads the weights that models start from, as those of another model show only then."""
    models = {json.dumps(job.config["model"], default=str): job for job in reversed(jobs)}
    problems = dict[str, str]()
    for job in reversed(models.values()):
        if any(job.config["model"].get(name) for name in STARTED_FROM):
            try:
                experiment.model_of(job.config, sweep.name)(labels=("any",))
            except (ValueError, OSError) as error:
                told = " ".join(str(error).split())
                advice = "; rows=[…] chooses the rows that the weights are for"
                problems.setdefault(f"{told}{advice}", job.row.name)
    _refuse(sweep, problems)


def run(
    sweep: Sweep,
    progress: Callable[[], Progress] = Progress,
    tell: Callable[[str], None] = print,
    shared: Path | None = None,
    kept: Mapping[str, Any] | None = None,
) -> tuple[RunFolder, list[Measured]]:
    """Runs what is not done yet; returns the sweep's folder and what its rows measured.

    Args:
        sweep: to be run.
        progress: makes what shows the progress of a run.
        tell: shows one line.
        shared: a folder of runs that other sweeps share; None keeps them in the sweep's.
        kept: a result of the sweep that is kept elsewhere, as results.json has it.

    Raises:
        Mistakes: with what `checked` finds, before anything starts.
        InUse: if another sweep has the shared folder, before anything starts.
        JobsFailed: if a training or an attack failed on a worker, after all others have ended.
    """
    jobs = checked(sweep, kept, shared)
    models = [job.config["model"] for job in jobs]
    if any(one.get("size") == "base" and not one.get("pretrained") for one in models):
        tell("models of size=base start from random weights here; pretrained= names published ones")
    measured, costs = list[Measured](), dict[tuple[str, str], dict[str, Any]]()
    took: dict[str, float] = {}  # seconds of each row that was not there yet, under its last seed
    with ExitStack() as locks:
        if shared:
            shared.mkdir(parents=True, exist_ok=True)
            locks.enter_context(run_lock.writing(shared, "sweep"))
        folder = _folder(sweep, jobs, shared, tell)
        locks.enter_context(run_lock.writing(folder.path, "sweep"))
        runs = shared or folder.path / RUNS
        tell(f"{folder.path}: rows × seeds: {len(jobs)}, runs: {len({j.run for j in jobs})}")
        try:
            if sweep.workers:
                _on_workers(jobs, runs, sweep.workers, tell)
            for number, job in enumerate(jobs, 1):
                # Rows differ too much to tell before each was run under one seed.
                rest = [one.row.name for one in jobs[number - 1 :]]
                left = sum(took[row] for row in rest) if took.keys() >= {*rest} else 0.0
                about = f", about {show_seconds(left)} left" if left > WORTH_TELLING else ""
                tell(f"[{number}/{len(jobs)}] {job.row.name}, seed {job.seed}{about}")
                begun, place = time.monotonic(), runs / job.run
                trained, attacked = _train(job, place, progress), _attack(job, place, tell)
                costs |= (own := _costs(job, place))
                measured.append(_measure(sweep, job, folder.path, place, [*own.values()]))
                if trained or attacked:
                    took[job.row.name] = time.monotonic() - begun
                if trained or attacked or number == len(jobs):
                    _write(sweep, folder, measured, costs.values(), finished=number == len(jobs))
        except (KeyboardInterrupt, SystemExit, JobsFailed) as end:
            end.add_note("repeat the command to go on")
            raise
    for column in claiming.columns(sweep.claims):  # perhaps it is misspelt
        if not _is_there(column, measured):
            tell(f"claims: no row has a number {column!r}")
    return folder, measured


def _is_there(path: str, measured: Sequence[Measured]) -> bool:
    return any(row.values.get(path) is not None for row in measured)


def _checked(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    config = running.composed(name, overrides)
    experiment.build(config, name, overrides)
    return config


def _ordered(overrides: Sequence[str]) -> Order:
    """Returns an attack whose name tells it from those with other settings, or other defaults."""
    config = attack.compose(overrides)
    order = attack.build(config)
    return dataclasses.replace(order, name=f"{order.name}-{digest(config)}")


def _folder(
    sweep: Sweep, jobs: Sequence[Job], shared: Path | None, tell: Callable[[str], None]
) -> RunFolder:
    """Returns the newest folder of this plan that nobody writes, or else a new one.

    A finished one is taken only if its runs are shared: they are of this very code, so that they
    would measure the same again.
    """
    rows = [[job.row.name, job.seed, job.run, job.order and job.order.name] for job in jobs]
    settings = {"sweep": sweep.name, "rows": rows, "shared": str(shared or "")}
    as_written = json.loads(json.dumps(settings))

    def fits(folder: RunFolder) -> bool:
        done = shared is None and _results(folder).get("finished")
        return folder.read_json(PLAN) == as_written and not done

    home = Path(sweep.runs) / "sweeps" / sweep.name
    if found := newest(home, fits):
        return found

    def of_other_code(folder: RunFolder) -> bool:
        plan = folder.read_json(PLAN) or {}
        return plan.get("rows") == rows and bool(plan.get("shared"))

    if shared and (older := newest(home, of_other_code)):
        tell(f"{older.path} was measured by other code, so everything is measured anew")
    folder = RunFolder.create(home.parent, home.name)
    folder.write_json(PLAN, settings)
    return folder


def _results(folder: RunFolder) -> dict[str, Any]:
    """Returns what a sweep has measured so far."""
    return folder.read_json(RESULTS) or {}


def _on_workers(jobs: Sequence[Job], runs: Path, workers: int, tell: Callable[[str], None]) -> None:
    """Trains what is not trained yet, then makes the attacks, each in a process of its own.

    Raises:
        JobsFailed: if some of it failed, after all else has been done.
    """
    trainings: dict[str, tuple[Callable[[Job, Path], bool], Job, Path, str]] = {
        f"run {job.run}, seed {job.seed}": (_train, job, runs / job.run, "")
        for job in jobs
        if not (runs / job.run / FINAL).is_file()
    }
    # Rows may show several numbers of one attack, which is made once.
    found = {(job.run, job.order.name): job for job in jobs if job.order}
    attacks = {
        f"{job.row.name}, seed {job.seed}": (_attack, job, runs / run, name)
        for (run, name), job in found.items()
        if not _is_attacked(job, runs / run)
    }
    pool = Pool(workers, RaySettings(), tell)
    pool.map(_on_a_worker, trainings)
    pool.map(_on_a_worker, attacks)


def _on_a_worker(part: tuple[Callable[[Job, Path], bool], Job, Path, str]) -> None:
    """Does a part of a job, which has that lock."""
    do, job, place, lock = part
    run_lock.await_end(place, MOST_WAIT, lock)  # the worker of a driver that was killed
    do(job, place)


def _train(job: Job, place: Path, progress: Callable[[], Progress] = Progress) -> bool:
    """Runs the experiment of a row, or goes on with it; returns False if it is done."""
    if (place / FINAL).is_file():
        return False
    parts, begun = experiment.build(job.config), (place / CONFIG).is_file()
    with _counted(RunFolder.made(place), COST):
        running.start(
            parts,
            job.config,
            job.row.name,
            place,
            progress=progress(),
            resume=begun,
            one_of_many=True,
        )
    return True


def _attack(job: Job, place: Path, tell: Callable[[str], None] = lambda line: None) -> bool:
    """Makes the attack of a row; returns False if there is none or it is done."""
    folder = RunFolder.existing(place)
    if job.order is None or _is_attacked(job, place):
        return False
    with _counted(folder, f"{FINDINGS}/{job.order.name}/{COST}"):
        attacking.made(folder, job.order, tell, trust=True)
    return True


@contextmanager
def _counted(folder: RunFolder, name: str) -> Iterator[None]:
    """Adds the seconds that the block takes to a file of the run, which keeps the most memory.

    Commit and date are those of the end.
    """
    before, begun = folder.read_json(name) or {"seconds": 0.0, "memory": 0}, time.monotonic()
    release_free_blocks()  # of what this process has done before
    with watched_memory() as most:
        try:
            yield
        finally:
            seconds = before["seconds"] + time.monotonic() - begun
            memory = max(before["memory"], most())
            made = {"commit": versions.commit(), "date": versions.today()}
            folder.write_json(name, {"seconds": seconds, "memory": memory, **made})


def _costs(job: Job, place: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns what training and attack of a row took, in this order, by where it stands.

    What an earlier version has made, has none.
    """
    files = [COST, *([f"{FINDINGS}/{job.order.name}/{COST}"] if job.order else [])]
    found = {(job.run, name): RunFolder.existing(place).read_json(name) for name in files}
    return {key: one for key, one in found.items() if one}


def _measure(
    sweep: Sweep, job: Job, home: Path, place: Path, costs: Sequence[Mapping[str, Any]]
) -> Measured:
    """Takes the numbers of the columns out of a run and its attack; the last cost tells when."""
    folder = RunFolder.existing(place)
    found = folder.read_json(f"{FINDINGS}/{job.order.name}/{RESULT}") if job.order else None
    result: Result | None = read_result(found) if found else None
    last = (folder.records(METRICS) or [{}])[-1]
    numbers = {
        **(_at(result.details, job.row.of) or {} if result else last),
        "run": last,
        "ledger": folder.read_json(LEDGER),
    }
    paths = dict.fromkeys([*(c.path for c in sweep.columns), *claiming.columns(sweep.claims)])
    intervals = {c.path: _at(numbers, c.interval) for c in sweep.columns if c.interval}
    return Measured(
        row=job.row.name,
        seed=job.seed,
        run=os.path.relpath(place, home),
        headline=result.headline if result else "",
        refused=result is not None and result.refused,
        values={path: _value(numbers, path) for path in paths},
        intervals={key: tuple(pair) for key, pair in intervals.items() if pair},
        x=job.row.x,
        curve=job.row.curve,
        commit=costs[-1].get("commit", "") if costs else "",
        date=costs[-1].get("date", "") if costs else "",
        findings=f"{FINDINGS}/{job.order.name}" if job.order else "",
    )


def _at(values: Any, path: str) -> Any:
    """Returns what stands at a dotted path, of names that may have dots; None for nothing."""
    if not path:
        return values
    names = path.split(".")
    for end in range(1, len(names) + 1):
        name = ".".join(names[:end])
        if isinstance(values, Mapping) and name in values:
            return _at(values[name], ".".join(names[end:]))
    return None


def _value(numbers: Any, column: str) -> float | None:
    """Returns the number at a path, or the difference of two; None if one of them is missing."""
    found = [_at(numbers, path) for path in column.split(" - ")]
    if not all(isinstance(one, bool | int | float) for one in found):
        return None
    return float(found[0] - sum(found[1:]))


def columns_of(sweep: Sweep, measured: Sequence[Measured]) -> tuple[Column, ...]:
    """Returns the columns of the table; of those that runs may have, the ones that one has."""
    return tuple(c for c in sweep.columns if not sweep.found or _is_there(c.path, measured))


def _write(
    sweep: Sweep,
    folder: RunFolder,
    measured: Sequence[Measured],
    costs: Collection[Mapping[str, Any]],
    *,
    finished: bool,
) -> None:
    recorded = Recorded(
        title=sweep.title,
        columns=columns_of(sweep, measured),
        axis=sweep.axis,
        rows=measured,
        claims=list(claiming.verdicts(sweep.claims, measured)),
        made={"command": sweep.command, "machine": versions.machine()},
        finished=finished,
        legend=sweep.legend,
        paper=sweep.paper,
        published=sweep.published,
        seconds=sum(one["seconds"] for one in costs),
        memory=max((one["memory"] for one in costs), default=0),
    )
    if finished:
        folder.write("table.md", f"# {sweep.title}\n\n{report.markdown(recorded)}".encode())
        report.draw(recorded, folder.path)
        folder.write(report.REPORT, report.html(recorded).encode())
    folder.write_json(RESULTS, dataclasses.asdict(recorded))
