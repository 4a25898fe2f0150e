"""ChaCha20 streams as masks, added to or taken from a vector of ring elements.

A mask is as long as the vector, and a client of n has n of them. They are never held: each block
of the vector gets its part of every mask while it is in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import NDArray

KEY_BYTES = 32

BLOCK = 1 << 16
"""Words masked at a time, 256 KiB: a block and its part of a mask stay in cache."""

LONGEST = 1 << 36
"""Words of one stream: ChaCha20 counts blocks of 64 bytes in 32 bits, then it would repeat."""

_NONCE = bytes(16)  # the counter and the nonce: a key is used for one stream only
_ZEROS = memoryview(bytes(4 * BLOCK))


def keystream(key: bytes, size: int) -> bytes:
    """Returns the first `size` bytes of a key's ChaCha20 stream (RFC 8439 §2.4; counter 0)."""
    return _stream(key).update(bytes(size))


def with_masks(
    vector: NDArray[np.uint32], plus: Iterable[bytes], minus: Iterable[bytes]
) -> NDArray[np.uint32]:
    """Returns vector + Σ stream(plus) − Σ stream(minus) modulo 2³², in new memory.

    Args:
        vector: shape (size,), uint32.
        plus: 32-byte keys of the masks to add.
        minus: 32-byte keys of the masks to take away.

    Raises:
        ValueError: if the vector is not a uint32 vector, or longer than a stream.
    """
    if vector.dtype != np.uint32 or vector.ndim != 1:
        raise ValueError(f"masks go on a uint32 vector, got {vector.dtype} of {vector.shape}")
    if vector.size > LONGEST:
        raise ValueError(f"a vector may have 2^36 coordinates, got {vector.size}: mask it in parts")
    streams: list[tuple[np.ufunc, CipherContext]] = [(np.add, _stream(key)) for key in plus]
    streams += [(np.subtract, _stream(key)) for key in minus]
    result, mask = vector.copy(), np.empty(BLOCK, "<u4")  # the same on a big-endian machine
    for start in range(0, vector.size, BLOCK):
        here = result[start : start + BLOCK]
        for apply, stream in streams:
            stream.update_into(_ZEROS[: here.nbytes], mask.data.cast("B"))
            apply(here, mask[: here.size], out=here)
    return result


def _stream(key: bytes) -> CipherContext:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a mask's key has {KEY_BYTES} bytes, got {len(key)}")
    return Cipher(algorithms.ChaCha20(key, _NONCE), mode=None).encryptor()
