"""Attacks from settings: what `fedpriv attack` and `run_attack` are given, as objects."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from fedpriv.config import catalogue, experiment
from fedpriv.config.construct import import_target, near
from fedpriv.threat.attack import Attack
from fedpriv.threat.runner import ThreatModel
from fedpriv.threat.scoring.registry import SCORERS, claims_of
from fedpriv.threat.settings import AttackSettings, unused

DEFAULTS = "attacks"
"""The file with the defaults of `AttackSettings` in YAML, among the experiments."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order(AttackSettings):
    """An attack with its settings, as it is ordered.

    Args:
        attack: the attack, with its own settings.
        name: the name of the folder under `findings` that the result is written to.
    """

    attack: Attack[Any, Any]
    name: str


def parse(overrides: Sequence[str], source: str = "fedpriv attack") -> Order:
    """Returns the attack that overrides describe.

    Args:
        overrides: `attack=NAME` or the dotted path of a class, and settings by dotted path.
        source: for messages.

    Raises:
        Mistakes: with everything that is wrong.
    """
    return build(compose(overrides, source), source)


def build(config: Mapping[str, Any], source: str = "fedpriv attack") -> Order:
    """Returns the attack that settings describe, as `compose` returns them.

    Raises:
        Mistakes: with everything that is wrong.
    """
    ordered = experiment.constructed(Order, config, source)
    try:
        idle = unused(ordered, ThreatModel.of(ordered.attack).reads())
    except TypeError as error:
        idle = [f"attack: {error}"]
    if idle:
        raise experiment.Mistakes(source, idle)
    return ordered


def compose(overrides: Sequence[str], source: str = "fedpriv attack") -> dict[str, Any]:
    """Returns the settings of an attack and of what the adversary has; see `parse`.

    Raises:
        Mistakes: if no attack is named, or none of that name is there.
    """
    plugins = catalogue.plugins()["attack"]
    there = [*catalogue.groups()["attack"], *plugins]
    chosen = next((o.partition("=")[2] for o in overrides if o.startswith("attack=")), "")
    known = f"expected one of {', '.join(there)}, or the dotted path of a class"
    if not chosen:
        raise experiment.Mistakes(source, [f"attack= is missing: {known}"])
    own = "." in chosen or chosen in plugins  # a class of the user's, not one of our files
    if not own and chosen not in there:
        raise experiment.Mistakes(source, [f"attack={chosen}: {known}{near(chosen, there)}"])
    rest = [*(o for o in overrides if not own or not o.startswith("attack=")), *["~attack"] * own]
    config = experiment.load(DEFAULTS, rest)
    if own:
        target = catalogue.dotted(plugins[chosen]) if chosen in plugins else chosen
        config["attack"] = {**config.get("attack", {}), "_target_": target}
    config.setdefault("name", chosen.rpartition(".")[2])
    if not any(one.startswith("ocr") for one in rest) and not _reads_pages(config):
        config["ocr"] = None  # it need not be installed for attacks that reconstruct no page
    return config


def _reads_pages(config: Mapping[str, Any]) -> bool:
    """Whether what the attack claims may be scored by reading it; also where it cannot be told."""
    try:
        target = import_target(config["attack"]["_target_"])
        claims = claims_of(typing.get_type_hints(target.run)["return"])  # type: ignore[attr-defined]
    except (ImportError, LookupError, TypeError, AttributeError, NameError):
        return True  # construction says what is wrong
    return any("ocr" in SCORERS[claim].reads for claim in claims if claim in SCORERS)


def order(attack: Attack[Any, Any] | str, overrides: Sequence[str] = (), **settings: Any) -> Order:
    """Returns the order of an attack, given by name or as an object.

    Raises:
        Mistakes: with everything that is wrong in a named one.
        ValueError: if a setting of an object's is out of range.
        TypeError: if there is no such setting.
    """
    if isinstance(attack, str):
        parsed = parse([f"attack={attack}", *overrides])
        return dataclasses.replace(parsed, **settings)
    name = settings.pop("name", _snake(type(attack).__name__))
    return Order(attack=attack, name=name, **settings)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
