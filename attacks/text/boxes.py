"""Where the words of a page stand, from the gradients of LayoutLMv3's tables of coordinates.

A token's gradient δ is cut into six parts, one for each of left, top, right, bottom, height and
width; left and right add theirs to rows of one table, top and bottom to rows of another. Each row
is a sum of few of those parts, found by non-negative least squares; a box counts as found where
left, right and width, or top, bottom and height, agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from fedpriv.attacks.text.span import Array, used_rows

AGREED = 2.5
"""Of three shares, each 1 where the solution is clear."""

ASTRAY = 0.1
"""By how much all shares of a part may miss their sum of 1."""


@dataclass(frozen=True)
class Coordinates:
    """Gradients of the tables: x and y (rows, coordinate width), h and w (rows, shape width)."""

    x: Array
    y: Array
    h: Array
    w: Array

    def cut(self, parts: Array) -> list[Array]:
        """Returns what of gradients (…, width) is left's, top's, right's, bottom's, h's and w's."""
        long, short = self.x.shape[1], self.h.shape[1]
        return np.split(parts, np.cumsum([long] * 4 + [short] * 2), axis=-1)[:6]


def boxes(parts: Array, tables: Coordinates, noise: float) -> NDArray[np.int64]:
    """Returns left, top, right and bottom of each word, -1 where not found, (n, 4).

    Args:
        parts: gradient of each word's embedding, the sum over its tokens, (n, width).
        tables: without what tokens of known places added to them.
        noise: standard deviation of the entries.
    """
    left, top, right, bottom, height, width = tables.cut(parts)
    across = _edges(left, right, width, tables.x, tables.w, noise)
    down = _edges(top, bottom, height, tables.y, tables.h, noise)
    found = np.stack([across[:, 0], down[:, 0], across[:, 1], down[:, 1]], axis=1)
    found[(found < 0).any(1)] = -1
    return found


def _edges(
    first: Array, last: Array, length: Array, places: Array, lengths: Array, noise: float
) -> NDArray[np.int64]:
    """Returns both ends along one axis, -1 where not found, (n, 2).

    What is found is taken out of the tables, which leaves the others fewer to be confused with.
    """
    found = np.full((len(first), 2), -1)
    places, lengths = places.copy(), lengths.copy()
    while len(rest := np.flatnonzero(found[:, 0] < 0)):
        ends = _agreed(first[rest], last[rest], length[rest], places, lengths, noise)
        new = ends[:, 0] >= 0
        if not new.any():
            break
        found[rest] = ends
        (low, high), of = ends[new].T, rest[new]
        np.subtract.at(places, low, first[of])
        np.subtract.at(places, high, last[of])
        np.subtract.at(lengths, np.maximum(high - low, 0), length[of])
    return found


def _agreed(
    first: Array, last: Array, length: Array, places: Array, lengths: Array, noise: float
) -> NDArray[np.int64]:
    """Returns both ends of each part, -1 where their difference disagrees, (n, 2)."""
    count = len(first)
    ends, end_shares = _shares(np.concatenate([first, last]), places, noise)
    sizes, size_shares = _shares(length, lengths, noise)
    if not len(ends):
        return np.full((count, 2), -1)
    # Every pair of ends with the length between them, a length that is not there at share 0.
    by_length = np.zeros((len(lengths), count))
    by_length[sizes] = size_shares
    between = np.maximum(ends[None, :] - ends[:, None], 0)
    votes = end_shares[:, None, :count] + end_shares[None, :, count:] + by_length[between]
    votes = votes.reshape(len(ends) ** 2, count)
    best = votes.argmax(0)
    found = np.stack([ends[best // len(ends)], ends[best % len(ends)]], axis=1)
    found[votes.max(0) < AGREED] = -1
    return found


def _shares(parts: Array, table: Array, noise: float) -> tuple[NDArray[np.int64], Array]:
    """Returns the used rows and how much of each part went into each, (rows,) and (rows, n)."""
    rows = np.flatnonzero(used_rows(table, noise))
    shares = np.zeros((len(rows), len(parts)))
    for share, row in zip(shares, rows, strict=True):
        share[:], _ = nnls(parts.T, table[row])
    # Each part is in one row, whole; where it is in several, or in part, nothing was found.
    shares[:, np.abs(shares.sum(0) - 1) > ASTRAY] = 0
    return rows, shares
