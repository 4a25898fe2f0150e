"""An experiment: composed from its file, checked as a whole, and built into objects.

Every mistake is found before anything starts, and all are reported together. An experiment file is
code: it may name any callable (`fedpriv.config.construct`). Run only files that you trust.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf
from torch import nn

from fedpriv.config import catalogue, composing
from fedpriv.config.composing import KEEP, MADE_BY_THE_RUN
from fedpriv.config.construct import TARGET, construct, join, outside
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

MODEL_SIZES = {"max_length": (3, 100_000), "image_size": (8, 10_000), "dropout": (0, 1)}
"""What any model can make of these arguments; most models allow less, and say so themselves."""


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


def load(name: str, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """Composes an experiment and applies the overrides; returns plain containers.

    Raises:
        Mistakes: if a file or an override cannot be read, or a value depends on what is not set.
    """
    return with_whole_paths(composing.load(name, overrides, Experiment))


def with_whole_paths(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings whose paths can be found from any folder; imports all that they name."""
    return outside(Experiment, config, _from_anywhere)


def _from_anywhere(place: str, value: Any, mark: Outside) -> Any:
    """Returns a path as it can be found from any folder; a name on the hub stays one."""
    there = mark.path and mark.read and isinstance(value, str) and os.path.exists(value)
    return os.path.abspath(value) if there else value


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
            taken = _references(composing.with_overrides(source, overrides, Experiment))
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
