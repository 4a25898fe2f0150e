"""What an attack is, what it may need, what it may know, and what it hands back.

What the adversary may use is the type of an attack's arguments: a `Transcript` of what the server
saw and `Knowledge`, which states every assumption beyond it. The truth is in neither
(`fedpriv.threat.truth`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedpriv.threat.transcript import Transcript


class Capability(Enum):
    """What an attack can require of a federation; the value is what a report calls it."""

    CLIENT_UPDATE = "each client's update"
    MASKED_UPDATE = "each client's update under a mask"
    AGGREGATE = "the sum of the updates"
    GLOBAL_MODEL = "a global model"
    MODEL_SERIES = "the global models of several rounds"
    ANSWERS = "answers of the final model"
    CONFIDENCE = "confidence and loss of the final model's answers"
    PUBLIC_MODEL = "the public model that training started from"


@dataclass(frozen=True)
class Workbench:
    """What an attack works with.

    Attributes:
        rng: the only source of randomness.
        tell: shows one line to the person who waits.
        scratch: a folder for what a later run of the same attack can take up; away from the run.
    """

    rng: np.random.Generator
    tell: Callable[[str], None]
    scratch: Path


class NotApplicable(ValueError):
    """The federation does not grant what the attack requires, or the model has no such weakness."""


class NotGranted(NotApplicable):
    """The run does not grant what the attack asks for.

    Args:
        why: what is missing.
        remedy: what would grant it; empty where `why` says it.
    """

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(f"{why}; granted by {remedy}" if remedy else why)


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


Access = TypeVar("Access", contravariant=True)
Claim = TypeVar("Claim", covariant=True)


class Attack(Protocol[Access, Claim]):
    """An attack: a frozen dataclass of settings with one method.

    What it may use is the type of its access, a dataclass with fields of the types in
    `fedpriv.threat.access`. What it hands back is a claim of `fedpriv.threat.claims`, or a tuple of
    claims; its type decides how it is scored.

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
        ...


def granted(view: Transcript) -> frozenset[Capability]:
    """Returns what a transcript grants."""
    kinds = {upload.kind for seen in view.rounds for upload in seen.uploads}
    has = {
        Capability.MASKED_UPDATE: "masked" in kinds,
        Capability.CLIENT_UPDATE: bool(kinds - {"masked"}),
        Capability.AGGREGATE: any(seen.aggregate is not None for seen in view.rounds),
        Capability.GLOBAL_MODEL: bool(view.rounds),
        Capability.MODEL_SERIES: len({seen.round for seen in view.rounds}) > 1,
    }
    return frozenset(capability for capability, there in has.items() if there)
