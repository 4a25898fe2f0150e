"""An attack on the scrubbed fields of a run: what of its documents can be read out of its model?

In this order: the attack gets the model and the scrubbed fields, in memory, and hands back its
reconstructions; only then is the truth opened for the scoring.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedpriv.models.field_model import FieldModel, TokenModel
from fedpriv.runtime.cache import private_folder
from fedpriv.runtime.run_folder import FINAL, METRICS, START, RunFolder, check_name
from fedpriv.runtime.seeds import entropy, generator
from fedpriv.runtime.torch_state import reproducible_torch, seeded_model
from fedpriv.threat.attack import NotApplicable, Workbench
from fedpriv.threat.field_findings import write_reconstructions
from fedpriv.threat.fields_game import (
    FieldAttack,
    Reconstructions,
    Scrubbed,
    TrueField,
    WhiteBox,
    subset,
)
from fedpriv.threat.findings import cleared, settings_of
from fedpriv.threat.keep.scrubbed import load_fields
from fedpriv.threat.scoring.reconstructions import curves, scored
from fedpriv.threat.truth import TruthStore

CRITERIA = ("precision", "loss")
NAMED = ("final", "start", *CRITERIA, "series")


class BuildsModels(Protocol):
    """Builds a model of the run's architecture, for the run's task or for another."""

    def __call__(self, labels: tuple[str, ...] = (), *, task: str = ...) -> Any:
        """Returns the model, with the weights that it starts from."""
        ...


@dataclass(frozen=True)
class FieldAttackRun:
    """One attack on the scrubbed fields of a run.

    Args:
        attack: which.
        name: of the folder under `findings`.
        target: which model of the run: "final"; "precision" or "loss", after the round with the
            best validation score (F1, accuracy of MLM) or the lowest validation loss (the two
            criteria of CDMI, §5.1); "start", before the training; a round's number; or "series",
            one after the other (CDMI, Fig. 7). A client's epoch is a round's, where there is one
            client.
        every: rounds from one model of the series to the next.
        most_fields: how many are attacked, drawn at random; none for all.
        public_start: whether the adversary's own model starts from what the training started from.
        epsilon: of the improvement factor, eq. 6; the paper does not say its own.
        confidence: of the intervals.
        resamples: bootstrap samples behind the intervals.
        originals: may the true text of fields be shown in findings that were not reconstructed?
        seed: of everything random in the attack and in its scoring.
        threads: of torch.
        device: where the models are, such as "cpu" or "cuda".
    """

    attack: FieldAttack
    name: str
    target: str | int = "final"
    every: int = 1
    most_fields: int | None = None
    public_start: bool = True
    epsilon: float = 0.01
    confidence: float = 0.95
    resamples: int = 1000
    originals: bool = False
    seed: int = 0
    threads: int = 1
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_name(self.name)
        if isinstance(self.target, str) and self.target not in NAMED:
            raise ValueError(
                f"target={self.target!r}: expected a round's number, or {', '.join(NAMED)}"
            )
        if not 0 < self.confidence < 1:
            raise ValueError(f"confidence={self.confidence}: expected a value between 0 and 1")
        if not self.epsilon > 0:
            raise ValueError(f"epsilon={self.epsilon}: expected a positive number")
        if torch.device(self.device).type == "cuda" and not torch.cuda.is_available():
            raise ValueError(f"device={self.device!r}: torch finds no GPU here; take cpu")
        for name, least in {"every": 1, "most_fields": 1, "resamples": 100}.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name}={value}: expected at least {least}")

    def on(
        self,
        run_dir: Path | str,
        build_model: BuildsModels,
        tell: Callable[[str], None] = lambda line: None,
    ) -> dict[str, Any]:
        """Attacks a run; writes `findings/<name>/` and returns its metrics.

        Args:
            run_dir: of a run with fields.
            build_model: the architecture, as the federation was given it; with `task="mlm"` it
                builds the adversary's own model.
            tell: shows one line of progress.

        Raises:
            NotARunFolder: if it is none.
            InUse: if an attack of this name is being made on it.
            Damaged: if a file of the run cannot be used; it is named.
            NoFields: if it keeps no scrubbed fields.
            ValueError: if the run is not finished, has not kept the round's model, or is of
                another model.
        """
        folder = RunFolder.existing(run_dir)
        with folder.writing("attack", settings_of(self), self.name):
            targets = list(self._targets(folder))
            kept = load_fields(folder, private_folder("pages"))
            scrubbed = self._chosen(kept.scrubbed)
            scrubbed = dataclasses.replace(scrubbed, assumptions=tuple(self._in_words(scrubbed)))
            models = _Models(build_model, scrubbed.labels, self.device)
            refused: dict[str, str] = {}
            attacked = list(self._attacked(folder, models, scrubbed, targets, refused, tell))
            if not attacked:
                return self._not_applicable(folder, "; ".join(dict.fromkeys(refused.values())))
            truths = TruthStore(folder).fields()
            scores = [self._scores(one.found, scrubbed, truths) for one in attacked]
            last = attacked[-1]
            metrics = {
                "status": "done",
                **scores[-1],
                "target": last.target.name,
                "not_applicable": refused,
                "seconds": last.seconds,
                "left_out": {**kept.left_out, **last.found.left_out},
                "assumptions": list(scrubbed.assumptions),
                "notes": list(last.found.notes),
                "details": dict(last.found.details),
                "settings": {name: repr(getattr(self, name)) for name in _settings()},
                "series": [
                    _brief({"round": one.target.round, **score, **one.target.measured})
                    for one, score in zip(attacked, scores, strict=True)
                    if self.target == "series"
                ],
            }
            write_reconstructions(
                folder,
                self.name,
                metrics,
                last.found,
                scrubbed.fields,
                truths,
                curves(last.found, scrubbed.fields, truths),
                last.texts,
                originals=self.originals,
            )
            return metrics

    def _attacked(
        self,
        folder: RunFolder,
        models: _Models,
        scrubbed: Scrubbed,
        targets: Sequence[_Target],
        refused: dict[str, str],
        tell: Callable[[str], None],
    ) -> Iterator[_Attacked]:
        """Attacks one model after the other; notes in `refused` which cannot be, and why."""
        for target in targets:
            tell(f"attacking the model of {target.name}")
            began = time.process_time()
            try:
                with reproducible_torch(self.threads, self.device):
                    box = self._box(models, folder, target)
                    found = self._reconstructions(box, scrubbed, tell)
            except NotApplicable as reason:
                refused[target.name] = str(reason)
                continue
            texts = box.target.reader.subwords.text
            yield _Attacked(target, found, time.process_time() - began, texts)

    def _reconstructions(
        self, box: WhiteBox, scrubbed: Scrubbed, tell: Callable[[str], None]
    ) -> Reconstructions:
        rng = np.random.default_rng(entropy(self.seed, "attack"))
        return self.attack.reconstruct(
            box, scrubbed, Workbench(rng, tell, private_folder("attacks"))
        )

    def _scores(
        self, found: Reconstructions, scrubbed: Scrubbed, truths: Mapping[int, TrueField]
    ) -> dict[str, Any]:
        rng = np.random.default_rng(entropy(self.seed, "scoring"))
        return scored(
            found,
            scrubbed.fields,
            truths,
            rng,
            resamples=self.resamples,
            level=self.confidence,
            epsilon=self.epsilon,
        )

    def _chosen(self, scrubbed: Scrubbed) -> Scrubbed:
        """Returns as many fields as are to be attacked."""
        if self.most_fields is None or self.most_fields >= len(scrubbed.fields):
            return scrubbed
        rng = generator(self.seed, "attacked fields")
        return subset(scrubbed, np.sort(rng.choice(len(scrubbed.fields), self.most_fields, False)))

    def _in_words(self, scrubbed: Scrubbed) -> Iterator[str]:
        yield "the adversary holds the model's weights"
        documents = len({field.document for field in scrubbed.fields})
        what = "text, layout, labels" + (" and page" if scrubbed.examples.shared else "")
        yield (
            f"of {documents} documents of the training it holds {what}, but for one field at a "
            "time, whose number of tokens it knows"
        )
        yield f"it holds {len(scrubbed.public)} other documents of its own"
        start = "what the training started from" if self.public_start else "random weights"
        yield f"its own model starts from {start}"

    def _box(self, models: _Models, folder: RunFolder, target: _Target) -> WhiteBox:
        start = _state(folder, START) if self.public_start else None
        return WhiteBox(models.target(target.state(folder)), lambda: models.generator(start))

    def _not_applicable(self, folder: RunFolder, reason: str) -> dict[str, Any]:
        metrics: dict[str, Any] = {"status": "not_applicable", "reason": reason}
        folder.write_json(f"{cleared(folder, self.name)}/metrics.json", metrics)
        return metrics

    def _targets(self, folder: RunFolder) -> Iterator[_Target]:
        """Yields the models that are to be attacked.

        Raises:
            ValueError: if the run has not kept them.
        """
        records = {record["round"]: record for record in folder.records(METRICS)}
        if self.target in ("final", "start"):
            last = max(records, default=0)
            final = self.target == "final"
            name = "the end of the run" if final else "before the training"
            yield _Target(name, last if final else 0, _measured(records.get(last if final else 0)))
            return
        kept = folder.rounds()
        if self.target == "series":
            wanted = [round for round in kept if round % self.every == 0 or round == max(kept)]
        elif isinstance(self.target, str):
            wanted = [_best(records, self.target)]
        else:
            wanted = [self.target]
        if not wanted:
            raise ValueError(f"{folder.path} has kept no round's model: the run has not begun")
        for round in wanted:
            if round not in kept:
                raise ValueError(
                    f"target={self.target}: the model of round {round} was not kept, but those of "
                    f"rounds {kept}: run with federation.keep_checkpoints=0, which keeps all, and "
                    "federation.checkpoint_every=1"
                )
            why = f", of the best validation {self.target}" if self.target in CRITERIA else ""
            yield _Target(f"round {round}{why}", round, _measured(records.get(round)), kept=True)


@dataclass(frozen=True)
class _Target:
    """One model of the run.

    Attributes:
        name: for people.
        round: after which it was; 0 before the first.
        measured: its validation loss and score, where they were measured.
        kept: whether it is a round's checkpoint.
    """

    name: str
    round: int
    measured: Mapping[str, float]
    kept: bool = False

    def state(self, folder: RunFolder) -> dict[str, Tensor]:
        """Returns the weights."""
        if not self.kept:
            return _state(folder, FINAL if self.round else START)
        # A checkpoint holds what travels; the rest has not changed since the start.
        return _state(folder, START) | dict(folder.checkpoint(self.round).model)


@dataclass(frozen=True)
class _Attacked:
    """One model that was attacked.

    Attributes:
        target: which.
        found: what the attack handed back.
        seconds: of processor time.
        texts: turns its tokens into text.
    """

    target: _Target
    found: Reconstructions
    seconds: float
    texts: Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class _Models:
    """Builds the run's model and the adversary's own; knows no path to the run."""

    build_model: BuildsModels
    labels: tuple[str, ...]
    device: str

    def target(self, state: Mapping[str, Tensor]) -> FieldModel:
        """Returns the run's model with these weights, in evaluation mode.

        Raises:
            NotApplicable: if it does not tell its loss example by example.
            ValueError: if the weights are of another model.
        """
        model = seeded_model(lambda: self.build_model(labels=self.labels), 0)
        if not isinstance(model, FieldModel):
            raise NotApplicable(
                f"{type(model).__name__} does not tell its loss example by example: take "
                "model=layoutlm, model=bros or model=bert"
            )
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(f"the weights are of another model: {error}") from error
        return model.to(self.device).eval()

    def generator(self, start: Mapping[str, Tensor] | None) -> TokenModel:
        """Returns a model like the target for masked language modelling.

        Args:
            start: weights of a model, of which those that both have are taken; none for none.

        Raises:
            NotApplicable: if no such model can be built.
        """
        try:
            model = seeded_model(lambda: self.build_model(labels=self.labels, task="mlm"), 0)
        except TypeError as error:
            raise NotApplicable(
                f"no model for masked language modelling can be built beside the target: {error}"
            ) from error
        if not isinstance(model, TokenModel):
            raise NotApplicable(f"{type(model).__name__} guesses no masked tokens")
        own = model.state_dict()
        # LoRA keeps the weights that it adapts under another name.
        plain = {
            name.replace(".base_layer.", "."): tensor for name, tensor in (start or {}).items()
        }
        shared = {
            name: tensor
            for name, tensor in plain.items()
            if name in own and own[name].shape == tensor.shape
        }
        model.load_state_dict(own | shared)
        return model.to(self.device)


def _state(folder: RunFolder, name: str) -> dict[str, Tensor]:
    state = folder.read_state(name)
    if state is None:
        raise ValueError(
            f"{folder.path} has no {name}: the run has not come to its end (fedpriv resume)"
        )
    return state


def _best(records: Mapping[int, Mapping[str, Any]], criterion: str) -> int:
    """Returns the round with the best validation score or loss; the first of equals.

    Raises:
        ValueError: if nothing was measured.
    """
    name = "loss" if criterion == "loss" else "score"
    sign = -1 if criterion == "loss" else 1
    values = {round: _measured(record).get(name, math.nan) for round, record in records.items()}
    there = {round: sign * value for round, value in values.items() if not math.isnan(value)}
    if not there:
        raise ValueError(
            f"target={criterion}: the run has no validation {name}: hold documents back "
            "(data.test) and evaluate every round (federation.evaluate_every=1)"
        )
    return max(there, key=lambda round: there[round])


def _measured(record: Mapping[str, Any] | None) -> dict[str, float]:
    """Returns validation loss and score; the score is the F1 where there is one (CDMI, Table 2)."""
    record = record or {}
    score = record.get("f1", record.get("accuracy"))
    found = {"loss": record.get("loss"), "score": score}
    return {name: float(value) for name, value in found.items() if value is not None}


def _brief(metrics: Mapping[str, Any]) -> dict[str, Any]:
    names = ("round", "ipf", "ipf_interval", "pr", "acc_auc", "ham_aac", "acc_at", "loss", "score")
    return {name: metrics[name] for name in names if name in metrics}


def _settings() -> list[str]:
    here = (field.name for field in dataclasses.fields(FieldAttackRun))
    return [name for name in here if name not in ("name", "threads")]
