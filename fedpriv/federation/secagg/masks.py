"""ChaCha20 streams as masks, added to or taken from a vector of ring elements.

A mask is as long as the vector, and a client of n has n of them. They are never held: each block
of the vector is encoded, and gets its part of every mask, while it is in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms
from numpy.typing import NDArray

from fedpriv.federation.secagg.ring import BLOCK, Encoder, Ring, blocks

KEY_BYTES = 32

LONGEST = 1 << 36
"""Words of one stream: ChaCha20 counts blocks of 64 bytes in 32 bits, then it would repeat."""

_NONCE = bytes(16)  # the counter and the nonce: a key is used for one stream only
_ZEROS = memoryview(bytes(4 * BLOCK))


def keystream(key: bytes, size: int) -> bytes:
    """Returns the first `size` bytes of a key's ChaCha20 stream (RFC 8439 §2.4; counter 0)."""
    return _stream(key).update(bytes(size))


def encode_masked(
    values: NDArray[Any], ring: Ring, plus: Iterable[bytes], minus: Iterable[bytes]
) -> NDArray[np.uint32]:
    """Returns encode(values) + Σ stream(plus) − Σ stream(minus) modulo 2³².

    A value is encoded as round(value / step), ties to even. Beyond the ring's limit it is clamped.
    Where every message carries all the noise that protects it, that is post-processing. Where the
    noise is shared, clamping one message takes noise from the sum: a limit from `coordinate_bound`
    makes it improbable.

    Args:
        values: shape (size,), float32 or float64.
        ring: says how values are encoded.
        plus: 32-byte keys of the masks to add.
        minus: 32-byte keys of the masks to take away.

    Raises:
        ValueError: if the vector has another type or shape, holds NaN or infinity, or is longer
            than a stream.
    """
    _check_length(values.size)
    encoder, streams = Encoder(ring, values), _Streams(plus, minus)
    masked = np.empty(values.size, np.uint32)
    for block in blocks(values.size):
        encoder.encode(values[block], masked[block])
        streams.advance(masked[block])
    return masked


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
    _check_length(vector.size)
    streams = _Streams(plus, minus)
    result = np.empty(vector.size, np.uint32)
    for block in blocks(vector.size):
        result[block] = vector[block]
        streams.advance(result[block])
    return result


class _Streams:
    """Several key streams that advance together over a vector."""

    def __init__(self, plus: Iterable[bytes], minus: Iterable[bytes]) -> None:
        added = [(np.add, _stream(key)) for key in plus]
        self._streams = added + [(np.subtract, _stream(key)) for key in minus]
        self._words = np.empty(BLOCK, "<u4")  # the same masks on a big-endian machine
        self._bytes = self._words.data.cast("B")

    def advance(self, here: NDArray[np.uint32]) -> None:
        """Applies each stream's next words, as many as the block has, to the block."""
        words = self._words[: here.size]
        for apply, stream in self._streams:
            stream.update_into(_ZEROS[: here.nbytes], self._bytes)
            apply(here, words, out=here)


def _stream(key: bytes) -> CipherContext:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a mask's key has {KEY_BYTES} bytes, got {len(key)}")
    return Cipher(algorithms.ChaCha20(key, _NONCE), mode=None).encryptor()


def _check_length(size: int) -> None:
    if size > LONGEST:
        raise ValueError(f"a vector may have 2^36 coordinates, got {size}: mask it in parts")
