"""Running a study: every training once, on all cores, whatever is killed on the way."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from fedpriv.config import experiment
from fedpriv.config.experiment import Experiment, Mistakes
from fedpriv.federation.loop import Unworkable
from fedpriv.report.build import write_report
from fedpriv.runtime import run_files, run_lock
from fedpriv.runtime.jobs import Pool
from fedpriv.runtime.run_folder import CONFIG, FINAL, RunFolder
from fedpriv.runtime.versions import versions
from fedpriv.threat.study import TRAININGS, Lab, Study, Variant

PLAN = "plan.json"
"""The settings of every training, by its name."""

SHARED = ("seed=", "federation.device=", "federation.threads=")
"""Overrides of a study that its trainings of other experiments take over."""

MOST_WAIT = 90.0
"""Seconds that a training waits for another process to stop writing its folder."""

Plan = Mapping[str, dict[str, Any]]
Tell = Callable[[str], None]


def start(
    name: str, overrides: Sequence[str] = (), run_dir: Path | None = None, tell: Tell = print
) -> tuple[RunFolder, Mapping[str, Any]]:
    """Plans a study, trains, and concludes; returns its folder and the metrics.

    Args:
        name: of the experiment, or a path.
        overrides: as on the command line.
        run_dir: the study's folder; None makes a new one under `runs`.
        tell: shows one line of progress.

    Raises:
        Mistakes: with everything that is wrong, before anything is started.
        JobsFailed: if a training failed; the study can be resumed.
    """
    config = experiment.load(name, overrides)
    base = experiment.build(config, name)
    study = _study(base, name)
    plan = planned(study.variants(base), name, overrides)
    check(plan, name)
    folder = RunFolder.create(base.runs, base.name) if run_dir is None else RunFolder.at(run_dir)
    with folder.writing("run", config):
        made = {"started": datetime.now().isoformat(" ", "seconds"), "versions": versions()}
        folder.write_config({**config, **made})
        folder.write_json(PLAN, plan)
        return folder, _carried_out(base, study, folder, plan, tell)


def resume(
    folder: RunFolder, overrides: Sequence[str] = (), tell: Tell = print
) -> Mapping[str, Any]:
    """Goes on with a study that was interrupted; what has been trained is not trained again.

    Args:
        folder: of the study.
        overrides: of what says how it is run, such as `federation.workers`.
        tell: shows one line of progress.

    Raises:
        Mistakes: if the folder holds no plan.
        InUse: if another process goes on with it.
    """
    source = str(folder.path)
    if fixed := [o for o in overrides if not o.startswith("federation.workers=")]:
        raise Mistakes(
            source, [f"{o}: a resumed study takes federation.workers= only" for o in fixed]
        )
    config = experiment.with_values(folder.config(), overrides, source)
    base = experiment.build(config, source)
    with folder.writing("resume", config):
        plan = folder.read_json(PLAN)
        if plan is None:
            raise Mistakes(source, [f"it has no {PLAN}: nothing was trained; start it anew"])
        folder.write_config(config)
        return _carried_out(base, _study(base, source), folder, plan, tell)


def planned(variants: Sequence[Variant], name: str, overrides: Sequence[str]) -> Plan:
    """Returns the settings of every variant, by its name.

    Raises:
        Mistakes: if they cannot be composed.
    """

    @functools.cache
    def composed(base: str, changes: tuple[str, ...]) -> dict[str, Any]:
        return experiment.load(base, changes)

    plan = {}
    for variant in variants:
        own = variant.experiment is None
        kept = overrides if own else [o for o in overrides if o.startswith(SHARED)]
        changes = (*kept, *variant.overrides)
        config = composed(variant.experiment or name, tuple(changes))
        # A training is done in one process; the study does several at a time.
        federation = {**config["federation"], "workers": 0, "report": False}
        config = {**config, "study": None, "federation": federation}
        for path, value in variant.values.items():
            config = experiment.with_value(config, path.split("."), value)
        plan[variant.name] = config
    return plan


def check(plan: Plan, source: str) -> None:
    """Builds every training, and puts together those that differ in more than their data.

    Raises:
        Mistakes: with everything that is wrong, by training.
    """
    problems: list[str] = []
    seen: list[dict[str, Any]] = []
    for name, config in plan.items():
        try:
            parts = experiment.build(config, source)
            other = {key: value for key, value in config.items() if key != "data"}
            if other not in seen:
                seen.append(other)
                parts.assemble(config)
        except (Mistakes, Unworkable) as error:
            problems += [f"{name}: {problem}" for problem in error.problems]
    if problems:
        raise Mistakes(source, problems)


def train(job: tuple[dict[str, Any], str]) -> None:
    """Trains one variant, or goes on with it, given its settings and its folder."""
    config, path = job
    parts = experiment.build(config, path)
    folder = RunFolder.at(Path(path))
    # A worker of a driver that was killed may still be writing here; it is gone within a minute.
    deadline = time.monotonic() + MOST_WAIT
    while run_lock.holder(folder.path) and time.monotonic() < deadline:
        time.sleep(0.1)
    begun = (folder.path / CONFIG).is_file()
    parts.assemble(config).run(parts.rounds, run_dir=folder.path, resume=begun)
    if parts.federation.report:
        write_report(folder.path)


def is_done(folder: Path) -> bool:
    """Says whether a training has come to its end."""
    return (folder / FINAL).is_file()


def _carried_out(
    base: Experiment, study: Study, folder: RunFolder, plan: Plan, tell: Tell
) -> Mapping[str, Any]:
    pool = Pool(base.federation.workers, base.ray, tell)
    places = {name: run_files.make_folder(folder.path, f"{TRAININGS}/{name}") for name in plan}
    jobs = {n: (c, str(places[n])) for n, c in plan.items() if not is_done(places[n])}
    tell(f"{folder.path}: {len(plan)} trainings, {len(jobs)} to do")
    try:
        pool.map(train, jobs)
        metrics = study.conclude(Lab(base, folder, pool, tell))
    except (KeyboardInterrupt, SystemExit) as end:
        end.add_note(f"go on with: fedpriv resume {folder.path}")
        raise
    write_report(folder.path)
    return metrics


def _study(base: Experiment, source: str) -> Study:
    if base.study is None:
        raise Mistakes(source, ["study: is missing; `fedpriv run` runs experiments without one"])
    return base.study
