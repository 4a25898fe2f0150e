"""An optimiser at the server: it moves the global vector, and its state outlives a round.

Reddi et al. 2021, "Adaptive Federated Optimization": the mean of the clients' changes, with its
sign turned, is the gradient of a step. Of noisy sums this is post-processing, which costs no
privacy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedpriv.runtime.vectors import Vector
from fedpriv.training.loops import Optimizer


class ServerOptimizer:
    """An optimiser of one vector.

    Args:
        optimizer: which one, with its settings.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self._state: dict[str, torch.Tensor] = {}

    def step(self, start: Vector, gradient: Vector) -> Vector:
        """Returns the vector after a step.

        Args:
            start: before it.
            gradient: of the same shape.
        """
        holder = torch.nn.Module()
        holder.theta = theta = torch.nn.Parameter(start.clone())
        theta.grad = gradient
        stepping = self.optimizer.build(holder)
        if self._state:
            fused = bool(stepping.defaults.get("fused"))  # which counts its steps on the device
            stepping.state[theta] = {
                name: value.to(start.device)
                if value is not None and (fused or value.dim())
                else value
                for name, value in self._state.items()
            }
        stepping.step()
        self._state = stepping.state[theta]
        return theta.detach()

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns moments, momentum and step counts by name."""
        there = {name: value for name, value in self._state.items() if value is not None}
        return {name: value.cpu().numpy() for name, value in there.items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Takes back what `state` returned."""
        self._state = {name: torch.from_numpy(np.array(value)) for name, value in state.items()}
