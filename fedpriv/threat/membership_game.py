"""Attacks that ask who was in the training set, and what of it the model remembers.

The suspects are providers (companies). The adversary holds documents of each that were not trained
on, and may put questions to the model, or look at what the server saw. It hands back a verdict on
each provider; who was trained on is in neither of its arguments (`fedpriv.threat.truth`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import Document
from fedpriv.models.question_answering import QuestionAnswerer
from fedpriv.threat.attack import Capability, Workbench
from fedpriv.threat.queries import BlackBox
from fedpriv.threat.transcript import Transcript

MEMBER, NON_MEMBER, NO_GUESS = 1, -1, 0


@dataclass(frozen=True)
class Access:
    """What the adversary may look at.

    Attributes:
        final: the model that the federation has trained; a `GreyBox` where confidence and loss are
            granted.
        start: the public model that training started from, likewise; none where it is not known.
        view: what the server saw; none for an adversary outside, or where nothing was kept.
    """

    final: BlackBox
    start: BlackBox | None = None
    view: Transcript | None = None


@dataclass(frozen=True)
class Trial:
    """One split of the suspects into those whose membership is known, and those to be judged.

    Attributes:
        least_questions: s; providers with too few questions are in neither part (PFL-DocVQA, §7.2).
        repeat: its number among the trials of the same s.
        known: provider → whether it is a member; half of them are.
        unknown: the providers to be judged.
    """

    least_questions: int
    repeat: int
    known: Mapping[str, bool]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class Suspects:
    """What the adversary knows beside what it may look at.

    Attributes:
        documents: of each provider, each with questions whose answers it knows; none was trained
            on, but for those of canaries, where a coin decided that.
        trials: for attacks that are told some members; any other judges all providers once. What
            is known in one trial is not to be used in another. None for audits.
        build_model: returns a model of the federation's architecture; its weights are of no use.
        start_model: returns a model with the public weights that training started from; none where
            they are not known.
        canaries: the providers that were planted, each in or out by a coin that it does not know.
        assumptions: in words, for the report.
    """

    documents: Mapping[str, tuple[Document, ...]]
    trials: tuple[Trial, ...]
    build_model: Callable[[], QuestionAnswerer]
    start_model: Callable[[], QuestionAnswerer] | None = None
    canaries: frozenset[str] = frozenset()
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What one classifier says of n providers.

    Attributes:
        classifier: its name.
        providers: n.
        scores: (n,), float64; the higher, the rather a member.
        guesses: (n,), int8: `MEMBER`, `NON_MEMBER`, or `NO_GUESS` where it abstains.
        trial: in which it was made; none for one that needs no known members.
        clients: (n,), int64: the client that is said to hold the provider, -1 where none is; none
            for a classifier that does not say.
    """

    classifier: str
    providers: tuple[str, ...]
    scores: NDArray[np.float64]
    guesses: NDArray[np.int8]
    trial: Trial | None = None
    clients: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Probe:
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
class Secret:
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
class Judgement:
    """What an attack on providers hands back.

    Attributes:
        verdicts: on who is a member.
        probes: of what the model remembers.
        secrets: of canaries, ranked.
        not_applicable: classifier or test → why it could not be run.
        skipped: reason → how many questions were left out for it.
        pictures: file name without ending → (H, W, 3), uint8.
        notes: what a reader must know.
        details: further numbers for metrics.json, by name.
    """

    verdicts: tuple[Verdict, ...] = ()
    probes: tuple[Probe, ...] = ()
    secrets: tuple[Secret, ...] = ()
    not_applicable: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    pictures: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    details: Mapping[str, float | int | str] = field(default_factory=dict)


@runtime_checkable
class ProviderAttack(Protocol):
    """An attack on providers: a frozen dataclass of settings with one method.

    An attack with a class attribute `judges_canaries` that is true is an audit: its suspects are
    the canaries, and it hands back one verdict. The suspects of any other are everybody else.

    Example:
        Whoever the model answers well is a member::

            @dataclass(frozen=True)
            class Accurate:
                requires: ClassVar[frozenset[Capability]] = frozenset({Capability.ANSWERS})

                def judge(self, access, suspects, bench):
                    right = {
                        provider: np.mean([
                            is_exact(answer, question.answers)
                            for page, said in zip(pages, access.final.answers(pages), strict=True)
                            for question, answer in zip(page.questions, said, strict=True)
                        ])
                        for provider, pages in suspects.documents.items()
                    }
                    scores = np.array(list(right.values()))
                    guesses = np.where(scores > np.median(scores), MEMBER, NON_MEMBER)
                    return Judgement((Verdict("accurate", tuple(right), scores, guesses),))
    """

    @property
    def requires(self) -> frozenset[Capability]:
        """What must be granted."""
        ...

    def judge(self, access: Access, suspects: Suspects, bench: Workbench) -> Judgement:
        """Judges the suspects.

        Raises:
            NotApplicable: if this model or this transcript gives the attack nothing to work on.
        """
        ...
