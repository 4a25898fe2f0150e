"""FeAm-DP's client half: PrIeD-KIE (Saifullah et al.), Algorithm 1, ClientUpdate.

Draws a batch, every example with probability q_k; clips each one's gradient to norm S; sends
g_k = (1/B) (Σ ḡ(x_i) + N(0, σ_k² S² I)). One step, no training of its own. An empty batch sends
its noise like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedpriv.clients.share import with_share
from fedpriv.data.examples import Examples
from fedpriv.federation.audit.axes import OnAxes
from fedpriv.federation.client import ClientContext, ClientUpdate, Draw
from fedpriv.federation.messages import NUM_EXAMPLES, Instruction
from fedpriv.federation.private_strategy import TOLD, VARIANT
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.training.per_example import PerExample, Way


@dataclass(frozen=True)
class ExampleGradients:
    """Sends one noisy sum of clipped per-example gradients.

    Args:
        per_example: the way in which the gradients of single examples are computed.
    """

    action: ClassVar[str] = "example_gradients"
    computes: ClassVar[tuple[str, ...]] = ("precision",)
    follows: ClassVar[tuple[str, ...]] = TOLD

    per_example: PerExample = PerExample()  # noqa: RUF009 - frozen

    def problems(self, model: nn.Module, train: Examples) -> list[str]:
        """Returns what keeps this model's examples from having gradients of their own."""
        return self.per_example.problems(model)

    def train(self, context: ClientContext) -> ClientUpdate:
        """Returns g_k."""
        settings = context.instruction.settings
        mechanism = Mechanism.from_settings(settings)
        batch = context.examples.take(
            self.drawn(context.examples, context.instruction, context.generator)
        )
        clipped = self.per_example.clipped_sum(
            context.model, batch, mechanism.clip_norm, context.device, context.computing
        )
        if clipped.nonfinite:
            context.notes.append(f"{clipped.nonfinite} gradients are not finite, counted as 0")
        divisor = max(1, len(batch)) if settings[VARIANT] == "paper" else mechanism.normaliser
        total = with_share(context, clipped.total, mechanism, divisor)
        return ClientUpdate({"float": total}, {NUM_EXAMPLES: len(context.examples)})

    def on_axes(self, axes: int) -> ExampleGradients:
        """Returns this half for an audit (`fedpriv.federation.audit.axes.HasAxes`)."""
        return replace(self, per_example=OnAxes(axes=axes))

    def steepest(self, clip_norm: float, method: Way) -> ExampleGradients:
        """Returns this half, which clips gradients themselves."""
        return replace(self, per_example=replace(self.per_example, method=method))

    def drawn(self, examples: Examples, instruction: Instruction, draw: Draw) -> NDArray[np.int64]:
        """Returns the positions of B_k: each of the client's examples with the record rate."""
        rate = Mechanism.from_settings(instruction.settings).record_rate
        return np.flatnonzero(draw("example sampling").random(len(examples)) < rate)
