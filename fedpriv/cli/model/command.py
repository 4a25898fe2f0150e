"""`fedpriv model` on the command line."""

from __future__ import annotations

import click

from fedpriv.cli.command import Group
from fedpriv.cli.model import check


@click.group(
    "model",
    cls=Group,
    sections={"Commands": [check.command]},
    epilog="""
        fedpriv model check layoutlmv3
        fedpriv model check SCUT-DLVCLab/lilt-roberta-en-base
    """,
)
def command() -> None:
    """Check models."""
