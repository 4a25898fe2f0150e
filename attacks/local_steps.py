"""The local training behind an update of FedAvg, as a server knows and can simulate it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedpriv.training.loops import Optimizer

BETAS, EPS = (0.9, 0.999), 1e-8
"""Of Adam, torch's own, which `Optimizer` leaves as they are."""


@dataclass(frozen=True)
class LocalSteps:
    """T steps θ_{t+1} = θ_t - η u_t on one batch.

    Attributes:
        count: T.
        optimizer: of the client, made anew in every round.
    """

    count: int
    optimizer: Optimizer

    @classmethod
    def of(cls, client: Mapping[str, Any], examples: int) -> LocalSteps | None:
        """Returns what the public settings of a client half tell; None where they do not.

        Args:
            client: settings of `fedpriv.clients.fedavg.LocalTraining`.
            examples: n_k of the client.
        """
        if not {"epochs", "batch_size", "optimizer"} <= client.keys() or examples < 1:
            return None
        count = client["epochs"] * math.ceil(examples / client["batch_size"])
        return cls(count, Optimizer(**client["optimizer"]))

    @property
    def weight(self) -> float:
        """How many gradients Σ_t u_t holds: T for plain SGD, more with momentum μ.

        The gradient of step t counts 1 + μ + … + μ^(T-t) times.
        """
        momentum = self.optimizer.momentum
        return sum(momentum**k * (self.count - k) for k in range(self.count))

    def simulate(
        self,
        start: Mapping[str, Tensor],
        gradient: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]],
    ) -> dict[str, Tensor]:
        """Returns Σ_t u_t = (θ_0 - θ_T) / η by the rules of torch's SGD, Adam and AdamW.

        It can be differentiated by whatever the gradients depend on. Adam's u is nearly the sign of
        a gradient, whose derivative is zero almost everywhere: the values are Adam's, the
        derivative is that of m / √(m² + s²), with s the root mean square of the tensor's gradient
        (a straight-through estimator; Bengio et al. 2013).

        Args:
            start: θ_0, by name.
            gradient: returns that of the batch's loss at a θ, by the same names.
        """
        kind, lr, decay = self.optimizer.name, self.optimizer.lr, self.optimizer.weight_decay
        now = dict(start)
        first = {name: torch.zeros_like(p) for name, p in start.items()}
        second = dict(first)
        total = dict(first)
        for step in range(1, self.count + 1):
            for name, g in gradient(now).items():
                if decay and kind != "adamw":
                    g = g + decay * now[name]
                if kind == "sgd":
                    first[name] = update = self.optimizer.momentum * first[name] + g
                else:
                    first[name] = BETAS[0] * first[name] + (1 - BETAS[0]) * g
                    second[name] = BETAS[1] * second[name] + (1 - BETAS[1]) * g.detach() ** 2
                    mean = first[name] / (1 - BETAS[0] ** step)
                    spread = (second[name] / (1 - BETAS[1] ** step)).sqrt() + EPS
                    update = _straight_through((mean / spread).detach(), mean, g.detach())
                if decay and kind == "adamw":
                    update = update + decay * now[name]
                total[name] = total[name] + update
                now[name] = now[name] - lr * update
        return total


def _straight_through(value: Tensor, mean: Tensor, gradient: Tensor) -> Tensor:
    """Returns the value, with the derivative of m / √(m² + s²)."""
    square = gradient.square().mean() + torch.finfo(gradient.dtype).tiny
    smooth = mean / (mean.square() + square).sqrt()
    return smooth + (value - smooth).detach()
