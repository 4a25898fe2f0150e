"""A study of the toy federation: the same training with several seeds."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from toy import Faulty

from fedpriv.runtime.run_folder import METRICS
from fedpriv.threat.study import Variant


@dataclass(frozen=True)
class Seeds:
    """Trains with each seed; `wrong` names a setting that does not exist, to be found in time."""

    seeds: tuple[int, ...] = (1, 2, 3)
    wrong: str = ""

    def variants(self, base):
        return [
            Variant(
                f"seed-{seed}",
                ("rounds=3",),
                {"seed": seed, **({self.wrong: 1} if self.wrong else {})},
            )
            for seed in self.seeds
        ]

    def conclude(self, lab):
        losses = {
            f"seed-{s}": lab.training(f"seed-{s}").records(METRICS)[-1]["loss"] for s in self.seeds
        }
        lab.folder.write_json("found.json", losses)
        return {"status": "done", "assumptions": [], "notes": [], "trained": len(losses)}


@dataclass(frozen=True)
class Dying:
    """Local training that takes its process down in round 2, the first time only."""

    action: ClassVar[str] = "local_training"

    marker: str
    kind: str = "exit"
    pause: float = 0.0
    inner: Faulty = field(default_factory=Faulty)

    def train(self, context):
        marker = Path(self.marker)
        if context.instruction.round == 2 and context.client == 3 and not marker.exists():
            marker.write_text("died")
            if self.kind == "raise":
                raise RuntimeError("this client has had enough")
            os._exit(3)
        return self.inner.train(context)
