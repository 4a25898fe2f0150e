"""An experiment file: found, composed by Hydra, and its names checked, before torch is imported.

What the settings name is not imported here. `fedpriv.config.experiment` checks all the rest.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import re
import typing
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from fedpriv.config import catalogue, yaml_file
from fedpriv.config.construct import EXPERIMENT, PARTIAL, TARGET, join, known_keys, misspelt
from fedpriv.config.overrides import Override, in_shell, parsed, values_of, write
from fedpriv.runtime.refusals import Mistakes, near

KEEP = "keep"
"""The section, and the group, of what a run keeps for attacks."""
STRATEGY = "strategy"
"""The section, and the group, of the server's half of the algorithm."""
COMPOSED = "composed"
"""Where a run's settings say from which file, by which overrides, they were composed."""
MADE_BY_THE_RUN = ("started", "versions", COMPOSED)
"""What config.yaml holds beside the sections of the experiment."""
MISSING = "; set it, such as export FEDPRIV_DATA=/data, or give the value itself"
"""Behind the name of a variable of the environment that is not set."""

BY_SIZE = "by_size"
"""``${by_size:A,B}`` in an experiment file is B where the model's size is "base", else A: what must
differ between a tiny model and a published one, such as the learning rate."""
BY_CLIENT = "by_client"
"""``${by_client:A,B}`` in the section `data.partition` is B where `data.source.client` names the
clients, so that they are dealt their own, else A. It is A too where another partition is set."""
MASKED = "masked"
"""``${masked:A,B}`` in an experiment file is B where sums are masked, else A."""
UNBOUNDED = "unbounded"
"""``${unbounded:A,B}`` in an experiment file is B where the strategy has no mechanism, which bounds
what a client sends, else A."""

OF_HYDRAS_COMMAND_LINE = (
    *("~hydra/output", "~hydra/launcher", "~hydra/sweeper", "~hydra/help", "~hydra/hydra_help"),
    *("~hydra/hydra_logging", "~hydra/job_logging", "~hydra/env"),
)
"""Leaves out the settings of Hydra's own command line, a third of the files that it composes."""


def _by_size(tiny: Any, base: Any, *, _root_: DictConfig) -> Any:
    return base if OmegaConf.select(_root_, "model.size") == "base" else tiny


def _by_client(dealt: Any, named: Any, *, _root_: DictConfig) -> Any:
    partition = OmegaConf.select(_root_, "data.partition")
    implied = OmegaConf.is_interpolation(partition, TARGET)
    if implied or str(partition[TARGET]).endswith(".ByClient"):
        return dealt if OmegaConf.select(_root_, "data.source.client") is None else named
    return dealt


def _masked(plain: Any, masked: Any, *, _root_: DictConfig) -> Any:
    return plain if OmegaConf.select(_root_, "masking") is None else masked


def _unbounded(bounded: Any, unbounded: Any, *, _root_: DictConfig) -> Any:
    return unbounded if OmegaConf.select(_root_, "strategy.mechanism") is None else bounded


OmegaConf.register_new_resolver(BY_SIZE, _by_size, replace=True)
OmegaConf.register_new_resolver(BY_CLIENT, _by_client, replace=True)
OmegaConf.register_new_resolver(MASKED, _masked, replace=True)
OmegaConf.register_new_resolver(UNBOUNDED, _unbounded, replace=True)


def _declare_defaults(sections: Any) -> None:
    """Tells Hydra the defaults of the sections that are dataclasses; base.yaml starts from them."""
    if sections is None:
        keys = known_keys()
        kinds = {name: kind for name, kind in keys[EXPERIMENT].items() if kind}
        # Hydra takes out no setting that is null.
        defaults = {name: dict.fromkeys(keys[kind], "") for name, kind in kinds.items()}
    else:
        defaults = {
            field.name: dataclasses.asdict(field.default)
            for field in dataclasses.fields(sections)
            if dataclasses.is_dataclass(field.default) and not isinstance(field.default, type)
        }
    ConfigStore.instance().store("settings", defaults, group="fedpriv", package="_global_")


def check(name: str, overrides: Iterable[str]) -> None:
    """Checks the names in an experiment: its own, of choices, of settings, of fedpriv's classes.

    Raises:
        Mistakes: with all that are not there. What values are wrong is found when it is built.
    """
    composed: Any = OmegaConf.to_container(with_overrides(name, overrides, None), resolve=False)
    sections = {key: value for key, value in composed.items() if key not in MADE_BY_THE_RUN}
    if problems := list(misspelt(sections, EXPERIMENT)):
        raise Mistakes(name, problems)


def check_attack(overrides: Sequence[str], source: str) -> str:
    """Returns the attack that overrides name.

    Raises:
        Mistakes: if they name none, or it is none of the catalogue's and no class of fedpriv's.
    """
    chosen = next(iter(values_of("attack", overrides)), "")
    there = [*catalogue.groups()["attack"], *catalogue.plugins()["attack"]]
    known = f"expected one of {', '.join(there)}, or the dotted path of a class"
    if not chosen:
        raise Mistakes(source, [f"attack= is missing: {known}"])
    problems = list(misspelt({}, chosen, "attack"))
    if "." not in chosen and chosen not in there:
        problems.append(f"attack={chosen}: {known}{near(chosen, there)}")
    if problems:
        raise Mistakes(source, problems)
    return chosen


def load(name: str, overrides: Iterable[str], sections: type) -> dict[str, Any]:
    """Composes an experiment and applies the overrides; returns plain containers.

    Args:
        name: of the experiment, or the path of its file.
        overrides: of its settings.
        sections: the dataclass of its sections, whose defaults it starts from.

    Raises:
        Mistakes: if a file or an override cannot be read, or a value depends on what is not set.
    """
    composed = with_overrides(name, overrides, sections)
    problems: list[str] = []
    plain = _resolve(composed, "", problems)
    if problems:
        raise Mistakes(name, problems)
    return typing.cast(dict[str, Any], plain)


def with_overrides(name: str, overrides: Iterable[str], sections: type | None) -> DictConfig:
    """Returns an experiment as `load` does, references unresolved.

    Without sections, their settings have no values.
    """
    path = catalogue.experiment(name)
    chosen, values = _split(overrides, name)
    choices, own = _own_parts(chosen, name)
    # Of files elsewhere nobody knows what they include.
    known = any(folder in path.parents for folder in catalogue.folders())
    compose_once = _composed if known else _composed.__wrapped__
    composed = copy.deepcopy(compose_once(path, tuple(choices), name, sections, _stamp()))
    kept = composed.get(KEEP)
    if OmegaConf.is_dict(kept) and any(one.key == KEEP for one in chosen):
        # The file may have settings of a keeper that the command line has not chosen.
        composed[KEEP] = {k: v for k, v in kept.items() if OmegaConf.is_dict(v) and TARGET in v}
    OmegaConf.set_struct(composed, False)
    for group, target in own.items():  # which takes none of the settings that the file has
        _put_in(composed, group, target)
    for key, value in values:
        # Unknown keys too: the check names them all, with what was probably meant.
        try:
            OmegaConf.update(composed, key, value, force_add=True)
        except OmegaConfBaseException as error:
            raise Mistakes(name, [f"{key}={value}: {_first_line(error)}"]) from error
    return composed


def _stamp() -> tuple[object, ...]:
    """Returns what else a composition depends on: the files that it may include."""
    files = (path for folder in catalogue.folders() for path in folder.rglob("*.yaml"))
    return tuple((path, path.stat().st_mtime_ns) for path in sorted(files) if path.is_file())


@functools.lru_cache(maxsize=64)
def _composed(
    path: Path,
    choices: tuple[str, ...],
    name: str,
    sections: type | None,
    stamp: tuple[object, ...],
) -> DictConfig:
    """Returns what Hydra makes of a file, of those that it includes, and of the choices.

    It takes Hydra a tenth of a second, and the rows of a sweep share most of it.
    """
    try:
        yaml_file.check(path)
    except yaml_file.BadYAML as error:
        raise Mistakes(name, [str(error)]) from error
    _declare_defaults(sections)
    search = ",".join(f"file://{folder}" for folder in catalogue.folders())
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(path.parent), version_base=None), warnings.catch_warnings():
            warnings.filterwarnings("error", ".*missing `_self_`")
            ours = [f"hydra.searchpath=[{search}]", *OF_HYDRAS_COMMAND_LINE]
            return compose(path.stem, [*ours, *choices])
    except (HydraException, OmegaConfBaseException) as error:
        raise Mistakes(name, [_first_line(error)]) from error
    except UserWarning as warning:
        where = re.match(r"In '(.+?)'", str(warning))
        problem = (
            f"defaults: the list of {where[1] if where else path.stem} has no _self_; add "
            "`- _self_` as its last entry, and the file's own settings win over those that it lists"
        )
        raise Mistakes(name, [problem]) from warning
    except YAMLError as error:
        raise Mistakes(name, [f"not valid YAML: {' '.join(str(error).split())}"]) from error
    except RecursionError as error:
        raise Mistakes(
            name, [f"defaults: {path} includes itself, or is nested too deeply"]
        ) from error
    except (UnicodeDecodeError, OSError, TypeError, ValueError) as error:
        problem = f"a file of its defaults cannot be read: {_first_line(error)}"
        raise Mistakes(name, [problem]) from error


def with_values(config: Mapping[str, Any], overrides: Iterable[str], source: str) -> dict[str, Any]:
    """Returns a resolved config with some values replaced.

    Nothing is resolved once more: the config may be a run folder's, and somebody else's.
    """
    changed = dict(config)
    for key, value in _split(overrides, source)[1]:
        changed = with_value(changed, key.split("."), value)
    return changed


def with_value(config: Mapping[str, Any], path: Sequence[str], value: Any) -> dict[str, Any]:
    """Returns settings with one of them changed; nothing is shared that would be changed."""
    first, *rest = path
    section = config.get(first)
    inner = section if isinstance(section, Mapping) else {}
    return {**config, first: with_value(inner, rest, value) if rest else value}


def _split(words: Iterable[str], source: str) -> tuple[list[Override], list[tuple[str, Any]]]:
    """Separates choices from config groups, which Hydra composes, from plain values."""
    known = catalogue.groups()
    choices: list[Override] = []
    values: list[tuple[str, Any]] = []
    problems: list[str] = []
    for word in words:
        try:
            override = parsed(word)
        except ValueError as error:
            problems.append(str(error))
            continue
        key, value = override.key, override.value
        if override.several:
            typed = in_shell(f"{key}={write(value)}")
            told = f"sweeps need -m; if it is one text, type {typed}"
            problems.append(f"{word!r} names several values: {told}")
        elif key in known and (value is not None or key == KEEP):
            choices.append(override)  # another group that is null is left out: `attack=null`
        elif "@" in word.partition("=")[0] or override.deletes:
            choices.append(override)
        else:
            values.append((key, value))
    if problems:
        raise Mistakes(source, problems)
    return choices, values


def _own_parts(chosen: list[Override], source: str) -> tuple[list[str], dict[str, str]]:
    """Separates choices of our files from classes of others: dotted paths and installed plug-ins.

    Returns:
        The choices for Hydra, and the dotted path for each of the other groups. For a strategy of
        others FedAvg is chosen, for its client half, which trains for local epochs.

    Raises:
        Mistakes: if there is no such choice.
    """
    ours, own, problems = list[str](), dict[str, str](), list[str]()
    groups = catalogue.groups()
    plugins = catalogue.plugins() if any(one.key in catalogue.PLUGINS for one in chosen) else {}
    for one in chosen:
        entries, files = plugins.get(one.key, {}), groups.get(one.key, {})
        named = list(map(str, one.value if isinstance(one.value, list) else [one.value]))
        if (first := "".join(named[:1])) in entries:
            own[one.key] = catalogue.dotted(entries[first])
        elif one.key in plugins and "." in first:
            own[one.key] = first
        elif files and not one.deletes and (wrong := [name for name in named if name not in files]):
            known = [*files, *entries]
            flowers = "; Flower's by their path, such as flwr.serverapp.strategy.Krum"
            problems.append(
                f"{one.word}: expected one of {', '.join(known)}"
                f"{flowers if one.key == STRATEGY else ''}{near(wrong[0], known)}"
            )
        else:
            ours.append(one.word)
    if problems:
        raise Mistakes(source, problems)
    return [*ours, *[f"{STRATEGY}=fedavg"] * (STRATEGY in own)], own


def _put_in(composed: DictConfig, group: str, target: str) -> None:
    """Puts a class of others where its group stands in an experiment."""
    if group == "data" and OmegaConf.select(composed, "data.source") is not None:
        composed.data.source = {TARGET: target}  # dealt out and held out as the file says
    else:
        partial = {PARTIAL: True} if group == "model" else {}  # the data must name its labels first
        composed[group] = {TARGET: target, **partial}


def _resolve(node: Any, place: str, problems: list[str]) -> Any:
    if OmegaConf.is_dict(node):
        keys = list(node)
        return {key: _child(node, key, join(place, key), problems) for key in keys}
    if OmegaConf.is_list(node):
        return [_child(node, i, f"{place}[{i}]", problems) for i in range(len(node))]
    return node


def _child(node: Any, key: Any, place: str, problems: list[str]) -> Any:
    try:
        return _resolve(node[key], place, problems)
    except OmegaConfBaseException as error:
        hint = MISSING if "Environment variable" in str(error) else ""
        problems.append(f"{place}: {_first_line(error)}{hint}")
        return None


def _first_line(error: Exception) -> str:
    lines: Iterator[str] = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)
