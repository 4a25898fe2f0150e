"""FL-PROVIDER-DP's client half: PFL-DocVQA (Tito et al. 2024), Algorithm 1 lines 10–19.

For each provider P drawn from the client's own, train T_gd AdamW steps from w_{t-1} on P's
documents and clip the change to norm C; send u_k = (1/M) (Σ_P Δ̂_P + N(0, σ²C²I/|K|)).

The listing draws a fixed number |M| of providers; here each is drawn by a coin of its own, in both
variants, which is what the accountants assume.

Under a mechanism whose unit is the client, all its documents count as one provider's.

Every provider starts from the same model, buffers included, and from random numbers of its own, so
that one provider's change does not depend on which others were drawn: that is what the sensitivity
C assumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fedpriv.data.examples import PROVIDER, Examples
from fedpriv.federation.client import ClientContext, ClientUpdate, Draw
from fedpriv.federation.messages import Instruction
from fedpriv.federation.private_strategy import SHARES
from fedpriv.privacy.clipping import clip
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.privacy.noise import add_gaussian, share_std
from fedpriv.runtime.torch_state import isolated_randomness
from fedpriv.runtime.vectors import Vector
from fedpriv.training.computing import Backward
from fedpriv.training.loops import Optimizer, train_steps


@dataclass(frozen=True)
class ProviderUpdates:
    """Trains on one provider's documents at a time.

    Args:
        steps: the number of optimiser steps on the examples of one provider (T_gd), which are
            shuffled anew at each pass.
        batch_size: the number of examples in one optimiser step; 8 in the paper.
        optimizer: the optimiser, which is made anew for each provider; AdamW with a learning rate
            of 2e-4 in the paper.
    """

    action: ClassVar[str] = "provider_updates"
    computes: ClassVar[tuple[str, ...]] = ("precision", "microbatch")

    steps: int = 1
    batch_size: int = 8
    optimizer: Optimizer = Optimizer()  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: expected at least 1")

    def problems(self, model: nn.Module, train: Examples) -> list[str]:
        """Returns a problem if the examples do not name their providers."""
        if PROVIDER in train.columns:
            return []
        return [f"the examples have no column {PROVIDER!r}: whose each example is, as integers"]

    def train(self, context: ClientContext) -> ClientUpdate:
        """Returns u_k."""
        mechanism = Mechanism.from_settings(context.instruction.settings)
        total = np.zeros_like(context.parameters["float"])
        owners = _owners(context.examples, mechanism)
        for provider in _sample(owners, mechanism, context.generator).tolist():
            examples = context.examples.take(np.flatnonzero(owners == provider))
            change = clip(self._change(context, provider, examples), mechanism.clip_norm)
            total += change.clipped
            if not change.finite:
                context.notes.append(f"provider {provider}: its change is not finite, counted as 0")
        std = share_std(mechanism.noise_std, int(context.instruction.settings[SHARES]))
        add_gaussian(total, std, context.generator("privacy noise"))
        total /= total.dtype.type(mechanism.normaliser)
        return ClientUpdate({"float": total}, {})

    def drawn(self, examples: Examples, instruction: Instruction, draw: Draw) -> NDArray[np.int64]:
        """Returns the positions of the examples of M."""
        mechanism = Mechanism.from_settings(instruction.settings)
        owners = _owners(examples, mechanism)
        return np.flatnonzero(np.isin(owners, _sample(owners, mechanism, draw)))

    def _change(self, context: ClientContext, provider: int, examples: Examples) -> Vector:
        """Returns Δw of one provider: AdamW(P, w_{t-1}, T_gd) - w_{t-1}."""
        context.restart()
        with isolated_randomness(context.torch_seed(f"training on provider {provider}")):
            train_steps(
                context.model,
                examples,
                self.optimizer.build(context.model),
                steps=self.steps,
                batch_size=self.batch_size,
                shuffle=context.generator(f"shuffling of provider {provider}"),
                device=context.device,
                # A new one: what one provider's gradients do to it must not touch another's.
                backward=Backward(context.computing),
            )
        return context.layout.change_since(context.parameters)["float"]


def _sample(owners: NDArray[np.int64], mechanism: Mechanism, draw: Draw) -> NDArray[np.int64]:
    """Returns M: each provider of the client with probability `record_rate`."""
    own = np.unique(owners)
    coins = draw("provider sampling").random(own.size) < mechanism.record_rate
    return own[coins]


def _owners(examples: Examples, mechanism: Mechanism) -> NDArray[np.int64]:
    """Returns each example's provider; the same one for all where the client is the unit."""
    if mechanism.unit == "client":
        return np.zeros(len(examples), np.int64)
    return examples.column(PROVIDER)
