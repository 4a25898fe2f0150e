"""Runs a sweep: its jobs, which are rows under seeds, trained and attacked once.

Every mistake in any row is told before anything starts. Rows with the same settings and the same
seed share a run, and what is done is found again by those settings: repeating the command goes on
with a sweep that was interrupted.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedpriv.config import attack, catalogue, experiment
from fedpriv.config.overrides import key_of
from fedpriv.data.document import found_in
from fedpriv.report.wording import as_csv
from fedpriv.runtime import run_lock, versions
from fedpriv.runtime.progress import Progress
from fedpriv.runtime.refusals import Mistakes
from fedpriv.runtime.run_folder import FINDINGS, LEDGER, METRICS, REPORT, RESULT, RESULTS, RunFolder
from fedpriv.studies import claims as claiming
from fedpriv.studies import running, trials
from fedpriv.studies import sweep_page as report
from fedpriv.studies.claims import Measured
from fedpriv.studies.sweep import Row, Sweep
from fedpriv.studies.sweep_page import Column, Recorded
from fedpriv.studies.trials import Store, Trial
from fedpriv.threat.results import Result, read_result

STARTED_FROM = ("pretrained", "visual")
"""Settings of a model that name weights."""


@dataclass(frozen=True)
class Job:
    """A row under a seed: a training, and the row's attack on it, if it has one.

    `attack` has the composed settings of that attack as the row gives them, before a seed is set;
    it is empty without one.
    """

    row: Row
    seed: int
    trial: Trial
    attack: Mapping[str, Any]

    @property
    def finding(self) -> str:
        """The name of its attack's result; "" without an attack."""
        return next(iter(self.trial.orders), "")


def plan(sweep: Sweep) -> list[Job]:
    """Resolves every row under every seed, and builds what it names; reads no data or weights.

    Raises:
        Mistakes: with everything that is wrong, by row.
    """
    load = functools.cache(lambda seed, run: _checked(sweep.experiment, (*run, f"seed={seed}")))

    @functools.cache
    def ordered(words: Sequence[str]) -> dict[str, Any]:
        attack.build(composed := attack.compose(words))
        return composed

    jobs, problems = [], dict[str, str]()
    try:
        catalogue.experiment(sweep.experiment)
    except Mistakes as error:
        raise Mistakes(
            sweep.name, [f"experiment={sweep.experiment}: {one}" for one in error.problems]
        ) from None
    for seed, row in itertools.product(sweep.seeds, sweep.rows):
        try:
            config, orders = load(seed, row.run), dict[str, tuple[str, ...]]()
            made = {} if row.attack is None else ordered(row.attack)
            if row.attack is not None:
                own = () if "seed" in map(key_of, row.attack) else (f"seed={seed}",)
                words = (*row.attack, *own)
                orders[trials.finding(made["name"], words)] = words
        except Mistakes as error:
            for problem in error.problems:
                problems.setdefault(problem, row.name)
            continue
        title = f"{row.name}, seed {seed}"
        trial = Trial(config, title, orders, dict.fromkeys(orders, title))
        jobs.append(Job(row, seed, trial, made))
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
    home = Path(sweep.runs) / "sweeps" / sweep.name
    last = trials.newest(home, lambda _, one: bool(_results(one)))
    runs = shared or (last and last.path / trials.RUNS)
    _check_folders(sweep, [one for one in jobs if not (runs and Store(runs).is_done(one.trial))])
    _check_weights(sweep, jobs)
    earlier = {"the result that is kept": kept or {}}
    earlier |= {str(last.path): _results(last)} if last else {}
    for where, result in earlier.items():
        if problems := [*claiming.unexplained(sweep.claims, result)]:
            raise Mistakes(sweep.name, [f"claims, since {where}: {one}" for one in problems])
    return jobs


def _check_folders(sweep: Sweep, jobs: Sequence[Job]) -> None:
    """Looks for the folders of data sets, which readers miss only when they read."""
    problems = dict[str, str]()
    for job in {one.row.name: one for one in jobs}.values():  # seeds change no folder
        for root in map(Path, _roots([job.trial.config, job.attack])):
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
    models = {json.dumps(job.trial.config["model"], default=str): job for job in reversed(jobs)}
    problems = dict[str, str]()
    for job in reversed(models.values()):
        if any(job.trial.config["model"].get(name) for name in STARTED_FROM):
            try:
                experiment.model_of(job.trial.config, sweep.name)(labels=("any",))
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
    models = [job.trial.config["model"] for job in jobs]
    if any(one.get("size") == "base" and not one.get("pretrained") for one in models):
        tell("models of size=base start from random weights here; pretrained= names published ones")
    every = [job.trial for job in jobs]
    with ExitStack() as locks:
        if shared:
            shared.mkdir(parents=True, exist_ok=True)
            locks.enter_context(run_lock.writing(shared, "sweep"))
        folder = _folder(sweep, jobs, shared, tell)
        locks.enter_context(run_lock.writing(folder.path, "sweep"))
        store = Store(shared or folder.path / trials.RUNS, running.made)
        measured: dict[int, tuple[Measured, dict[Any, dict[str, Any]]]] = {}
        runs = len({one.name for one in every})
        tell(f"{folder.path}: rows × seeds: {len(jobs)}, runs: {runs}")

        def write() -> list[Measured]:
            for place, job in enumerate(jobs):
                if place not in measured and store.is_done(job.trial):
                    trial = job.trial
                    known = {(trial.name, part): store.cost(trial, part) for part in trial.parts}
                    costs = {key: cost for key, cost in known.items() if cost}
                    row = _measure(sweep, job, folder.path, store, [*costs.values()])
                    measured[place] = row, costs
            rows = [measured[place][0] for place in sorted(measured)]
            every_cost = {key: one for _, own in measured.values() for key, one in own.items()}
            _write(sweep, folder, rows, every_cost.values(), finished=len(rows) == len(jobs))
            return rows

        store.run_all(every, sweep.workers, tell, progress=progress, after=write)
        measured.clear()  # one that was just ending had not yet said what it took
        rows = write()
    for column in claiming.columns(sweep.claims):  # perhaps it is misspelt
        if not _is_there(column, rows):
            tell(f"claims: no row has a number {column!r}")
    return folder, rows


def _is_there(path: str, measured: Sequence[Measured]) -> bool:
    return any(row.values.get(path) is not None for row in measured)


def _checked(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    config = trials.composed(name, overrides)
    experiment.build(config, name, overrides)
    return config


def _folder(
    sweep: Sweep, jobs: Sequence[Job], shared: Path | None, tell: Callable[[str], None]
) -> RunFolder:
    """Returns the newest folder of this plan that nobody writes, or else a new one.

    A finished one is taken only if its runs are shared.
    """
    rows = [[job.row.name, job.seed, job.trial.name, job.finding] for job in jobs]
    plan = {
        "sweep": sweep.name, "rows": rows, "shared": str(shared or ""),
        "code": trials.code_of([one for job in jobs for one in (job.trial.config, job.attack)]),
    }  # fmt: skip
    home = Path(sweep.runs) / "sweeps" / sweep.name
    older = trials.newest(home, lambda there, _: there.get("rows") == rows)

    def ended(folder: RunFolder) -> bool:
        return not shared and bool(_results(folder).get("finished"))

    folder = trials.folder_of(home, plan, ended)
    if older and folder.path != older.path and not ended(older):
        tell(f"{older.path} was measured by other code, so everything is measured anew")
    return folder


def _results(folder: RunFolder) -> dict[str, Any]:
    """Returns what a sweep has measured so far."""
    return folder.read_json(RESULTS) or {}


def _measure(
    sweep: Sweep, job: Job, home: Path, store: Store, costs: Sequence[Mapping[str, Any]]
) -> Measured:
    """Takes the numbers of the columns out of a run and its attack; the last cost tells when."""
    place = store.place(job.trial)
    made, folder = costs[-1] if costs else {}, RunFolder.existing(place)
    found = folder.read_json(f"{FINDINGS}/{job.finding}/{RESULT}") if job.finding else None
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
        commit=made.get("commit", ""),
        date=made.get("date", ""),
        findings=f"{FINDINGS}/{job.finding}" if job.finding else "",
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
        folder.write("table.csv", as_csv(report.data_frame(recorded), index=False))
        report.draw(recorded, folder.path)
        folder.write(REPORT, report.html(recorded).encode())
    folder.write_json(RESULTS, asdict(recorded))
