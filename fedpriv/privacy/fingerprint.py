"""A digest of a vector that is computed where the vector lies; a megabyte of it goes to the host.

Rows of 4,096 words of 32 bits are multiplied by fixed random weights modulo 2^64, in four lanes,
and the sums are hashed on the host. Two vectors that differ collide with probability 2^-132 over
the weights (multilinear hashing: a lane misses a difference with at most 2^-33). That is enough
where nobody chooses vectors against the weights, as for the key of noise; files have their SHA-256.
"""

from __future__ import annotations

import functools
import hashlib

import torch
from torch import Tensor

from fedpriv.privacy.philox import LOW, philox

ROW, LANES = 4096, 4
KEY = 0x66656470726976
ROWS = 64
"""Rows that are worked on at a time."""


def fingerprint(vector: Tensor) -> str:
    """Returns 128 bits of a vector as hexadecimal digits.

    Args:
        vector: shape (d,), of a type of 4 or 8 bytes.
    """
    words = vector.detach().reshape(-1).view(torch.int32)
    weights, sums = _weights(vector.device), []
    whole = words.numel() // ROW * ROW
    for part in torch.split(words[:whole].view(-1, ROW), ROWS):
        wide = part.to(torch.int64)
        sums.append(torch.stack([(wide * weights[:, lane]).sum(1) for lane in range(LANES)], 1))
    if rest := words.numel() - whole:
        last = words[whole:].to(torch.int64)[:, None] * weights[:rest]
        sums.append(last.sum(0, keepdim=True))
    hashed = hashlib.blake2b(f"{vector.dtype} {vector.numel()}".encode(), digest_size=16)
    if sums:
        hashed.update(torch.cat(sums).cpu().numpy().tobytes())
    return hashed.hexdigest()


@functools.cache
def _weights(device: torch.device) -> Tensor:
    """Returns (ROW, LANES) numbers of 64 bits, made once for a device."""
    at = torch.arange(ROW * LANES, device=device)
    zero = torch.zeros_like(at)
    high, low, *_ = philox((at, zero, zero, zero), (KEY & LOW, KEY >> 32))
    return ((high << 32) ^ low).view(ROW, LANES)
