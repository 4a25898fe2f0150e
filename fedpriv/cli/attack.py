"""`fedpriv attack RUN_DIR attack=NAME`: an attack on what a run has kept."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fedpriv.cli import completion
from fedpriv.cli.command import Command, run_dir, trust


@click.command(
    "attack",
    cls=Command,
    epilog="""
        fedpriv list attack
        fedpriv attack RUN_DIR attack=closed_form
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
def command(run_dir: Path, overrides: tuple[str, ...], trust: bool) -> int:
    """Attack what a run has kept.

    What the attack may use is granted or refused by the run; status 3 says that it was not granted.
    Settings of what the adversary has are rounds, clients, assume.template, assume.text,
    publisher=safe_pgd, access=black_box, public_start=false, known, repeats, min_questions, target
    (final, precision, loss, start, series or the number of a round), every and most_fields. All
    attacks take ocr=null, originals=true, seed, name (of the findings), and attack.* as in
    experiments/attack/NAME.yaml. A setting that the attack has no use for is refused.
    """
    from fedpriv.config import attack
    from fedpriv.config.trust import check_before_attack
    from fedpriv.report import render
    from fedpriv.report.build import write_report
    from fedpriv.runtime.run_folder import RunFolder
    from fedpriv.threat.results import FINDINGS

    folder = RunFolder.existing(run_dir)
    if not trust:
        check_before_attack(folder)
    order = attack.parse(overrides)
    result = attack.made(
        folder, order, lambda line: print(line, file=sys.stderr, flush=True), trust
    )
    write_report(folder.path)
    for line in render.lines(result):
        print(line)
    print(f"report: {folder.path / 'report.html'}")
    print(folder.path / FINDINGS / order.name)
    return 3 if result.refused else 0
