"""What the shell offers after Tab: experiments, config groups and their choices.

Click asks these functions when the variable `_FEDPRIV_COMPLETE` is set, which its scripts for bash,
zsh and fish do. Only file names and first comments are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from click import Context, Parameter
from click.shell_completion import CompletionItem

from fedpriv.config import catalogue
from fedpriv.studies import papers as reproducible

OF_ATTACKS = ("attack", "publisher")
"""The config groups of `fedpriv attack`; the others are those of experiments."""


def experiments(ctx: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the name of an experiment, or the path of its file."""
    return _names_or_path(catalogue.experiments(), incomplete)


def sweeps(ctx: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the name of a sweep, or the path of its file."""
    return _names_or_path(catalogue.sweeps(), incomplete)


def papers(ctx: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the name of a paper whose tables can be reproduced."""
    known = reproducible.PAPERS.items()
    return [
        CompletionItem(name, help=about.told)
        for name, about in known
        if name.startswith(incomplete)
    ]


def tables(ctx: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes the name of a table of the paper that was given before."""
    if ctx.params.get("paper") not in reproducible.PAPERS:
        return []
    known = reproducible.tables(ctx.params["paper"])
    return _items({name: catalogue.sweeps()[file] for name, file in known.items()}, "", incomplete)


def data(ctx: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes a choice of data=, or a path."""
    return _names_or_path(catalogue.groups().get("data", {}), incomplete)


def models(ctx: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes a choice of model=, or a path."""
    return _names_or_path(catalogue.groups().get("model", {}), incomplete)


def groups(ctx: Context, parameter: Parameter, incomplete: str) -> list[str]:
    """Completes the name of a config group."""
    return [group for group in catalogue.groups() if group.startswith(incomplete)]


def experiment_settings(
    ctx: Context, parameter: Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes `group=choice` for `fedpriv run`."""
    known = {name: files for name, files in catalogue.groups().items() if name not in OF_ATTACKS}
    return _choices(known, ctx.params.get("overrides") or (), incomplete)


def attack_settings(ctx: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
    """Completes `group=choice` for `fedpriv attack`."""
    known = {name: files for name, files in catalogue.groups().items() if name in OF_ATTACKS}
    return _choices(known, ctx.params.get("overrides") or (), incomplete)


def _names_or_path(files: Mapping[str, Path], incomplete: str) -> list[CompletionItem]:
    # Bash completes a path if no name fits, provided that the item for paths comes first.
    return [CompletionItem(incomplete, type="file"), *_items(files, "", incomplete)]


def _choices(
    known: Mapping[str, Mapping[str, Path]], before: tuple[str, ...], incomplete: str
) -> list[CompletionItem]:
    """Completes one override, after those that were given before it."""
    # Bash takes `=` for a word of its own, and replaces only what follows it.
    if before[-1:] == ("=",):
        return _items(known.get("".join(before[-2:-1]), {}), "", incomplete)
    if before and before[-1] in known and not incomplete:
        return _items(known[before[-1]], "", "")
    group, equals, choice = incomplete.partition("=")
    fitting = [name for name in known if name.startswith(group)]
    if equals:
        return _items(known.get(group, {}), f"{group}=", choice)
    if len(fitting) == 1:
        # A group alone would be followed by a space, which has to be deleted to go on.
        return _items(known[fitting[0]], f"{fitting[0]}=", "")
    return [CompletionItem(f"{name}=") for name in fitting]


def _items(files: Mapping[str, Path], prefix: str, incomplete: str) -> list[CompletionItem]:
    start = max(incomplete.rfind("["), incomplete.rfind(",")) + 1  # keep=[transcript,held_out]
    return [
        CompletionItem(f"{prefix}{incomplete[:start]}{name}", help=catalogue.headline(path))
        for name, path in files.items()
        if name.startswith(incomplete[start:])
    ]
