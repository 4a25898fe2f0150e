"""FedSGD's client half: the gradient of one batch (GI-DQA, Eq. 1), and two simple defences.

∇ = (1/B) Σ_i ∇L(w_t; x_i) over B of the client's examples, drawn anew in every round; then, where
asked for, ∇ ← ∇ · min(1, S/‖∇‖) and ∇ ← ∇ + N(0, s² I).

The paper calls the noise alone LDP (GI-DQA, App. A.2.4). It is not: nothing bounds what one example
changes, so there is no ε. It is `gradient_noise` here, and no ledger books it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from fedpriv.data.examples import Examples
from fedpriv.federation.client import ClientContext, ClientUpdate, Draw
from fedpriv.federation.messages import Instruction
from fedpriv.privacy.clipping import clip
from fedpriv.runtime.tensors import digest
from fedpriv.runtime.vectors import on_host
from fedpriv.training.computing import Backward


@dataclass(frozen=True)
class BatchGradient:
    """Sends the mean gradient of one batch.

    Args:
        batch_size: the number of examples whose mean gradient a client sends (B); a client with
            fewer examples takes all of them.
        clip_norm: the L2 norm to which the whole gradient is clipped (S). None does not clip it.
        gradient_noise: the standard deviation of the Gaussian noise on each coordinate of the
            gradient (s); 1e-9 to 1e-7 in the paper. No ε can be stated for it.
    """

    action: ClassVar[str] = "batch_gradient"
    computes: ClassVar[tuple[str, ...]] = ("precision", "microbatch", "compile")
    follows: ClassVar[tuple[str, ...]] = ()

    batch_size: int = 1
    clip_norm: float | None = None
    gradient_noise: float = 0.0

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size={self.batch_size}: expected at least 1")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm={self.clip_norm}: expected a positive number")
        if not (self.gradient_noise >= 0 and math.isfinite(self.gradient_noise)):
            raise ValueError(f"gradient_noise={self.gradient_noise}: expected 0 or more")

    def train(self, context: ClientContext) -> ClientUpdate:
        """Returns ∇, and nothing beside it: the loss of a batch would tell of it too."""
        rows = self.drawn(context.examples, context.instruction, context.generator)
        if not len(rows):
            return ClientUpdate({"float": torch.zeros_like(context.parameters["float"])}, {})
        Backward(context.computing)(context.model, context.examples.batch(rows, context.device))
        update = context.layout.vectors(
            {
                name: torch.zeros_like(p) if p.grad is None else p.grad
                for name, p in context.model.named_parameters()
                if p.requires_grad
            }
        )["float"]
        if self.clip_norm is not None:
            update = clip(update, self.clip_norm).clipped
        if self.gradient_noise:
            # Noise hides one gradient only, also where a run goes on with other data.
            told = f", {digest({'': on_host(update)})}" if context.secret else ""
            rng = context.generator(f"gradient noise{told}", hides=True)
            noise = torch.from_numpy(rng.standard_normal(tuple(update.shape), dtype=np.float32))
            update = update + noise.to(update).mul_(self.gradient_noise)
        return ClientUpdate({"float": update}, {})

    def drawn(self, examples: Examples, instruction: Instruction, draw: Draw) -> NDArray[np.int64]:
        """Returns the positions of the batch among the client's examples."""
        count = min(self.batch_size, len(examples))
        return np.sort(draw("batch").choice(len(examples), size=count, replace=False))
