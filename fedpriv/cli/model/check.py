"""`fedpriv model check`: loads a model, and tells what works with it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from fedpriv.cli import completion
from fedpriv.cli.command import Command
from fedpriv.config import catalogue

GROUP = "model"


@click.command(
    "check",
    cls=Command,
    epilog="""
        fedpriv model check layoutlmv3
        fedpriv model check ./checkpoint
        fedpriv model check SCUT-DLVCLab/lilt-roberta-en-base model.max_length=256
        fedpriv model check ./checkpoint model.task=answers --json
    """,
)
@click.argument(
    "given",
    metavar="FOLDER_OR_NAME",
    shell_complete=completion.models,
    help="A checkpoint, in a folder or on the hub (OWNER/NAME), which model=auto loads; or a "
    "choice of model= (see `fedpriv list model`).",
)
@click.argument("overrides", nargs=-1, help="Settings of the model, as `fedpriv run` takes them.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(given: str, overrides: tuple[str, ...], as_json: bool) -> int:
    """Tell what works with a model, and how, by trying it on two small pages.

    Each is tried on the CPU, as strategies and attacks do it: gradients of single examples,
    training a part, inversion of the page, text read out of gradients, and attacks on fields. A
    folder that lies here is read before a choice of model= of the same name; model=NAME names the
    choice.
    """
    from fedpriv.config import experiment

    build = experiment.model_of({GROUP: _section(given, overrides)}, given)
    from fedpriv.cli.model.abilities import LABEL, abilities
    from fedpriv.models.base import Tagger
    from fedpriv.runtime.torch_state import seeded_model

    try:
        model: Any = seeded_model(partial(build, labels=[LABEL]), 0)
    except (ValueError, OSError, ImportError) as error:
        raise experiment.Mistakes(given, [str(error)]) from error
    facts = {
        "model": type(model).__name__,
        "network": type(getattr(model, "network", model)).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "does": "tags words" if isinstance(model, Tagger) else "answers questions",
        "works": [dataclasses.asdict(one) for one in abilities(model)],
    }
    print(json.dumps(facts) if as_json else as_table(facts))
    return 0


def as_table(facts: Mapping[str, Any]) -> str:
    """Formats what was found about a model."""
    lines = [
        f"model       {facts['model']}",
        f"network     {facts['network']}",
        f"parameters  {facts['parameters']:,}",
        f"does        {facts['does']}",
    ]
    for one in facts["works"]:
        lines.append(f"{'works' if one['works'] else 'does not':<10}  {one['what']}:")
        lines.append(f"{'':<14}{one['how']}")
    return "\n".join(lines)


def _section(given: str, overrides: Sequence[str]) -> Any:
    """Returns the model section for a folder, a name on the hub or a choice of model=."""
    from fedpriv.config import experiment
    from fedpriv.config.construct import near

    choices = [*catalogue.groups()[GROUP], *catalogue.plugins().get(GROUP, {})]
    chosen = given.removeprefix(f"{GROUP}=")
    is_folder = Path(given).is_dir()
    if others := [one for one in overrides if not one.startswith(f"{GROUP}.")]:
        problem = f"{' '.join(others)}: expected settings of the model, such as model.task=answers"
        raise experiment.Mistakes(given, [problem])
    if chosen in choices and not is_folder:
        return experiment.load("quickstart", [f"{GROUP}={chosen}", *overrides])[GROUP]
    if not is_folder and "/" not in given:
        problem = (
            f"no folder and no model of that name{near(given, choices)}: expected a folder, a name "
            f"on the hub (OWNER/NAME) or one of {', '.join(choices)}"
        )
        raise experiment.Mistakes(given, [problem])
    section = experiment.load("quickstart", [f"{GROUP}=auto", *overrides])[GROUP]
    return {**section, "pretrained": given}
