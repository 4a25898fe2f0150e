"""`fedpriv reproduce PAPER TABLE`: a paper's table again, with its spread, beside the paper's."""

from __future__ import annotations

from pathlib import Path

import click

from fedpriv.cli import completion
from fedpriv.cli.command import Command, show_settings
from fedpriv.config import catalogue
from fedpriv.studies import papers


@click.command(
    "reproduce",
    cls=Command,
    epilog="""
        fedpriv reproduce
        fedpriv reproduce cdmi
        fedpriv reproduce cdmi table5 --settings
        fedpriv reproduce cdmi table5 seeds=2 workers=4
        fedpriv reproduce gi-dqa table1 model=layoutlmv3 evaluations=100
    """,
)
@click.argument(
    "paper",
    required=False,
    shell_complete=completion.papers,
    help="One of the papers; without it, they are listed.",
)
@click.argument(
    "table",
    required=False,
    shell_complete=completion.tables,
    help="One of its tables; without it, all of the paper's are run, which takes hours.",
)
@click.argument(
    "overrides",
    nargs=-1,
    metavar="[KEY=VALUE]...",
    help="seeds=3; and what `fedpriv sweep` takes: workers=2 for two rows at a time, experiment=, "
    "rows=[…], values under `let`, run.KEY= and attack.KEY=.",
)
@show_settings
@click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    help="A folder for each table's results.json, as PAPER/TABLE.json, of which docs are made.",
)
def command(
    paper: str | None,
    table: str | None,
    overrides: tuple[str, ...],
    show_settings: bool,
    results: Path | None,
) -> int:
    """Run the tables of a paper again, and say which of its claims hold.

    The models are tiny and the documents generated or given, so look at the order of the rows. For
    each claim the outcome is that it holds, that it does not, or that these seeds cannot tell.
    Repeat the command to go on. The last line of standard output is a folder: of a table, with
    table.json, table.csv, report.html and the figure; of a paper, with paper.json and report.html.
    """
    if paper is None:
        for name, about in papers.PAPERS.items():
            print(f"{name}: {about.told}")
            for short, file in papers.tables(name).items():
                ours = "" if papers.of_the_paper(short) else "(ours) "
                print(f"  {short:<18} {ours}{catalogue.headline(catalogue.sweeps()[file])}")
        return 0
    paper = paper.replace("_", "-")
    if table is not None and "=" in table:
        overrides, table = (table, *overrides), None
    every = [name for name in papers.tables(paper) if papers.of_the_paper(name)]
    if table:
        papers.sweep_of(paper, table)
    from fedpriv.runtime.progress import for_this_terminal
    from fedpriv.studies import reproduce
    from fedpriv.studies.sweep_page import lines
    from fedpriv.studies.trials import to_stderr

    if show_settings:
        for name in [table] if table else every:
            print(f"{name}:")
            for line in reproduce.settings(paper, name, overrides):
                print(f"  {line}")
        return 0
    # All are read first, so that a mistake in the last one is told before the first one starts.
    to_stderr(f"checking {table or f'all tables of {paper}'}")
    if table:
        tables = {table: reproduce.read(paper, table, overrides)}
    else:
        tables = reproduce.read_all(paper, overrides, to_stderr, results)
        rows = sum(len(one.rows) * len(one.seeds) for one in tables.values())
        told = f"tables: {len(tables)}, rows × seeds: {rows}; each tells how long it may still take"
        to_stderr(told)
    folders = {}
    for name, read in tables.items():
        folder, measured = reproduce.run(read, for_this_terminal, to_stderr, results)
        print(f"{name}: {read.title}")
        for line in lines(read.columns, measured, read.claims, read.paper, read.published):
            print(line)
        folders[name] = folder
        if table is None:
            folder = reproduce.written(paper, folders, read.runs)
    print(folder.path)
    return 0
