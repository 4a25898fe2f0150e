"""An experiment file: found, composed by Hydra, checked as a whole, and built into objects.

A section with a `_target_` names a Python callable and gives its arguments; a section whose place
has a dataclass for its type needs none. `_partial_: true` leaves the call to whoever knows the
missing arguments. Every mistake is found before anything starts, and all are reported together.
An experiment file is code: it may name any callable. Run only files that you trust.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
import itertools
import json
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from fedpriv.client import Client
from fedpriv.data.federated import Data
from fedpriv.federation import Federation, RaySettings, Settings
from fedpriv.strategy import Strategy

EXPERIMENTS = "experiments"
TARGET, PARTIAL = "_target_", "_partial_"
_BROKEN = object()
"""Stands for a value that could not be built; the reason is among the problems."""


class Mistakes(ValueError):
    """Everything that is wrong with an experiment, each with its place."""

    def __init__(self, source: str, problems: list[str]) -> None:
        self.problems = problems
        plural = "mistake" if len(problems) == 1 else "mistakes"
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{source}: {len(problems)} {plural}, nothing was started\n{lines}")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """The sections of an experiment file.

    Attributes:
        data: `fedpriv.data.federated.DocumentData`, or another `Data`.
        model: builds the model; with `_partial_`, because the data knows the labels.
        strategy: the server's half.
        client: the client's half.
        name: the folder under `runs`.
        rounds: how many.
        seed: of everything random.
        runs: the folder for run folders.
        federation: workers, faults, checkpoints.
        ray: where Ray runs.
    """

    data: Data
    model: Callable[..., Any]
    strategy: Strategy
    client: Client
    name: str
    rounds: int
    seed: int = 0
    runs: str = "runs"
    federation: Settings = Settings()  # noqa: RUF009 - frozen
    ray: RaySettings = RaySettings()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds={self.rounds}: expected at least 1")

    def assemble(self, config: Mapping[str, Any]) -> Federation:
        """Reads the data and puts the federation together.

        Raises:
            ValueError: if a file cannot be used or the parts do not fit together.
        """
        return Federation(
            model=self.model,
            data=self.data,
            strategy=self.strategy,
            client=self.client,
            seed=self.seed,
            name=self.name,
            settings=self.federation,
            ray=self.ray,
            runs=self.runs,
            config=config,
        )


# Finding


def folders() -> list[Path]:
    """Returns where experiments are looked for: the working directory's first, then fedpriv's."""
    package = Path(__file__).parent
    candidates = (Path.cwd() / EXPERIMENTS, package / EXPERIMENTS, package.parent / EXPERIMENTS)
    found: list[Path] = []
    for folder in candidates:
        ours = (folder / "base.yaml").is_file() or (folder.is_dir() and folder == candidates[0])
        if ours and folder.resolve() not in found:
            found.append(folder.resolve())
    return found


def names() -> list[str]:
    """Returns the experiments that can be run by name."""
    found = {path.stem for folder in folders() for path in folder.glob("*.yaml")}
    return sorted(found - {"base"})


def groups() -> dict[str, list[str]]:
    """Returns the config groups, such as strategy, and the choices in each."""
    found: dict[str, set[str]] = {}
    for folder in folders():
        for path in folder.glob("*/*.yaml"):
            found.setdefault(path.parent.name, set()).add(path.stem)
    return {group: sorted(found[group]) for group in sorted(found)}


def find(name: str) -> Path:
    """Returns the file of an experiment, given its name or a path.

    Raises:
        Mistakes: if there is none; names the near misses.
    """
    if name.endswith((".yaml", ".yml")):
        if Path(name).is_file():
            return Path(name).resolve()
        raise Mistakes(name, [f"no such file, seen from {Path.cwd()}"])
    for folder in folders():
        if (folder / f"{name}.yaml").is_file():
            return folder / f"{name}.yaml"
    raise Mistakes(name, [f"no experiment of that name{_near(name, names())}; see `fedpriv list`"])


# Composing


def load(name: str, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Composes an experiment and applies the overrides; returns plain containers.

    Raises:
        Mistakes: if a file or an override cannot be read, or a value depends on what is not set.
    """
    path = find(name)
    choices, values = _split(list(overrides), name)
    search = ",".join(f"file://{folder}" for folder in folders())
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(path.parent), version_base=None):
            composed = compose(path.stem, [f"hydra.searchpath=[{search}]", *choices])
    except (HydraException, OmegaConfBaseException) as error:
        raise Mistakes(name, [_first_line(error) + _hint(choices)]) from error
    return _updated(composed, values, name)


def with_values(config: Mapping[str, Any], overrides: Iterable[str], source: str) -> dict[str, Any]:
    """Returns a resolved config with some values replaced."""
    _, values = _split(list(overrides), source)
    return _updated(OmegaConf.create(dict(config)), values, source)


def _updated(config: DictConfig, values: list[tuple[str, Any]], source: str) -> dict[str, Any]:
    OmegaConf.set_struct(config, False)
    for key, value in values:
        # Unknown keys too: the check names them all, with what was probably meant.
        OmegaConf.update(config, key, value, force_add=True)
    return _resolved(config, source)


def _resolved(config: DictConfig, source: str) -> dict[str, Any]:
    """Resolves every interpolation; reports all that cannot be."""
    problems: list[str] = []
    plain = _resolve(config, "", problems)
    if problems:
        raise Mistakes(source, problems)
    return typing.cast(dict[str, Any], plain)


def sweep(overrides: Iterable[str]) -> list[list[str]]:
    """Returns the combinations of overrides such as `seed=0,1` or `seed=range(3)`, in order."""
    axes: list[list[str]] = []
    for override in OverridesParser.create().parse_overrides(list(overrides)):
        if override.is_sweep_override():
            key = override.get_key_element()
            axes.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            axes.append([str(override.input_line)])
    return [list(combination) for combination in itertools.product(*axes)]


def _split(overrides: list[str], source: str) -> tuple[list[str], list[tuple[str, Any]]]:
    """Separates choices from config groups, which Hydra composes, from plain values."""
    known = groups()
    choices: list[str] = []
    values: list[tuple[str, Any]] = []
    problems: list[str] = []
    for text in overrides:
        try:
            override = OverridesParser.create().parse_override(text)
        except HydraException as error:
            problems.append(f"{text!r} is not of the form key=value: {_first_line(error)}")
            continue
        key = override.key_or_group
        if override.is_sweep_override():
            problems.append(f"{text!r} names several values: sweeps need -m")
        elif key in known or "@" in text or override.is_delete():
            choices.append(text)
        else:
            values.append((key, override.value()))
    if problems:
        raise Mistakes(source, problems)
    return choices, values


def _hint(choices: list[str]) -> str:
    """Returns what could have been meant by choices that do not exist."""
    known, hints = groups(), []
    for choice in choices:
        group, _, value = choice.partition("=")
        if group in known and value not in known[group]:
            hints.append(f"{group}={value}: there is {', '.join(known[group])}")
    return f" ({'; '.join(hints)})" if hints else ""


def _resolve(node: Any, place: str, problems: list[str]) -> Any:
    if OmegaConf.is_dict(node):
        keys = list(node)
        return {key: _child(node, key, _join(place, key), problems) for key in keys}
    if OmegaConf.is_list(node):
        return [_child(node, i, f"{place}[{i}]", problems) for i in range(len(node))]
    return node


def _child(node: Any, key: Any, place: str, problems: list[str]) -> Any:
    try:
        return _resolve(node[key], place, problems)
    except OmegaConfBaseException as error:
        problems.append(f"{place}: {_first_line(error)}")
        return None


# Checking and building


def build(config: Mapping[str, Any], source: str = "experiment") -> Experiment:
    """Checks every section and builds its objects, without reading any data.

    Raises:
        Mistakes: with everything that is wrong.
    """
    problems: list[str] = []
    sections = {key: value for key, value in config.items() if key != "versions"}
    built = _construct(Experiment, sections, "", problems)
    if problems:
        raise Mistakes(source, problems)
    return typing.cast(Experiment, built)


def _construct(
    target: Callable[..., Any], node: Mapping[str, Any], place: str, problems: list[str]
) -> Any:
    """Calls `target` with the node's entries as arguments, or says why it cannot be."""
    before = len(problems)
    parameters = _parameters(target)
    arguments = {key: value for key, value in node.items() if key not in (TARGET, PARTIAL)}
    for key in [key for key in arguments if key not in parameters and not _takes_any(target)]:
        where = (
            f"{_full_name(target)} takes no {key!r}" if place else f"there is no section {key!r}"
        )
        problems.append(f"{_join(place, key)}: {where}{_near(key, parameters)}")
        del arguments[key]
    values = {
        key: _value(value, _hint_of(target, key), _join(place, key), problems)
        for key, value in arguments.items()
    }
    partial = bool(node.get(PARTIAL))
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in values and not partial:
            problems.append(f"{_join(place, name)}: is missing; {_full_name(target)} needs it")
    if len(problems) > before:
        return _BROKEN
    return _call(target, values, place, problems, partial=partial)


def _call(
    target: Callable[..., Any],
    values: Mapping[str, Any],
    place: str,
    problems: list[str],
    *,
    partial: bool,
) -> Any:
    if partial:
        return functools.partial(target, **values)
    try:
        return target(**values)
    except (ValueError, TypeError) as error:
        problems.append(f"{place + ': ' if place else ''}{error}")
        return _BROKEN


def _value(value: Any, hint: Any, place: str, problems: list[str]) -> Any:
    """Builds or converts one argument and checks it against the type that is asked for."""
    if isinstance(value, Mapping) and (TARGET in value or _dataclass_of(hint)):
        target = _target(value, hint, place, problems)
        built = _BROKEN if target is None else _construct(target, value, place, problems)
        return _fitting(built, hint, place, problems)
    if hint is inspect.Parameter.empty or hint is Any:
        return value
    try:
        # As JSON, so that a list will do for a tuple and an integer for a float, but no more.
        return TypeAdapter(hint).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        why = error.errors()[0]["msg"]
        problems.append(f"{place}: got {value!r}. {why}")
    except Exception:
        # pydantic has no schema for a protocol or an arbitrary class: only a section builds one.
        problems.append(
            f"{place}: got {value!r}, expected a section with a {TARGET} that gives "
            f"a {_type_name(hint)}"
        )
    return _BROKEN


def _target(
    value: Mapping[str, Any], hint: Any, place: str, problems: list[str]
) -> Callable[..., Any] | None:
    if TARGET not in value:
        return _dataclass_of(hint)
    path = value[TARGET]
    try:
        return _import(str(path))
    except ImportError as error:
        problems.append(f"{place}.{TARGET}: {error}")
        return None


def _import(path: str) -> Callable[..., Any]:
    """Returns the callable of a dotted path.

    Raises:
        ImportError: says which part of the path does not exist, and what is near it.
    """
    module_name, _, name = path.rpartition(".")
    if not module_name:
        raise ImportError(f"{path!r} is no dotted path such as 'strategies.fedavg.FedAvg'")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise ImportError(f"no module {error.name!r} (in {path!r})") from error
        raise ImportError(f"importing {module_name!r} failed: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise ImportError(f"{module_name} has no callable {name!r}{_near(name, public)}")
    return typing.cast(Callable[..., Any], found)


def _fitting(built: Any, hint: Any, place: str, problems: list[str]) -> Any:
    """Checks that a built object is what its place asks for."""
    wanted = [kind for kind in _union(hint) if inspect.isclass(kind)]
    if built is _BROKEN or not wanted or any(_is_a(built, kind) for kind in wanted):
        return built
    names = " or ".join(kind.__name__ for kind in wanted)
    problems.append(f"{place}: {type(built).__name__} is no {names}{_lacks(built, wanted[0])}")
    return _BROKEN


def _is_a(built: Any, kind: type) -> bool:
    if getattr(kind, "_is_protocol", False):
        return not _missing_members(built, kind)
    return isinstance(built, kind)


def _missing_members(built: Any, protocol: type) -> list[str]:
    members = [n for n in vars(protocol) if not n.startswith("_")]
    return [name for name in members if not hasattr(built, name)]


def _lacks(built: Any, kind: type) -> str:
    if not getattr(kind, "_is_protocol", False):
        return ""
    return f": it has no {', '.join(map(repr, _missing_members(built, kind)))}"


def _parameters(target: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    signature = inspect.signature(target)
    return {name: p for name, p in signature.parameters.items() if p.kind in kinds}


def _takes_any(target: Callable[..., Any]) -> bool:
    kinds = [p.kind for p in inspect.signature(target).parameters.values()]
    return inspect.Parameter.VAR_KEYWORD in kinds


def _hint_of(target: Callable[..., Any], name: str) -> Any:
    of = target.__init__ if inspect.isclass(target) else target
    try:
        hints = typing.get_type_hints(of)
    except (NameError, TypeError):
        return Any  # the annotations name what is not imported at run time
    return hints.get(name, Any)


def _dataclass_of(hint: Any) -> type | None:
    found = [
        kind for kind in _union(hint) if inspect.isclass(kind) and dataclasses.is_dataclass(kind)
    ]
    return found[0] if found else None


def _union(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _type_name(hint: Any) -> str:
    return getattr(hint, "__name__", str(hint))


def _full_name(target: Callable[..., Any]) -> str:
    name = getattr(target, "__qualname__", repr(target))
    return name if target is Experiment else f"{target.__module__}.{name}"


def _join(place: str, key: Any) -> str:
    return f"{place}.{key}" if place else str(key)


def _near(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _first_line(error: Exception) -> str:
    lines: Iterator[str] = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)
