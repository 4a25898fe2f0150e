"""`fedpriv data` on the command line."""

from __future__ import annotations

import argparse
from typing import Any

from fedpriv.cli.data import convert, inspection


def register(commands: Any) -> None:
    """Adds `data`, with its own subcommands, to the subcommands of a parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "data", help="convert and inspect data sets"
    )
    below = parser.add_subparsers(required=True, metavar="COMMAND")
    convert.register(below)
    inspection.register(below)
