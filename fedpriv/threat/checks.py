"""Checks of settings that people fill in, with the setting's name and value in the message."""

from __future__ import annotations

import math
import typing
from typing import Any, Literal


def check_choices(settings: Any) -> None:
    """Checks every setting of a dataclass whose type is a `Literal`, or one of it and None.

    Raises:
        ValueError: if one is none of its choices.
    """
    for name, hint in typing.get_type_hints(type(settings)).items():
        kinds = (hint, *typing.get_args(hint))
        choices = [one for k in kinds if typing.get_origin(k) is Literal for one in k.__args__]
        allowed = [*choices, *(None for kind in kinds if kind is type(None))]
        if choices and (value := getattr(settings, name)) not in allowed:
            raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(str, choices))}")


def check_least(settings: Any, least: float, *names: str) -> None:
    """Checks that settings are not below a number; None passes.

    Raises:
        ValueError: if one is.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise ValueError(f"{name}={value}: expected {least} or more")


def check_positive(settings: Any, *names: str) -> None:
    """Checks that settings are finite numbers above 0; None passes.

    Raises:
        ValueError: if one is not.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name}={value}: expected a positive number")


def check_share(settings: Any, *names: str, none: bool = False, all: bool = False) -> None:
    """Checks that settings are shares between 0 and 1.

    Args:
        settings: a dataclass.
        names: of its settings.
        none: whether 0 is one of them.
        all: whether 1 is.

    Raises:
        ValueError: if one is not.
    """
    for name in names:
        value = getattr(settings, name)
        if not (0 < value < 1 or (none and value == 0) or (all and value == 1)):
            ends = f"{'[' if none else '('}0, 1{']' if all else ')'}"
            raise ValueError(f"{name}={value}: expected a share in {ends}")
