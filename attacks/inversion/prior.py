"""What a page looks like, whatever the gradient says: the priors of GI-DQA (§3.3.1, Eq. 7-11).

Each takes pages of shape (B, C, H, W) on a scale of 0…1 and returns a number that is minimised.
"sum" is what the paper writes for both total variations, "mean" what it writes for the others: on a
page of a million pixels they differ by as much, so each prior has it as a setting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

Reduction = Literal["mean", "sum"]


class Prior(Protocol):
    """A penalty on pages."""

    def __call__(self, pages: Tensor) -> Tensor:
        """Returns the penalty, a scalar, of pages (B, C, H, W) in 0…1."""


@dataclass(frozen=True)
class LaplacianText:
    """|K_lap * x| with the 4-neighbour Laplacian, edges repeated (Eq. 7)."""

    reduction: Reduction = "mean"

    def __call__(self, pages: Tensor) -> Tensor:
        """Returns the penalty."""
        wide = nn.functional.pad(pages, (1, 1, 1, 1), mode="replicate")
        across = wide[..., 1:-1, :-2] + wide[..., 1:-1, 2:]
        along = wide[..., :-2, 1:-1] + wide[..., 2:, 1:-1]
        return _reduced((4 * pages - across - along).abs(), self.reduction)


@dataclass(frozen=True)
class GaussianSmooth:
    """|K_gau * x - x| (Eq. 8).

    The paper leaves the kernel's size and σ open: here it has 2 radius + 1 = 5 pixels a side and
    σ = 1, weights that sum to 1, and edges repeated.
    """

    sigma: float = 1.0
    radius: int = 2
    reduction: Reduction = "mean"

    def __call__(self, pages: Tensor) -> Tensor:
        """Returns the penalty."""
        places = range(-self.radius, self.radius + 1)
        weights = [math.exp(-(place**2) / (2 * self.sigma**2)) for place in places]
        line = torch.tensor(weights, dtype=pages.dtype, device=pages.device)
        line = (line / line.sum()).repeat(pages.shape[1], 1, 1, 1)
        channels, margin = pages.shape[1], (self.radius,) * 4
        smooth = nn.functional.pad(pages, margin, mode="replicate")
        smooth = nn.functional.conv2d(smooth, line, groups=channels)
        smooth = nn.functional.conv2d(smooth, line.transpose(2, 3), groups=channels)
        return _reduced((smooth - pages).abs(), self.reduction)


@dataclass(frozen=True)
class SpatialVariation:
    """|x(i+1, j) - x(i, j)| + |x(i, j+1) - x(i, j)| (Eq. 9)."""

    reduction: Reduction = "mean"

    def __call__(self, pages: Tensor) -> Tensor:
        """Returns the penalty; of a mean, the sum of both directions' means."""
        down = (pages[..., 1:, :] - pages[..., :-1, :]).abs()
        right = (pages[..., :, 1:] - pages[..., :, :-1]).abs()
        return _reduced(down, self.reduction) + _reduced(right, self.reduction)


@dataclass(frozen=True)
class ChannelVariation:
    """|R - G| + |G - B| + |B - R| (Eq. 10, corrected).

    Args:
        reduction: over pages and pixels.
        as_printed: takes the paper's |R - G| + |G - R| + |B - R|, where R - G counts twice.
    """

    reduction: Reduction = "mean"
    as_printed: bool = False

    def __call__(self, pages: Tensor) -> Tensor:
        """Returns the penalty; 0 for pages of one channel."""
        if pages.shape[1] == 1:
            return pages.new_zeros(())
        red, green, blue = pages.unbind(1)
        second = green - red if self.as_printed else green - blue
        apart = (red - green).abs() + second.abs() + (blue - red).abs()
        return _reduced(apart, self.reduction)


def _reduced(values: Tensor, reduction: Reduction) -> Tensor:
    return values.sum() if reduction == "sum" else values.mean()
