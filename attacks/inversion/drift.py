"""How an update of several local steps is read: FedAvg's change of a model is no gradient.

A client that takes T steps θ_{t+1} = θ_t - η u_t on its batch sends Δ = θ_T - θ_0 = -η Σ_t u_t,
with u_t = g(θ_t) for plain SGD. To compare the sum with one gradient g(θ_0) is wrong by the factor
T, and by as much as the gradient changes on the way. A `Reading` says what is done about it:

- "scale": Σ_t g(θ_t) ≈ T g(θ_0), as if the model stood still;
- "midpoint": Σ_t g(θ_t) ≈ T g(θ̄) with θ̄ = θ_0 + (T-1)/(2T) Δ, the mean of the θ_t on a straight
  path, of which the server knows both ends. It costs no more than one gradient;
- "unrolled": the T steps are simulated with the page that is sought, and the distance is
  differentiated through all of them (Geiping et al. 2020, §6; Dimitrov et al. 2022, "Data Leakage
  in Federated Averaging"). It costs T gradients, and is exact for full batches without dropout.

Adam's steps have the size η whatever the gradient's, so that its path turns at rates at which SGD's
is straight.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from fedpriv.attacks.inversion.gradients import gradient_of
from fedpriv.attacks.inversion.objective import Layers, names_of
from fedpriv.attacks.local_steps import LocalSteps
from fedpriv.attacks.victim import Victim

Reading = Literal["auto", "scale", "midpoint", "unrolled"]

STRAIGHT = 0.8
"""Cosine of the gradients at both ends of a path, from which on it counts as straight."""


def read(victim: Victim, steps: LocalSteps, reading: Reading, layers: Layers) -> Victim:
    """Returns the victim of an update with what an inversion has to compare.

    Args:
        victim: of the update, with the text of its batch. Its gradient is Σ_t g(θ_t) of plain SGD,
            -Δ of Adam, as `fedpriv.attacks.victim.as_gradient` makes it.
        steps: of the client.
        reading: "auto" takes "midpoint" where the path is straight, as far as the template tells,
            and otherwise "unrolled".
        layers: that are compared.
    """
    optimizer, count = steps.optimizer, steps.count
    lr = optimizer.lr
    rate = 1.0 if optimizer.name == "sgd" else lr
    total = {name: tensor / rate for name, tensor in victim.gradient.items()}
    if reading == "auto":
        straight = count == 1 or turn(victim, total, lr, layers) >= STRAIGHT
        reading = "midpoint" if straight else "unrolled"
    if reading == "unrolled":
        return dataclasses.replace(victim, gradient=total, steps=steps)
    model = victim.model
    if reading == "midpoint" and count > 1:
        model = moved(model, total, -lr * (count - 1) / (2 * count))
    mean = {name: tensor / steps.weight for name, tensor in total.items()}
    # Known, and no part of the loss. Adam's own has gone through its normalisation.
    if optimizer.weight_decay and optimizer.name != "adam":
        weights = dict(model.named_parameters())
        mean = {n: t - optimizer.weight_decay * weights[n].detach() for n, t in mean.items()}
    return dataclasses.replace(victim, model=model, gradient=mean)


def turn(victim: Victim, total: Mapping[str, Tensor], lr: float, layers: Layers) -> float:
    """Returns the cosine of the gradients before and after the steps, with the template's page."""
    like = next(victim.model.parameters())
    batch = {name: column.to(like.device) for name, column in victim.batch.items()}
    batch["pixels"] = victim.template.to(like)
    ends = [gradient_of(m, batch) for m in (victim.model, moved(victim.model, total, -lr))]
    names = [name for name in names_of(victim.model, layers) if name in ends[0]]
    before, after = (torch.cat([end[n].flatten() for n in names]) for end in ends)
    return torch.cosine_similarity(before, after, dim=0).item()


def moved(model: nn.Module, change: Mapping[str, Tensor], times: float) -> nn.Module:
    """Returns a copy of a model, its parameters changed by so many times the change."""
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for name, tensor in change.items():
            parameter = copied.get_parameter(name)
            parameter.add_(tensor.to(parameter), alpha=times)
    return copied
