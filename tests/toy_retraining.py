"""An attack on the toy federation that trains it again with other seeds, and a client that dies."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from toy import Faulty

from fedpriv.runtime.run_folder import METRICS, RunFolder
from fedpriv.threat.access import Retrain
from fedpriv.threat.results import Result
from fedpriv.threat.retrain import Variant
from fedpriv.threat.scoring.registry import scorer


@dataclass(frozen=True)
class Losses:
    """Last loss by training."""

    of: Mapping[str, float]


@dataclass(frozen=True)
class SeedsAccess:
    retrain: Retrain


@dataclass(frozen=True)
class Seeds:
    """Trains with each seed.

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
        dying = {"_target_": "toy_retraining.Dying", "marker": self.marker, "kind": self.kind}
        client = {"client": dying} if self.marker else {}
        return [Variant(f"seed-{s}", self.overrides, {"seed": s, **client}) for s in self.seeds]

    def check(self, laboratory):
        laboratory.check(self.variants())

    def run(self, access: SeedsAccess, context) -> Losses:
        laboratory = access.retrain.laboratory
        return Losses(laboratory.map(last_loss, laboratory.train(self.variants())))


def last_loss(run):
    return RunFolder.existing(run.path).records(METRICS)[-1]["loss"]


@scorer(Losses)
def score(claims, scoring):
    (claim,) = claims
    return Result("losses", f"{len(claim.of)} losses", {"losses": dict(claim.of)})


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
