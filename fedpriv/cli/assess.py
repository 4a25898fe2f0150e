"""`fedpriv assess EXPERIMENT`: which defence stops which attack, at what cost."""

from __future__ import annotations

from pathlib import Path

import click

from fedpriv.cli import completion
from fedpriv.cli.command import Command
from fedpriv.runtime.refusals import Mistakes


@click.command(
    "assess",
    cls=Command,
    epilog="""
        fedpriv assess quickstart --plan
        fedpriv assess private_kie
        fedpriv assess quickstart 'defences=[none,fl_provider_dp]' 'attacks=[closed_form]' seeds=2
        fedpriv assess quickstart "defences=[none,'fl_provider_dp privacy.epsilon=2']"
        fedpriv assess kie_layoutlmv3 data=folder data.source.root=./invoices hours=8
        fedpriv assess quickstart 'defences=[none,my_own.Strategy]' 'attacks=[my_own.Attack]'
        fedpriv assess runs/assess/quickstart/2026-11-20_21-00-00 --brief
    """,
)
@click.argument(
    "name",
    metavar="EXPERIMENT_OR_DIR",
    shell_complete=completion.experiments,
    help="An experiment of `fedpriv list`, a YAML file, or the folder of an assessment, whose page "
    "is then written again from its run folders.",
)
@click.argument(
    "overrides",
    nargs=-1,
    metavar="[KEY=VALUE]...",
    help="defences=[…] and attacks=[…], of experiments/matrix.yaml or by dotted path; seeds=5; "
    "hours=8, into which it is to fit; workers=, else one for each core; and settings of the "
    "experiment.",
)
@click.option(
    "--plan",
    "plan_only",
    is_flag=True,
    help="Say what would be done, and what each attack could tell of so many documents; nothing is "
    "trained.",
)
@click.option(
    "--time",
    "timed",
    is_flag=True,
    help="With --plan: also how long it takes, from three rounds of each defence and the attacks "
    "on them, of which nothing is kept.",
)
@click.option(
    "--brief",
    is_flag=True,
    help="Also write brief.html: one page without names to hand in, for a data-protection impact "
    "assessment.",
)
def command(
    name: str, overrides: tuple[str, ...], plan_only: bool, timed: bool, brief: bool
) -> int:
    """Assess which defence stops which attack, at what cost.

    The experiment is trained once for each defence and seed, and every attack is made on each
    training. Repeat the command to go on with an assessment that was interrupted. The last line of
    standard output is the folder with assessment.html, .json and .csv. The exit status is 1 if a
    measurement contradicts the ledger, or nothing could be trained.
    """
    from fedpriv.runtime.versions import cores
    from fedpriv.studies.assessing import names

    is_folder = Path(name).is_dir()
    if is_folder and overrides:
        told = ", ".join(overrides)
        raise Mistakes(name, [f"{told}: an assessment has its settings; give an experiment's name"])
    settings, rest = names.options(name, overrides)
    if not is_folder:
        names.check(name, settings, rest)
    from fedpriv.studies.assessing import assess, assessed, assessment, cost
    from fedpriv.studies.assessing.brief import write_brief
    from fedpriv.studies.trials import to_stderr

    if is_folder:
        folder = Path(name)
    else:
        hours, workers = settings.pop("hours", None), settings.pop("workers", None)
        workers = cores() if workers is None else workers
        to_stderr("checking the settings of all trainings and attacks")
        plan = assess.read(name, rest, **settings)
        if plan_only:
            print("\n".join(cost.described(plan)), flush=True)
        if plan_only and not timed and hours is None:
            return 0
        before = None if plan_only or hours is None else cost.begun(plan, hours)
        if before is not None:
            plan = before
        elif plan_only or hours is not None:
            costs = cost.foretold(plan, to_stderr)
            if hours is not None:
                plan, left_out = cost.within(plan, costs, hours, workers)
                for line in left_out:
                    to_stderr(f"hours={hours:g}: {line}")
            if plan_only:
                print("\n".join(cost.costed(plan, costs, workers)))
                return 0
        folder = assess.run(plan, workers=workers, tell=to_stderr).path
    found = assessment.read(folder) if plan_only else assessment.write(folder)
    for line in assessed.lines(found):
        print(line)
    if brief:
        print(f"brief: {write_brief(folder)}")
    print(folder)
    return 1 if found.alarms or not any(row.seeds for row in found.rows) else 0
