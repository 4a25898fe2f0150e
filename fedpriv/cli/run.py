"""`fedpriv run` and `fedpriv resume`: experiments, and sweeps with -m."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fedpriv.cli import completion
from fedpriv.cli.command import Command, run_dir, show_settings, trust
from fedpriv.config import catalogue
from fedpriv.runtime.refusals import Mistakes

if TYPE_CHECKING:
    from fedpriv.config.experiment import Experiment
    from fedpriv.federation.loop import Result

RESUMABLE = ("rounds=", "federation.", "ray.")
"""Settings that a resumed run may change, because they do not alter what it computes."""


@click.command(
    "run",
    cls=Command,
    epilog="""
        fedpriv run quickstart
        fedpriv run my_experiment.yaml rounds=20 seed=3
        fedpriv run quickstart strategy=fedavg client.optimizer.lr=2e-3
        fedpriv run quickstart strategy=fedavg --settings
        fedpriv run -m quickstart seed=0,1,2 client.epochs=1,2
    """,
)
@click.argument(
    "name",
    metavar="NAME_OR_FILE",
    shell_complete=completion.experiments,
    help="An experiment of `fedpriv list`, or a YAML file.",
)
@click.argument(
    "overrides",
    nargs=-1,
    metavar="[KEY=VALUE]...",
    shell_complete=completion.experiment_settings,
    help="A choice of a config group (strategy=fedavg) or a value (client.epochs=2), in Hydra's "
    "syntax.",
)
@click.option(
    "-m",
    "--multirun",
    is_flag=True,
    help="Run every combination of values, seed=0,1 rounds=5,10, as a table; workers=2 for two at "
    "a time. Repeat the command to go on with one that was interrupted.",
)
@show_settings
def run(name: str, overrides: tuple[str, ...], multirun: bool, show_settings: bool) -> int:
    """Run an experiment.

    Everything is checked before anything starts. Progress goes to standard error; the last line of
    standard output is the run folder.
    """
    catalogue.experiment(name)  # before Hydra is imported
    from fedpriv.config import composing
    from fedpriv.config.overrides import combinations, key_of

    words: Sequence[str] = overrides
    if multirun:
        words = [one for one in overrides if key_of(one) != "workers"]
        words = combinations(words, "fedpriv run -m")[0]
    composing.check(name, words)
    from fedpriv.config import experiment
    from fedpriv.studies import trials

    if show_settings:
        from fedpriv.config.reference import reference

        print(reference(experiment.Experiment, given=experiment.load(name, overrides)))
        return 0
    if multirun:
        return _several(name, overrides)
    config = trials.composed(name, overrides)
    from fedpriv.studies.running import check_attack  # while workers import what they need

    parts = experiment.build(config, name, overrides)
    check_attack(parts, config, name)
    result = trials.start(parts, config, name)
    return _finish(result, parts, trust=True)


@click.command(
    "resume",
    cls=Command,
    epilog="""
        fedpriv resume runs/quickstart/2026-11-20_21-00-00
        fedpriv resume runs/quickstart/2026-11-20_21-00-00 rounds=40
        fedpriv resume runs/quickstart/2026-11-20_21-00-00 federation.workers=4
    """,
)
@run_dir
@click.argument(
    "overrides",
    nargs=-1,
    metavar="[KEY=VALUE]...",
    shell_complete=lambda ctx, parameter, incomplete: [
        key for key in RESUMABLE if key.startswith(incomplete)
    ],
    help="rounds=, federation.* or ray.*: how the run goes on, not what it computes.",
)
@click.option(
    "--other-data",
    is_flag=True,
    help="Go on even if the documents or labels are not those that the run was begun with.",
)
@trust
def resume(run_dir: Path, overrides: tuple[str, ...], other_data: bool, trust: bool) -> int:
    """Continue a run that was interrupted, or add rounds to one that has ended."""
    from fedpriv.runtime.run_folder import RunFolder

    folder = RunFolder.existing(run_dir)
    from fedpriv.config import composing, experiment
    from fedpriv.config.overrides import key_of
    from fedpriv.config.trust import check_before_resume, reaching
    from fedpriv.federation.dataset import UnfitData
    from fedpriv.studies import trials

    if not trust:
        check_before_resume(folder, overrides)
    reaches = reaching(folder.config())
    wrong = [
        override
        for override in overrides
        if not override.startswith(RESUMABLE) and key_of(override) not in reaches
    ]
    if wrong:
        allowed = ", ".join(RESUMABLE)
        problems = [f"{override}: a resumed run takes {allowed}" for override in wrong]
        raise Mistakes(str(run_dir), problems)
    config = composing.with_values(folder.config(), overrides, str(run_dir))
    config = experiment.with_whole_paths(config)
    trials.expect_workers(config)
    parts = experiment.build(config, str(run_dir))
    try:
        again = {"resume": True, "other_data": other_data}
        result = trials.start(parts, config, str(run_dir), folder.path, **again)
    except UnfitData as error:
        moved = f"if the data have moved: fedpriv resume {run_dir} data.source.root=NEW_PLACE"
        error.hint = "\n  ".join(filter(None, (error.hint, moved)))
        raise
    return _finish(result, parts, trust=trust)


def _several(name: str, overrides: Sequence[str]) -> int:
    """Runs every combination of the values that the overrides name, as a table."""
    from fedpriv.runtime.progress import for_this_terminal
    from fedpriv.runtime.run_folder import REPORT
    from fedpriv.studies import sweep, sweep_jobs
    from fedpriv.studies.sweep_page import lines
    from fedpriv.studies.trials import to_stderr

    table = sweep.of_runs(name, overrides)
    folder, measured = sweep_jobs.run(table, for_this_terminal, to_stderr)
    for line in lines(sweep_jobs.columns_of(table, measured), measured, (), "", {}):
        print(line)
    print(f"report: {folder.path / REPORT}")
    print(folder.path)
    return 0


def _finish(result: Result, parts: Experiment, *, trust: bool) -> int:
    """Says how the run ended, makes the experiment's attack on it, and returns the exit status."""
    from fedpriv.report import render
    from fedpriv.studies.running import attacked

    _summarise(result)
    status = 0
    found = attacked(result, parts, trust=trust)
    if found is not None:
        for line in render.lines(found):
            print(line)
        status = 3 if found.refused else 0
    print(result.run_dir)
    refused_all = bool(result.metrics) and not any(r["accepted"] for r in result.metrics)
    return 1 if refused_all else status


def _summarise(result: Result) -> None:
    """Prints the last metrics, what failed, and the privacy that was spent."""
    from fedpriv.metrics.learnt import LEARN_MORE, little_learnt
    from fedpriv.privacy.statement import summary
    from fedpriv.report.wording import counted, show_rounds
    from fedpriv.runtime.progress import describe
    from fedpriv.runtime.run_folder import LEDGER, REPORT, RunFolder

    if result.metrics:
        last = result.metrics[-1]
        print(f"after {counted(last['round'], 'round')}: {describe(last)}")
    if said := little_learnt(result.metrics):
        print(f"{said} {LEARN_MORE}")
    refused = [r["round"] for r in result.metrics if not r["accepted"]]
    if refused:
        print(f"refused, because too few clients answered: {show_rounds(refused)}")
    for failure in result.failures:
        print(
            f"round {failure['round']}: client {failure['client']} {failure['kind']} "
            f"({failure['reason']})"
        )
    ledger = RunFolder.existing(result.run_dir).read_json(LEDGER)
    if refused and ledger and ledger["mechanism"]:
        print("to count rounds in which clients are missing, set strategy.threshold below 1")
    for line in summary(ledger) if ledger else ():
        print(line)
    report = result.run_dir / REPORT
    if report.is_file():
        print(f"report: {report}")
