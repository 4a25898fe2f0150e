"""`fedpriv report RUN_DIR`: the report of a finished run, written again, or of several."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fedpriv.cli.command import Command


@click.command(
    "report",
    cls=Command,
    epilog="""
        fedpriv report runs/quickstart/2026-11-20_21-00-00
        fedpriv report RUN_DIR --redacted                    # to pass on: no pages, names or paths
        fedpriv report SWEEP_DIR --redacted                  # of a sweep
        fedpriv report RUN_DIR RUN_DIR RUN_DIR -o fedavg_against_dp.html
    """,
)
@click.argument(
    "run_dirs",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="RUN_DIR...",
    nargs=-1,
    required=True,
    help="The folder of a run or of a sweep. Several runs are compared on one page.",
)
@click.option(
    "--redacted",
    is_flag=True,
    help="Leave out pages, names, texts of documents and paths, so that the report may be passed "
    "on. For one run or sweep, this writes report-redacted.html in its folder.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write a comparison; comparison.html in this folder otherwise.",
)
def command(run_dirs: tuple[Path, ...], redacted: bool, output: Path | None) -> int:
    """Write report.html of a run or a sweep again, or one page that compares several runs.

    First brings the ε of a run's ledger up to date. The last line of standard output is the path of
    the page.
    """
    from fedpriv.report.comparison import COMPARISON, write_comparison
    from fedpriv.runtime.run_folder import RunFolder

    if len(run_dirs) > 1:
        for run_dir in run_dirs:
            RunFolder.existing(run_dir)
        page = output or Path(COMPARISON)
        print(write_comparison(run_dirs, page, redacted=redacted))
        return 0
    if output is not None:
        raise click.UsageError("-o is for a comparison: the report of a run stands in its folder")
    return _of_one(run_dirs[0], redacted)


def _of_one(run_dir: Path, redacted: bool) -> int:
    """Accounts for what a run released and writes its report; or writes the page of a sweep."""
    from fedpriv.privacy.statement import account
    from fedpriv.report import sweep
    from fedpriv.report.build import write_report
    from fedpriv.runtime import verify
    from fedpriv.runtime.run_files import Damaged
    from fedpriv.runtime.run_folder import RunFolder
    from fedpriv.runtime.run_lock import InUse

    if (run_dir / sweep.RESULTS).is_file() and not (run_dir / "config.yaml").is_file():
        print(sweep.write_page(run_dir, redacted=redacted))
        return 0
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
    print(write_report(folder.path, problems, redacted=redacted))
    return 0
