"""Gaussian noise that is drawn where a vector lies: the same words on every device.

Philox4x32-10 (Salmon et al. 2011) in torch's integer operations. Number i of a stream depends on
the key and on i alone, not on how a vector is cut, how many workers there are, or on what device it
is drawn. Words of 32 bits stand in tensors of int64, because torch multiplies no unsigned words;
every operation on them is exact. One block of the counter has 128 bits, of which two numbers come.

`torch.randn` in float32 must not be the noise: its largest number is 6.76 on CUDA, and a sum moved
by Δ leaves that range with a probability of up to √d φ(6.76) |Δ| / σ, which for LayoutLMv3-base is
a δ of 5e-7 a release. Here 53 bits reach to 8.57, a δ of 5e-13.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from fedpriv.runtime.cache import cache_folder

M0, M1, W0, W1, LOW = 0xD2511F53, 0xCD9E8D57, 0x9E3779B9, 0xBB67AE85, 0xFFFF_FFFF

Word = int | Tensor
Words = tuple[Tensor, Tensor, Tensor, Tensor]

BLOCKS = 1 << 22
"""Blocks of the counter that are drawn at a time: a device wants few and large kernels."""


def philox(counter: Words, key: tuple[Word, Word], rounds: int = 10) -> Words:
    """Returns four words of 32 bits for each counter.

    Args:
        counter: four words of 32 bits each, as tensors of int64.
        key: two words of 32 bits.
        rounds: 10, as published.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        p0, p1 = c0 * M0, c2 * M1  # modulo 2^64: the product of two words of 32 bits, exactly
        # An arithmetic shift leaves signs in the upper half, which the mask takes off at the end.
        c0, c2 = ((p1 >> 32) ^ c1 ^ k0) & LOW, ((p0 >> 32) ^ c3 ^ k1) & LOW
        c1, c3 = p1 & LOW, p0 & LOW
        k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
    return c0, c1, c2, c3


def normals(words: Words) -> tuple[Tensor, Tensor]:
    """Returns two standard normal numbers a block in float64, by Box and Muller (1958).

    53 bits of radius and 53 of angle. The words are exact; logarithm, sine and cosine are the
    device's, and may differ from another's in the last bit of float64.
    """
    u = ((words[0] << 21) ^ (words[1] >> 11)).double().add_(1).mul_(2.0**-53)  # in (0, 1]
    angle = ((words[2] << 21) ^ (words[3] >> 11)).double().mul_(2 * math.pi * 2.0**-53)
    radius = u.log_().mul_(-2).sqrt_()
    return angle.cos() * radius, angle.sin_() * radius


def drawn(key: Tensor, start: Tensor, count: int) -> Tensor:
    """Returns the numbers of the blocks start … start + count - 1 of a stream, shape (2 count,).

    Args:
        key: four words of 32 bits, int64: two are Philox's key, two the upper half of its counter.
        start: the first block, a 0-d tensor beside the key.
        count: how many.
    """
    at = torch.arange(count, device=key.device) + start
    k0, k1, c2, c3 = key.unbind()
    words = philox((at & LOW, at >> 32, c2.expand(count), c3.expand(count)), (k0, k1))
    return torch.stack(normals(words), 1).view(-1)


def add_gaussian_(vector: Tensor, std: float, key: int, at_once: int = BLOCKS) -> Tensor:
    """Adds N(0, std² I) in place, drawn and added in float64 and rounded once.

    Elements 2i and 2i + 1 get the two numbers of block i, however the vector is cut. Where whole
    pieces of `BLOCKS` blocks are drawn and torch finds a compiler, one kernel draws them.

    Args:
        vector: shape (d,), float32 or float64.
        std: 0 or more.
        key: of 128 bits, of this vector alone.
        at_once: blocks that are drawn at a time.
    """
    words = [key >> shift & LOW for shift in (0, 32, 64, 96)]
    device, there = vector.device, torch.tensor(words, device=vector.device)
    for first in range(0, vector.numel(), 2 * at_once):
        part = vector[first : first + 2 * at_once]
        count = (part.numel() + 1) // 2
        draw = compiled() if count == BLOCKS else drawn
        noise = draw(there, torch.full((), first // 2, device=device), count)
        part.copy_(noise[: part.numel()].mul_(std).add_(part))
    return vector


@functools.cache
def compiled() -> Callable[[Tensor, Tensor, int], Tensor]:
    """Returns `drawn` as a function that is compiled when it is called, and is plain if it cannot.

    The words are the same; a kernel of 40 operations reads and writes memory once.
    """
    with suppress(OSError):  # not a folder in /tmp, which somebody else may have made before
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "inductor"))
    fused, failed = torch.compile(drawn, fullgraph=True, dynamic=False), list[Exception]()

    def draw(key: Tensor, start: Tensor, count: int) -> Tensor:
        if not failed:
            try:
                return fused(key, start, count)
            except Exception as error:  # no compiler, no Triton for this device, no room for files
                failed.append(error)
        return drawn(key, start, count)

    return draw
