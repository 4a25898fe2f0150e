"""What `fedpriv assess` is given, read and looked up before torch is imported."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.config import catalogue, composing, yaml_file
from fedpriv.config.overrides import read, split
from fedpriv.runtime.refusals import Mistakes, near

OWN = ("defences", "attacks", "seeds", "hours", "workers")
"""Settings of an assessment; all others are of the experiment."""


def options(source: str, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Separates an assessment's own settings from overrides of the experiment.

    Raises:
        Mistakes: if one of them cannot be read.
    """
    settings, rest, problems = dict[str, Any](), list[str](), list[str]()
    for word in words:
        key, text = split(word)
        if key not in OWN:
            rest.append(word)
            continue
        try:
            value = read(text)
        except ValueError as error:
            problems.append(f"{word}: {error}")
            continue
        if key in ("defences", "attacks"):
            value = [value] if isinstance(value, str) else value
            if not isinstance(value, list) or not value:
                problems.append(f"{word}: expected names in brackets: {key}=[…]")
        elif key == "hours" and not (isinstance(value, int | float) and 0.001 <= value < 10_000):
            problems.append(f"{word}: expected hours, 0.001 or more")
        elif key == "workers" and not (type(value) is int and 0 <= value <= 1000):
            problems.append(f"{word}: expected 0 or more processes")
        elif key == "seeds" and not (isinstance(value, list) or (type(value) is int and value > 0)):
            problems.append(f"{word}: expected how many, as seeds=2, or which, as seeds=[7,8]")
        settings[key] = value
    if problems:
        raise Mistakes(source, problems)
    return settings, rest


def check(source: str, settings: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Checks the names of defences, attacks, the experiment and its settings.

    Raises:
        Mistakes: with those that are not there.
    """
    known, problems = matrix(source), list[str]()
    for what in ("defences", "attacks"):
        if what in settings:
            problems += misnamed(settings[what], known[what], what)
    if problems:
        raise Mistakes(source, problems)
    composing.check(source, overrides)


def matrix(source: str) -> dict[str, Any]:
    """Reads matrix.yaml, of the working directory's experiments if it has one.

    Under `ready`, an experiment may have entries in place of those for all.

    Raises:
        Mistakes: if the file cannot be read.
    """
    path = catalogue.matrix()
    try:
        yaml_file.check(path)
        matrix: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OmegaConfBaseException, ValueError, OSError) as error:
        raise Mistakes(source, [f"{path}: {' '.join(str(error).split())}"]) from error
    for section, entries in matrix.pop("ready", {}).get(Path(source).stem, {}).items():
        for key, value in entries.items():
            both = isinstance(value, dict) and key in matrix[section]
            matrix[section][key] = {**matrix[section][key], **value} if both else value
    return dict(matrix)


def misnamed(given: Sequence[Any], known: Mapping[str, Any], what: str) -> Iterator[str]:
    """Yields what is no name, dotted path or override among defences or attacks.

    Args:
        given: names, perhaps with overrides behind them.
        known: those of the matrix.
        what: "defences" or "attacks".
    """
    also = {"defences": "overrides", "attacks": "another attack of `fedpriv list`"}[what]
    for text in map(as_text, given):
        first, *rest = words(text)
        if what == "attacks":
            fits = "=" not in first and ("." in first or first in catalogue.groups()["attack"])
        elif "=" in first:
            fits = all("=" in word for word in rest)
        else:
            fits = "." in first and not rest
        if first not in known and not fits:
            expected = f"expected {', '.join(known)}, the dotted path of a class, or {also}"
            yield f"{what}: there is no {text!r}{near(text, known)} ({expected})"
    if not given:
        yield f"{what}=[]: expected some of {', '.join(known)}"


def as_text(name: Any) -> str:
    """Returns a name that YAML may have read as nothing: `none`."""
    return str(name).lower() if name is None else str(name)


def words(text: str) -> list[str]:
    """Returns the words of a text, at least one, as a shell would."""
    try:
        return shlex.split(text) or [""]
    except ValueError:  # a quotation that is not closed
        return [text]
