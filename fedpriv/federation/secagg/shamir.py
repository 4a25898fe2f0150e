"""Shamir's secret sharing of 32-byte secrets: any t shares rebuild one, t − 1 say nothing.

Shamir 1979, "How to share a secret". The secret is the value at 0 of a polynomial of degree t − 1
over the integers modulo P, the first prime above 2²⁵⁶; a share is its value at a point that
belongs to one client.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fedpriv.federation.secagg.masks import keystream

PRIME = (1 << 256) + 297
SECRET_BYTES = 32
SHARE_BYTES = 33

_DRAW_BYTES = 48
"""128 bits more than the prime has: a draw modulo P is uniform but for 2⁻¹²⁸."""


def split(secret: bytes, threshold: int, points: Iterable[int], coins: bytes) -> dict[int, bytes]:
    """Returns a share of the secret for each point.

    Args:
        secret: 32 bytes.
        threshold: t ≥ 1, how many shares rebuild the secret.
        points: distinct, from 1 to P − 1.
        coins: 32 secret bytes from which the polynomial is drawn; never the same bytes for two
            secrets.

    Raises:
        ValueError: if the secret is not of 32 bytes, the threshold below 1, or a point out of
            range.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, got {len(secret)}")
    if threshold < 1:
        raise ValueError(f"threshold must be at least 1, got {threshold}")
    stream = keystream(coins, (threshold - 1) * _DRAW_BYTES)
    polynomial = [int.from_bytes(secret, "big")]
    for start in range(0, len(stream), _DRAW_BYTES):
        polynomial.append(int.from_bytes(stream[start : start + _DRAW_BYTES], "big") % PRIME)
    shares = {}
    for point in points:
        if not 0 < point < PRIME:
            raise ValueError(f"a point lies in [1, P - 1], got {point}")
        value = 0
        for coefficient in reversed(polynomial):
            value = (value * point + coefficient) % PRIME
        shares[point] = value.to_bytes(SHARE_BYTES, "big")
    return shares


def combine(shares: Mapping[int, bytes], weights: Mapping[int, int] | None = None) -> bytes:
    """Returns the secret that the shares, at least t of them, were split from.

    Fewer shares than t give a value that has nothing to do with the secret, mostly without an
    error: the caller counts them.

    Args:
        shares: point → share.
        weights: of `weights_at_zero(shares)`, if they are at hand from another secret with the
            same points.

    Raises:
        ValueError: if the shares do not belong to one secret, as far as that shows.
    """
    at_zero = weights_at_zero(shares) if weights is None else weights
    terms = (at_zero[p] * int.from_bytes(share, "big") for p, share in shares.items())
    value = sum(terms) % PRIME
    if value >> (8 * SECRET_BYTES):
        raise ValueError(f"the {len(shares)} shares do not belong to one secret")
    return value.to_bytes(SECRET_BYTES, "big")


def weights_at_zero(points: Collection[int]) -> dict[int, int]:
    """Returns Lagrange's weights: a polynomial's value at 0 is Σ weight · value at the point."""
    weights = {}
    for point in points:
        above = below = 1
        for other in points:
            if other != point:
                above = above * other % PRIME
                below = below * (other - point) % PRIME
        weights[point] = above * pow(below, -1, PRIME) % PRIME
    return weights
