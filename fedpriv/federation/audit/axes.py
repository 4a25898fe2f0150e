"""Canaries on axes of their own: the worst units that a mechanism must hide, as many as wanted.

A unit whose clipped contribution is the clip norm C along one axis moves the sum as far as any
unit may. Units on different axes do not disturb each other, since noise is drawn for each
coordinate. So one sum over m axes is the same experiment m times over (Nasr et al. 2023 call such
canaries Dirac). `fedpriv.federation.audit.mechanism` runs them through an experiment's own parts.

A private client half takes part by a method `on_axes`, see `HasAxes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.data.examples import Examples
from fedpriv.federation.client import Client
from fedpriv.training.computing import Computing
from fedpriv.training.per_example import ClippedSum, PerExample, Way

AXIS = "axis"
"""The column that says which axis an example is on."""

STEEP = 1000.0
"""The slope of a canary's loss along its axis: any clip norm below cuts its gradient off."""


@runtime_checkable
class HasAxes(Protocol):
    """A private client half that can be audited by canaries on axes."""

    def on_axes(self, axes: int) -> Client:
        """Returns this half, with each unit's clipped contribution put on its axis at once.

        Sampling, noise and divisor are this half's own. Only training and clipping are left out,
        whose cost grows with axes times units.

        Args:
            axes: m. The vectors that are sent have m elements, or m for each step whose noise an
                observer is assumed to see.
        """

    def steepest(self, clip_norm: float, method: Way) -> Client:
        """Returns this half, such that a unit's contribution is clipped wherever its loss is steep.

        Args:
            clip_norm: C.
            method: how gradients are computed, where the half has a choice.
        """


class Axes(nn.Module):
    """A model of so many weights, the loss of an example being one of them times a constant."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    def loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns the mean loss, which falls along the examples' axes."""
        return -STEEP * self.weight[batch[AXIS]].mean()


class Pairs(nn.Module):
    """The same with two tensors, of which an example's loss falls along one weight of each.

    So a gradient is no coordinate by itself, and lies in more than one tensor: who clips each
    coordinate, or each tensor, clips to another norm.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(size))
        self.second = nn.Parameter(torch.zeros(size))

    def loss(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Returns the mean loss, which falls along the examples' pairs of weights."""
        return -STEEP * (self.first[batch[AXIS]] + self.second[batch[AXIS]]).mean()


@dataclass(frozen=True)
class OnAxes(PerExample):
    """The sum of clipped gradients of examples on axes, each being C along its axis.

    Args:
        axes: m; the vector may have several blocks of m elements, which are the same.
    """

    axes: int = 1

    def clipped_sum(
        self,
        model: nn.Module,
        examples: Examples,
        clip_norm: float,
        device: torch.device | str = "cpu",
        computing: Computing | None = None,
    ) -> ClippedSum:
        """Returns the sum without computing a gradient."""
        size = sum(p.numel() for p in model.parameters() if p.requires_grad)
        total = contributions(examples, clip_norm, size, self.axes)
        norms = np.full(len(examples), clip_norm)
        return ClippedSum(total, norms, 0, "loop", "an audit computes no gradients")


def contributions(examples: Examples, clip_norm: float, size: int, axes: int) -> Tensor:
    """Returns the sum of the examples' contributions, of shape (size,), as float32.

    Args:
        examples: on axes, one of them on each at most.
        clip_norm: C.
        size: of the vector, a multiple of `axes`.
        axes: m.
    """
    total = np.zeros(size, np.float32)
    total.reshape(-1, axes)[:, examples.column(AXIS)] = clip_norm
    return torch.from_numpy(total)
