"""Which function scores which claim.

A new kind of claim is one dataclass and one scorer::

    @scorer(Guess, settings=IntervalSettings)
    def score_guesses(claims: Sequence[Guess], scoring: Scoring) -> Result:
        ...
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from fedpriv.threat.attack import Remarks
from fedpriv.threat.results import Result
from fedpriv.threat.scoring.power import Power
from fedpriv.threat.settings import AttackSettings, between_0_and_1
from fedpriv.threat.truth import TruthStore


@dataclass(frozen=True)
class Scoring:
    """What a scorer works with; scorers alone open the truth.

    Attributes:
        truth: of the run.
        granted: what the attack was granted, by its type.
        settings: of the attack.
        rng: of bootstrap and permutations.
        seconds: of processor time that the attack took.
        ledger: the content of ledger.json. None where there is no ledger.
        remarks: of the attack.
        files: what is to lie beside the result, by name; the scorer adds to it.
    """

    truth: TruthStore
    granted: Mapping[type, Any]
    settings: AttackSettings
    rng: np.random.Generator
    seconds: float = 0.0
    ledger: Mapping[str, Any] | None = None
    remarks: Remarks = field(default_factory=Remarks)
    files: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class OriginalSettings(AttackSettings):
    """What findings may show.

    Args:
        originals: whether findings may show private pages and texts that were not reconstructed.
    """

    originals: bool = False


@dataclass(frozen=True, kw_only=True)
class IntervalSettings(AttackSettings):
    """How sure a statement is to be.

    Args:
        confidence: the confidence level of intervals, and of the bound on ε that an audit gives.
    """

    confidence: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        between_0_and_1(confidence=self.confidence)


Scorer = Callable[[Sequence[Any], Scoring], Result]
S = TypeVar("S", bound=Callable[..., Result])


@dataclass(frozen=True)
class Scored:
    """A scorer, the settings that it depends on, and what its claims could show."""

    score: Scorer
    settings: type[AttackSettings]
    power: Power | None = None


SCORERS: dict[type, Scored] = {}


def scorer(
    claim: type, *, settings: type[AttackSettings] = AttackSettings, power: Power | None = None
) -> Callable[[S], S]:
    """Registers the function that scores claims of a type.

    Args:
        claim: the type.
        settings: that the function depends on.
        power: what such claims could show on so many units; None if that is not known.
    """

    def register(score: S) -> S:
        SCORERS[claim] = Scored(score, settings, power)
        return score

    return register


def claims_of(annotation: Any) -> list[type]:
    """Returns the types of claims that an annotation such as `tuple[A | B, ...]` names."""
    if typing.get_origin(annotation) in (tuple, typing.Union, types.UnionType):
        return [claim for part in typing.get_args(annotation) for claim in claims_of(part)]
    return [annotation] if isinstance(annotation, type) else []


def by_kind(claimed: Any) -> dict[type, list[Any]]:
    """Returns claims by their type, in the order in which the types first occur.

    Raises:
        ValueError: if something is no claim that can be scored.
    """
    claims = claimed if isinstance(claimed, tuple) else (claimed,)
    found: dict[type, list[Any]] = {}
    for claim in claims:
        if type(claim) not in SCORERS:
            known = ", ".join(sorted(kind.__name__ for kind in SCORERS))
            raise ValueError(
                f"the attack handed back a {type(claim).__name__}, which nothing scores: expected "
                f"{known}, or a claim of your own with a function under "
                "@fedpriv.threat.scoring.registry.scorer"
            )
        found.setdefault(type(claim), []).append(claim)
    return found
