"""`fedpriv attack RUN_DIR attack=NAME`: an attack on what a run has kept."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fedpriv.cli import completion
from fedpriv.cli.command import Command, run_dir, trust
from fedpriv.config.run_model import model_of

ATTACKS, FIELD_ATTACKS = "attacks", "field_attacks"
"""The files with the defaults of attacks of each kind, among the experiments."""


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
    from fedpriv.threat.runner import run_attack_on

    folder = RunFolder.existing(run_dir)
    if not trust:
        check_before_attack(folder)
    model = model_of(folder.config(), str(folder.path))

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    order, name = parse(overrides)
    if isinstance(order, attack.Order):
        result = run_attack_on(
            folder.path, order.attack, model, name=name, settings=order, log=tell
        )
        said, status = list(render.lines(result)), 3 if result.refused else 0
    else:
        metrics = order.on(folder.path, model, tell)
        said, status = in_words(metrics), 3 if metrics["status"] == "not_applicable" else 0
    write_report(folder.path)
    for line in said:
        print(line)
    print(f"report: {folder.path / 'report.html'}")
    print(folder.path / FINDINGS / name)
    return status


def parse(overrides: Sequence[str]) -> tuple[Any, str]:
    """Returns the attack that the overrides describe, and its name.

    Raises:
        Mistakes: with everything that is wrong.
    """
    from fedpriv.config import attack, experiment
    from fedpriv.threat.field_attacking import FieldAttackRun

    chosen = next((o.partition("=")[2] for o in overrides if o.startswith("attack=")), "")
    if not chosen or not _reconstructs_fields(chosen):
        order = attack.parse(overrides)
        return order, order.name
    rest = list(overrides)
    if "." in chosen:  # a class of the user's, not one of our files
        rest = [o for o in overrides if not o.startswith("attack=")] + ["~attack"]
    config = experiment.load(FIELD_ATTACKS, rest)
    if "." in chosen:
        config["attack"] = {**config.get("attack", {}), "_target_": chosen}
    config.setdefault("name", chosen.rpartition(".")[2])
    return experiment.constructed(FieldAttackRun, config, "fedpriv attack"), config["name"]


def _reconstructs_fields(chosen: str) -> bool:
    """Says whether an attack, given by its name or dotted path, is one on scrubbed fields.

    What cannot be found is left to be named with all other mistakes.
    """
    from hydra.utils import get_object

    from fedpriv.config import experiment

    path = chosen
    if "." not in chosen:
        path = experiment.load(ATTACKS, [f"attack={chosen}"])["attack"]["_target_"]
    try:
        return hasattr(get_object(path), "reconstruct")
    except Exception:  # whatever importing a user's module raises
        return False


def in_words(metrics: Mapping[str, Any]) -> list[str]:
    """Returns the metrics as lines for a person."""
    if metrics["status"] == "not_applicable":
        return [f"not applicable: {metrics['reason']}"]
    from fedpriv.report import extraction, fields

    numbers = [
        f"{name} {value:.4g}"
        for name, value in metrics.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return [
        f"{metrics['status']}: {', '.join(numbers)}",
        *(fields.lines(metrics) if fields.is_of_fields(metrics) else ()),
        *(extraction.lines(metrics) if extraction.is_of_extraction(metrics) else ()),
        *(f"assumed: {line}" for line in metrics["assumptions"]),
        *(f"not applicable: {n}: {why}" for n, why in metrics.get("not_applicable", {}).items()),
        *(f"left out: {n} for {why}" for why, n in metrics.get("skipped", {}).items() if n),
        *(f"left out: {n} {what}" for what, n in metrics.get("left_out", {}).items() if n),
        *(f"note: {line}" for line in metrics["notes"]),
    ]
