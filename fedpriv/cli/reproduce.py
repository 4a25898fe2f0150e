"""`fedpriv reproduce PAPER TABLE`: a paper's table again, with its spread, beside the paper's."""

from __future__ import annotations

import sys

import click

from fedpriv.cli.command import Command


@click.command(
    "reproduce",
    cls=Command,
    epilog="""
        fedpriv reproduce
        fedpriv reproduce cdmi
        fedpriv reproduce cdmi table5 seeds=2
        fedpriv reproduce gi-dqa table1 model=layoutlmv3 evaluations=100
    """,
)
@click.argument("paper", required=False, help="One of the papers; without it, they are listed.")
@click.argument("table", required=False, help="One of its tables; without it, they are listed.")
@click.argument(
    "overrides",
    nargs=-1,
    metavar="[KEY=VALUE]...",
    help="seeds=3; and what `fedpriv sweep` takes: experiment=, rows=[…], values under `let`, "
    "run.KEY= and attack.KEY=.",
)
def command(paper: str | None, table: str | None, overrides: tuple[str, ...]) -> int:
    """Run a table of a paper again, and say which of the paper's claims hold.

    The models are tiny and the documents generated or given, so look at the order of the rows. For
    each claim the outcome is that it holds, that it does not, or that these seeds cannot tell.
    Repeat the command to go on. The last line of standard output is the folder with table.json,
    table.csv, report.html and the figure.
    """
    from fedpriv.config import catalogue, reproduce
    from fedpriv.report.sweep import lines
    from fedpriv.runtime.progress import for_this_terminal

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if table is None:
        for name, about in reproduce.PAPERS.items():
            if paper is None or name == paper:
                print(f"{name}: {about.told}")
        for name, sweep in (reproduce.tables(paper) if paper else {}).items():
            print(f"  {name:<18} {catalogue.headline(catalogue.sweeps()[sweep])}")
        return 0
    read = reproduce.read(paper or "", table, overrides)
    folder, measured = reproduce.run(read, for_this_terminal, tell)
    for line in lines(read.columns, measured, read.claims, read.paper, read.published):
        print(line)
    print(folder.path)
    return 0
