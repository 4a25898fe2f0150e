"""`fedpriv list`: what can be run, and what can be swapped in it."""

from __future__ import annotations

import sys

import click
import yaml

from fedpriv.cli import completion
from fedpriv.cli.command import Command
from fedpriv.config import catalogue
from fedpriv.runtime.refusals import near


@click.command(
    "list",
    cls=Command,
    epilog="""
        fedpriv list
        fedpriv list strategy
        fedpriv list attack
    """,
)
@click.argument(
    "group",
    required=False,
    shell_complete=completion.groups,
    help="A config group, such as strategy, model or attack: describe its choices.",
)
def command(group: str | None) -> int:
    """List experiments, sweeps and config groups, or the choices of one group."""
    groups = catalogue.groups()
    try:
        plugins = catalogue.plugins()
    except catalogue.NameClash as error:
        print(error, file=sys.stderr)
        return 2
    if group is not None and group not in groups:
        told = f"expected one of {', '.join(groups)}{near(group, groups)}"
        print(f"no config group {group!r}: {told}", file=sys.stderr)
        return 2
    if group is None:
        print("Experiments (fedpriv run NAME):")
    experiments = {n: catalogue.headline(path) for n, path in catalogue.experiments().items()}
    for name, line in (catalogue.described(group) if group else experiments).items():
        print(f"  {name:<20} {line}")
    if group is None:
        print("Sweeps (fedpriv sweep NAME):")
        for name, path in catalogue.sweeps().items():
            print(f"  {name:<28} {catalogue.headline(path)}")
        print("Assessments (fedpriv assess NAME):")
        matrix = yaml.safe_load(catalogue.matrix().read_text("utf-8"))
        for section in ("defences", "attacks"):
            print(f"  {section}: {', '.join(matrix[section])}")
        for name, choices in groups.items():
            print(f"{name}= {', '.join([*choices, *plugins.get(name, {})])}")
    return 0
