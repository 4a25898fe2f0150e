"""Trials: trainings with attacks on them, each done once and found again by its settings.

Whatever runs more than one experiment does so here: rows of a sweep, trainings of an assessment,
variants of a run that an attack trains. What is done is not done again, so that a repeated command
goes on where it was killed. What is needed after the rounds is imported then: workers begin sooner.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.config import catalogue, composing, experiment, trust
from fedpriv.config.construct import import_target
from fedpriv.config.experiment import Experiment
from fedpriv.federation.loop import Federation, Result
from fedpriv.federation.private_strategy import PrivateStrategy
from fedpriv.privacy.signal import signal_lines
from fedpriv.runtime import run_lock, versions
from fedpriv.runtime.memory import release_free_blocks, watched_memory
from fedpriv.runtime.progress import Progress
from fedpriv.runtime.refusals import Mistakes
from fedpriv.runtime.run_folder import (
    AUDIT,
    CONFIG,
    FINAL,
    FINDINGS,
    PLAN,
    REPORT,
    RESULT,
    RunFolder,
)
from fedpriv.runtime.workers.fork_server import fork_server
from fedpriv.runtime.workers.jobs import JobsFailed, Pool
from fedpriv.runtime.workers.ray_session import RaySettings

if TYPE_CHECKING:
    from fedpriv.config.attack import Order

RUNS, COST = "runs", "cost.json"

TRAINING = ""
"""The first part of a trial; the others have the names of findings, and the last is `REPORT`."""

MOST_WAIT = 90.0
"""Seconds that a part waits for another process to stop writing its folder."""


def digest(settings: Any) -> str:
    """Returns a short name, the same for the same settings."""
    text = json.dumps(settings, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def finding(name: str, overrides: Sequence[str]) -> str:
    """Returns the name of an attack's result, the same for the same overrides."""
    letters = "".join(letter if letter.isalnum() or letter == "_" else "-" for letter in name)
    return f"{letters[:60]}-{digest(list(overrides))}"


@dataclass(frozen=True)
class Trial:
    """A training, and what is done with it when it has come to its end.

    Attributes:
        config: its settings, resolved.
        title: what it is called where progress is shown.
        orders: overrides of each attack on it, by the name of the finding.
        called: what a part is called where progress is shown, if not by title and name.
        named: of its folder; "" takes the digest of the settings.
        audit: confidence at which the mechanism of the training is measured; None measures nothing.
        report: whether it gets a page of its own.
    """

    config: dict[str, Any] = field(repr=False)
    title: str = ""
    orders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    called: Mapping[str, str] = field(default_factory=dict)
    named: str = ""
    audit: float | None = None
    report: bool = False

    @functools.cached_property
    def name(self) -> str:
        """Of its folder, the same for the same settings, wherever runs go."""
        kept = {k: v for k, v in self.config.items() if k not in ("runs", composing.COMPOSED)}
        return self.named or digest(kept)

    @property
    def parts(self) -> list[str]:
        """What is done, in order."""
        audit, report = [AUDIT] * (self.audit is not None), [REPORT] * self.report
        return [TRAINING, *audit, *self.orders, *report]

    def titled(self, part: str) -> str:
        """Returns what a part is called where progress is shown, and nothing else is."""
        return self.called.get(part, f"{self.title}: {part or 'training'}")

    def with_orders_of(self, other: Trial) -> Trial:
        """Returns the trial with the orders of another one on the same training behind its own."""
        orders, called = {**self.orders, **other.orders}, {**other.called, **self.called}
        return replace(self, orders=orders, called=called)


@dataclass(frozen=True)
class Failure:
    """That a part failed: of which trial, what it is called where progress is shown, and why."""

    trial: str
    part: str
    title: str
    reason: str


@dataclass(frozen=True)
class Store:
    """A folder of run folders, one for each trial.

    Args:
        path: the folder.
        attack: makes an attack that was ordered on a run folder; None where only trainings are.
        again: how to go on after an interruption, in words.
    """

    path: Path
    attack: Callable[[RunFolder, Order, Callable[[str], None], bool], Any] | None = None
    again: str = "repeat the command to go on"

    def place(self, trial: Trial) -> Path:
        """Returns the run folder of a trial."""
        return self.path / trial.name

    def is_done(self, trial: Trial, part: str | None = None) -> bool:
        """Says whether a part of a trial has come to its end; None asks for all parts."""
        if part is None:
            return all(self.is_done(trial, one) for one in trial.parts)
        ends = {TRAINING: FINAL, REPORT: REPORT}
        return (self.place(trial) / ends.get(part, f"{FINDINGS}/{part}/{RESULT}")).is_file()

    def cost(self, trial: Trial, part: str) -> dict[str, Any]:
        """Returns seconds, memory, commit and date of a part; empty where nobody has looked."""
        return RunFolder(self.place(trial)).read_json(_cost_of(part)) or {}

    def run_all(self, trials: Iterable[Trial], *args: Any, **options: Any) -> None:
        """Does what is not done yet; see `run`.

        Raises:
            JobsFailed: with the name and the reason of all that failed.
        """
        if failures := self.run(trials, *args, **options):
            error = JobsFailed({one.title: one.reason for one in failures})
            error.add_note(self.again)
            raise error

    def run(
        self,
        trials: Iterable[Trial],
        workers: int,
        tell: Callable[[str], None],
        *,
        ray: RaySettings | None = None,
        progress: Callable[[], Progress] = Progress,
        after: Callable[[], None] = lambda: None,
    ) -> list[Failure]:
        """Does what is not done yet; returns what failed. A failure ends nothing else.

        Args:
            trials: in the order in which they begin. Of those on one training, the first is kept,
                with the orders of all.
            workers: parts at a time, each in a process of its own: first all trainings, then what
                is done with them. 0 does one trial after the other in this process.
            tell: shows one line.
            ray: whether and where the workers run on Ray.
            progress: makes what shows the rounds of a training in this process.
            after: is called whenever a part has ended.
        """
        merged: dict[str, Trial] = {}
        for one in trials:
            before = merged.get(one.name)
            merged[one.name] = one if before is None else before.with_orders_of(one)
        todo = [one for one in merged.values() if not self.is_done(one)]
        failures, untrained = list[Failure](), set[str]()
        pool = Pool(workers, ray or RaySettings(), tell)
        phases: list[Callable[[str], bool]] = [lambda part: True]
        if workers:
            phases = [
                lambda part: part == TRAINING,
                lambda part: part not in (TRAINING, REPORT),
                lambda part: part == REPORT,
            ]
        for phase in phases:
            jobs: dict[str, tuple[Store, Trial, str]] = {}
            for one in todo:
                for part in filter(phase, [] if one.name in untrained else one.parts):
                    if part == REPORT or not self.is_done(one, part):
                        title = one.titled(part)
                        jobs[f"{title}, {one.name}" if title in jobs else title] = self, one, part
            try:
                if workers:
                    pool.map(carry_out, jobs, after)
                else:
                    pool.map(lambda job: carry_out(job, progress(), tell), jobs, after)
            except JobsFailed as failed:
                for title, reason in failed.reasons.items():
                    _, one, part = jobs[title]
                    if one.name not in untrained:  # what follows a training cannot be done
                        failures.append(Failure(one.name, part, title, reason))
                    if part == TRAINING:
                        untrained.add(one.name)
            except (KeyboardInterrupt, SystemExit) as end:
                end.add_note(self.again)
                raise
        return failures


def carry_out(
    job: tuple[Store, Trial, str],
    progress: Progress | bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Does a part of a trial, or goes on with it."""
    store, trial, part = job
    place, config = store.place(trial), trial.config
    if part == TRAINING:
        folder = RunFolder.made(place)
        run_lock.await_end(place, MOST_WAIT)  # the worker of a driver that was killed
        parts, begun = experiment.build(config, trial.title), (place / CONFIG).is_file()
        with _counted(folder, part):
            start(
                parts, config, trial.title, place, progress=progress, resume=begun, one_of_many=True
            )
        return
    if not store.is_done(trial, TRAINING):
        raise ValueError("its training has not come to its end")
    folder = RunFolder.existing(place)
    if part == REPORT:
        from fedpriv.report.build import write_report

        write_report(place)
    elif part == AUDIT and trial.audit is not None:
        from fedpriv.federation.audit.mechanism import audit_mechanism, audit_problems
        from fedpriv.threat.mechanism import keep_audit

        parts = experiment.build(config, trial.title)
        if problems := audit_problems(federation := parts.assemble(config)):
            raise ValueError("; ".join(problems))
        keep_audit(folder, audit_mechanism(federation, parts.rounds, confidence=trial.audit))
    elif store.attack is None:
        raise ValueError("a store of trainings makes no attacks")
    else:
        from fedpriv.config import attack

        run_lock.await_end(place, MOST_WAIT, part)
        order = replace(attack.parse(trial.orders[part], part), name=part)
        with _counted(folder, part):
            store.attack(folder, order, tell, True)


def _cost_of(part: str) -> str:
    return f"{FINDINGS}/{part}/{COST}" if part else COST


@contextmanager
def _counted(folder: RunFolder, part: str) -> Iterator[None]:
    """Adds the seconds that the block takes to a file of the run, which keeps the most memory.

    Commit and date are those of the end.
    """
    name = _cost_of(part)
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


def composed(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Returns an experiment's settings, with a note of what they were composed from.

    Workers begin to import what they need meanwhile, on another core.
    """
    config = experiment.load(name, overrides)
    made = {"experiment": str(catalogue.experiment(name)), "overrides": list(overrides)}
    expect_workers(config)
    return {**config, composing.COMPOSED: made}


def expect_workers(config: Mapping[str, Any]) -> None:
    """Has workers' imports begin now, on another core, if an experiment will need workers here."""
    federation, ray = config.get("federation"), config.get("ray")
    workers = isinstance(federation, Mapping) and federation.get("workers")
    on_ray = isinstance(ray, Mapping) and any(ray.values())
    if workers and not on_ray:
        fork_server()


def private_half(federation: Federation) -> PrivateStrategy | None:
    """Returns the server's half of a private algorithm, behind masks too; None of another one."""
    strategy = getattr(federation.algorithm, "inner", federation.algorithm)
    return strategy if isinstance(strategy, PrivateStrategy) else None


def signal_against_noise(federation: Federation, rounds: int) -> list[str]:
    """Returns in words whether noise will drown the model; nothing where there is no noise."""
    strategy = private_half(federation)
    if strategy is None or not rounds:
        return []
    return signal_lines(
        strategy.mechanism,
        federation.parameters,
        federation.clients,
        rounds,
        strategy.threshold,
        getattr(strategy, "steps", None) if strategy.own_noise else None,
    )


def start(
    parts: Experiment,
    config: dict[str, Any],
    source: str,
    run_dir: Path | None = None,
    *,
    progress: Progress | bool = True,
    resume: bool = False,
    other_data: bool = False,
    one_of_many: bool = False,
) -> Result:
    """Runs the rounds, and what the settings want after them: the audit and the report.

    Args:
        parts: of the experiment.
        config: that they were built from.
        source: of the settings, for errors.
        run_dir: the run's folder; None makes one.
        progress: as `Federation.run` takes it.
        resume: whether to go on with what is in the folder.
        other_data: see `Federation.run`.
        one_of_many: whether it is a row of a table, which has a page of its own: then nothing is
            said of noise and signal, and no report is written.
    """
    federation = parts.assemble(config)
    check_audit(federation, parts, source)
    for line in [] if resume or one_of_many else signal_against_noise(federation, parts.rounds):
        to_stderr(line)
    result = federation.run(
        parts.rounds, run_dir=run_dir, resume=resume, other_data=other_data, progress=progress
    )
    audited(result, parts, federation)
    if not one_of_many:
        reported(result, parts)
    return result


def audited(result: Result, parts: Experiment, federation: Federation) -> None:
    """Measures the mechanism of a private run, if its settings want it, and says what was found.

    What can be known beforehand, `check_audit` has refused.
    """
    if not parts.privacy.audit or not parts.rounds:
        return
    from fedpriv.federation.audit.mechanism import audit_mechanism
    from fedpriv.threat.mechanism import keep_audit

    try:
        audit = audit_mechanism(federation, parts.rounds)
    except ValueError as error:  # the run is over, and its results are worth keeping
        to_stderr(f"audit: {error}")
        return
    keep_audit(RunFolder.existing(result.run_dir), audit)
    for line in audit.lines():
        to_stderr(line)


def check_audit(federation: Federation, parts: Experiment, name: str) -> None:
    """Checks before any training that the mechanism can be measured at the end, if that is wanted.

    Raises:
        Mistakes: if it cannot be.
    """
    if not parts.privacy.audit:
        return
    from fedpriv.federation.audit.mechanism import audit_problems

    if problems := audit_problems(federation):
        raise Mistakes(name, [f"privacy.audit=true: {problem}" for problem in problems])


def reported(result: Result, parts: Experiment) -> None:
    """Writes the report of a run, if its settings want one."""
    if parts.federation.report:
        from fedpriv.report.build import write_report

        write_report(result.run_dir)


def to_stderr(line: str) -> None:
    """Prints a line where progress goes."""
    print(line, file=sys.stderr, flush=True)


def newest(home: Path, fits: Callable[[dict[str, Any], RunFolder], bool]) -> RunFolder | None:
    """Returns the newest folder below a place whose plan fits and that nobody writes."""
    for path in sorted(home.glob("*/"), reverse=True):
        folder = RunFolder(path)
        if fits(folder.read_json(PLAN) or {}, folder) and not run_lock.holder(path):
            return folder
    return None


def folder_of(
    home: Path, plan: Mapping[str, Any], finished: Callable[[RunFolder], bool] = lambda one: False
) -> RunFolder:
    """Returns the newest unfinished folder of a plan that nobody writes, or else a new one.

    Args:
        home: where the folders of this study lie.
        plan: all that its results follow from.
        finished: says whether there is nothing left to do in a folder.
    """
    settings = json.loads(json.dumps(plan))

    def fits(there: dict[str, Any], folder: RunFolder) -> bool:
        there.pop("made", None)
        return there == settings and not finished(folder)

    if (folder := newest(home, fits)) is None:
        folder = RunFolder.create(home.parent, home.name)
        made = {
            "commit": versions.commit(), "date": versions.today(), "machine": versions.machine()
        }  # fmt: skip
        folder.write_json(PLAN, {**settings, "made": made})
    return folder


def code_of(configs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Returns hashes of the code that settings are carried out by: fedpriv's, and one's own.

    With other code, the same settings are another study.
    """
    found = {"fedpriv": versions.code()}
    for path in {path for config in configs for _, path in trust.targets(config, "")}:
        if path.partition(".")[0] not in ("fedpriv", "torch", "flwr"):
            file = Path(getattr(inspect.getmodule(import_target(path)), "__file__", None) or path)
            found[path] = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
    return found
