"""FedAvg-DP's client half: DP-SGD or DP-Adam on the client's own data (PrIeD-KIE, §4.5, Eq. 1).

Each step draws a batch, every example with probability q; clips each one's gradient to norm S, adds
N(0, σ²S² I) to their sum, divides by the expected batch and hands that to the optimiser.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from fedpriv.data.examples import Examples
from fedpriv.federation.audit.axes import OnAxes
from fedpriv.federation.client import ClientContext, ClientUpdate
from fedpriv.federation.messages import NUM_EXAMPLES
from fedpriv.federation.private_strategy import BATCH, STEPS, TOLD, VARIANT
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.privacy.noise import add_gaussian
from fedpriv.runtime.vectors import over_
from fedpriv.training.loops import Optimizer
from fedpriv.training.per_example import PerExample, Way


@dataclass(frozen=True)
class DPLocalTraining:
    """Takes noisy steps on the client's own examples.

    Args:
        optimizer: the optimiser, which is made anew in every round; Adam in the paper.
        per_example: the way in which the gradients of single examples are computed.
    """

    action: ClassVar[str] = "dp_local_training"
    computes: ClassVar[tuple[str, ...]] = ("precision",)
    follows: ClassVar[tuple[str, ...]] = (*TOLD, STEPS, BATCH)

    optimizer: Optimizer = Optimizer(name="adam", lr=1e-3)  # noqa: RUF009 - frozen
    per_example: PerExample = PerExample()  # noqa: RUF009 - frozen

    def problems(self, model: nn.Module, train: Examples) -> list[str]:
        """Returns what keeps this model's examples from having gradients of their own."""
        return self.per_example.problems(model)

    def on_axes(self, axes: int) -> DPLocalTraining:
        """Returns this half for an audit (`fedpriv.federation.audit.axes.HasAxes`).

        The ledger counts each noisy step as if it were seen. So step t moves the t-th block of m
        weights, and no other: the message then tells every step by itself.
        """
        return replace(self, per_example=OnAxes(axes=axes), optimizer=_BlockByBlock(axes=axes))

    def steepest(self, clip_norm: float, method: Way) -> DPLocalTraining:
        """Returns this half with steps that are the clipped gradients themselves."""
        way = replace(self.per_example, method=method)
        return replace(self, optimizer=Optimizer(name="sgd", lr=1.0), per_example=way)

    def train(self, context: ClientContext) -> ClientUpdate:
        """Returns the change of the model after all steps, on (1/B) (Σ ḡ(x_i) + N(0, σ²S² I))."""
        optimizer = self.optimizer.build(context.model)
        coins, noise = context.generator("example sampling"), context.generator("privacy noise")
        settings, examples = context.instruction.settings, context.examples
        mechanism = Mechanism.from_settings(settings)
        own = mechanism.record_rate * max(1, len(examples))
        divisor = own if settings[VARIANT] == "paper" else settings[BATCH]
        for _ in range(int(settings[STEPS])):
            drawn = coins.random(len(examples)) < mechanism.record_rate
            clipped = self.per_example.clipped_sum(
                context.model,
                examples.take(np.flatnonzero(drawn)),
                mechanism.clip_norm,
                context.device,
                context.computing,
            )
            if clipped.nonfinite:
                context.notes.append(f"{clipped.nonfinite} gradients are not finite, counted as 0")
            total = add_gaussian(clipped.total, mechanism.noise_std, noise)
            over_(total, divisor)
            for name, piece in context.layout.named({"float": total}).items():
                parameter = context.model.get_parameter(name)
                parameter.grad = piece.to(parameter)
            optimizer.step()
        update = context.layout.change_since(context.parameters)
        return ClientUpdate(update, {NUM_EXAMPLES: len(examples)})


@dataclass(frozen=True)
class _BlockByBlock(Optimizer):
    """Adds the t-th gradient to the t-th block of a model's only tensor."""

    axes: int = 1

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        (weight,), axes, step = model.parameters(), self.axes, itertools.count()

        class Blocks(torch.optim.SGD):
            @torch.no_grad()
            def step(self, closure: Any = None) -> None:  # type: ignore[override]
                start = next(step) * axes
                if weight.grad is not None:
                    weight[start : start + axes] += weight.grad[start : start + axes]

        return Blocks([weight], lr=self.lr)
