"""Training by the epoch or by the step, with an optimiser chosen by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.data.examples import Batch, Examples
from fedpriv.training.computing import Backward

LARGEST = 1e4
"""The largest learning rate and weight decay allowed; larger values only lead to infinities."""


EPSILON = 1e-8
"""Added to the denominators of Adam and AdamW: torch's default."""


@dataclass(frozen=True)
class Optimizer:
    """An optimiser of torch by name, built for a model's trainable parameters.

    Args:
        name: the optimiser: "sgd", "adam" or "adamw".
        lr: the learning rate.
        weight_decay: the weight decay, as in torch: an L2 penalty for "sgd" and "adam", decoupled
            from the gradient for "adamw".
        momentum: the momentum of "sgd"; the other optimisers take none.
    """

    name: Literal["sgd", "adam", "adamw"] = "adamw"
    lr: float = 2e-4
    weight_decay: float = 0.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in ("sgd", "adam", "adamw"):
            raise ValueError(f"name={self.name!r}: expected 'sgd', 'adam' or 'adamw'")
        if not 0 < self.lr <= LARGEST:
            raise ValueError(f"lr={self.lr}: expected a number in (0, {LARGEST:g}]")
        if not 0 <= self.weight_decay <= LARGEST:
            raise ValueError(f"weight_decay={self.weight_decay}: expected 0 to {LARGEST:g}")
        if self.momentum and self.name != "sgd":
            raise ValueError(f"momentum={self.momentum}: only 'sgd' has it, not {self.name!r}")

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Returns a new optimiser for the model's trainable parameters."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        common: dict[str, Any] = {"lr": self.lr, "weight_decay": self.weight_decay}
        if parameters and all(p.is_cuda for p in parameters):
            common["fused"] = True  # one kernel for all of them
        if self.name == "sgd":
            return torch.optim.SGD(parameters, momentum=self.momentum, **common)
        kind = torch.optim.Adam if self.name == "adam" else torch.optim.AdamW
        return kind(parameters, eps=EPSILON, **common)

    def first_step(self, parameter: Tensor, gradient: Tensor) -> Tensor:
        """Returns by how much the first step of a new optimiser changes a parameter.

        Momentum and moments start at zero. So SGD moves by -lr · g whatever its momentum, and Adam
        by -lr · g / (|g| + ε), since the bias corrections make m̂ = g and v̂ = g² (Kingma and Ba
        2015, Algorithm 1).

        Args:
            parameter: before the step, of any shape.
            gradient: of that shape, or of shape (n, …) for n optimisers that start from the same
                parameter.

        Returns:
            The change, of the gradient's shape.
        """
        if self.weight_decay and self.name != "adamw":
            gradient = gradient + self.weight_decay * parameter
        if self.name == "sgd":
            return gradient * -self.lr
        change = (gradient / gradient.abs().add_(EPSILON)).mul_(-self.lr)
        if self.weight_decay and self.name == "adamw":
            change -= self.lr * self.weight_decay * parameter
        return change


def train_epoch(
    model: nn.Module,
    batches: Iterable[Batch],
    optimizer: torch.optim.Optimizer,
    backward: Backward | None = None,
) -> float:
    """Takes one step per batch on `model.loss(batch)`; returns the mean loss over the batches.

    Returns 0 if there are no batches.

    Args:
        model: is trained in place.
        batches: on its device.
        optimizer: of its parameters.
        backward: computes the gradients; None does so in float32, each batch at once.
    """
    backward = backward or Backward()
    losses = [_step(model, batch, optimizer, backward) for batch in batches]
    return torch.stack(losses).mean().item() if losses else 0.0


def train_steps(
    model: nn.Module,
    examples: Examples,
    optimizer: torch.optim.Optimizer,
    *,
    steps: int,
    batch_size: int,
    shuffle: np.random.Generator,
    device: torch.device | str = "cpu",
    backward: Backward | None = None,
) -> None:
    """Takes exactly `steps` steps on batches of the examples, shuffled anew at each pass.

    Takes no step if there are no examples.

    Args:
        model: is trained in place.
        examples: to train on.
        optimizer: of the model's parameters.
        steps: their number.
        batch_size: the number of examples in a step; the last batch of a pass may be smaller.
        shuffle: draws the order of each pass.
        device: of the model.
        backward: computes the gradients; None does so in float32, each batch at once.
    """
    backward = backward or Backward()
    passes = itertools.repeat(examples) if len(examples) else iter(())
    batches = (b for e in passes for b in e.batches(batch_size, shuffle=shuffle, device=device))
    for batch in itertools.islice(batches, steps):
        _step(model, batch, optimizer, backward)


def _step(
    model: nn.Module, batch: Batch, optimizer: torch.optim.Optimizer, backward: Backward
) -> torch.Tensor:
    optimizer.zero_grad(set_to_none=True)
    loss = backward(model, batch)
    optimizer.step()
    return loss
