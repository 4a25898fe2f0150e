"""`fedpriv data` on the command line."""

from __future__ import annotations

import click

from fedpriv.cli.command import Group
from fedpriv.cli.data import check, convert


@click.group(
    "data",
    cls=Group,
    sections={"Commands": [check.command, convert.command]},
    epilog="""
        fedpriv data check ./scans
        fedpriv data convert /path/to/pfl-docvqa
    """,
)
def command() -> None:
    """Check and convert data sets."""
