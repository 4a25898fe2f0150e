"""`fedpriv new DIR`: a small project with parts of its own, which runs at once."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from pathlib import Path

import click

from fedpriv.cli.command import Command
from fedpriv.runtime.run_files import naming

TEMPLATES = Path(__file__).parent / "project"
"""Every file is named as in the project, with `.in` behind it; `package` stands for its package."""

NAME = "{{package}}"
"""What stands for the name of the package in a template."""


@click.command(
    "new",
    cls=Command,
    epilog="""
        fedpriv new my_study
        fedpriv new ~/studies/receipts
    """,
)
@click.argument(
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder to make. Its name becomes that of the package in it.",
)
def command(folder: Path) -> int:
    """Write a small project: an experiment, a strategy, an attack, a reader and their tests."""
    if problem := obstacle(folder):
        print(problem, file=sys.stderr)
        return 2
    package = package_name(folder)
    for template in sorted(TEMPLATES.rglob("*.in")):
        inside = template.relative_to(TEMPLATES)
        parts = [package if part == "package" else part for part in inside.with_suffix("").parts]
        path = folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        with naming(path):
            path.write_text(template.read_text("utf-8").replace(NAME, package), encoding="utf-8")
        print(path)
    print(f"next: cd {folder} && fedpriv run first")
    return 0


def package_name(folder: Path) -> str:
    """Returns the name of the package in a project of this folder: `my-study` makes my_study."""
    return re.sub(r"\W+", "_", folder.absolute().name.lower()).strip("_")


def obstacle(folder: Path) -> str:
    """Returns why no project can be made in a folder; empty if one can."""
    if folder.exists() and any(folder.iterdir()):
        return f"{folder} is there already, and not empty: name a new folder"
    package = package_name(folder)
    if not package.isidentifier() or keyword.iskeyword(package):
        return f"{folder}: its name makes no name of a package: take letters, digits and _"
    found = importlib.util.find_spec(package)
    if found is not None and found.origin is not None:
        return f"{folder}: a module {package} is there already ({found.origin}): take another name"
    return ""
