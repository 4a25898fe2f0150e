"""What an attack hands back. The type decides how it is scored (`fedpriv.threat.scoring`).

An attack returns one claim or a tuple of them, of one type or several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.threat.access import KnownMembershipSplit, MessageKey

MEMBER, NON_MEMBER, NO_GUESS = 1, -1, 0

SEVERAL = " | "
"""Between the questions, or the answers, of several examples of a batch."""

PUBLIC = "public"
"""The confidence by which attempts of the baseline are compared."""


@dataclass(frozen=True)
class RecoveredText:
    """Text read out of one message.

    Attributes:
        tokens: (n, 2), int64: a token's place in the model's input, -1 where unknown, and its id.
            Of several examples in a batch, the union.
        boxes: (n, 4), int64, in the model's 0…1000; -1 where a token's box is not found. None
            for models without boxes.
        question: as text; of several examples, in any order, with `SEVERAL` in between. None where
            none was found, or several examples mix.
        answer: likewise, in the same order.
        columns: the model's batch without `pixels`, each (B, …), for a page inversion to go on
            with. None where the text is not complete enough.
        alone: whether the tokens are said to be of this message's client and of no other.
    """

    tokens: NDArray[np.int64]
    boxes: NDArray[np.int64] | None = None
    question: str | None = None
    answer: str | None = None
    columns: Mapping[str, NDArray[Any]] | None = None
    alone: bool = False


@dataclass(frozen=True)
class RecoveredBatch:
    """What an attack made of the batch behind one message, B examples.

    Attributes:
        message: which.
        pages: (B, 3, H, W), float32 in 0…255. None where no page was sought.
        text: None where no text was sought.
        evaluations: gradients of the model that were computed.
        seconds: of processor time.
        curve: measurements on the way, in order.
    """

    message: MessageKey
    pages: NDArray[np.float32] | None = None
    text: RecoveredText | None = None
    evaluations: int = 0
    seconds: float = 0.0
    curve: tuple[Mapping[str, float], ...] = ()


@dataclass(frozen=True)
class MembershipScores:
    """What one classifier says of n providers.

    Attributes:
        providers: n.
        scores: (n,), float64. Higher means more likely to be a member.
        guesses: (n,), int8: `MEMBER`, `NON_MEMBER`, or `NO_GUESS` where it abstains.
        classifier: its name.
        split: in which it was made. None for a classifier that needs no known members.
        clients: (n,), int64: the client that is said to hold the provider, -1 where none is. None
            for a classifier that does not say.
        primary: whether the verdict on the attack rests on this classifier. It is the attack's
            choice, made before anybody sees the truth. Where none says so it is the first.

    Raises:
        ValueError: if scores, guesses or clients are no arrays, or not as many as the providers.
    """

    providers: tuple[str, ...]
    scores: NDArray[np.float64]
    guesses: NDArray[np.int8]
    classifier: str = "score"
    split: KnownMembershipSplit | None = None
    clients: NDArray[np.int64] | None = None
    primary: bool = False

    def __post_init__(self) -> None:
        for name in ("scores", "guesses", "clients"):
            values = getattr(self, name)
            if name == "clients" and values is None:
                continue
            if not isinstance(values, np.ndarray) or values.shape != (len(self.providers),):
                raise ValueError(
                    f"MembershipScores.{name}: got {values!r:.80}, expected an array of "
                    f"{len(self.providers)} numbers, one for each supplier"
                )


@dataclass(frozen=True)
class CanaryGuesses:
    """Guesses of the coins of planted providers, for a lower bound on ε.

    Attributes:
        scores: of all canaries, with guesses whose number was fixed before any look.
        view: of the ledger, that the bound is held against: "server_plain" for an attack that
            looked at updates of single clients, "global" for one that looked at models only.
    """

    scores: MembershipScores
    view: str = "global"


@dataclass(frozen=True)
class MemorisationProbe:
    """A question that the page does not answer, and what the model said.

    Attributes:
        test: "removed" where the answer was taken off the page, "absent" where it never stood.
        provider: of the page.
        document: its id.
        key: of the question.
        question: as it was asked.
        accepted: what the page said before; empty where it never said anything.
        answer: of the model.
        confidence: of the answer; NaN where it is not granted.
        residual: whether another word on the page still spells the answer, or a part of it.
        model: "final" or "start".
    """

    test: str
    provider: str
    document: str
    key: str
    question: str
    accepted: tuple[str, ...]
    answer: str
    confidence: float
    residual: bool
    model: str = "final"


@dataclass(frozen=True)
class CanaryRank:
    """A canary's secret beside others that it might have been, by the model's loss.

    Attributes:
        provider: the canary.
        repeats: pages that say the secret; they were trained on if the canary was.
        loss: on the secret.
        references: (n,), float64: on others of the same space, on the same page and question.
    """

    provider: str
    repeats: int
    loss: float
    references: NDArray[np.float64]


@dataclass(frozen=True)
class Attempt:
    """One reconstruction of a field.

    Attributes:
        tokens: (k,), ids.
        confidence: by the name of a membership metric. Higher means more likely from training.
    """

    tokens: tuple[int, ...]
    confidence: Mapping[str, float]


@dataclass(frozen=True)
class Reconstruction:
    """What an attack made of one field.

    Attributes:
        number: of the field.
        attempts: in order; the first is the one-shot attack's.
        baseline: the same without the target, with `PUBLIC` as the only confidence; as many.
    """

    number: int
    attempts: tuple[Attempt, ...]
    baseline: tuple[Attempt, ...]


@dataclass(frozen=True)
class RankedField:
    """What an attack says of the candidates for one field.

    Attributes:
        number: of the field.
        candidates: C, each the ids of k tokens, no two alike.
        losses: (C,), float64. Lower means more likely to have stood there.

    Raises:
        ValueError: if there are not as many losses as candidates, or one is not finite.
    """

    number: int
    candidates: Sequence[tuple[int, ...]]
    losses: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.losses.shape != (len(self.candidates),) or not np.isfinite(self.losses).all():
            raise ValueError(
                f"RankedField.losses of field {self.number}: got {self.losses!r:.80}, expected "
                f"{len(self.candidates)} finite numbers, one for each candidate"
            )


@dataclass(frozen=True)
class FieldRanking:
    """The candidates for scrubbed fields, ranked with one model.

    Attributes:
        fields: of training documents and of documents held out.
        model: name of the model in words, as `WhiteBox.name`.
        round: after which the model was.
        searched: whether the candidates were visited by a search that the lists only started, so
            that the place of the true value among them says nothing.
    """

    fields: tuple[RankedField, ...]
    model: str = "the end of the run"
    round: int = 0
    searched: bool = False


@dataclass(frozen=True)
class FieldGuesses:
    """What an attack made of the scrubbed fields with one model.

    Attributes:
        fields: those that could be attacked.
        membership: the confidence by which the attack chooses and sorts; all are scored.
        model: name of the model in words, as `WhiteBox.name`.
        round: after which the model was.
        measured: its validation loss and score, as `WhiteBox.measured`.
        details: further numbers for the result.
        mute: why finding nothing tells nothing of this model. Empty where it does.
    """

    fields: tuple[Reconstruction, ...]
    membership: str
    model: str = "the end of the run"
    round: int = 0
    measured: Mapping[str, float] = field(default_factory=dict)
    details: Mapping[str, float | int | str] = field(default_factory=dict)
    mute: str = ""
