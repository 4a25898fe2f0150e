"""What `fedpriv attack` takes beside the attack: assumptions, scoring, and how it is run.

An attack takes the settings of the surfaces that it uses (`fedpriv.threat.surfaces`) and of the
scorers of what it claims (`fedpriv.threat.scoring`), each a subclass of `AttackSettings`. A setting
of none of them cannot be given.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from fedpriv.runtime.torch_state import unusable_device

P = TypeVar("P", bound="AttackSettings")


@dataclass(frozen=True, kw_only=True)
class AttackSettings:
    """The settings that every attack takes.

    Args:
        seed: the seed of all random choices in the attack and in its scoring.
        threads: the number of threads that torch uses.
        device: where the attack computes with models, such as "cpu" or "cuda". None takes the GPU,
            if torch finds one.
    """

    seed: int = 0
    threads: int = 1
    device: str | None = None

    def __post_init__(self) -> None:
        at_least(1, threads=self.threads)
        if self.device not in (None, "cpu") and (cannot := unusable_device(self.on)):
            raise ValueError(f"device={self.device!r}: {cannot}")

    @property
    def on(self) -> str:
        """The device that is meant."""
        return self.device or ("cuda" if torch.cuda.is_available() else "cpu")

    def of(self, part: type[P]) -> P:
        """Returns these settings as those of one surface or scorer.

        Raises:
            TypeError: if the attack was not composed with them.
        """
        if not isinstance(self, part):
            raise TypeError(f"these settings have none of {part.__name__}")
        return self


def composed(parts: Iterable[type[AttackSettings]], base: type[P]) -> type[P]:
    """Returns a subclass of `base` that has the settings of all parts."""
    several = dict.fromkeys((*parts, base))
    # Python finds no order of bases in which a class comes before one that extends it.
    bases = tuple(
        part
        for part in several
        if not any(other is not part and issubclass(other, part) for other in several)
    )
    return dataclasses.make_dataclass(base.__name__, (), bases=bases, frozen=True, kw_only=True)


def taken(kind: type[AttackSettings]) -> list[str]:
    """Returns the names of the settings in a class; those that every attack takes come last."""
    usual = [field.name for field in dataclasses.fields(AttackSettings)]
    own = {field.name for field in dataclasses.fields(kind)} - {*usual, "attack", "name"}
    return [*sorted(own), *usual]


def not_taken(kind: type[AttackSettings], given: Mapping[str, Any]) -> dict[str, str]:
    """Returns why each of the given settings cannot be given that a class of settings has not."""
    names = {field.name for field in dataclasses.fields(kind)}
    takes = ", ".join(taken(kind))
    return {
        name: f"{name}={json.dumps(value, default=str)}: nothing that this attack uses depends on "
        f"it; it takes {takes}"
        for name, value in given.items()
        if name not in names
    }


def at_least(least: int, **values: int | None) -> None:
    """Raises `ValueError` if one of the values, by the name of its setting, is smaller."""
    for name, value in values.items():
        if value is not None and value < least:
            raise ValueError(f"{name}={value}: expected at least {least}")


def between_0_and_1(**values: float) -> None:
    """Raises `ValueError` if one of the values, by the name of its setting, is not."""
    for name, value in values.items():
        if not 0 < value < 1:
            raise ValueError(f"{name}={value}: expected a value between 0 and 1")
