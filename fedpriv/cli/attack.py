"""`fedpriv attack RUN_DIR attack=NAME`: an attack on what a run has kept."""

from __future__ import annotations

from pathlib import Path

import click

from fedpriv.cli import completion
from fedpriv.cli.command import Command, run_dir, show_settings, trust


@click.command(
    "attack",
    cls=Command,
    epilog="""
        fedpriv attack RUN_DIR
        fedpriv attack RUN_DIR attack=closed_form
        fedpriv attack RUN_DIR attack=gi_dqa --settings
        fedpriv attack RUN_DIR attack=gi_dqa rounds=[1] clients=[0] assume.text=given
        fedpriv attack RUN_DIR attack=pmia access=black_box known=0.3
        fedpriv attack RUN_DIR attack=my_attacks.blank.Blank ocr=null
    """,
)
@run_dir
@click.argument(
    "overrides",
    nargs=-1,
    metavar="[KEY=VALUE]...",
    shell_complete=completion.attack_settings,
    help="attack=NAME or the dotted path of a class, and its settings.",
)
@trust
@show_settings
def command(run_dir: Path, overrides: tuple[str, ...], trust: bool, show_settings: bool) -> int:
    """Attack what a run has kept; without attack=, list which attacks are possible on it.

    The run grants or refuses what the attack asks for. Exit status 3: it was refused, or the attack
    does not apply to this run.
    Settings say what the adversary has (rounds, access, known, target, …), how the attack is scored
    and what the attack itself takes (attack.*); --settings describes those that this attack depends
    on. Any other setting is refused.
    """
    from fedpriv.runtime.run_folder import FINDINGS, RunFolder

    if not show_settings:
        folder = RunFolder.existing(run_dir)
    from fedpriv.config import composing

    if show_settings or overrides:
        composing.check_attack(overrides, "fedpriv attack")
    from fedpriv.config import attack

    if show_settings:
        from fedpriv.config.reference import reference
        from fedpriv.threat.settings import taken

        given = attack.compose(overrides)
        kind = type(attack.build(given))
        takes = ("attack", *taken(kind), "name")
        print(reference(kind, given=given, sections=takes))
        return 0
    from fedpriv.config import experiment
    from fedpriv.config.trust import check_before_attack

    again = [override for override in overrides if override.startswith("model.")]
    if not trust:
        check_before_attack(folder, again)
    if not overrides:
        from fedpriv.cli.attackable import attackable

        print(*attackable(folder, trust=trust).lines(), sep="\n")
        return 0
    from fedpriv.report import render
    from fedpriv.report.build import write_report
    from fedpriv.studies import running
    from fedpriv.studies.trials import to_stderr

    order = attack.parse([override for override in overrides if override not in again])
    config = composing.with_values(folder.config(), again, str(run_dir))
    model = experiment.model_of(config, str(run_dir)) if again else None
    result = running.made(folder, order, to_stderr, trust, model)
    write_report(folder.path)
    for line in render.lines(result):
        print(line)
    print(f"report: {folder.path / 'report.html'}")
    print(folder.path / FINDINGS / order.name)
    return 3 if result.refused else 0
