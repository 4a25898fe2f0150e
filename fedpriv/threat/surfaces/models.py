"""The model of a run: its architecture, its answers, its weights, and what it began as."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from fedpriv.data.document import Document
from fedpriv.runtime.cache import private_folder
from fedpriv.runtime.run_folder import FINAL, METRICS, START
from fedpriv.threat.attack import NotApplicable, NotGranted, answering
from fedpriv.threat.queries import Oracle, Reply
from fedpriv.threat.settings import AttackSettings, at_least
from fedpriv.threat.surfaces.base import (
    ASKER,
    HOLDER,
    READER,
    RECEIVER,
    AttackedRun,
    InWords,
    Surface,
    blank,
)

ANOTHER = 0x5EED_0A2D
"""Seed of an adversary's own models: with a run's they would begin as the run's model did."""

CRITERIA = ("precision", "loss")
TARGETS = ("final", "start", *CRITERIA, "series")

Replies = Callable[[Sequence[Document]], list[tuple[Reply, ...]]]
"""For each document, a reply to each of its questions, in their order."""

Losses = Callable[[Sequence[Document]], list[tuple[float, ...]]]
"""For each document, the loss of the accepted answer to each of its questions, in their order."""


@dataclass(frozen=True, kw_only=True)
class AnswerSettings(AttackSettings):
    """What a model says when it is asked.

    Args:
        access: what the model returns when the adversary asks it: "grey_box" returns answers with
            confidence and loss, "black_box" returns answers alone.
    """

    access: Literal["grey_box", "black_box"] = "grey_box"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.access not in ("grey_box", "black_box"):
            raise ValueError(f"access={self.access!r}: expected 'grey_box' or 'black_box'")


@dataclass(frozen=True, kw_only=True)
class StartSettings(AnswerSettings):
    """Whether the adversary knows the model that training started from.

    Args:
        public_start: whether the adversary knows the public model that training started from.
    """

    public_start: bool = True


@dataclass(frozen=True, kw_only=True)
class SeriesSettings(AttackSettings):
    """Which models of the run are attacked.

    Args:
        target: which model of the run is attacked: "final"; "start", the model before training;
            "precision" or "loss", the model of the round with the best validation score (F1 or
            accuracy) or the lowest validation loss (CDMI, §5.1); the number of a round; or
            "series", one kept model after the other (CDMI, Fig. 7).
        every: the number of rounds from one attacked model to the next with target="series".
    """

    target: str | int = "final"
    every: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, every=self.every)
        if isinstance(self.target, str) and self.target not in TARGETS:
            raise ValueError(
                f"target={self.target!r}: expected a round's number, or {', '.join(TARGETS)}"
            )


@dataclass(frozen=True)
class Architecture(Surface):
    """The federation's model without its weights: architecture and tokenizer are public.

    Attributes:
        build: returns a new model. Its weights say nothing of the run, unless the run's model is
            loaded from a checkpoint: then so is this. With `task="mlm"` it returns a model of the
            same architecture for masked language modelling, with `pretrained=` one from another
            checkpoint, or raises `TypeError` where there is none.
    """

    build: Callable[..., nn.Module]

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[Architecture, InWords]:
        """Architecture and tokenizer are always public."""
        build = functools.partial(run.models.new, seed=ANOTHER)
        return Architecture(build), ("the architecture and the tokenizer are public",)

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Always."""


class BlackBox(Surface, observer=READER, takes=AnswerSettings):
    """A model that answers, and says nothing else.

    Args:
        replies: of the model behind it.
    """

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    def answers(self, documents: Sequence[Document]) -> list[tuple[str, ...]]:
        """Returns, for each document, the answer to each of its questions, in their order."""
        return [tuple(reply.text for reply in said) for said in self._replies(documents)]

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[BlackBox, InWords]:
        """The answers of the final model."""
        return BlackBox(run.once(final).replies), ("the model's answers can be asked for",)

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether the model answers questions, and the run is finished."""
        answering(run.once(blank))
        run.require(FINAL)


class GreyBox(BlackBox, observer=ASKER):
    """A model that also says how sure it is, and what its loss is on the accepted answer.

    Args:
        replies: of the model behind it.
        losses: of the same model, where it can tell them without its answers, which take longest.
    """

    def __init__(self, replies: Replies, losses: Losses | None = None) -> None:
        super().__init__(replies)
        self._losses = losses

    def replies(self, documents: Sequence[Document]) -> list[tuple[Reply, ...]]:
        """Returns, for each document, a reply to each of its questions, in their order."""
        return self._replies(documents)

    def losses(self, documents: Sequence[Document]) -> list[tuple[float, ...]]:
        """Returns, for each document, the loss of each of its questions, in their order."""
        if self._losses is not None:
            return self._losses(documents)
        return [tuple(reply.loss for reply in said) for said in self._replies(documents)]

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[GreyBox, InWords]:
        """The final model's answers with confidence and loss."""
        cls.check(run)
        return GreyBox(run.once(final).replies, run.once(final).losses), (
            "the model's answers come with confidence and loss",
        )

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether the model says more than its answers."""
        if run.settings.of(AnswerSettings).access != "grey_box":
            raise NotGranted("access=black_box gives answers alone", "access=grey_box")
        super().check(run)


@dataclass(frozen=True)
class PublicModel(Surface, takes=StartSettings):
    """The public model that training started from.

    Attributes:
        state: its weights, by name.
        answers: of the model. None if it answers no questions.
        confidence: the same with confidence and loss. None where they are not granted.
        build: returns a new model with these weights, in evaluation mode.
    """

    state: Mapping[str, Tensor]
    answers: BlackBox | None
    confidence: GreyBox | None
    build: Callable[[], nn.Module]

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[PublicModel, InWords]:
        """The model that training started from, if the adversary is taken to know it."""
        cls.check(run)
        state = run.state(START)
        answers: BlackBox | None = None
        confidence: GreyBox | None = None
        with contextlib.suppress(NotApplicable):
            asked = oracle(run, state)
            answers = BlackBox(asked.replies)
            if run.settings.of(AnswerSettings).access == "grey_box":
                confidence = GreyBox(asked.replies, asked.losses)
        build = functools.partial(run.models.with_state, state)
        return PublicModel(state, answers, confidence, build), (
            "the public model that training started from is known",
        )

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether that model is known, and was kept."""
        if not run.settings.of(StartSettings).public_start:
            raise NotGranted(
                "public_start=false: the model that training started from is not known",
                "public_start=true",
            )
        run.require(START)


@dataclass(frozen=True)
class WhiteBox(Surface, observer=HOLDER):
    """One model of the run with its weights.

    Attributes:
        name: in words, such as "round 3" or "the end of the run".
        round: after which it was; 0 before the first.
        model: in evaluation mode.
        measured: its validation "loss" and "score", where they were measured.
    """

    name: str
    round: int
    model: nn.Module
    measured: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[WhiteBox, InWords]:
        """The final model with its weights."""
        records = {record["round"]: record for record in run.folder.records(METRICS)}
        last = max(records, default=0)
        model = run.models.with_state(run.state(FINAL))
        box = WhiteBox("the end of the run", last, model, _measured(records.get(last)))
        return box, ("the adversary holds the model's weights",)

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether the run is finished."""
        run.require(FINAL)


@dataclass(frozen=True)
class ModelSeries(Surface, observer=RECEIVER, takes=SeriesSettings):
    """The models that the setting `target` names, one or several.

    Attributes:
        models: builds each when it is asked for, in the order of their rounds.
    """

    models: tuple[Callable[[], WhiteBox], ...]

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[ModelSeries, InWords]:
        """The models that the setting `target` names."""
        targets = list(_targets(run))
        models = tuple(functools.partial(_white_box, run, *target) for target in targets)
        return ModelSeries(models), ("the adversary holds the model's weights",)

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether these models were kept."""
        list(_targets(run))


def final(run: AttackedRun) -> Oracle:
    """Returns the trained model, to be asked questions."""
    return oracle(run, run.state(FINAL))


def oracle(run: AttackedRun, state: Mapping[str, Tensor]) -> Oracle:
    """Returns the run's model with these weights, to be asked questions.

    Raises:
        NotApplicable: if it answers none.
    """
    # Before the weights: of a model that tags, the run may not have kept the labels.
    answering(run.once(blank))
    return Oracle(answering(run.models.with_state(state)), private_folder("queries"))


def _white_box(
    run: AttackedRun, name: str, round: int, measured: Mapping[str, float], kept: bool
) -> WhiteBox:
    if kept:
        # A checkpoint holds what travels; the rest has not changed since the start.
        state = run.state(START) | dict(run.folder.checkpoint(round).model)
    else:
        state = run.state(FINAL if round else START)
    return WhiteBox(name, round, run.models.with_state(state), measured)


def _targets(run: AttackedRun) -> Iterator[tuple[str, int, Mapping[str, float], bool]]:
    """Yields name, round, measurements, and whether it is a checkpoint, of each model.

    Raises:
        NotGranted: if the run has not kept them.
    """
    chosen, folder = run.settings.of(SeriesSettings), run.folder
    target, every = chosen.target, chosen.every
    records = {record["round"]: record for record in folder.records(METRICS)}
    if target in ("final", "start"):
        round = max(records, default=0) if target == "final" else 0
        name = "the end of the run" if target == "final" else "before the training"
        run.require(FINAL if round else START)
        yield name, round, _measured(records.get(round)), False
        return
    kept = folder.rounds()
    if target == "series":
        rounds = [round for round in kept if round % every == 0 or round == max(kept)]
    elif isinstance(target, str):
        rounds = [_best(records, target)]
    else:
        rounds = [target]
    missing = [round for round in rounds if round not in kept]
    if missing or not rounds:
        raise NotGranted(
            f"target={target}: the model of round {missing[0]} was not kept, but those of rounds "
            f"{kept}"
            if missing
            else f"{folder.path} has kept no round's model: the run has not begun",
            "federation.keep_checkpoints=0, which keeps all, with federation.checkpoint_every=1",
        )
    for round in rounds:
        why = f", of the best validation {target}" if target in CRITERIA else ""
        yield f"round {round}{why}", round, _measured(records.get(round)), True


def _best(records: Mapping[int, Mapping[str, Any]], criterion: str) -> int:
    """Returns the round with the best validation score or loss; the first of equals.

    Raises:
        NotGranted: if nothing was measured.
    """
    name, sign = ("loss", -1) if criterion == "loss" else ("score", 1)
    values = {round: _measured(record).get(name, math.nan) for round, record in records.items()}
    there = {round: sign * value for round, value in values.items() if not math.isnan(value)}
    if not there:
        raise NotGranted(
            f"target={criterion}: the run has no validation {name}",
            "documents that are held back (data.test) and federation.evaluate_every=1",
        )
    return max(there, key=lambda round: there[round])


def _measured(record: Mapping[str, Any] | None) -> dict[str, float]:
    """Returns validation loss and score; the score is the F1 where there is one (CDMI, Table 2)."""
    record = record or {}
    found = {"loss": record.get("loss"), "score": record.get("f1", record.get("accuracy"))}
    return {name: float(value) for name, value in found.items() if value is not None}
