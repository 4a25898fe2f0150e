"""An experiment file: found, composed by Hydra, checked as a whole, and built into objects.

Every mistake is found before anything starts, and all are reported together. An experiment file is
code: it may name any callable (`fedpriv.config.construct`). Run only files that you trust.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
import re
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch import nn
from yaml import YAMLError

from fedpriv.config import catalogue, yaml_file
from fedpriv.config.construct import PARTIAL, TARGET, construct, join, outside
from fedpriv.config.overrides import in_shell, key_of, parsed, split, write
from fedpriv.federation.loop import Federation
from fedpriv.federation.parts import Parts
from fedpriv.federation.settings import Privacy, Settings, Training
from fedpriv.privacy.mechanism import MOST_ROUNDS
from fedpriv.runtime.outside import Outside
from fedpriv.runtime.refusals import Mistakes, near
from fedpriv.runtime.run_folder import check_name
from fedpriv.threat.attack import Attack
from fedpriv.training.adapters import FineTuned, FineTuning
from fedpriv.training.computing import Computing

KEEP = "keep"
"""The section, and the group, of what a run keeps for attacks."""
STRATEGY = "strategy"
"""The section, and the group, of the server's half of the algorithm."""
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
COMPOSED = "composed"
"""Where a run's settings say from which file, by which overrides, they were composed."""

MADE_BY_THE_RUN = ("started", "versions", COMPOSED)
"""What config.yaml holds beside the sections of the experiment."""

MODEL_SIZES = {"max_length": (3, 100_000), "image_size": (8, 10_000), "dropout": (0, 1)}
"""What any model can make of these arguments; most models allow less, and say so themselves."""


OF_HYDRAS_COMMAND_LINE = (
    *("~hydra/output", "~hydra/launcher", "~hydra/sweeper", "~hydra/help", "~hydra/hydra_help"),
    *("~hydra/hydra_logging", "~hydra/job_logging", "~hydra/env"),
)
"""Leaves out the settings of Hydra's own command line, a third of the files that it composes."""


@dataclasses.dataclass(kw_only=True, eq=False, repr=False)
class Experiment(Parts):
    """The sections of an experiment file: the parts of a federation, and how it is run.

    Attributes:
        rounds: the number of rounds to run; 0 only evaluates the model that round 1 would start
            from.
        federation: workers, deadlines, checkpoints.
        privacy: public constants that the strategies refer to.
        training: settings that the strategies refer to, and how gradients are computed.
        attack: an attack that is made on the run when it has ended; it may train variants of the
            run. None makes no attack.
    """

    name: str = dataclasses.field()  # without a default: unnamed runs would share a folder
    rounds: int
    federation: Settings = Settings()  # noqa: RUF009 - frozen
    privacy: Privacy = Privacy()  # noqa: RUF009 - frozen
    training: Training = Training()  # noqa: RUF009 - frozen
    attack: Attack[Any, Any] | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if not 0 <= self.rounds <= MOST_ROUNDS:
            raise ValueError(f"rounds={self.rounds}: expected 0 to {MOST_ROUNDS}")
        if isinstance(self.model, nn.Module):
            raise ValueError(
                "model: is built already, but the data must name its labels first; set "
                "model._partial_=true"
            )
        sizes = getattr(self.model, "keywords", {})
        for name, (least, most) in MODEL_SIZES.items():
            value = sizes.get(name)
            if isinstance(value, int | float) and not least <= value <= most:
                raise ValueError(f"model: {name}={value}: expected {least} to {most}")

    def assemble(self, config: Mapping[str, Any]) -> Federation:
        """Reads the data and puts the federation together.

        Raises:
            ValueError: if a file cannot be used or the parts do not fit together.
        """
        parts = {field.name: getattr(self, field.name) for field in dataclasses.fields(Parts)}
        how = {f.name: getattr(self.training, f.name) for f in dataclasses.fields(Computing)}
        return Federation(
            **parts,
            settings=self.federation,
            computing=Computing(**how),
            entropy=self.privacy.entropy,
            config=config,
        )


@dataclasses.dataclass(frozen=True)
class ModelSection:
    """What of an experiment makes its model.

    Attributes:
        model: builds it, given `labels=`.
        finetuning: what of it is trained.
    """

    model: Callable[..., Any]
    finetuning: FineTuning | None = None


def find(name: str) -> Path:
    """Returns the file of an experiment, given its name or a path.

    Raises:
        Mistakes: if there is none; names the near misses.
    """
    if name.endswith((".yaml", ".yml")):
        if Path(name).is_file():
            return Path(name).resolve()
        raise Mistakes(name, [f"no such file (relative to {Path.cwd()})"])
    for folder in catalogue.folders():
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    raise Mistakes(
        name,
        [f"no experiment of that name{near(name, catalogue.experiments())}; see `fedpriv list`"],
    )


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


def declare_defaults() -> None:
    """Tells Hydra the defaults of the sections that are dataclasses; base.yaml starts from them."""
    defaults = {
        field.name: dataclasses.asdict(field.default)
        for field in dataclasses.fields(Experiment)
        if dataclasses.is_dataclass(field.default) and not isinstance(field.default, type)
    }
    ConfigStore.instance().store("settings", defaults, group="fedpriv", package="_global_")


def load(name: str, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Composes an experiment and applies the overrides; returns plain containers.

    Raises:
        Mistakes: if a file or an override cannot be read, or a value depends on what is not set.
    """
    composed = _with_overrides(name, overrides)
    problems: list[str] = []
    plain = _resolve(composed, "", problems)
    if problems:
        raise Mistakes(name, problems)
    return with_whole_paths(typing.cast(dict[str, Any], plain))


def with_whole_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings whose paths can be found from any folder; imports all that they name."""
    return outside(Experiment, config, _from_anywhere)


def _from_anywhere(place: str, value: Any, mark: Outside) -> Any:
    """Returns a path as it can be found from any folder; a name on the hub stays one."""
    there = mark.path and mark.read and isinstance(value, str) and os.path.exists(value)
    return os.path.abspath(value) if there else value


def _with_overrides(name: str, overrides: Iterable[str]) -> DictConfig:
    """Returns an experiment as its files and the overrides have it, references unresolved."""
    path = find(name)
    choices, values = _split(overrides, name)
    choices, own = _own_parts(choices)
    # Of files elsewhere nobody knows what they include.
    known = any(folder in path.parents for folder in catalogue.folders())
    compose_once = _composed if known else _composed.__wrapped__
    composed = copy.deepcopy(compose_once(path, tuple(choices), name, _stamp()))
    kept = composed.get(KEEP)
    if OmegaConf.is_dict(kept) and KEEP in map(key_of, choices):
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
    """Returns what else a composition depends on: the defaults, and the files it may include."""
    files = (path for folder in catalogue.folders() for path in folder.rglob("*.yaml"))
    written = ((path, path.stat().st_mtime_ns) for path in sorted(files) if path.is_file())
    return (Experiment, *written)


@functools.lru_cache(maxsize=64)
def _composed(
    path: Path, choices: tuple[str, ...], name: str, stamp: tuple[object, ...]
) -> DictConfig:
    """Returns what Hydra makes of a file, of those that it includes, and of the choices.

    It takes Hydra a tenth of a second, and the rows of a sweep share most of it.
    """
    try:
        yaml_file.check(path)
    except yaml_file.BadYAML as error:
        raise Mistakes(name, [str(error)]) from error
    declare_defaults()
    search = ",".join(f"file://{folder}" for folder in catalogue.folders())
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(path.parent), version_base=None), warnings.catch_warnings():
            warnings.filterwarnings("error", ".*missing `_self_`")
            ours = [f"hydra.searchpath=[{search}]", *OF_HYDRAS_COMMAND_LINE]
            return compose(path.stem, [*ours, *choices])
    except (HydraException, OmegaConfBaseException) as error:
        raise Mistakes(name, [_first_line(error) + _hint(choices)]) from error
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
        raise Mistakes(
            name, [f"a file of its defaults cannot be read: {_first_line(error)}{_hint(choices)}"]
        ) from error


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


def _split(words: Iterable[str], source: str) -> tuple[list[str], list[tuple[str, Any]]]:
    """Separates choices from config groups, which Hydra composes, from plain values."""
    known = catalogue.groups()
    choices: list[str] = []
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
            problems.append(f"{word!r} names several values: sweeps need -m, and one text {typed}")
        elif key in known and (value is not None or key == KEEP):
            choices.append(override.word)  # another group that is null is left out: `attack=null`
        elif "@" in word.partition("=")[0] or override.deletes:
            choices.append(override.word)
        else:
            values.append((key, value))
    if problems:
        raise Mistakes(source, problems)
    return choices, values


def _own_parts(choices: list[str]) -> tuple[list[str], dict[str, str]]:
    """Separates choices of our files from classes of others: dotted paths and installed plug-ins.

    Returns:
        The choices for Hydra, and the dotted path for each of the other groups. For a strategy of
        others FedAvg is chosen, for its client half, which trains for local epochs.
    """
    own: dict[str, str] = {}
    named = [tuple(word.strip() for word in split(choice)) for choice in choices]
    plugins = catalogue.plugins() if any(group in catalogue.PLUGINS for group, _ in named) else {}
    for group, value in named:
        entry = plugins.get(group, {}).get(value)
        if entry or (group in plugins and "." in value):
            own[group] = catalogue.dotted(entry) if entry else value
    ours = [choice for choice in choices if key_of(choice).strip() not in own]
    return [*ours, *[f"{STRATEGY}=fedavg"] * (STRATEGY in own)], own


def _put_in(composed: DictConfig, group: str, target: str) -> None:
    """Puts a class of others where its group stands in an experiment."""
    if group == "data" and OmegaConf.select(composed, "data.source") is not None:
        composed.data.source = {TARGET: target}  # dealt out and held out as the file says
    else:
        partial = {PARTIAL: True} if group == "model" else {}  # the data must name its labels first
        composed[group] = {TARGET: target, **partial}


def _hint(choices: Iterable[str]) -> str:
    """Returns what could have been meant by choices that do not exist."""
    known: dict[str, list[str]] = {name: list(files) for name, files in catalogue.groups().items()}
    for group, entries in catalogue.plugins().items():
        known.setdefault(group, []).extend(entries)
    hints = []
    for choice in choices:
        group, value = split(choice)
        chosen = value.strip("[]").split(",")
        if group in known and any(one.strip() not in known[group] for one in chosen):
            flowers = "; Flower's by their path, such as flwr.serverapp.strategy.Krum"
            more = flowers if group == STRATEGY else ""
            hints.append(f"{group}={value}: expected one of {', '.join(known[group])}{more}")
    return f" ({'; '.join(hints)})" if hints else ""


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


def build(
    config: Mapping[str, Any], source: str = "experiment", overrides: Iterable[str] | None = None
) -> Experiment:
    """Checks every section and builds its objects, without reading any data.

    Args:
        config: the settings.
        source: of the settings, for messages; with overrides, the name that `load` was given.
        overrides: those that `load` was given. With them, a message names the setting that a wrong
            value was taken from, such as privacy.epsilon.

    Raises:
        Mistakes: with everything that is wrong.
    """
    if overrides is not None:
        try:
            return build(config, source)
        except Mistakes as error:
            taken = _references(_with_overrides(source, overrides))
            named = dict.fromkeys(_as_set(problem, taken) for problem in error.problems)
            raise Mistakes(source, list(named)) from error
    sections = {key: value for key, value in config.items() if key not in MADE_BY_THE_RUN}
    problems: list[str] = []
    if KEEP in sections:
        sections[KEEP] = _chosen_keepers(sections[KEEP], problems)
    masking = sections.get("masking")
    if isinstance(masking, Mapping) and TARGET not in masking:  # else it would be on unasked
        problems += [f"masking.{key}={value}: needs masking=on" for key, value in masking.items()]
    return constructed(Experiment, sections, source, problems)


def _references(node: Any, place: str = "") -> dict[str, str]:
    """Returns, for each value of the form ``${privacy.epsilon}``, its place and the name in it."""
    if OmegaConf.is_config(node):
        node = OmegaConf.to_container(node, resolve=False)
    found: dict[str, str] = {}
    for key, value in node.items():
        where = join(place, key)
        if isinstance(value, Mapping):
            found |= _references(value, where)
        elif isinstance(value, str) and (named := re.fullmatch(r"\$\{([\w.]+)\}", value)):
            found[where] = named[1]
    return found


def _as_set(problem: str, taken: Mapping[str, str]) -> str:
    """Returns a message that names settings where the user sets them.

    Args:
        problem: such as ``strategy.mechanism.budget: epsilon=-1.0: expected a positive number``.
        taken: place of a value → the setting that it is taken from.
    """
    place, colon, why = problem.partition(": ")
    if place in taken:
        return f"{taken[place]}: {why}"
    # Of the section itself, or of one in it.
    below = {key: of for key, of in taken.items() if key.startswith(f"{place}.")}
    set_at = {key.rpartition(".")[2]: of for key, of in below.items()} if colon else {}
    renamed = re.sub(r"\b(\w+)(?==)", lambda name: set_at.get(name[0], name[0]), why)
    return problem if renamed == why else f"{renamed} (for {place})"


def _chosen_keepers(section: Any, problems: list[str]) -> dict[str, Any]:
    """Returns the settings of the keepers that were chosen; others have no `_target_`."""
    known = catalogue.groups().get(KEEP, {})
    if not isinstance(section, Mapping):
        problems.append(
            f"{KEEP}: got {section!r}; choose what to keep in the file's defaults, "
            f"`- override {KEEP}: [transcript]`, or on the command line, {KEEP}=[transcript]"
        )
        return {}
    chosen = {name: v for name, v in section.items() if isinstance(v, Mapping) and TARGET in v}
    for name in [name for name in section if name not in chosen]:
        chosen_too = f"choose it with {KEEP}=[{','.join([*chosen, name])}]"
        others = f"expected one of {', '.join(known)}{near(name, known)}"
        advice = chosen_too if name in known else others
        problems.append(f"{KEEP}.{name}: is set, but {name!r} is not in {KEEP}: {advice}")
    return chosen


T = typing.TypeVar("T")


def constructed(
    target: Callable[..., T],
    config: Mapping[str, Any],
    source: str,
    found_before: Iterable[str] = (),
) -> T:
    """Builds an object from its settings.

    Args:
        target: what to build.
        config: its settings by name.
        source: of the settings, for the message.
        found_before: mistakes that are reported with those found here.

    Raises:
        Mistakes: with everything that is wrong.
    """
    problems = list(found_before)
    built = construct(target, config, "", problems)
    if problems:
        raise Mistakes(source, problems)
    return typing.cast(T, built)


def model_of(config: Mapping[str, Any], source: str) -> Callable[..., Any]:
    """Returns what builds a run's model, given `labels=`.

    With `task=` it builds one for another task, whole, whatever of the run's was trained.

    Raises:
        Mistakes: if the run's settings name none.
    """
    if "model" not in config:
        raise Mistakes(
            source,
            [
                "the run was started from Python, and its config.yaml names no model: attack it "
                "from there, with fedpriv.run_attack(run_dir, attack, model=...)"
            ],
        )
    section = constructed(
        ModelSection, {key: config[key] for key in ("model", "finetuning") if key in config}, source
    )
    tuning = section.finetuning
    if tuning is None:
        return section.model

    def tuned(labels: Sequence[str] = (), **other: Any) -> Any:
        if other:
            return section.model(labels=labels, **other)
        return FineTuned(functools.partial(section.model, labels=labels), tuning)()

    return tuned


def _first_line(error: Exception) -> str:
    lines: Iterator[str] = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)
