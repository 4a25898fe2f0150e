"""Attacks on the toy federation: one says a number, one trains it again; and a client that dies."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from toy import Faulty

from fedpriv.runtime.run_folder import METRICS, RunFolder
from fedpriv.threat.access import Architecture, Retrain
from fedpriv.threat.attack import AttackContext, NotApplicable
from fedpriv.threat.results import Result
from fedpriv.threat.scoring.registry import scorer
from fedpriv.threat.surfaces.retrain import Variant


@dataclass(frozen=True)
class Found:
    """Numbers, and a sentence about them."""

    told: str
    numbers: Mapping[str, Any] = field(default_factory=dict)


@scorer(Found)
def score(claims, scoring):
    (claim,) = claims
    return Result("found", claim.told, dict(claim.numbers))


@dataclass(frozen=True)
class GuessAccess:
    architecture: Architecture


@dataclass(frozen=True)
class Guess:
    """Hands back a number with some luck."""

    value: float = 0.0
    luck: float = 0.0
    parts: tuple = ()
    refuse: bool = False

    def run(self, access: GuessAccess, context: AttackContext) -> Found:
        if self.refuse:
            raise NotApplicable("the toy does not want to")
        if "fail" in self.parts:
            raise RuntimeError("the toy is broken")
        value = self.value + self.luck * context.rng.random()
        numbers = {"value": value, "inner": {"0.01": {"twice": 2 * value}}}
        return Found(f"the number is {value}", {**numbers, "around": [value - 1, value + 1]})


@dataclass(frozen=True)
class SeedsAccess:
    retrain: Retrain


@dataclass(frozen=True)
class Seeds:
    """Trains with each seed, and says the last loss of each training.

    Args:
        seeds: one training each.
        overrides: of all trainings.
        marker: a file; without it a client of one training dies, and makes it.
        kind: "kill" or "raise": how that client dies.
    """

    seeds: tuple[int, ...] = (1, 2, 3)
    overrides: tuple[str, ...] = ("rounds=3",)
    marker: str = ""
    kind: str = "kill"

    def variants(self):
        dying = {"_target_": "toy_attacks.Dying", "marker": self.marker, "kind": self.kind}
        client = {"client": dying} if self.marker else {}
        return [Variant(f"seed-{s}", self.overrides, {"seed": s, **client}) for s in self.seeds]

    def check(self, laboratory):
        laboratory.check(self.variants())

    def run(self, access: SeedsAccess, context: AttackContext) -> Found:
        laboratory = access.retrain.laboratory
        losses = laboratory.map(last_loss, laboratory.train(self.variants()))
        return Found(f"{len(losses)} losses", {"losses": dict(losses)})


def last_loss(run):
    return RunFolder.existing(run.path).records(METRICS)[-1]["loss"]


@dataclass(frozen=True)
class Dying:
    """Local training that ends its process or fails in round 2, the first time only."""

    action: ClassVar[str] = "local_training"

    marker: str
    kind: str = "kill"
    inner: Faulty = field(default_factory=Faulty)

    def train(self, context):
        marker = Path(self.marker)
        if context.instruction.round == 2 and context.client == 3 and not marker.exists():
            marker.write_text("died")
            if self.kind == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("this client has had enough")
        return self.inner.train(context)
