"""A reference of settings, from the dataclasses and functions that declare them.

Name and default of a setting are those of a field or an argument, and its meaning is the entry in
the docstring: there is no second place to keep in step.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from fedpriv.config.construct import join


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: its place in an experiment file, such as `federation.workers`.
        default: as YAML writes it; empty where it must be given.
        meaning: from the docstring.
    """

    name: str
    default: str
    meaning: str


def settings(target: Callable[..., Any], place: str = "") -> Iterator[Setting]:
    """Yields the settings of a class or function, and those of the sections in it.

    Args:
        target: a dataclass or a function, with a docstring in Google's style.
        place: where it stands in an experiment file; empty at the top.
    """
    meanings = argument_meanings(target)
    fields = dataclasses.fields(target) if dataclasses.is_dataclass(target) else ()
    factories = {
        field.name: field.default_factory
        for field in fields
        if field.default_factory is not dataclasses.MISSING
    }
    for parameter in inspect.signature(target).parameters.values():
        name, default = join(place, parameter.name), parameter.default
        if parameter.name in factories:
            default = factories[parameter.name]()
        if dataclasses.is_dataclass(default):
            yield from settings(type(default), name)
            continue
        text = default if isinstance(default, str) else json.dumps(default, default=str)
        required = default is parameter.empty
        yield Setting(name, "" if required else text, meanings.get(parameter.name, ""))


def argument_meanings(target: Callable[..., Any]) -> dict[str, str]:
    """Returns what the docstring says of each argument; of a class, its base classes' too."""
    found: dict[str, str] = {}
    for owner in reversed(inspect.getmro(target)) if inspect.isclass(target) else (target,):
        text = inspect.cleandoc(owner.__doc__ or "")
        for section in re.findall(r"^(?:Args|Attributes):\n((?: {4}.*\n?|\n)+)", text, re.M):
            for entry in re.split(r"^ {4}(?=\w)", section, flags=re.M)[1:]:
                name, _, meaning = entry.partition(":")
                found[name] = " ".join(meaning.split())
    return found


def reference(target: Callable[..., Any], place: str = "") -> str:
    """Returns `name  default  meaning`, one setting a line, in columns."""
    rows = list(settings(target, place))
    wide = max((len(row.name) for row in rows), default=0)
    deep = max((len(row.default) for row in rows), default=0)
    lines = (f"{row.name:<{wide}}  {row.default:<{deep}}  {row.meaning}" for row in rows)
    return "\n".join(line.rstrip() for line in lines)
