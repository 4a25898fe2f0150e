"""What `fedpriv attack` takes beside the attack: assumptions, scoring, and how it is run.

Each is read by some grants (`fedpriv.threat.grants`) or scorers (`fedpriv.threat.scoring`). One
that the chosen attack has no use for is refused, not ignored.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from fedpriv.metrics.ocr import OCR
from fedpriv.runtime.torch_state import unusable_device
from fedpriv.threat.candidates import Candidates
from fedpriv.threat.knowledge import Assumed

CRITERIA = ("precision", "loss")
TARGETS = ("final", "start", *CRITERIA, "series")


class Publisher(Protocol):
    """Makes the templates that are published, and with them what an adversary knows."""

    def publish(
        self,
        model: torch.nn.Module,
        columns: Mapping[str, NDArray[Any]],
        template: NDArray[np.uint8],
        rng: np.random.Generator,
    ) -> NDArray[np.uint8]:
        """Returns the templates to publish, (B, 3, H, W), in place of the blank pages.

        Args:
            model: with the parameters of the round.
            columns: the model's batch without `pixels`, of the documents behind the message.
            template: blank pages, (B, 3, H, W).
            rng: the only source of randomness.
        """


@dataclass(frozen=True)
class AttackSettings:
    """All settings of an attack but its own.

    Args:
        rounds: the numbers of the rounds whose messages are attacked. None attacks every round of
            which the run kept messages.
        clients: the numbers of the clients whose messages are attacked. None attacks every client
            of which the run kept messages.
        assume: what the adversary knows of the batches behind the messages.
        publisher: a defence that the publisher of the page templates applies to them before the
            adversary sees them. None publishes the templates unchanged.
        access: what the model returns when the adversary asks it: "grey_box" returns answers with
            confidence and loss, "black_box" returns answers alone.
        public_start: whether the adversary knows the public model that training started from.
        known: r, the share of the providers whose membership the adversary knows. Half of these
            are members.
        repeats: how many times the known providers are drawn anew. The attack judges the other
            providers after each draw.
        min_questions: thresholds s on the number of a provider's questions, in ascending order.
            Providers with too few questions are left out, and the attack is scored for each
            threshold (PFL-DocVQA's sets T_s).
        strict: whether a provider needs more than s questions, as the caption of Table 4 in
            PFL-DocVQA says. If False, s questions are enough, as its §7.2 says.
        target: which model of the run is attacked: "final"; "start", the model before training;
            "precision" or "loss", the model of the round with the best validation score (F1 or
            accuracy) or the lowest validation loss (CDMI, §5.1); the number of a round; or
            "series", one kept model after the other (CDMI, Fig. 7).
        every: the number of rounds from one attacked model to the next with target="series".
        most_fields: the largest number of scrubbed fields that are attacked, drawn at random. None
            attacks all of them.
        controls: the number of fields in documents that nobody trained on which are attacked for
            comparison, drawn at random. None takes as many as there are attacked fields of training
            documents. 0 saves time, but then nothing shows how much of a success is memory.
        candidates: which values a scrubbed field may hold, as far as the adversary knows.
        retrain: whether variants of the run may be trained, for attacks that compare models.
        workers: the number of variants of the run that are trained side by side, each in a process
            of its own. 0 trains them in this process; None takes the number of the run
            (`federation.workers`).
        ocr: the program that reads the text on reconstructed pages. None leaves out the scores that
            need it.
        originals: whether findings may show private pages and texts that were not reconstructed.
        epsilon: the constant ε in the improvement factor (CDMI, eq. 6), for which the paper gives
            no value. It is no privacy budget.
        confidence: the confidence level of intervals, and of the bound on ε that an audit gives.
        resamples: the number of bootstrap samples for intervals that have no formula.
        seed: the seed of all random choices in the attack and in its scoring.
        threads: the number of threads that torch uses.
        device: where the attack computes with models, such as "cpu" or "cuda". None takes the GPU,
            if torch finds one.
    """

    rounds: tuple[int, ...] | None = None
    clients: tuple[int, ...] | None = None
    assume: Assumed = Assumed()  # noqa: RUF009 - frozen
    publisher: Publisher | None = None
    access: Literal["grey_box", "black_box"] = "grey_box"
    public_start: bool = True
    known: float = 0.15
    repeats: int = 5
    min_questions: tuple[int, ...] = (0, 5, 10)
    strict: bool = True
    target: str | int = "final"
    every: int = 1
    most_fields: int | None = None
    controls: int | None = None
    candidates: Candidates = Candidates()  # noqa: RUF009 - frozen
    retrain: bool = False
    workers: int | None = None
    ocr: OCR | None = None
    originals: bool = False
    epsilon: float = 0.01
    confidence: float = 0.95
    resamples: int = 1000
    seed: int = 0
    threads: int = 1
    device: str | None = None

    @property
    def on(self) -> str:
        """The device that is meant."""
        return self.device or ("cuda" if torch.cuda.is_available() else "cpu")

    def __post_init__(self) -> None:
        for name in ("rounds", "clients"):
            if getattr(self, name) == ():
                raise ValueError(f"{name}=[]: name at least one; null takes all that were kept")
        if self.access not in ("grey_box", "black_box"):
            raise ValueError(f"access={self.access!r}: expected 'grey_box' or 'black_box'")
        for name in ("known", "confidence"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected a value between 0 and 1")
        if not self.epsilon > 0:
            raise ValueError(f"epsilon={self.epsilon}: expected a positive number")
        least = {
            "repeats": 1,
            "every": 1,
            "most_fields": 1,
            "controls": 0,
            "resamples": 100,
            "threads": 1,
            "workers": 0,
        }
        for name, smallest in least.items():
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise ValueError(f"{name}={value}: expected at least {smallest}")
        few = list(self.min_questions)
        if not few or few != sorted(set(few)) or few[0] < 0:
            raise ValueError(f"min_questions={few}: expected ascending numbers from 0 on")
        if isinstance(self.target, str) and self.target not in TARGETS:
            raise ValueError(
                f"target={self.target!r}: expected a round's number, or {', '.join(TARGETS)}"
            )
        if self.device not in (None, "cpu") and (cannot := unusable_device(self.on)):
            raise ValueError(f"device={self.device!r}: {cannot}")


ALWAYS = ("device", "ocr", "originals", "retrain", "seed", "threads")
"""Settings that every attack takes, though some have no use for them."""


def unused(settings: AttackSettings, used: set[str]) -> list[str]:
    """Returns a line for each setting that is not as by default, and that nothing here reads."""
    takes = ", ".join((*sorted(used - {*ALWAYS}), *ALWAYS))
    return [
        f"{field.name}={json.dumps(getattr(settings, field.name), default=str)}: nothing that this "
        f"attack uses depends on it; it takes {takes}"
        for field in dataclasses.fields(AttackSettings)
        if field.name not in used
        and field.name not in ALWAYS
        and getattr(settings, field.name) != field.default
    ]
