"""The command line of fedpriv.

`fedpriv run | resume | attack | report | verify | list | budget | data | clean`.

Standard output carries results, the run folder on its last line; everything else goes to
standard error. Exit status: 0 done, 1 the run failed, 2 the experiment is wrong, 130 interrupted,
143 terminated, 141 done but nobody read the results to their end.

What runs experiments is imported by the commands that do: `budget` answers in less time than
torch takes to import.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpriv.cli import attack, budget, clean
from fedpriv.cli.data import command as data_command
from fedpriv.cli.endings import UNHEARD, advice_with, ending_on_sigterm, status_of, unbroken_output
from fedpriv.config import catalogue
from fedpriv.runtime import verify
from fedpriv.runtime.terminal import visible_output

if TYPE_CHECKING:
    from fedpriv.config.experiment import Experiment
    from fedpriv.federation.loop import Federation, Result

RESUMABLE = ("rounds=", "federation.", "ray.")
"""What may be changed when a run is resumed: how it is run, not what it computes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    with unbroken_output() as out, visible_output(), ending_on_sigterm():
        try:
            status = _carry_out(arguments)
        except (KeyboardInterrupt, SystemExit) as end:
            interrupted = status_of(end)
            if interrupted is None:
                raise
            status = interrupted
            print(f"interrupted{advice_with(end)}", file=sys.stderr)
        out.flush()
    return UNHEARD if out.lost and not status else status


def _carry_out(arguments: Sequence[str] | None) -> int:
    # So that an experiment can name modules of the user's; appended, so it can shadow nothing.
    sys.path.append(os.getcwd())
    options = _parser().parse_args(_flags_first(arguments or sys.argv[1:]))
    try:
        status: int = options.command(options)
        return status
    except Exception as error:
        explained = _explained(error) or _of_a_changed_folder(error, options)
        if explained is None:
            raise
        status, message = explained
        print(f"{message}{advice_with(error)}", file=sys.stderr)
        return status


def _of_a_changed_folder(error: Exception, options: argparse.Namespace) -> tuple[int, str] | None:
    """Exit status and message of an error on a run folder that was changed; None on another."""
    from fedpriv.runtime.verify import check

    root = getattr(options, "run_dir", None)
    problems = check(root).problems() if root is not None and root.is_dir() else []
    if not problems:
        return None  # a mistake of ours, which its traceback tells
    lines = "\n".join(f"  {problem}" for problem in problems)
    return 1, (
        f"{type(error).__name__}: {error}\n{root} is not as fedpriv wrote it, which may be why\n"
        f"{lines}"
    )


def _explained(error: Exception) -> tuple[int, str] | None:
    """Exit status and message of an error that needs no traceback."""
    from fedpriv.config.experiment import Mistakes
    from fedpriv.config.trust import Untrusted
    from fedpriv.federation.grids.base import WorkersDied
    from fedpriv.federation.loop import Unworkable
    from fedpriv.federation.round_statistics import TooFewClients
    from fedpriv.privacy.ledger import LedgerMissing
    from fedpriv.runtime.jobs import JobsFailed
    from fedpriv.runtime.ray_session import RayDidNotStart
    from fedpriv.runtime.run_files import Damaged
    from fedpriv.runtime.run_folder import NotARunFolder
    from fedpriv.runtime.run_lock import InUse

    if isinstance(error, Mistakes | NotARunFolder | Untrusted | InUse | LedgerMissing):
        return 2, str(error)
    if isinstance(error, Damaged):
        return 1, str(error)
    if isinstance(error, Unworkable):
        return 2, str(Mistakes("the experiment", error.problems))
    if isinstance(
        error, ValueError | TooFewClients | RayDidNotStart | WorkersDied | JobsFailed | OSError
    ):
        return 1, f"{type(error).__name__}: {error}"
    return None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fedpriv", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="run an experiment, by name or file")
    run.add_argument("-m", "--multirun", action="store_true", help="sweep: seed=0,1 strategy=a,b")
    run.add_argument("experiment", metavar="NAME_OR_FILE")
    run.add_argument("overrides", nargs="*", metavar="key=value")
    run.set_defaults(command=_run)
    resume = commands.add_parser("resume", help="go on with a run that was interrupted")
    resume.add_argument("run_dir", type=Path)
    resume.add_argument("overrides", nargs="*", metavar="key=value", help="rounds, federation, ray")
    resume.add_argument("--trust", action="store_true", help=attack.TRUST)
    resume.set_defaults(command=_resume)
    report = commands.add_parser("report", help="write report.html of a run folder again")
    report.add_argument("run_dir", type=Path)
    report.set_defaults(command=_report)
    listing = commands.add_parser("list", help="list experiments and what can be swapped in them")
    listing.set_defaults(command=_list)
    attack.register(commands)
    verify.register(commands)
    budget.register(commands)
    data_command.register(commands)
    clean.register(commands)
    return parser


def _flags_first(arguments: Sequence[str]) -> list[str]:
    """Moves flags to the front: argparse allows no option between positional arguments."""
    flags = [a for a in arguments if a in ("-m", "--multirun", "--trust")]
    rest = [a for a in arguments if a not in flags]
    return [*rest[:1], *dict.fromkeys(flags), *rest[1:]]


def _run(options: argparse.Namespace) -> int:
    from fedpriv.config import experiment

    if options.multirun:
        return _sweep(options)
    config = experiment.load(options.experiment, options.overrides)
    if config.get("study"):
        return _study(options)
    return _finish(_start(config, options.experiment, None))


def _study(options: argparse.Namespace) -> int:
    from fedpriv.threat import studying

    folder, metrics = studying.start(options.experiment, options.overrides, tell=_tell)
    return _concluded(folder.path, metrics)


def _concluded(run_dir: Path, metrics: Mapping[str, Any]) -> int:
    for line in attack.in_words(metrics):
        print(line)
    print(f"report: {run_dir / 'report.html'}")
    print(run_dir)
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _sweep(options: argparse.Namespace) -> int:
    from fedpriv.config import experiment
    from fedpriv.privacy.statement import in_short
    from fedpriv.runtime.progress import describe
    from fedpriv.runtime.run_folder import LEDGER, RunFolder

    combinations = experiment.sweep(options.overrides)
    configs = [experiment.load(options.experiment, combination) for combination in combinations]
    if any(config.get("study") for config in configs):
        raise experiment.Mistakes(
            options.experiment, ["a study is many trainings by itself: run it without -m"]
        )
    for config in configs:  # all of them, before the first starts
        experiment.build(config, options.experiment)
    parent = RunFolder.create(configs[0]["runs"], f"{configs[0]['name']}-sweep")
    table: list[dict[str, Any]] = []
    for number, (config, combination) in enumerate(zip(configs, combinations, strict=True)):
        print(f"[{number + 1}/{len(configs)}] {' '.join(combination)}", file=sys.stderr)
        result = _start(config, options.experiment, parent.path / str(number))
        _summarise(result)
        last = result.metrics[-1] if result.metrics else {}
        spent = in_short(RunFolder.existing(result.run_dir).read_json(LEDGER))
        run = {"overrides": combination, "run": str(result.run_dir)}
        table.append({**run, "last": last, "pld": spent})
        parent.write_json("sweep.json", table)
    for row in table:
        private = "  ".join(f"ε({view}) {epsilon}" for view, epsilon in row["pld"].items())
        print(f"{' '.join(row['overrides'])}  {describe(row['last'])}  {private}".rstrip())
    print(parent.path)
    return 0


def _start(config: dict[str, Any], source: str, run_dir: Path | None) -> Result:
    from fedpriv.config import experiment
    from fedpriv.runtime.progress import for_this_terminal

    parts = experiment.build(config, source)
    federation = parts.assemble(config)
    for line in _signal(federation, parts.rounds):
        _tell(line)
    result = federation.run(parts.rounds, run_dir=run_dir, progress=for_this_terminal())
    return _with_report(parts, result)


def _signal(federation: Federation, rounds: int) -> list[str]:
    """Returns signal against noise of a private run in words, before its first round."""
    from fedpriv.federation.private_strategy import PrivateStrategy
    from fedpriv.privacy.signal import signal_lines

    strategy = getattr(federation.strategy, "inner", federation.strategy)
    if not isinstance(strategy, PrivateStrategy) or not rounds:
        return []
    steps = getattr(strategy, "steps", None) if strategy.own_noise else None
    return signal_lines(
        strategy.mechanism,
        federation.parameters,
        federation.clients,
        rounds,
        strategy.threshold,
        steps,
    )


def _resume(options: argparse.Namespace) -> int:
    from fedpriv.config import experiment
    from fedpriv.config.experiment import Mistakes
    from fedpriv.config.trust import check_before_resume
    from fedpriv.runtime.progress import for_this_terminal
    from fedpriv.runtime.run_folder import RunFolder
    from fedpriv.threat import studying

    folder = RunFolder.existing(options.run_dir)
    wrong = [o for o in options.overrides if not o.startswith(RESUMABLE)]
    if wrong:
        allowed = ", ".join(RESUMABLE)
        raise Mistakes(str(options.run_dir), [f"{o}: a resumed run takes {allowed}" for o in wrong])
    if not options.trust:
        check_before_resume(folder, options.overrides)
    config = experiment.with_values(folder.config(), options.overrides, str(options.run_dir))
    if config.get("study"):
        metrics = studying.resume(folder, options.overrides, _tell)
        return _concluded(folder.path, metrics)
    parts = experiment.build(config, str(options.run_dir))
    federation = parts.assemble(config)
    progress = for_this_terminal()
    result = federation.run(parts.rounds, run_dir=folder.path, resume=True, progress=progress)
    return _finish(_with_report(parts, result))


def _with_report(parts: Experiment, result: Result) -> Result:
    """Writes the report of a run that has ended, if its settings want one."""
    if parts.federation.report:
        from fedpriv.report.build import write_report

        write_report(result.run_dir)
    return result


def _report(options: argparse.Namespace) -> int:
    from fedpriv.privacy.statement import account
    from fedpriv.report.build import write_report
    from fedpriv.runtime.run_files import Damaged
    from fedpriv.runtime.run_folder import RunFolder
    from fedpriv.runtime.run_lock import InUse

    folder = RunFolder.existing(options.run_dir)
    problems: list[str] = []
    try:
        with folder.writing("report", {}):
            problems += verify.check(folder.path).problems()
            account(folder)
    except Damaged as error:
        problems.append(str(error))
    except InUse as error:
        _tell(f"{error}. ε of its ledger is computed when it ends")
    for problem in problems:
        _tell(problem)
    print(write_report(folder.path, problems))
    return 0


def _list(options: argparse.Namespace) -> int:
    print("Experiments (fedpriv run NAME):")
    for name, path in catalogue.experiments().items():
        print(f"  {name:<20} {catalogue.headline(path)}")
    for group, choices in catalogue.groups().items():
        print(f"{group}= {', '.join(choices)}")
    return 0


def _finish(result: Result) -> int:
    _summarise(result)
    print(result.run_dir)
    refused_all = bool(result.metrics) and not any(r["accepted"] for r in result.metrics)
    return 1 if refused_all else 0


def _summarise(result: Result) -> None:
    """Says how the run ended, and everything that went wrong in it."""
    from fedpriv.privacy.statement import summary
    from fedpriv.runtime.progress import describe
    from fedpriv.runtime.run_folder import LEDGER, RunFolder

    if result.metrics:
        last = result.metrics[-1]
        print(f"after {last['round']} rounds: {describe(last)}")
    refused = [r["round"] for r in result.metrics if not r["accepted"]]
    if refused:
        print(f"refused for want of answers: rounds {', '.join(map(str, refused))}")
    for failure in result.failures:
        print(
            f"round {failure['round']}: client {failure['client']} {failure['kind']} "
            f"({failure['reason']})"
        )
    ledger = RunFolder.existing(result.run_dir).read_json(LEDGER)
    if refused and ledger and ledger["mechanism"]:
        print("with strategy.threshold below 1 a round counts without some of its clients")
    for line in summary(ledger) if ledger else ():
        print(line)
    report = result.run_dir / "report.html"
    if report.is_file():
        print(f"report: {report}")


if __name__ == "__main__":
    sys.exit(main())
