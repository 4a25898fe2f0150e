"""A reference of settings, from the dataclasses and functions that declare them.

Name and default of a setting are those of a field or an argument, and its meaning is the entry in
the docstring: there is no second place to keep in step.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fedpriv.config.construct import PARTIAL, TARGET, import_target, join

WIDEST = 48
"""Characters of the column of values; longer ones stand out of it."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: its place in an experiment file, such as `federation.workers`.
        default: as YAML writes it, or what was given in its place; empty where it must be given.
        meaning: from the docstring.
    """

    name: str
    default: str
    meaning: str


def settings(
    target: Callable[..., Any], place: str = "", given: Mapping[str, Any] | None = None
) -> Iterator[Setting]:
    """Yields the settings of a class or function, and those of the sections in it.

    Args:
        target: a dataclass or a function, with a docstring in Google's style.
        place: where it stands in an experiment file; empty at the top.
        given: values in place of the defaults; a section that names its `_target_` is described by
            that target.
    """
    given, meanings = given or {}, argument_meanings(target)
    fields = dataclasses.fields(target) if dataclasses.is_dataclass(target) else ()
    factories = {
        field.name: field.default_factory
        for field in fields
        if field.default_factory is not dataclasses.MISSING
    }
    for parameter in inspect.signature(target).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        name, default = join(place, parameter.name), parameter.default
        if parameter.name in factories:
            default = factories[parameter.name]()
        value = given.get(parameter.name, default)
        section = value if isinstance(value, Mapping) else {}
        meaning = meanings.get(parameter.name, "")
        if dataclasses.is_dataclass(default) and TARGET not in section:
            yield from settings(type(default), name, section)
        elif TARGET in section:
            yield Setting(name, section[TARGET], meaning)
            yield from settings(import_target(section[TARGET]), name, section)
        elif any(isinstance(one, Mapping) and TARGET in one for one in section.values()):
            for key, one in section.items():  # parts by name, such as those of `keep`
                yield from settings(import_target(one[TARGET]), join(name, key), one)
        elif value is not parameter.empty:
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            yield Setting(name, text, meaning)
        elif not given.get(PARTIAL):  # else somebody else gives it
            yield Setting(name, "", meaning)


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


def reference(
    target: Callable[..., Any], place: str = "", given: Mapping[str, Any] | None = None
) -> str:
    """Returns `name  value  meaning`, one setting a line, in columns; see `settings`."""
    rows = list(settings(target, place, given))
    wide = max((len(row.name) for row in rows), default=0)
    deep = min(max((len(row.default) for row in rows), default=0), WIDEST)
    lines = (f"{row.name:<{wide}}  {row.default:<{deep}}  {row.meaning}" for row in rows)
    return "\n".join(line.rstrip() for line in lines)
