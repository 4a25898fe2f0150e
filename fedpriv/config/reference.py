"""A reference of settings, from the dataclasses and functions that declare them.

Name and default of a setting are those of a field or an argument, and its meaning is the entry in
the docstring: there is no second place to keep in step.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fedpriv.config.construct import PARTIAL, TARGET, import_target, join, section_type

WIDEST = 48
"""Characters of the column of values; longer ones stand out of it."""

LONGEST = 120
"""Characters of a value that are shown; what is longer ends in an ellipsis."""

IN_YAML = {"None": "null", "True": "true", "False": "false"}
"""How a settings file writes what docstrings write in Python."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: its place in an experiment file, such as `federation.workers`.
        default: as YAML writes it, or what was given in its place; empty where it must be given.
        meaning: from the docstring, with None, True and False as YAML writes them.
    """

    name: str
    default: str
    meaning: str

    @property
    def short_default(self) -> str:
        """The default, cut at a word if it has more than `LONGEST` characters."""
        if len(self.default) <= LONGEST:
            return self.default
        return textwrap.shorten(self.default, LONGEST, placeholder=" …")


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
        meaning = re.sub(
            r"\b(None|True|False)\b(?! of\b)",
            lambda match: IN_YAML[match[0]],
            meanings.get(parameter.name, ""),
        )
        if dataclasses.is_dataclass(default) and TARGET not in section:
            yield from settings(type(default), name, section)
        elif TARGET in section:
            yield Setting(name, section[TARGET], meaning)
            yield from settings(import_target(section[TARGET]), name, section)
        elif section and (kind := section_type(target, parameter.name)):
            yield from settings(kind, name, section)
        elif any(isinstance(one, Mapping) and TARGET in one for one in section.values()):
            for key, one in section.items():  # parts by name, such as those of `keep`
                yield from settings(import_target(one[TARGET]), join(name, key), one)
        elif value is not parameter.empty:
            text = value if isinstance(value, str) else json.dumps(value, default=_written)
            yield Setting(name, text, meaning)
        elif not given.get(PARTIAL):  # else somebody else gives it
            yield Setting(name, "", meaning)


def _written(value: Any) -> str:
    """Returns a value that JSON has not: of a function or class, its dotted path."""
    named = hasattr(value, "__module__") and hasattr(value, "__qualname__")
    return f"{value.__module__}.{value.__qualname__}" if named else str(value)


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
    target: Callable[..., Any],
    place: str = "",
    given: Mapping[str, Any] | None = None,
    sections: Sequence[str] = (),
) -> str:
    """Returns `name  value  meaning`, one setting a line, in columns; see `settings`.

    `sections` are names at the top: those settings alone are told, in that order. None means all.
    """
    rows = list(settings(target, place, given))
    if sections:
        first = [row.name.partition(".")[0] for row in rows]
        rows = [
            row for name in sections for row, top in zip(rows, first, strict=True) if top == name
        ]
    wide = max((len(row.name) for row in rows), default=0)
    deep = min(max((len(row.default) for row in rows), default=0), WIDEST)
    lines = (f"{row.name:<{wide}}  {row.short_default:<{deep}}  {row.meaning}" for row in rows)
    return "\n".join(line.rstrip() for line in lines)
