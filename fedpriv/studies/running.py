"""An experiment from its file to the end of its run, as the command line and Python start it.

What is needed after the rounds, such as matplotlib, is imported then: workers begin sooner.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.config import experiment
from fedpriv.config import overrides as overrides_of
from fedpriv.config.experiment import Experiment, Mistakes
from fedpriv.federation.loop import Federation, Result
from fedpriv.federation.private_strategy import PrivateStrategy
from fedpriv.privacy.signal import signal_lines
from fedpriv.runtime.progress import Progress
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.workers.fork_server import fork_server

if TYPE_CHECKING:
    from fedpriv.threat.results import Result as AttackResult


def run(
    name: str, /, *overrides: str, progress: Progress | bool = True, **settings: Any
) -> RunFolder:
    """Runs an experiment as `fedpriv run` does: its rounds, its attack, and its report.

    Args:
        name: an experiment of `fedpriv list`, or a YAML file.
        overrides: as on the command line, such as "client.epochs=2".
        progress: as `Federation.run` takes it.
        settings: the same by name: a choice of a config group (`strategy="fedavg"`) or a value
            (`rounds=3`, `client={"epochs": 2}`).

    Returns:
        The folder of the run, whose `metrics`, `ledger`, `findings` and `partition` are tables.

    Raises:
        Mistakes: with everything that is wrong with the settings, before anything starts.
        ValueError: if the data cannot be read, or the parts do not fit together.

    Example::

        import fedpriv

        run = fedpriv.run("quickstart", rounds=3, strategy="fedavg")
        print(run.metrics["f1"], run.path)
    """
    words = [*overrides, *(f"{key}={overrides_of.write(value)}" for key, value in settings.items())]
    config = composed(name, words)
    parts = experiment.build(config, name, words)
    check_attack(parts, config, name)
    result = start(parts, config, name, progress=progress)
    attacked(result, parts, trust=True)
    return RunFolder.existing(result.run_dir)


def composed(name: str, overrides: Sequence[str]) -> dict[str, Any]:
    """Returns an experiment's settings, with a note of what they were composed from.

    Workers begin to import what they need meanwhile, on another core.
    """
    config = experiment.load(name, overrides)
    made = {"experiment": str(experiment.find(name)), "overrides": list(overrides)}
    expect_workers(config)
    return {**config, experiment.COMPOSED: made}


def expect_workers(config: Mapping[str, Any]) -> None:
    """Has workers' imports begin now, on another core, if an experiment will need workers here."""
    federation, ray = config.get("federation"), config.get("ray")
    workers = isinstance(federation, Mapping) and federation.get("workers")
    on_ray = isinstance(ray, Mapping) and any(ray.values())
    if workers and not on_ray:
        fork_server()


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
    strategy = getattr(federation.algorithm, "inner", federation.algorithm)
    if isinstance(strategy, PrivateStrategy) and parts.rounds and not (resume or one_of_many):
        for line in signal_lines(
            strategy.mechanism,
            federation.parameters,
            federation.clients,
            parts.rounds,
            strategy.threshold,
            getattr(strategy, "steps", None) if strategy.own_noise else None,
        ):
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


def check_attack(parts: Experiment, config: Mapping[str, Any], name: str) -> None:
    """Checks what the experiment's attack is going to train, before anything starts.

    Raises:
        Mistakes: if it cannot be trained.
    """
    check = getattr(parts.attack, "check", None)
    if check is not None:
        from fedpriv.studies.retraining import Rebuilt

        try:
            check(Rebuilt(config, Path(name), to_stderr, trust=True))
        except ValueError as error:
            if isinstance(error, Mistakes):
                raise
            raise Mistakes(name, [f"attack: {error}"]) from error


def attacked(result: Result, parts: Experiment, *, trust: bool) -> AttackResult | None:
    """Makes the experiment's attack, if it has one, and writes the report again."""
    if parts.attack is None:
        return None
    from fedpriv.studies.attacking import run_attack

    found = run_attack(
        result.run_dir, parts.attack, log=to_stderr, trust=trust, retrain=True, ocr=None
    )
    reported(result, parts)
    return found


def to_stderr(line: str) -> None:
    """Prints a line where progress goes."""
    print(line, file=sys.stderr, flush=True)
