"""What may be done with a run folder, when nobody says that it can be trusted (`--trust`).

An experiment file is code: it may name any callable. A run folder is passed on, and whoever made
it could have written anything into its config.yaml. So only that is constructed which holds
settings and does nothing: dataclasses of fedpriv and its three packages of parts, modules and
optimizers of torch, and the functions that build our models and mechanisms. In particular no
command, reader or writer of ours can be called, and no function that would construct in its turn.
Flower's strategies hold settings, too.

Nor does a setting of somebody else's folder reach beyond the folder: paths, names on the hub,
trackers and addresses (`fedpriv.runtime.outside`) must be typed again. A folder that this user's
fedpriv has written is known by the signatures in its log.

And what was changed since fedpriv wrote it is not built on.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from flwr.serverapp.strategy import Strategy as FlowerStrategy
from torch import nn, optim

from fedpriv.config.construct import TARGET, import_target, join, outside
from fedpriv.config.experiment import Experiment
from fedpriv.config.overrides import key_of
from fedpriv.federation.loop import Federation
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.runtime import run_files, verify
from fedpriv.runtime.outside import Outside
from fedpriv.runtime.refusals import Refused
from fedpriv.runtime.run_folder import (
    BOOKED,
    CHECKPOINTS,
    CONFIG,
    FAILURES,
    LAYOUT,
    LEDGER,
    METRICS,
    PARTITION,
    RunFolder,
)
from fedpriv.runtime.verify import RETRAINED
from fedpriv.threat.surfaces.retrain import PLAN
from fedpriv.threat.truth import ROWS

READ_BY_ATTACKS = (
    LAYOUT,
    CONFIG,
    LEDGER,
    METRICS,
    "checkpoints/",
    "transcript/",
    "knowledge/",
    "truth/",
    "candidates/",
    "fields/",
)
OURS = ("fedpriv",)
STRATEGIES = "flwr.serverapp.strategy."
BUILDERS = ("fedpriv.models.", "fedpriv.privacy.mechanism")
"""Where functions may be named, if they return a model or a mechanism."""


class Untrusted(Refused):
    """A run folder that is not to be gone on with, unless its maker is trusted."""

    def __init__(self, root: Path, problems: list[str]) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(
            f"{root} is not used as it is, and nothing was started\n{lines}\n"
            "If you know who made or changed it, and trust them with this machine, add --trust"
        )


def check_before_resume(folder: RunFolder, overrides: Iterable[str] = ()) -> None:
    """Checks what a resume builds on: settings, ledger, metrics, checkpoints; and of variants.

    Args:
        folder: of the run.
        overrides: from the command line, which are trusted.

    Raises:
        Untrusted: if any of it was changed, or could run code.
    """
    built_on = (LAYOUT, CONFIG, LEDGER, BOOKED, METRICS, FAILURES, PARTITION, PLAN)
    folders = (f"{CHECKPOINTS}/", f"{ROWS}/")
    found = verify.check(folder.path, lambda name: name in built_on or name.startswith(folders))
    problems = found.problems()
    if not problems:  # else the settings are not worth reading
        problems += untrusted(folder.config(), own=found.own, typed=overrides)
        for plan in (folder.read_json(PLAN) or {}).values():
            problems += untrusted(plan, own=found.own)
    if problems:
        raise Untrusted(folder.path, problems)
    for name in folder.names(RETRAINED, "*"):
        run_files.inside(folder.path, f"{RETRAINED}/{name}/{CONFIG}")
        training = RunFolder(folder.path / RETRAINED / name)
        if training.path.is_dir() and training.has(CONFIG):  # beside them lies their plan
            check_before_resume(training)


def check_before_attack(folder: RunFolder, overrides: Iterable[str] = ()) -> None:
    """Checks all that an attack may read. Parts may be missing: a run may be passed on without.

    Args:
        folder: of the run.
        overrides: settings of its model that were typed again.

    Raises:
        Untrusted: if any of it was changed, or could run code.
    """
    found = verify.check(folder.path, lambda name: name.startswith(READ_BY_ATTACKS))
    found.missing.clear()
    problems = found.problems()
    if not problems:
        config = folder.config()
        model: dict[str, Any] = {k: config[k] for k in ("model", "finetuning") if k in config}
        problems += untrusted(model, own=found.own, typed=overrides)
    if problems:
        raise Untrusted(folder.path, problems)


def untrusted(
    config: Mapping[str, Any], *, own: bool = False, typed: Iterable[str] = ()
) -> list[str]:
    """Returns what in the settings of a run folder needs trust, one line each with its place.

    Args:
        config: the settings.
        own: whether this user's fedpriv wrote the folder.
        typed: overrides from the command line, which are trusted.
    """
    problems = [
        f"{place}: {path!r} is not among the parts of fedpriv that settings may name, and could "
        "run any code"
        for place, path in targets(config, "")
        if not _is_part(path)
    ]
    if problems or own:  # only parts of ours are looked into: that imports them
        return problems
    again = tuple(map(key_of, typed))
    for place, (value, mark) in reaching(config).items():
        if not any(place == key or place.startswith((f"{key}.", f"{key}[")) for key in again):
            what = "is a path or a name on the hub" if mark.path else "is a service or a program"
            problems.append(
                f"{place}: {value!r} {what}, which somebody else's folder may not choose: type "
                f"{place.partition('[')[0]}=... again"
            )
    return problems


def reaching(config: Mapping[str, Any]) -> dict[str, tuple[Any, Outside]]:
    """Returns by place the settings that reach beyond a run; imports all that they name."""
    found: dict[str, tuple[Any, Outside]] = {}

    def see(place: str, value: Any, mark: Outside) -> Any:
        found[place] = value, mark
        return value

    outside(Experiment, config, see)
    return found


def targets(node: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yields place and value of every `_target_`, however deep."""
    if isinstance(node, Mapping):
        if TARGET in node:
            yield join(place, TARGET), node[TARGET]
        for key, value in node.items():
            yield from targets(value, join(place, key))
    elif isinstance(node, list | tuple):
        for number, value in enumerate(node):
            yield from targets(value, f"{place}[{number}]")


def _is_part(path: Any) -> bool:
    """Says whether a dotted path names what only holds settings, or builds a model of ours."""
    parts = path.split(".") if isinstance(path, str) else []
    # Before the import, which runs a module.
    known = parts and (parts[0] in (*OURS, "torch") or path.startswith(STRATEGIES))
    if not known or any(p.startswith("_") for p in parts):
        return False
    if parts[:2] == ["fedpriv", "experiments"]:  # scripts
        return False
    try:
        target = import_target(path)
    except ImportError:
        return False
    # Of the module that defines it, not of one that happens to import it: `fedpriv.cli.main.os`.
    module = getattr(target, "__module__", None) or ""
    if module.split(".")[0] in OURS:
        if inspect.isclass(target):
            # A federation is one too, but reads data and trains as soon as it is made.
            return dataclasses.is_dataclass(target) and not issubclass(target, Federation)
        return inspect.isfunction(target) and module.startswith(BUILDERS) and _builds(target)
    if module.startswith(STRATEGIES) and inspect.isclass(target):
        return issubclass(target, FlowerStrategy)
    if module.startswith(("torch.nn.", "torch.optim.")) and inspect.isclass(target):
        return issubclass(target, nn.Module | optim.Optimizer)
    return False


def _builds(function: Any) -> bool:
    kind = typing.get_type_hints(function).get("return")
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return all(inspect.isclass(k) and issubclass(k, nn.Module | Mechanism) for k in kinds)
