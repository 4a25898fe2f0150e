"""What a page looks like, whatever the gradient says: the priors of GI-DQA (§3.3.1, Eq. 7-11).

Each takes pages of shape (B, C, H, W) on a scale of 0…1 and returns a number that is minimised.
"sum" is what the paper writes for both total variations, "mean" what it writes for the others: on a
page of a million pixels they differ by as much, so each prior has it as a setting.

Each is a sum of absolute values |A x| of a linear filter A. Its derivative Aᵀ sign(A x) is written
down here, because autograd would spend four times as long on these many small operations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

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
        return _with_slope(pages, self._formula)

    def _formula(self, pages: Tensor) -> _Formula:
        filtered = _laplacian(pages)
        # The filter is its own transpose.
        slope = _laplacian(filtered.sign())
        return _reduced(filtered, self.reduction), slope / _count(filtered, self.reduction)


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
        return _with_slope(pages, self._formula)

    def _formula(self, pages: Tensor) -> _Formula:
        down, right = (
            _blur(size, self.sigma, self.radius, pages.dtype, pages.device)
            for size in pages.shape[-2:]
        )
        apart = down @ pages @ right.T - pages
        signs = apart.sign()
        slope = down.T @ signs @ right - signs
        return _reduced(apart, self.reduction), slope / _count(apart, self.reduction)


@dataclass(frozen=True)
class SpatialVariation:
    """|x(i+1, j) - x(i, j)| + |x(i, j+1) - x(i, j)| (Eq. 9)."""

    reduction: Reduction = "mean"

    def __call__(self, pages: Tensor) -> Tensor:
        """Returns the penalty; of a mean, the sum of both directions' means."""
        return _with_slope(pages, self._formula)

    def _formula(self, pages: Tensor) -> _Formula:
        down = pages[..., 1:, :] - pages[..., :-1, :]
        right = pages[..., :, 1:] - pages[..., :, :-1]
        share = [1 / _count(apart, self.reduction) for apart in (down, right)]
        slope = torch.zeros_like(pages)
        signs = down.sign()
        slope[..., 1:, :].add_(signs, alpha=share[0])
        slope[..., :-1, :].sub_(signs, alpha=share[0])
        signs = right.sign()
        slope[..., :, 1:].add_(signs, alpha=share[1])
        slope[..., :, :-1].sub_(signs, alpha=share[1])
        return _reduced(down, self.reduction) + _reduced(right, self.reduction), slope


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
        return _with_slope(pages, self._formula)

    def _formula(self, pages: Tensor) -> _Formula:
        apart = pages - pages.roll(-1, 1)  # R - G, G - B, B - R
        if self.as_printed:
            apart = apart * apart.new_tensor([2.0, 0.0, 1.0]).view(3, 1, 1)
        signs = apart.sign()
        if self.as_printed:
            signs[:, 0] *= 2
        slope = signs - signs.roll(1, 1)
        count = _count(apart[:, 0], self.reduction)
        return _reduced(apart, "sum") / count, slope / count


_Formula = tuple[Tensor, Tensor]
"""A penalty, a scalar, and its derivative by the pages."""


class _WithSlope(torch.autograd.Function):
    """A penalty whose derivative was computed along with it."""

    @staticmethod
    def forward(ctx: Any, pages: Tensor, formula: Callable[[Tensor], _Formula]) -> Tensor:
        penalty, slope = formula(pages)
        ctx.save_for_backward(slope)
        return penalty

    @staticmethod
    def backward(ctx: Any, by_penalty: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return slope * by_penalty, None


def _with_slope(pages: Tensor, formula: Callable[[Tensor], _Formula]) -> Tensor:
    penalty: Tensor = _WithSlope.apply(pages, formula)  # type: ignore[no-untyped-call]
    return penalty


def _laplacian(pages: Tensor) -> Tensor:
    wide = nn.functional.pad(pages, (1, 1, 1, 1), mode="replicate")
    across = wide[..., 1:-1, :-2] + wide[..., 1:-1, 2:]
    along = wide[..., :-2, 1:-1] + wide[..., 2:, 1:-1]
    return 4 * pages - across - along


@functools.lru_cache(maxsize=8)
def _blur(size: int, sigma: float, radius: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns the matrix, (size, size), that blurs a line of pixels, its ends repeated."""
    weights = [math.exp(-(step**2) / (2 * sigma**2)) for step in range(-radius, radius + 1)]
    matrix, places = torch.zeros(size, size, dtype=torch.float64), torch.arange(size)
    for step, weight in zip(range(-radius, radius + 1), weights, strict=True):
        matrix[places, (places + step).clamp(0, size - 1)] += weight / sum(weights)
    return matrix.to(device, dtype)


def _reduced(values: Tensor, reduction: Reduction) -> Tensor:
    return values.abs().sum() / _count(values, reduction)


def _count(values: Tensor, reduction: Reduction) -> int:
    """Returns what a sum of values is divided by."""
    return 1 if reduction == "sum" else values.numel()
