"""Attacks on a run folder, as the command line and Python order them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedpriv.config import experiment
from fedpriv.config.attack import Order, order
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.studies.retraining import Rebuilt
from fedpriv.threat.attack import Attack
from fedpriv.threat.results import Result
from fedpriv.threat.runner import run_attack_on


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
    return run_attack_on(
        folder.path,
        ordered.attack,
        model or experiment.model_of(folder.config(), str(folder.path)),
        name=ordered.name,
        settings=ordered,
        laboratory=Rebuilt.of(folder.path, log, trust=trust, workers=ordered.workers),
        log=log,
    )
