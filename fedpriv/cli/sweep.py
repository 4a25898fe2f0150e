"""`fedpriv sweep NAME`: a table of runs and attacks, as a YAML file describes it."""

from __future__ import annotations

import click

from fedpriv.cli import completion
from fedpriv.cli.command import Command, show_settings
from fedpriv.config import catalogue


@click.command(
    "sweep",
    cls=Command,
    epilog="""
        fedpriv sweep papers/gi_dqa/table_1
        fedpriv sweep papers/gi_dqa/table_1 model=layoutlmv3 evaluations=100 seeds=[1,2,3]
        fedpriv sweep papers/gi_dqa/table_1 --settings
        fedpriv sweep papers/cdmi/table_5 experiment=cdmi_funsd run.rounds=12
        fedpriv sweep my_table.yaml attack.ocr=null
    """,
)
@click.argument(
    "name",
    metavar="NAME_OR_FILE",
    shell_complete=completion.sweeps,
    help="A sweep of `fedpriv list`, or a YAML file.",
)
@click.argument(
    "overrides",
    nargs=-1,
    metavar="[KEY=VALUE]...",
    help="seeds=[0,1], experiment=, runs=; workers=2 for two rows at a time, each in a process of "
    "its own; a value that the file names under `let`; rows=[…], or "
    "an axis of its grid; run.KEY= of the experiment, or attack.KEY= of the attack.",
)
@show_settings
def command(name: str, overrides: tuple[str, ...], show_settings: bool) -> int:
    """Run a table of experiments: its rows, seeds and claims.

    Everything is checked before anything starts. Repeat the command to go on with a sweep that was
    interrupted. The last line of standard output is the folder with results.json, table.md, the
    figure and report.html.
    """
    catalogue.sweep(name)
    from fedpriv.runtime.progress import for_this_terminal
    from fedpriv.studies import sweep, sweep_jobs
    from fedpriv.studies.sweep_page import lines
    from fedpriv.studies.trials import to_stderr

    if show_settings:
        print("\n".join(sweep.settings(name, overrides)))
        return 0
    table = sweep.read(name, overrides)
    folder, measured = sweep_jobs.run(table, for_this_terminal, to_stderr)
    for line in lines(table.columns, measured, table.claims, table.paper, table.published):
        print(line)
    print(folder.path)
    return 0
