"""Reading YAML that somebody else may have written: with a limit, and with the file's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from fedpriv.runtime.run_settings import LOADER

MOST_BYTES = 4 << 20
"""Of a file."""

MOST_VALUES = 100_000
"""Of a file whose aliases (`*name`) have been replaced by what they stand for."""


class BadYAML(ValueError):
    """A file that is no YAML of settings: says which file, and why."""


def check(path: Path) -> None:
    """Checks that a file holds a mapping of names to values, small enough to be expanded.

    Nothing is expanded and nothing constructed for it, so a file of a few hundred bytes that
    stands for a billion values costs no time.

    Raises:
        BadYAML: if it does not; names the file.
        OSError: if it cannot be read.
    """
    data = path.read_bytes()[: MOST_BYTES + 1]
    if len(data) > MOST_BYTES:
        raise BadYAML(f"{path}: has more than {MOST_BYTES:,} bytes, which no settings have")
    try:
        text = data.decode("utf-8")
        root = yaml.compose(text, LOADER)
        values = _expanded(root, {})
    except UnicodeDecodeError as error:
        raise BadYAML(f"{path}: is not UTF-8 ({error.reason} at byte {error.start})") from error
    except yaml.YAMLError as error:
        raise BadYAML(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise BadYAML(f"{path}: is nested too deeply, or contains itself") from error
    if values > MOST_VALUES:
        raise BadYAML(f"{path}: its aliases expand to more than {MOST_VALUES:,} values")
    if root is None:
        return  # an empty file sets nothing
    if not isinstance(root, yaml.MappingNode):
        raise BadYAML(f"{path}: holds no mapping `name: value`")
    for key, _ in root.value:
        if key.tag != "tag:yaml.org,2002:str":
            line = key.start_mark.line + 1
            raise BadYAML(f"{path}, line {line}: {key.value!r} is no name of a setting")


def _expanded(node: Any, known: dict[int, int]) -> int:
    """Returns how many values a node stands for; each node is looked at once."""
    if id(node) not in known:
        inner: list[Any] = []
        if isinstance(node, yaml.MappingNode):
            inner = [value for pair in node.value for value in pair]
        elif isinstance(node, yaml.SequenceNode):
            inner = node.value
        known[id(node)] = 1 + sum(_expanded(child, known) for child in inner)
    return known[id(node)]
