"""What an attack is, and what it works with.

What the adversary may use is the type of an attack's access (`fedpriv.threat.access`). The truth is
not in it (`fedpriv.threat.truth`).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedpriv.models.question_answering import QuestionAnswerer
from fedpriv.threat.settings import AttackSettings


class NotApplicable(ValueError):
    """The federation does not grant what the attack requires, or the model has no such weakness.

    Args:
        why: in words.
        take: the setting of the attack with which it can be made on the same run, such as
            "attack.target=aggregate"; empty if there is none.
    """

    def __init__(self, why: str, *, take: str = "") -> None:
        super().__init__(why)
        self.take = take


class NotGranted(NotApplicable):
    """The run does not grant what the attack asks for.

    Args:
        why: what is missing.
        remedy: what would grant it; empty where `why` says it.
        take: as for `NotApplicable`.
        again: the settings with which the run must be made again, such as "keep=transcript".
    """

    def __init__(
        self, why: str, remedy: str = "", *, take: str = "", again: Sequence[str] = ()
    ) -> None:
        super().__init__(f"{why}; granted by {remedy}" if remedy else why, take=take)
        self.remedy, self.again = remedy, tuple(again)


def answering(model: nn.Module) -> QuestionAnswerer:
    """Returns the model, if it answers questions.

    Raises:
        NotApplicable: if it does not.
    """
    if not isinstance(model, QuestionAnswerer):
        raise NotApplicable(
            f"{type(model).__name__} answers no questions: take model=vt5, model=donut, or "
            "model=layoutlmv3 with model.task=answers"
        )
    return model


@dataclass(frozen=True)
class Outline:
    """What an attack may be asked about before anything is granted to it.

    Attributes:
        model: of the run's architecture. Its weights say nothing.
        masked: whether the updates are masked.
        fewest: the examples behind the smallest message whose batch is known. 0 if messages were
            kept without their batches, None if no messages were kept.
        settings: of the attack.
    """

    model: nn.Module
    masked: bool
    fewest: int | None
    settings: AttackSettings


@dataclass
class Remarks:
    """What an attack says beside its claims, for whoever reads the result.

    Attributes:
        notes: what a reader must know.
        left_out: reason → how many questions, fields or messages were left out for it.
        not_applicable: part of the attack → why it could not be run.
        details: further numbers, by name.
        pictures: file name without ending → (H, W, 3), uint8.
    """

    notes: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    not_applicable: dict[str, str] = field(default_factory=dict)
    details: dict[str, float | int | str] = field(default_factory=dict)
    pictures: dict[str, NDArray[np.uint8]] = field(default_factory=dict)


@dataclass(frozen=True)
class AttackContext:
    """What an attack works with.

    Attributes:
        rng: the only source of randomness.
        log: shows one line to the person who waits.
        scratch: a private folder for what a later run of the same attack can take up.
        remarks: what the attack has to say beside its claims.
        refused: optional type of the access → why it was not granted.
    """

    rng: np.random.Generator
    log: Callable[[str], None]
    scratch: Path
    remarks: Remarks = field(default_factory=Remarks)
    refused: Mapping[type, str] = field(default_factory=dict)


_NUMBER = re.compile(r"(?<![^\s(])\d+(?:\.\d+)?(?=[\s,;:)]|$)")


def told_once(sentences: Iterable[str], of: str = "time") -> list[str]:
    """Returns each sentence once, with how often it was said.

    Sentences that differ in their numbers only are one, with the span of each number.

    Args:
        sentences: in order.
        of: what there was one of for each sentence, such as "message".

    >>> told_once(["2 pages are behind it", "it is masked", "5 pages are behind it"], "message")
    ['2 to 5 pages are behind it (2 messages)', 'it is masked']
    """
    times: Counter[tuple[str, ...]] = Counter()
    spans: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for sentence in sentences:
        words, numbers = tuple(_NUMBER.split(sentence)), _NUMBER.findall(sentence)
        times[words] += 1
        known = spans.get(words) or [(number, number) for number in numbers]
        spans[words] = [
            (min(low, number, key=float), max(high, number, key=float))
            for (low, high), number in zip(known, numbers, strict=True)
        ]
    told = []
    for words, count in times.items():
        numbers = [low if low == high else f"{low} to {high}" for low, high in spans[words]]
        pairs = itertools.zip_longest(words, numbers, fillvalue="")
        text = "".join(itertools.chain.from_iterable(pairs))
        told.append(f"{text} ({count} {of}s)" if count > 1 else text)
    return told


Access = TypeVar("Access", contravariant=True)
Claim = TypeVar("Claim", covariant=True)


class Attack(Protocol[Access, Claim]):
    """An attack: a frozen dataclass of settings with one method.

    What it may use is the type of its access, a dataclass with fields of the types in
    `fedpriv.threat.access`. What it hands back is a claim of `fedpriv.threat.claims`, or a tuple of
    claims; its type decides how it is scored.

    It may have a method `suits(self, outline: Outline) -> None`, which raises `NotApplicable` where
    `run` would, as far as that can be known in advance: `fedpriv attack RUN_DIR` asks it.

    Example:
        Whoever has documents that the model answers well is a member::

            @dataclass(frozen=True)
            class LossAccess:
                model: GreyBox
                held_out: HeldOutDocuments

            @dataclass(frozen=True)
            class Loss:
                def run(self, access: LossAccess, context: AttackContext) -> MembershipScores:
                    scores = np.array([
                        -np.mean([loss for losses in access.model.losses(pages) for loss in losses])
                        for pages in access.held_out.documents.values()
                    ])
                    guesses = np.where(scores > np.median(scores), MEMBER, NON_MEMBER)
                    return MembershipScores(tuple(access.held_out.documents), scores, guesses)
    """

    def run(self, access: Access, context: AttackContext) -> Claim:
        """Attacks.

        Raises:
            NotApplicable: if this model or this transcript gives the attack nothing to work on.
            ValueError: if the transcript does not fit the model.
        """
