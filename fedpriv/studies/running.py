"""One experiment from its file to the end of its run and of the attacks on it.

The command line and Python start runs and order attacks here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpriv.config import experiment
from fedpriv.config.attack import Order, order
from fedpriv.config.experiment import Experiment
from fedpriv.config.overrides import write
from fedpriv.federation.loop import Result as Ended
from fedpriv.report import tables
from fedpriv.runtime.progress import Progress
from fedpriv.runtime.refusals import Mistakes
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.studies.retraining import Rebuilt
from fedpriv.studies.trials import composed, reported, start, to_stderr
from fedpriv.threat.attack import Attack
from fedpriv.threat.results import Result
from fedpriv.threat.runner import ThreatModel, run_attack_on
from fedpriv.threat.surfaces.retrain import RetrainSettings


def run(
    name: str, /, *overrides: str, progress: Progress | bool = True, **settings: Any
) -> tables.RunFolder:
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
    words = [*overrides, *(f"{key}={write(value)}" for key, value in settings.items())]
    config = composed(name, words)
    parts = experiment.build(config, name, words)
    check_attack(parts, config, name)
    result = start(parts, config, name, progress=progress)
    attacked(result, parts, trust=True)
    return tables.RunFolder.existing(result.run_dir)


def check_attack(parts: Experiment, config: Mapping[str, Any], name: str) -> None:
    """Checks what the experiment's attack is going to train, before anything starts.

    Raises:
        Mistakes: if it cannot be trained.
    """
    check = getattr(parts.attack, "check", None)
    if check is not None:
        try:
            check(Rebuilt(config, Path(name), to_stderr, trust=True))
        except ValueError as error:
            if isinstance(error, Mistakes):
                raise
            raise Mistakes(name, [f"attack: {error}"]) from error


def attacked(result: Ended, parts: Experiment, *, trust: bool) -> Result | None:
    """Makes the experiment's attack, if it has one, and writes the report again."""
    if parts.attack is None:
        return None
    # Whoever starts a study of trainings wants them trained.
    retrain: dict[str, Any] = (
        {"retrain": True} if "retrain" in ThreatModel.of(parts.attack).reads() else {}
    )
    found = run_attack(result.run_dir, parts.attack, log=to_stderr, trust=trust, **retrain)
    reported(result, parts)
    return found


def run_attack(
    run_dir: Path | str,
    attack: Attack[Any, Any] | str,
    overrides: Sequence[str] = (),
    *,
    model: Callable[..., Any] | None = None,
    trust: bool = False,
    log: Callable[[str], None] = lambda line: None,
    **settings: Any,
) -> Result:
    """Attacks a finished run, and writes `findings/<name>/`.

    Args:
        run_dir: the run's folder.
        attack: a name as on the command line, such as "pmia", or an object of your own; see
            `fedpriv.threat.attack.Attack`.
        overrides: of a named attack, as on the command line: "attack.attempts=1".
        model: builds the run's model, for runs that were started from Python; None takes it from
            the run's settings.
        trust: whether code that the run's settings name may be run, though it is none of ours.
        log: shows one line of progress.
        settings: fields of `fedpriv.threat.settings.AttackSettings`, and `name`.

    Returns:
        The scored result. Its `status` says whether the run granted what the attack needs.

    Raises:
        Mistakes: with everything that is wrong in the settings.
        NotARunFolder: if there is no run.
        InUse: if an attack of this name is being made on it.
        Damaged: if a file of the run cannot be used; it is named.
    """
    ordered = order(attack, overrides, **settings)
    return made(RunFolder.existing(run_dir), ordered, log, trust, model)


def made(
    folder: RunFolder,
    ordered: Order,
    log: Callable[[str], None],
    trust: bool,
    model: Callable[..., Any] | None = None,
) -> Result:
    """Makes the attack that was ordered; see `run_attack`."""
    workers = ordered.workers if isinstance(ordered, RetrainSettings) else None
    return run_attack_on(
        folder.path,
        ordered.attack,
        model or experiment.model_of(folder.config(), str(folder.path)),
        name=ordered.name,
        settings=ordered,
        laboratory=Rebuilt.of(folder.path, log, trust=trust, workers=workers),
        log=log,
    )
