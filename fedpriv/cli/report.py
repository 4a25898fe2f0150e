"""`fedpriv report RUN_DIR`: the report of a finished run, written again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fedpriv.cli.command import Command, run_dir


@click.command("report", cls=Command, epilog="fedpriv report runs/quickstart/2026-11-20_21-00-00")
@run_dir
def command(run_dir: Path) -> int:
    """Write report.html of a run folder again, and account for what the run released."""
    from fedpriv.privacy.statement import account
    from fedpriv.report.build import write_report
    from fedpriv.runtime import verify
    from fedpriv.runtime.run_files import Damaged
    from fedpriv.runtime.run_folder import RunFolder
    from fedpriv.runtime.run_lock import InUse

    folder = RunFolder.existing(run_dir)
    problems: list[str] = []
    try:
        with folder.writing("report", {}):
            problems += verify.check(folder.path).problems()
            account(folder)
    except Damaged as error:
        problems.append(str(error))
    except InUse as error:
        print(f"{error}. ε of its ledger is computed when it ends", file=sys.stderr)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(write_report(folder.path, problems))
    return 0
