"""What an attack is, what it may need, what it may know, and what it hands back.

What the adversary may use is the type of an attack's arguments: a `Transcript` of what the server
saw and `Knowledge`, which states every assumption beyond it. The truth is in neither
(`fedpriv.threat.truth`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedpriv.threat.transcript import Transcript

MessageKey = tuple[int, int | None]
"""Round and client of a message; no client for the aggregate of a round."""


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
class Known:
    """What the adversary is taken to know of the batch behind one message, B examples.

    Attributes:
        size: B.
        template: the pages with their private fields blank, (B, 3, H, W), uint8, in the model's
            resolution; none where no template is known, or the model reads no page.
        private: where the private fields are, (B, 1, H, W), bool; none with the template.
        text: the model's columns but `pixels`, each (B, …); none where the text is not given.
    """

    size: int
    template: NDArray[np.uint8] | None = None
    private: NDArray[np.bool_] | None = None
    text: Mapping[str, NDArray[Any]] | None = None


@dataclass(frozen=True)
class Knowledge:
    """What the adversary knows beside what it saw.

    Attributes:
        build_model: returns a model of the federation's architecture, with its tokenizer; both are
            public. The weights are to be loaded from the transcript.
        of: by message.
        assumptions: in words, for the report.
    """

    build_model: Callable[[], nn.Module]
    of: Mapping[MessageKey, Known]
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecoveredText:
    """Text read out of one message.

    Attributes:
        tokens: (n, 2), int64: a token's place in the model's input, -1 where unknown, and its id.
            Of several examples in a batch, the union.
        boxes: (n, 4), int64, in the model's 0…1000; -1 where a token's box is not found; none
            for models without boxes.
        question: as text; none where there is none to be found, or several examples mix.
        answer: as above.
        columns: the model's batch without `pixels`, each (B, …), for a page inversion to go on
            with; none where the text is not complete enough.
    """

    tokens: NDArray[np.int64]
    boxes: NDArray[np.int64] | None = None
    question: str | None = None
    answer: str | None = None
    columns: Mapping[str, NDArray[Any]] | None = None


@dataclass(frozen=True)
class Recovered:
    """What an attack made of one message.

    Attributes:
        message: which.
        pages: (B, 3, H, W), float32 in 0…255; none where no page was sought.
        text: none where no text was sought.
        evaluations: gradients of the model that were computed.
        seconds: of processor time.
        curve: measurements on the way, in order.
        notes: what a reader must know.
    """

    message: MessageKey
    pages: NDArray[np.float32] | None = None
    text: RecoveredText | None = None
    evaluations: int = 0
    seconds: float = 0.0
    curve: tuple[Mapping[str, float], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Findings:
    """What an attack hands back, by message.

    Attributes:
        recovered: of the messages that could be attacked.
        notes: what a reader must know of all of them.
        refused: for each message that could not, why; means are over the others.
    """

    recovered: tuple[Recovered, ...]
    notes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


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


class Attack(Protocol):
    """An attack: a frozen dataclass of settings with one method.

    Example:
        The attack that any other must beat::

            @dataclass(frozen=True)
            class Blank:
                requires: ClassVar[frozenset[Capability]] = frozenset()

                def run(self, view, knowledge, bench):
                    pages = {key: known.template for key, known in knowledge.of.items()}
                    return Findings(tuple(
                        Recovered(key, page.astype(np.float32)) for key, page in pages.items()
                    ))
    """

    @property
    def requires(self) -> frozenset[Capability]:
        """What the federation must grant."""
        ...

    def run(self, view: Transcript, knowledge: Knowledge, bench: Workbench) -> Findings:
        """Attacks every message that the knowledge speaks of.

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
