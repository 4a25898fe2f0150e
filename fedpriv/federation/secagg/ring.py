"""Fixed point in the integers modulo 2³²: real vectors as ring elements, and their sum back.

Masks need a finite group (Bonawitz et al. 2017, §4, add vectors modulo R), so coordinates are
rounded to multiples of a public `step`. NumPy's uint32 wraps around as the group does: ring
elements are added by plain additions.

The modulus must have room for the sum of all clients in *both* signs: with |integer| ≤ `limit`
for each of n clients, 2³² ≥ 2·n·limit + 1. Tito et al. 2023, App. F, take
p = 2^ceil(log2(max‖u‖·|K|)) instead, which fails three ways: it has no room for the sign (two
clients of −1.5 give p = 4, and their sum −3 comes back as +1); it needs integers; and the
maximum is taken over private vectors, so that p itself is an unaccounted release. Here the bound
is a public constant, from the clipping norm and the tail of the noise (`coordinate_bound`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

if TYPE_CHECKING:
    from torch import Tensor

MODULUS = 1 << 32

LEAST_BOUND, MOST_BOUND = 2.0**-64, 2.0**64


@dataclass(frozen=True)
class Ring:
    """How reals are written as integers modulo 2³², on every client and on the server alike.

    All three numbers are public and must not depend on anybody's data.

    Attributes:
        step: what the integer 1 stands for, in the units of the vectors; a power of two.
        limit: a client's integers lie in [−limit, limit].
        clients: the most clients whose vectors may be added.
        bits: of a word that is sent: 32, or 16 where sums are of whole numbers modulo 2¹⁶
            (`fedpriv.privacy.discrete`). 2¹⁶ divides 2³², so masks cancel there too.
    """

    step: float
    limit: int
    clients: int
    bits: int = 32

    def __post_init__(self) -> None:
        if not 2.0**-96 <= self.step <= MOST_BOUND or math.frexp(self.step)[0] != 0.5:
            raise ValueError(f"step must be a power of two in [2^-96, 2^64], got {self.step!r}")
        if self.limit < 1 or self.clients < 1:
            raise ValueError(f"limit and clients must be at least 1, got {self}")
        if 2 * self.clients * self.limit + 1 > MODULUS:
            raise ValueError(
                f"the sum of {self.clients} clients of up to ±{self.limit} needs a modulus of "
                f"{2 * self.clients * self.limit + 1}, and it is 2^32: take a larger step"
            )

    @classmethod
    def fitting(cls, bound: float, clients: int) -> Ring:
        """Returns the finest ring in which `clients` vectors can be added without overflow.

        Args:
            bound: B > 0, in the units of the vectors: no coordinate of a client's vector is
                larger in absolute value. Public; see `coordinate_bound`.
            clients: the most clients whose vectors are added, n ≥ 1.

        Raises:
            ValueError: if the bound is outside [2^-64, 2^64], or there are too many clients.
        """
        if not LEAST_BOUND <= bound <= MOST_BOUND:
            raise ValueError(f"bound must lie in [2^-64, 2^64], got {bound!r}")
        if not 1 <= clients < MODULUS // 2:
            raise ValueError(f"clients must lie in [1, 2^31 - 1], got {clients!r}")
        most = (MODULUS - 1) // 2 // clients
        exponent = math.frexp(bound / most)[1] + 1
        while math.ceil(Fraction(bound) / Fraction(2) ** (exponent - 1)) <= most:
            exponent -= 1
        return cls(2.0**exponent, math.ceil(Fraction(bound) / Fraction(2) ** exponent), clients)

    def encode(self, values: Tensor) -> NDArray[np.uint32]:
        """Returns round(value / step) of each value, ties to even, clamped to the limit.

        Where every message carries all the noise that protects it, clamping is post-processing.
        Where the noise is shared, clamping one message takes noise from the sum: a limit from
        `coordinate_bound` makes it improbable.

        Args:
            values: shape (size,), float32 or float64, on any device: they are encoded there.

        Returns:
            Ring elements, shape (size,), on the host.

        Raises:
            ValueError: if the vector has another type or shape, or holds NaN or infinity.
        """
        import torch  # where there are tensors: a budget needs the ring's bounds alone

        from fedpriv.federation.messages import is_finite
        from fedpriv.runtime.vectors import on_host, pieces

        if values.dim() != 1:
            raise ValueError(f"a vector has one dimension, got shape {tuple(values.shape)}")
        if values.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"vectors are float32 or float64, got {values.dtype}")
        if not is_finite(values):
            odd = values.numel() - int(values.isfinite().sum())
            raise ValueError(
                f"{odd} NaN or infinite values within {values.numel()} coordinates of a "
                "vector: they have no fixed-point form; clip the update first"
            )
        # The largest value of the type that is not above the limit: 2³¹ − 1 as float32 would be
        # 2³¹, which does not fit into 32 bits with a sign.
        most = torch.tensor(self.limit, dtype=values.dtype)
        if int(most) > self.limit:
            most = torch.nextafter(most, torch.zeros_like(most))
        words = torch.empty_like(values, dtype=torch.int32)
        for piece, out in pieces(values, words):  # beyond float32 is beyond the limit
            out.copy_((piece * (1 / self.step)).round_().clamp_(-float(most), float(most)))
        return on_host(words).view(np.uint32)

    def cut(self, values: Tensor) -> int:
        """Returns how many coordinates of a client's vector are clamped to the limit.

        Args:
            values: shape (size,), float32 or float64.
        """
        from fedpriv.runtime.vectors import pieces

        reach = (self.limit + 0.5) * self.step
        return int(sum((piece.abs() > reach).sum() for (piece,) in pieces(values)))

    def decode(
        self, total: NDArray[np.uint32], dtype: DTypeLike = np.float64
    ) -> NDArray[np.floating[Any]]:
        """Returns the real vector that a sum of ring elements stands for (the centred lift).

        Exact in float64; in float32 each coordinate is rounded once.

        Args:
            total: shape (size,), uint32: the sum over at most `clients` encoded vectors.
            dtype: float32 or float64.

        Raises:
            ValueError: if the total is not uint32, or the type is not one of the two.
        """
        if total.dtype != np.uint32:
            raise ValueError(f"a sum of ring elements has dtype uint32, got {total.dtype}")
        real = float_type(dtype)
        decoded: NDArray[Any] = np.empty(total.shape, real)
        np.multiply(total.view(np.int32), real.type(self.step), out=decoded, casting="same_kind")
        return decoded


def coordinate_bound(
    clip_norm: float, noise_std: float, clients: int, size: int, probability: float = 2.0**-40
) -> float:
    """Returns B such that no coordinate of any client's noisy vector exceeds it, but rarely.

    B = clip_norm + noise_std · √(2 ln(clients · size / probability)): the Gaussian tail
    P(|Z| > z) ≤ exp(−z²/2), a union over all coordinates of all clients of one round. A function
    of public constants alone.

    Args:
        clip_norm: the most that the L2 norm of a client's vector can be before noise, in the
            vectors' units; for a sum over units, the clipping norm times their largest number.
        noise_std: standard deviation of one client's share of the noise, in the same units.
        clients: n, those who take part in one round.
        size: coordinates of a vector.
        probability: that anything is clamped in a round, in (0, 1].

    Raises:
        ValueError: if an argument is out of range.
    """
    for name, value in (("clip_norm", clip_norm), ("noise_std", noise_std)):
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and not negative, got {value!r}")
    if clients < 1 or size < 1:
        raise ValueError(f"clients and size must be at least 1, got {clients} and {size}")
    if not 0 < probability <= 1:
        raise ValueError(f"probability must lie in (0, 1], got {probability!r}")
    return clip_norm + noise_std * math.sqrt(2 * math.log(clients * size / probability))


def float_type(dtype: DTypeLike) -> np.dtype[Any]:
    """Returns the type if it is float32 or float64.

    Raises:
        ValueError: if it is not.
    """
    real = np.dtype(dtype)
    if real not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"vectors are float32 or float64, got {real}")
    return real
