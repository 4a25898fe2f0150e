"""`fedpriv compare RUN_DIR RUN_DIR`: several runs on one page."""

from __future__ import annotations

from pathlib import Path

import click

from fedpriv.cli.command import Command, redacted


@click.command(
    "compare",
    cls=Command,
    epilog="""
        fedpriv compare runs/quickstart/2026-11-20_21-00-00 runs/quickstart/2026-11-20_21-05-00
        fedpriv compare RUN_DIR RUN_DIR RUN_DIR -o fedavg_against_dp.html
        fedpriv compare RUN_DIR RUN_DIR --redacted           # to pass on: no pages, names or paths
        fedpriv compare RUN_DIR RUN_DIR --csv numbers.csv
    """,
)
@click.argument(
    "run_dirs",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="RUN_DIR RUN_DIR...",
    nargs=-1,
    required=True,
    help="Folders of runs. Those that differ in nothing but their seed are one row.",
)
@redacted
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write the page; comparison.html in this folder otherwise.",
)
@click.option(
    "--csv",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write all numbers of the table into a file of comma-separated values too.",
)
def command(
    run_dirs: tuple[Path, ...], redacted: bool, output: Path | None, csv: Path | None
) -> int:
    """Compare runs: utility, ε and attacks in one table and one figure, with intervals over seeds.

    The last line of standard output is the path of the page.
    """
    from fedpriv.report.wording import as_csv
    from fedpriv.runtime import run_files
    from fedpriv.runtime.run_folder import RunFolder

    for run_dir in run_dirs:
        RunFolder.existing(run_dir)
    from fedpriv.studies.comparison import COMPARISON, compare

    page = output or Path(COMPARISON)
    found = compare(run_dirs, page, redacted=redacted)
    if csv is not None:
        with run_files.output(csv) as file:
            file.write(as_csv(found.table))
    print("\n".join([found.answer, *found.lines]))
    print(page)
    return 0
