"""`fedpriv data` on the command line."""

from __future__ import annotations

import click

from fedpriv.cli.command import Group
from fedpriv.cli.data import convert, inspection


@click.group(
    "data",
    cls=Group,
    sections={"Commands": [inspection.command, convert.command]},
    epilog="""
        fedpriv data inspect sroie
        fedpriv data convert /path/to/pfl-docvqa
    """,
)
def command() -> None:
    """Inspect and convert data sets."""
