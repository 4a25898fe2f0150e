"""Picking by name, with a message that names what there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def choose(setting: str, name: str, choices: Mapping[str, T]) -> T:
    """Returns the choice of that name.

    Args:
        setting: what is set, for the error.
        name: of the choice.
        choices: by name.

    Raises:
        ValueError: if there is none of that name.
    """
    if name not in choices:
        raise ValueError(f"{setting}={name!r}: expected {' or '.join(map(repr, choices))}")
    return choices[name]
