"""The experiments and the choices of each config group, by their files and by entry points.

Nothing that they name is imported, so that `fedpriv list` and the shell's completion answer at
once.
"""

from __future__ import annotations

import functools
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from fedpriv.runtime.refusals import Mistakes, Refused, near

EXPERIMENTS = "experiments"
SHARED = {"base", "attacks", "matrix"}
"""Files that are no experiments: defaults, and what `fedpriv assess` compares."""
PLUGINS = {
    "attack": "fedpriv.attacks",
    "data": "fedpriv.data",
    "model": "fedpriv.models",
    "strategy": "fedpriv.strategies",
}
"""The config groups that installed packages add choices to, by the groups of their entry points."""


class NameClash(Refused):
    """An installed package names a choice that is there already."""


def plugins() -> dict[str, dict[str, EntryPoint]]:
    """Returns the choices of installed packages in each group of `PLUGINS`.

    Raises:
        NameClash: if one has the name of another, or of a file; it names both.
    """
    files = groups()
    found: dict[str, dict[str, EntryPoint]] = {group: {} for group in PLUGINS}
    for group, named in PLUGINS.items():
        entries = _entries(tuple(sys.path)).select(group=named)
        for entry in sorted(entries, key=lambda entry: entry.name):
            taken = files.get(group, {}).get(entry.name) or found[group].get(entry.name)
            # A folder that is installed and also on the path lists its entries twice. So does
            # importlib_metadata, which some packages import, by a class of its own.
            if taken and not isinstance(taken, Path) and taken.value == entry.value:
                continue
            if taken:
                other = str(taken) if isinstance(taken, Path) else describe(taken)
                raise NameClash(
                    f"{group}={entry.name} is both {other} and {describe(entry)}: uninstall one of "
                    "the two, or rename one; a class can also be given by its dotted path"
                )
            found[group][entry.name] = entry
    return found


@functools.cache
def _entries(path: tuple[str, ...]) -> Any:
    """Returns what installed packages name in all groups, of which `select` gives those of one.

    Reading the files of all packages takes a tenth of a second, and each row of a sweep asks.
    """
    return entry_points()


def describe(entry: EntryPoint) -> str:
    """Returns what an entry point names, and the package that it comes with."""
    package = f" of {entry.dist.name} {entry.dist.version}" if entry.dist else ""
    return f"{dotted(entry)}{package}"


def dotted(entry: EntryPoint) -> str:
    """Returns the dotted path of what an entry point names."""
    return entry.value.replace(":", ".")


def folders() -> list[Path]:
    """Returns where experiments are looked for: the working directory's first, then fedpriv's."""
    package = Path(__file__).parents[1]
    candidates = (Path.cwd() / EXPERIMENTS, package / EXPERIMENTS)
    found: list[Path] = []
    for folder in candidates:
        ours = (folder / "base.yaml").is_file() or (folder.is_dir() and folder == candidates[0])
        if ours and folder.resolve() not in found:
            found.append(folder.resolve())
    return found


def experiments() -> dict[str, Path]:
    """Returns the experiments that can be run by name, each with its file."""
    # The first folder comes last, because its files take precedence.
    found = {path.stem: path for folder in reversed(folders()) for path in folder.glob("*.yaml")}
    return {name: found[name] for name in sorted(found.keys() - SHARED)}


def experiment(name: str) -> Path:
    """Returns the file of an experiment, given its name or a path.

    Raises:
        Mistakes: if there is none; names the near misses.
    """
    if name.endswith((".yaml", ".yml")):
        if Path(name).is_file():
            return Path(name).resolve()
        raise Mistakes(name, [f"no such file (relative to {Path.cwd()})"])
    for folder in folders():
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    raise Mistakes(
        name,
        [f"no experiment of that name{near(name, experiments())}; see `fedpriv list`"],
    )


def groups() -> dict[str, dict[str, Path]]:
    """Returns the config groups, such as strategy, and the choices in each with their files."""
    found: dict[str, dict[str, Path]] = {}
    for folder in reversed(folders()):
        for path in folder.glob("*/*.yaml"):
            found.setdefault(path.parent.name, {})[path.stem] = path
    return {group: dict(sorted(found[group].items())) for group in sorted(found)}


def described(group: str) -> dict[str, str]:
    """Returns the choices of a config group, those of installed packages last, each in a line.

    Raises:
        NameClash: if two have one name.
    """
    ours = {name: headline(path) for name, path in groups()[group].items()}
    return ours | {name: describe(entry) for name, entry in plugins().get(group, {}).items()}


def sweeps() -> dict[str, Path]:
    """Returns the sweeps by name, such as papers/gi_dqa/table_1, each with its file."""
    found = {
        str(path.relative_to(folder).with_suffix("")): path
        for folder in reversed(folders())
        for path in folder.glob("papers/*/*.yaml")
        if not path.name.startswith("_")  # what sweeps share
    }
    return dict(sorted(found.items()))


def sweep(name: str) -> Path:
    """Returns the file of a sweep, given its name or a path.

    Raises:
        Mistakes: if there is none; names the near miss.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else sweeps().get(name)
    if path is None or not path.is_file():
        raise Mistakes(name, [f"no such sweep{near(name, sweeps())}; see `fedpriv list`"])
    return path


def matrix() -> Path:
    """Returns the file that names what assessments compare, of the first folder that has it."""
    return next(found for folder in folders() if (found := folder / "matrix.yaml").is_file())


def headline(path: Path) -> str:
    """Returns the first comment of a file, which says what it is for; empty if there is none."""
    lines = path.read_text("utf-8").splitlines()
    comments = (line.lstrip("# ") for line in lines if line.startswith("# "))
    return next((comment for comment in comments if not comment.startswith("@package")), "")
