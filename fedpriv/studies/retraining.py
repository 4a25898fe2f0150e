"""Rebuilds a run's experiment from its folder, to train variants of it.

`config.yaml` says from which file and overrides an experiment was composed (`COMPOSED`): variants
are composed anew, with overrides of their own.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fedpriv.config import composing, experiment
from fedpriv.config.composing import COMPOSED
from fedpriv.config.construct import join
from fedpriv.config.experiment import Experiment
from fedpriv.config.overrides import key_of
from fedpriv.config.trust import Untrusted, check_before_resume, untrusted
from fedpriv.data.document import Document
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Unworkable
from fedpriv.models.question_answering import QuestionAnswerer
from fedpriv.runtime import run_files, verify
from fedpriv.runtime.cache import private_folder
from fedpriv.runtime.refusals import Mistakes
from fedpriv.runtime.run_folder import CONFIG, FINAL, LEDGER, METRICS, RunFolder
from fedpriv.runtime.torch_state import seeded_model
from fedpriv.runtime.verify import RETRAINED
from fedpriv.runtime.workers.fork_server import fork_server
from fedpriv.runtime.workers.jobs import Pool
from fedpriv.studies.trials import Store, Trial
from fedpriv.threat.access import GreyBox
from fedpriv.threat.queries import Oracle
from fedpriv.threat.surfaces.retrain import PLAN, Variant

SHARED = ("seed=", "federation.device=", "federation.threads=")
"""Overrides of a run that its variants of other experiments take over."""

RUN_ON = ("attack", "federation", "ray", "rounds")
"""Sections that say how a run goes on, and what follows it; they may change."""

J = TypeVar("J")
R = TypeVar("R")
Plan = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Trained:
    """A run folder of a training that has come to its end."""

    path: Path

    def build_model(self) -> Callable[..., Any]:
        """Returns what builds its model."""
        return experiment.model_of(RunFolder.existing(self.path).config(), str(self.path))

    def box(self, target: str, device: str) -> GreyBox:
        """Returns its model, to be asked.

        Raises:
            ValueError: if the run is not finished, or has not kept the model that is wanted.
            TypeError: if the model answers no questions.
        """
        folder = RunFolder.existing(self.path)
        model = seeded_model(self.build_model(), 0)
        if not isinstance(model, QuestionAnswerer):
            raise TypeError(
                f"{type(model).__name__} answers no questions: take model=vt5, donut or pix2struct"
            )
        state = folder.read_state(FINAL)
        if state is None:
            raise ValueError(f"{self.path} is not finished: `fedpriv resume {self.path}` first")
        if target == "loss":
            state = {**state, **folder.checkpoint(least_loss(folder)).model}
        model.load_state_dict(state)
        oracle = Oracle(model.eval().to(device), private_folder("queries"))
        return GreyBox(oracle.replies, oracle.losses)

    def described(self) -> dict[str, Any]:
        """Returns model, strategy and, where there is a budget, ε against who sees the models."""
        folder = RunFolder.existing(self.path)
        config, ledger = folder.config(), folder.read_json(LEDGER) or {}
        found = {name: config[name]["_target_"] for name in ("model", "strategy")}
        if views := ledger.get("views"):
            found |= {"epsilon": views["global"]["pld"], "delta": config["privacy"]["delta"]}
        return found


def least_loss(folder: RunFolder) -> int:
    """Returns the round with the least validation loss.

    Raises:
        ValueError: if the loss was not measured, or the round's model was not kept.
    """
    losses = {r["round"]: r["loss"] for r in folder.records(METRICS) if r.get("loss") is not None}
    if not losses:
        raise ValueError(f"{folder.path}: no validation loss was measured; hold documents back")
    best = min(losses, key=lambda round: losses[round])
    if best not in folder.rounds():
        raise ValueError(
            f"{folder.path}: the model of round {best} was not kept; run with "
            "federation.keep_checkpoints=0, which keeps all"
        )
    return int(best)


@dataclass(frozen=True)
class Rebuilt:
    """The experiment of a run.

    Args:
        config: of the run.
        path: its folder; before there is one, any name for messages.
        log: shows one line of progress.
        trust: whether code that the run's settings name may be run, though it is none of ours.
        workers: variants that are trained side by side; None for as many as the run has.
    """

    config: Mapping[str, Any]
    path: Path
    log: Callable[[str], None] = field(default=lambda line: None)
    trust: bool = False
    workers: int | None = None

    @classmethod
    def of(
        cls, path: Path, log: Callable[[str], None], *, trust: bool, workers: int | None = None
    ) -> Rebuilt | None:
        """Returns the experiment; None if the folder does not say how it was composed."""
        config = RunFolder.existing(path).config()
        return cls(config, path, log, trust, workers) if config.get(COMPOSED) else None

    @functools.cached_property
    def base(self) -> Experiment:
        """The run's own experiment.

        Raises:
            Untrusted: if its settings name code that is none of ours.
        """
        self._check_trust({"": self.config})
        return experiment.build(self.config, str(self.path))

    @property
    def seed(self) -> int:
        """Of the run."""
        return self.base.seed

    @property
    def threads(self) -> int:
        """Of torch."""
        return self.base.federation.threads

    @property
    def original(self) -> Trained:
        """The run itself."""
        return Trained(self.path)

    def documents(self) -> tuple[tuple[Document, ...], tuple[Document, ...]]:
        """Returns the training documents, and those that were held out.

        Raises:
            ValueError: if the run's data are no documents.
        """
        if not isinstance(self.base.data, DocumentData):
            raise ValueError(
                f"data: {type(self.base.data).__name__} has no documents; take DocumentData"
            )
        if self.base.data.unasked:
            raise ValueError("data.unasked: the attack decides which questions are left out")
        split = self.base.data.dealt(self.base.seed)
        return split.of(split.trained), split.of(split.held)

    def train(self, variants: Sequence[Variant]) -> dict[str, Trained]:
        """Trains what has not been trained yet, side by side; returns all by name.

        Raises:
            Mistakes: with everything that is wrong, before anything is started; or if the variants
                are others than those that were trained before.
            Untrusted: if their settings name code that is none of ours.
            JobsFailed: if a training failed, after all others have come to their end.
        """
        if self._workers and not self.base.ray.wanted:
            fork_server()  # imports what the trainings need while they are planned here
        plan, folder = self.planned(variants), RunFolder.existing(self.path)
        self._check_trust(plan)
        begun = [
            name
            for name in plan
            if any((self.path / RETRAINED / name / file).is_file() for file in (CONFIG, FINAL))
        ]
        self._check_begun({name: plan[name] for name in begun})
        self._build({name: config for name, config in plan.items() if name not in begun})
        folder.write_json(PLAN, (folder.read_json(PLAN) or {}) | plan)
        again = "the same command" if self.base.attack is None else f"fedpriv resume {self.path}"
        told = f"go on with: {again}; what is trained is not trained again"
        store, places = Store(self.path / RETRAINED, again=told), dict[str, Path]()
        for name in plan:
            places[name] = run_files.make_folder(self.path, f"{RETRAINED}/{name}")
        every = [Trial(config, name, {}, {"": name}, name) for name, config in plan.items()]
        missing = sum(not store.is_done(one) for one in every)
        self.log(f"{self.path}: {len(plan)} trainings, {missing} to do")
        store.run_all(every, self._workers, self.log, ray=self.base.ray)
        return {name: Trained(place) for name, place in places.items()}

    def map(self, function: Callable[[J], R], jobs: Mapping[str, J]) -> dict[str, R]:
        """Returns what a function makes of each job, on so many workers."""
        return Pool(self._workers, self.base.ray, self.log).map(function, jobs)

    @property
    def _workers(self) -> int:
        return self.base.federation.workers if self.workers is None else self.workers

    def planned(self, variants: Sequence[Variant]) -> Plan:
        """Returns the settings of every variant, by its name.

        Raises:
            Mistakes: if they cannot be composed, or the experiment is another one by now.
        """
        composed = self.config[COMPOSED]
        name, overrides = composed["experiment"], composed["overrides"]

        @functools.cache
        def load(base: str, changes: tuple[str, ...]) -> dict[str, Any]:
            return experiment.load(base, changes)

        self._check_unchanged(load(name, tuple(overrides)))
        plan: Plan = {}
        for variant in variants:
            kept = overrides
            if variant.experiment is not None:
                kept = [one for one in overrides if one.startswith(SHARED)]
            config = load(variant.experiment or name, (*kept, *variant.overrides))
            if variant.experiment is None and "rounds" not in map(key_of, variant.overrides):
                # A resume may have added some.
                config = {**config, "rounds": self.config["rounds"]}
            # A training is done in one process; several go on at a time.
            federation = {**config["federation"], "workers": 0, "report": False}
            privacy = {**config["privacy"], "audit": False}  # of the run itself
            config = {**config, "attack": None, "federation": federation, "privacy": privacy}
            for path, value in variant.values.items():
                config = composing.with_value(config, path.split("."), value)
            plan[variant.name] = config
        return plan

    def check(self, variants: Sequence[Variant]) -> None:
        """Checks all variants without training any.

        Raises:
            Mistakes: with everything that is wrong, by training.
        """
        self._build(self.planned(variants))

    def _build(self, plan: Plan) -> None:
        """Builds every training, and puts together those that differ in more than their data.

        Raises:
            Mistakes: with everything that is wrong, by training.
        """
        source = str(self.path)
        problems: list[str] = []
        seen: list[dict[str, Any]] = []
        for name, config in plan.items():
            try:
                parts = experiment.build(config, source)
                other = {key: value for key, value in config.items() if key != "data"}
                if other not in seen:
                    seen.append(other)
                    parts.assemble(config)
            except (Mistakes, Unworkable) as error:
                problems += [f"{name}: {problem}" for problem in error.problems]
        if problems:
            raise Mistakes(source, problems)

    def _check_unchanged(self, today: Mapping[str, Any]) -> None:
        """Checks that the run's file and overrides still make the experiment that was run.

        Raises:
            Mistakes: if they make another one, of which the variants would be.
        """
        ran = {key: self.config.get(key) for key in today if key not in RUN_ON}
        if changed := list(_differences(ran, {key: today[key] for key in ran})):
            source = self.config[COMPOSED]["experiment"]
            raise Mistakes(
                str(self.path),
                [f"{source} is another experiment than the one that was run: {changed[0]}"],
            )

    def _check_begun(self, plan: Plan) -> None:
        """Checks that what was trained before is what would be trained now.

        Raises:
            Untrusted: if its files were changed.
            Mistakes: if it was trained with other settings.
        """
        problems = []
        for name, config in plan.items():
            folder = RunFolder.existing(self.path / RETRAINED / name)
            if not self.trust:
                check_before_resume(folder)
            before = folder.config()
            if changed := list(_differences({key: before.get(key) for key in config}, config)):
                problems.append(
                    f"{name}: it was trained with other settings, {changed[0]}; "
                    f"remove {folder.path} to train it anew"
                )
        if problems:
            raise Mistakes(str(self.path), problems)

    def _check_trust(self, configs: Mapping[str, Mapping[str, Any]]) -> None:
        if self.trust:
            return
        own = verify.check(self.path, lambda name: False).own
        found = [line for config in configs.values() for line in untrusted(config, own=own)]
        if found:
            raise Untrusted(self.path, list(dict.fromkeys(found)))


def _differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """Yields where settings differ, once they have been through a file, which knows no tuples."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys((*before, *now)):
            yield from _differences(before.get(key), now.get(key), join(place, key))
    elif json.dumps(before) != json.dumps(now):
        yield f"{place}={before!r:.80}, where it is {now!r:.80} now"
