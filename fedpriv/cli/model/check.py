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
from fedpriv.runtime.refusals import Mistakes, near

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

    section = _section(given, overrides)
    build = experiment.model_of({GROUP: section}, given)
    from fedpriv.cli.model.abilities import LABEL, abilities
    from fedpriv.models.base import Tagger
    from fedpriv.runtime.torch_state import seeded_model

    try:
        # Weights that differ between two seeds are drawn, and all others are the checkpoint's.
        model: Any
        model, other = (seeded_model(partial(build, labels=[LABEL]), seed) for seed in (0, 1))
    except (ValueError, OSError, ImportError) as error:
        raise Mistakes(given, [str(error)]) from error
    facts = {
        "model": type(model).__name__,
        "network": type(getattr(model, "network", model)).__name__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "pretrained": section.get("pretrained"),
        "drawn": drawn(model, other),
        **reading(model),
        "does": "tags words" if isinstance(model, Tagger) else "answers questions",
        "works": [dataclasses.asdict(one) for one in abilities(model)],
    }
    print(json.dumps(facts) if as_json else as_table(facts))
    return 0


def drawn(model: Any, other: Any) -> list[str]:
    """Returns the names of the modules that were drawn: their weights are not those of `other`."""
    from fedpriv.models.checkpoints import UNUSED

    ours, theirs = model.state_dict(), other.state_dict()
    names = (name for name, weight in ours.items() if not weight.equal(theirs[name]))
    used = (name for name in names if not any(part in name for part in UNUSED))
    return list(dict.fromkeys(name.rpartition(".")[0] for name in used))


def reading(model: Any) -> dict[str, Any]:
    """Returns the tokenizer's kind and size and the tokens of a window; empty without them."""
    reader = getattr(model, "reader", None)
    subwords = getattr(reader, "subwords", None)
    if subwords is None:  # a model of somebody else's may read in another way
        return {}
    return {
        "tokenizer": type(subwords.tokenizer.model).__name__,
        "vocabulary": subwords.size,
        "max_length": getattr(reader, "max_length", None),
    }


def as_table(facts: Mapping[str, Any]) -> str:
    """Formats what was found about a model."""
    weights = "drawn at random"
    if facts["pretrained"] is not None:
        new = ", ".join(facts["drawn"])
        weights = (
            f"the checkpoint's{f'; drawn anew, as a head for other labels is: {new}' * bool(new)}"
        )
    lines = [
        f"model       {facts['model']}",
        f"network     {facts['network']}",
        f"parameters  {facts['parameters']:,}",
        f"weights     {weights}",
        f"does        {facts['does']}",
    ]
    if "tokenizer" in facts:
        lines.append(
            f"tokenizer   {facts['tokenizer']}, vocabulary of {facts['vocabulary']:,} tokens"
        )
    if facts.get("max_length"):
        lines.append(f"length      {facts['max_length']:,} tokens at most")
    for one in facts["works"]:
        lines.append(f"{'works' if one['works'] else 'does not':<10}  {one['what']}:")
        lines.append(f"{'':<14}{one['how']}")
    return "\n".join(lines)


def _section(given: str, overrides: Sequence[str]) -> Any:
    """Returns the model section for a folder, a name on the hub or a choice of model=."""
    from fedpriv.config import experiment

    choices = [*catalogue.groups()[GROUP], *catalogue.plugins().get(GROUP, {})]
    chosen = given.removeprefix(f"{GROUP}=")
    is_folder = Path(given).is_dir()
    if others := [one for one in overrides if not one.startswith(f"{GROUP}.")]:
        problem = f"{' '.join(others)}: expected settings of the model, such as model.task=answers"
        raise Mistakes(given, [problem])
    if chosen in choices and not is_folder:
        return experiment.load("quickstart", [f"{GROUP}={chosen}", *overrides])[GROUP]
    if not is_folder and "/" not in given:
        problem = (
            f"no folder and no model of that name{near(given, choices)}: expected a folder, a name "
            f"on the hub (OWNER/NAME) or one of {', '.join(choices)}"
        )
        raise Mistakes(given, [problem])
    section = experiment.load("quickstart", [f"{GROUP}=auto", *overrides])[GROUP]
    return {**section, "pretrained": given}
