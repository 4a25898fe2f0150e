"""Clipping to an L2 norm, so that no one's contribution exceeds the sensitivity the noise is for.

Norms are computed in float64 and block by block. In float32 they would be wrong where it matters:
torch's float32 norm of 125 million normal numbers is 1.3 % too small, and so much more than the
noise was made for would pass. What comes out is measured again, since rounding to float32 may add
to the norm what multiplying took off.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedpriv.runtime.vectors import Vector, pieces

# Where squares in float64 neither overflow nor lose digits.
_SAFE_SQUARES = (1e-280, 1e300)


@dataclass(frozen=True)
class Clipped:
    """A clipped contribution.

    Attributes:
        clipped: of L2 norm at most the clip norm, of the dtype and shape that came in; the very
            same array if it was inside already.
        norm: before clipping; infinite or NaN where `finite` is false.
        finite: whether the norm was a finite number. If not, `clipped` is zero.
    """

    clipped: Vector
    norm: float
    finite: bool


def check_clip_norm(clip_norm: float) -> float:
    """Returns the clip norm.

    Raises:
        ValueError: if it is not positive and finite.
    """
    if not (clip_norm > 0 and math.isfinite(clip_norm)):
        raise ValueError(f"clip_norm={clip_norm}: expected a positive, finite number")
    return float(clip_norm)


def clip(vector: Vector, clip_norm: float) -> Clipped:
    """Clips one vector: x · min(1, C / ‖x‖); PFL-DocVQA, Alg. 1, line 14.

    The norm of the result, computed in float64, is at most C. The direction is kept up to the
    rounding of the dtype; clipping twice is clipping once. A NaN or an infinity makes all zero.

    Args:
        vector: floats of shape (d,), or any other.
        clip_norm: C, in L2.

    Raises:
        ValueError: if the clip norm is not positive and finite.
        TypeError: if the vector is not of floats.
    """
    clip_norm = check_clip_norm(clip_norm)
    if not vector.is_floating_point():
        raise TypeError(f"the vector is of {vector.dtype}: only floats can be clipped")
    norm = _norm(vector)
    if norm <= clip_norm:
        return Clipped(vector, norm, finite=True)
    if math.isfinite(norm):
        margin = _margin(torch.finfo(vector.dtype).eps)
        while margin < 1:  # again where subnormal results were rounded up beyond the clip norm
            scaled = _times(vector, clip_norm / norm * (1 - margin))
            if _norm(scaled) <= clip_norm:
                return Clipped(scaled, norm, finite=True)
            margin *= 8
    return Clipped(torch.zeros_like(vector), norm, finite=math.isfinite(norm))


def clip_factor(norm: float, clip_norm: float, dtype: torch.dtype) -> float:
    """Returns the factor for a gradient of this norm in this dtype; 0 if it must not count.

    1 inside the norm, and 0 for a norm that is NaN or infinite. In between C / ‖g‖, less the few
    units in the last place by which the factor and the products may be rounded up.

    Args:
        norm: L2, in float64, before clipping.
        clip_norm: C.
        dtype: of the arithmetic, float32 or float64.
    """
    if not math.isfinite(norm):
        return 0.0
    if norm <= clip_norm:
        return 1.0
    numbers = torch.finfo(dtype)
    factor = clip_norm / norm * (1 - _margin(numbers.eps))
    # A subnormal factor has few digits left: it could be rounded up by a third.
    return factor if factor >= numbers.tiny else 0.0


def sum_of_squares(tensors: Iterable[Tensor]) -> Tensor:
    """Returns Σ x² over all elements in float64, 0-d, on the tensors' device; 0 on the CPU if none.

    Takes one block at a time to float64, so it needs no copy of a large tensor.
    """
    parts: list[Tensor] = []
    for tensor in tensors:
        for (piece,) in pieces(tensor.detach().reshape(-1)):
            # Copied even from float64: the bits of a product may depend on how memory is aligned.
            wide = piece.to(torch.float64, copy=True)
            parts.append(torch.dot(wide, wide))
    return torch.stack(parts).sum() if parts else torch.zeros((), dtype=torch.float64)


def _margin(eps: float) -> float:
    """Returns twice two roundings to nearest, and at least the error of a norm in float64."""
    return max(4 * eps, 2.0**-40)


def _norm(vector: Vector) -> float:
    flat = vector.contiguous().reshape(-1)
    squares = sum_of_squares([flat]).item()
    if _SAFE_SQUARES[0] < squares < _SAFE_SQUARES[1]:
        return math.sqrt(squares)
    # Squares overflow or vanish, or a number is not finite.
    ends = [end.item() for end in torch.aminmax(flat)] if vector.numel() else [0.0]
    peak = math.nan if any(map(math.isnan, ends)) else max(map(abs, ends))
    if peak == 0 or not math.isfinite(peak):
        return peak
    relative = [piece.double() / peak for (piece,) in pieces(flat)]
    return peak * math.sqrt(math.fsum(float(piece @ piece) for piece in relative))


def _times(vector: Vector, factor: float) -> Vector:
    """Multiplies in float64, so that only the result is rounded and no factor is too small."""
    product = torch.empty_like(vector, memory_format=torch.contiguous_format)
    for piece, out in pieces(vector.reshape(-1), product.view(-1)):
        out.copy_(piece.double() * factor)
    return product
