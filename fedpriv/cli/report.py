"""`fedpriv report RUN_DIR`: the page of a run, a sweep or an assessment, written again."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fedpriv.cli.command import Command, redacted


@click.command(
    "report",
    cls=Command,
    epilog="""
        fedpriv report runs/quickstart/2026-11-20_21-00-00
        fedpriv report RUN_DIR --redacted                    # to pass on: no pages, names or paths
        fedpriv report SWEEP_DIR --redacted                  # of a sweep
        fedpriv report ASSESS_DIR --redacted                 # of an assessment
    """,
)
@click.argument(
    "run_dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="RUN_DIR",
    help="The folder of a run, a sweep or an assessment. `fedpriv compare` puts several on one "
    "page.",
)
@redacted
def command(run_dir: Path, redacted: bool) -> int:
    """Write the page of a run, a sweep or an assessment again.

    First brings the ε of a run's ledger up to date. The last line of standard output is the path of
    the page.
    """
    from fedpriv.runtime import verify
    from fedpriv.runtime.run_files import Damaged
    from fedpriv.runtime.run_folder import CONFIG, PLAN, RESULTS, RunFolder
    from fedpriv.runtime.run_lock import InUse

    kinds = (CONFIG, RESULTS, PLAN)
    kind = next((name for name in kinds if (run_dir / name).is_file()), CONFIG)
    if kind == RESULTS:
        from fedpriv.studies import sweep_page

        print(sweep_page.write_page(run_dir, redacted=redacted))
        return 0
    if kind == PLAN:
        from fedpriv.studies.assessing import assessment

        if redacted:
            print(assessment.write_redacted(run_dir))
        else:
            assessment.write(run_dir)
            print(run_dir / assessment.PAGE)
        return 0
    folder = RunFolder.existing(run_dir)
    from fedpriv.privacy.statement import account
    from fedpriv.report.build import write_report

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
