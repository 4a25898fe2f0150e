"""Safe Template as what a publisher does to its templates beforehand (GI-DQA, App. A.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedpriv.attacks.inversion.safe_template import KINDS, Kind, safe_template
from fedpriv.attacks.victim import tensors_of


@dataclass(frozen=True)
class SafeTemplate:
    """Publishes templates through `safe_template`, rounded to whole numbers as pictures are.

    The paper computes them once, offline, with a question and an answer of the publisher's. Here
    they are computed for each page and round, with that page's own: at its best.

    Args:
        epsilon: of 255; in the paper 8, 12 and 16 for "pgd", 12 and 32 for "random".
        kind: "pgd", "random" or "pgd_as_printed".
        steps: of PGD.
    """

    epsilon: float = 8.0
    kind: Kind = "pgd"
    steps: int = 40

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r}: expected one of {', '.join(KINDS)}")
        if not (0 < self.epsilon <= 255 and self.steps > 0):
            raise ValueError(
                f"epsilon={self.epsilon}, steps={self.steps}: expected positive numbers; epsilon "
                "in pixels of 0…255"
            )

    def publish(
        self,
        model: torch.nn.Module,
        columns: Mapping[str, NDArray[Any]],
        template: NDArray[np.uint8],
        rng: np.random.Generator,
    ) -> NDArray[np.uint8]:
        """Returns the templates to publish; see `fedpriv.threat.settings.Publisher`."""
        clean = torch.from_numpy(np.array(template)).float()
        safe = safe_template(
            model, tensors_of(columns), clean, self.epsilon, rng, kind=self.kind, steps=self.steps
        )
        return safe.round().clamp(0, 255).to(torch.uint8).numpy()
