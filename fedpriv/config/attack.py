"""Attacks from settings: what `fedpriv attack` and `run_attack` are given, as objects."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedpriv.config import catalogue, composing, experiment
from fedpriv.config.construct import TARGET, import_target
from fedpriv.config.overrides import key_of
from fedpriv.runtime.refusals import Mistakes, near
from fedpriv.threat.attack import Attack
from fedpriv.threat.runner import ThreatModel
from fedpriv.threat.settings import AttackSettings, not_taken, taken

DEFAULTS = "attacks"
"""The file with what `fedpriv attack` takes where nothing is said, among the experiments."""


@dataclass(frozen=True, kw_only=True)
class Order(AttackSettings):
    """An attack with its settings, as it is ordered; a subclass has those that it takes.

    Args:
        attack: the attack, with its own settings.
        name: the name of the folder under `findings` that the result is written to.
    """

    attack: Attack[Any, Any]
    name: str


@dataclass(frozen=True)
class _Named:
    """An attack alone."""

    attack: Attack[Any, Any]


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
    kind = kind_of_order(config, source)
    idle = not_taken(kind, config)
    rest = {name: value for name, value in config.items() if name not in idle}
    told = [f"{why}{near(name, taken(kind))}" for name, why in idle.items()]
    return experiment.constructed(kind, rest, source, told)


def kind_of_order(config: Mapping[str, Any], source: str = "fedpriv attack") -> type[Order]:
    """Returns the class of orders of the attack that settings name: it has what the attack takes.

    Raises:
        Mistakes: if there is no such attack, or it does not say what it may use.
    """
    with contextlib.suppress(ImportError, LookupError, TypeError, AttributeError):
        return ThreatModel.of(import_target(config["attack"][TARGET])).settings(Order)
    # What it may use depends on its settings, or it is no attack.
    named = experiment.constructed(_Named, {"attack": config["attack"]}, source)
    try:
        return ThreatModel.of(named.attack).settings(Order)
    except TypeError as error:
        raise Mistakes(source, [f"attack: {error}"]) from error


def compose(overrides: Sequence[str], source: str = "fedpriv attack") -> dict[str, Any]:
    """Returns the settings of an attack and of what the adversary has; see `parse`.

    Raises:
        Mistakes: if no attack is named, or none of that name is there.
    """
    chosen = composing.check_attack(overrides, source)
    plugins = catalogue.plugins()["attack"]
    own = "." in chosen or chosen in plugins  # a class of the user's, not one of our files
    rest = [*(o for o in overrides if not own or key_of(o) != "attack"), *["~attack"] * own]
    config = experiment.load(DEFAULTS, rest)
    if own:
        target = catalogue.dotted(plugins[chosen]) if chosen in plugins else chosen
        config["attack"] = {**config.get("attack", {}), "_target_": target}
    config.setdefault("name", chosen.rpartition(".")[2])
    with contextlib.suppress(Mistakes):  # `build` says what is wrong
        given = {key_of(one).partition(".")[0] for one in rest}
        idle = not_taken(kind_of_order(config, source), config).keys() - given
        config = {key: value for key, value in config.items() if key not in idle}
    return config


def order(attack: Attack[Any, Any] | str, overrides: Sequence[str] = (), **settings: Any) -> Order:
    """Returns the order of an attack, given by name or as an object.

    Raises:
        Mistakes: with everything that is wrong in a named one.
        ValueError: if the attack takes no such setting, or one is out of range.
        TypeError: if the attack does not say what it may use.
    """
    if isinstance(attack, str):
        parsed = parse([f"attack={attack}", *overrides])
        if idle := not_taken(type(parsed), settings):
            raise ValueError("; ".join(idle.values()))
        return replace(parsed, **settings)
    named = {"attack": attack, "name": _snake(type(attack).__name__), **settings}
    return ThreatModel.of(attack).settings_of(Order, named)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
