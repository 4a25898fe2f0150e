"""The experiments and the choices of each config group, by their files alone.

Nothing that a file names is imported, so that `fedpriv list` and the shell's completion answer at
once.
"""

from __future__ import annotations

from pathlib import Path

EXPERIMENTS = "experiments"
SHARED = {"base", "attacks"}
"""Files of defaults, which are no experiments."""


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


def groups() -> dict[str, dict[str, Path]]:
    """Returns the config groups, such as strategy, and the choices in each with their files."""
    found: dict[str, dict[str, Path]] = {}
    for folder in reversed(folders()):
        for path in folder.glob("*/*.yaml"):
            found.setdefault(path.parent.name, {})[path.stem] = path
    return {group: dict(sorted(found[group].items())) for group in sorted(found)}


def sweeps() -> dict[str, Path]:
    """Returns the sweeps by name, such as papers/gi_dqa/table_1, each with its file."""
    found = {
        str(path.relative_to(folder).with_suffix("")): path
        for folder in reversed(folders())
        for path in folder.glob("papers/*/*.yaml")
        if not path.name.startswith("_")  # what sweeps share
    }
    return dict(sorted(found.items()))


def headline(path: Path) -> str:
    """Returns the first comment of a file, which says what it is for; empty if there is none."""
    lines = path.read_text("utf-8").splitlines()
    comments = (line.lstrip("# ") for line in lines if line.startswith("# "))
    return next((comment for comment in comments if not comment.startswith("@package")), "")
