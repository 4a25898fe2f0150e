"""Overrides, `key=value`: split, read and written.

A value is read in Hydra's grammar. What begins like a path, or names a file or folder that is
there, is a text as it stands, and so is what the grammar does not know, such as `scans (2024)`.
Lists and mappings may also be written in JSON or YAML.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import json
import math
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from fedpriv.runtime.file_names import is_utf8
from fedpriv.runtime.refusals import Mistakes
from fedpriv.runtime.run_settings import LOADER

MOST_COMBINATIONS = 10_000
"""Of the values that the overrides of one command name."""

_NOT_TEXT = ("null", "true", "false", "nan", "inf")
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
_PATH = re.compile(r"/|\.{1,2}/|~|[A-Za-z]:[\\/]|\\\\")
"""How a path begins, also on Windows."""


@dataclass(frozen=True)
class Override:
    """An override as it was read.

    Attributes:
        word: the same in Hydra's grammar, if that has it.
        key: such as `client.epochs`, or the name of a config group.
        value: of one that names several, the text.
        several: of a sweep, `seed=0,1`, the overrides that it stands for, of those that are more
            than `MOST_COMBINATIONS` the first.
        deletes: whether it takes something out, `~client.epochs`.
    """

    word: str
    key: str
    value: Any
    several: tuple[str, ...] = ()
    deletes: bool = False


def split(word: str) -> tuple[str, str]:
    """Returns the key of an override, without Hydra's signs before it, and the text of its value.

    >>> split("+data.source.root=./a=b")
    ('data.source.root', './a=b')
    """
    key, _, text = word.partition("=")
    return key.lstrip("+~"), text


def key_of(word: str) -> str:
    """Returns the key of an override; see `split`."""
    return split(word)[0]


def values_of(key: str, words: Sequence[str]) -> list[str]:
    """Returns the texts of the values that overrides give to a key, in their order."""
    return [text for one, text in map(split, words) if one == key]


def write(value: Any) -> str:
    r"""Returns a value in the syntax of overrides, which `read` reads.

    Mappings with keys that Hydra's grammar has not are written in JSON.

    >>> write({"epochs": 2, "path": "it's, here"}), write([0.1, None, True])
    ("{epochs:2,path:'it\\'s, here'}", '[0.1,null,true]')
    """
    if not _has_plain_keys(value):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{write(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(write, value))}]"
    text = str(value)
    if _is_plain(text):
        return text  # as a person writes it, and as choices of config groups must be written
    # A backslash counts as one only before a quote or at the end.
    quoted = re.sub(r"(\\*)('|$)", lambda one: one[1] * 2 + ("\\'" if one[2] else ""), text)
    return f"'{quoted}'"


def _is_plain(text: str) -> bool:
    return bool(_PLAIN.fullmatch(text)) and text.lower() not in _NOT_TEXT


def _has_plain_keys(value: Any) -> bool:
    if isinstance(value, Mapping):
        known = all(not isinstance(key, str) or _is_plain(key) for key in value)
        return known and all(map(_has_plain_keys, value.values()))
    return not isinstance(value, list | tuple) or all(map(_has_plain_keys, value))


def read(text: str) -> Any:
    """Returns the value that stands behind the = of an override; a sweep stays its text.

    Raises:
        ValueError: if it cannot be read.
    """
    return parsed(f"value={text}").value


def parsed(word: str) -> Override:
    """Returns an override as it is read.

    Raises:
        ValueError: if it cannot be read.
    """
    if not is_utf8(word):
        raise ValueError(f"{word!r} is not UTF-8: rename that file or folder")
    found = _parsed(word, os.path.exists(split(word)[1]))
    return replace(found, value=copy.deepcopy(found.value))


@functools.lru_cache(maxsize=1024)
def _parsed(word: str, exists: bool) -> Override:
    """Reads an override, which takes longer than to apply it; rows of a sweep share most of theirs.

    Args:
        word: the override.
        exists: whether its value is the path of a file or folder.
    """
    (start, equals, text), parser = word.partition("="), OverridesParser.create()
    wrong = f"{word!r} is not of the form key=value"
    first, *others = (_PATH.match(part) for part in text.split(","))
    found = None
    if not first or (others and all(others)):  # several paths are a sweep
        with contextlib.suppress(HydraException):
            found = parser.parse_override(word)
    if found is not None:
        several = found.sweep_string_iterator() if found.is_sweep_override() else ()
        words = tuple(f"{start}={one}" for one in itertools.islice(several, MOST_COMBINATIONS + 1))
        value = text if found.is_sweep_override() else found.value()
        if not (exists and (words or isinstance(value, list | dict))):
            return Override(word, found.key_or_group, value, words, found.is_delete())
    if not equals:
        raise ValueError(f"{wrong}: type {word}=VALUE")
    value = text if exists or text[0] not in "[{'\"" else _in_json_or_yaml(text, wrong)
    try:
        key = parser.parse_override(f"{start}=0").key_or_group
    except HydraException as error:
        raise ValueError(f"{wrong}: {start!r} is no name of a setting") from error
    return Override(f"{start}={write(value)}", key, value)


def _in_json_or_yaml(text: str, wrong: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    try:
        return yaml.load(text, LOADER)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(f"{wrong}: a bracket or a quotation mark is not closed") from error


def combinations(words: Sequence[str], source: str) -> list[list[str]]:
    """Returns the combinations of overrides such as `seed=0,1` or `seed=range(3)`, in order.

    Raises:
        Mistakes: if one cannot be read, or there are more than anybody runs.
    """
    axes, problems = list[list[str]](), list[str]()
    for word in words:
        try:
            axes.append([*parsed(word).several] or [word])
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise Mistakes(source, problems)
    if (count := math.prod(map(len, axes))) > MOST_COMBINATIONS:
        most = f"a sweep has at most {MOST_COMBINATIONS:,} combinations"
        raise Mistakes(source, [f"{' '.join(words)}: {count:,} or more runs; {most}"])
    return [list(combination) for combination in itertools.product(*axes)]


def check(words: Sequence[str], source: str, *, typed: bool = True) -> None:
    """Checks that each word is an override, and that no key is given twice.

    Args:
        words: the overrides.
        source: what they are given to.
        typed: whether somebody has typed them, so that a key given twice is a slip. In a list that
            Python has put together, the last one counts.

    Raises:
        Mistakes: with the line to type.
    """
    problems = []
    if bare := [word for word in words if "=" not in word and not word.startswith("~")]:
        name, value, *_ = (*bare, "VALUE")
        told = f"type {in_shell(f'{name}={value}')}, and quote a value with spaces, 'KEY=a b'"
        problems.append(f"{' '.join(bare)}: is not of the form key=value; {told}")
    keys = [key_of(word) for word in words if typed and "=" in word]
    for key in dict.fromkeys(key for key in keys if keys.count(key) > 1):
        values = values_of(key, words)
        given = " ".join(f"{key}={value}" for value in values)
        told = "give one value"
        if all(re.match(r"\w+:", value) for value in values):
            whole = f"{key}={{{','.join(values)}}}"
            told = f"bash splits {{a,b}}, so type {in_shell(whole)}"
        problems.append(f"{given}: {key} is given twice; {told}")
    if problems:
        raise Mistakes(source, problems)


def in_shell(word: str) -> str:
    """Returns a word quoted for a shell, in double quotes where that is easier to read."""
    return f'"{word}"' if "'" in word and not {*word} & {*'"$`\\!'} else shlex.quote(word)
