"""Whose sum is it? Rows of one table, each the sum of some rows of another.

Where an embedding of words and one of places are added, both see the same gradient δ_j of place j:
row j of the places' gradient is δ_j, row v of the words' is the sum of δ_j over the places j where
the word v stands. So A δ = W with A of zeros and ones, and one 1 in each column.
"""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from fedpriv.attacks.text.span import ROUNDING, Array, below_gap

Ids = NDArray[np.int64]

UNKNOWN = -1

MOST_NUMBERS = 1 << 24
"""In the table of all sums that are tried at once, 128 MiB of them."""


def owners(parts: Array, sums: Array, noise: float = 0.0) -> NDArray[np.int64]:
    """Returns for each part the row of `sums` that it went into, `UNKNOWN` where none fits, (n,).

    By least squares as long as the parts are linearly independent; of more parts, first those whose
    sums are found by trying.

    Args:
        parts: (n, width).
        sums: (m, width); every part went into one of them.
        noise: standard deviation of the entries of both.
    """
    found = np.full(len(parts), UNKNOWN)
    if len(parts) >= parts.shape[1]:
        _try_sums(parts, sums, noise, found)
    rest = np.flatnonzero(found == UNKNOWN)
    open_sums = np.setdiff1d(np.arange(len(sums)), found)
    # The backward pass of a LayerNorm leaves nothing along the ones: one dimension less.
    if 0 < len(rest) < parts.shape[1] and len(open_sums):
        shares = _shares(parts[rest], sums[open_sums], noise)
        best = shares.argmax(1)
        sure = shares[np.arange(len(rest)), best] > 0.5
        found[rest[sure]] = open_sums[best[sure]]
    return found


def _shares(parts: Array, sums: Array, noise: float) -> Array:
    """Returns how much of each part is in each sum by least squares, (n, m); ridged under noise."""
    if noise == 0:
        return np.asarray(np.linalg.lstsq(parts.T, sums.T, rcond=None)[0])
    gram = parts @ parts.T + noise**2 * parts.shape[1] * np.eye(len(parts))
    return np.asarray(np.linalg.solve(gram, parts @ sums.T))


def _try_sums(parts: Array, sums: Array, noise: float, found: NDArray[np.int64]) -> None:
    """Fills in what sums of few parts explain, the shortest sums first."""
    for count in range(1, len(parts) + 1):
        rest = np.flatnonzero(found == UNKNOWN)
        few = len(rest) < parts.shape[1]
        if few or comb(len(rest), count) * parts.shape[1] > MOST_NUMBERS:
            return
        groups = np.array(list(combinations(rest, count)))
        totals = parts[groups].sum(1)
        squares = (totals**2).sum(1)
        allowed = (count + 1) * parts.shape[1] * noise**2
        for owner in np.setdiff1d(np.arange(len(sums)), found):
            wanted = sums[owner]
            errors = squares - 2 * totals @ wanted
            best = int(errors.argmin())
            left = ((totals[best] - wanted) ** 2).sum()
            free = (found[groups[best]] == UNKNOWN).all()
            # Float32 has seven digits; a chance fit of hundreds of thousands has three.
            if free and left < max(1e-10 * (wanted**2).sum(), 2 * allowed):
                found[groups[best]] = owner


def partners(places: Array, words: Array, most: int, noise: float = 0.0) -> list[tuple[int, int]]:
    """Returns pairs of a place and a word that stands there, of several examples at once.

    Every edge (place, word) has a gradient of its own; a row of each table is the sum of its edges.
    The linear relations among all rows are exactly the connected components of that graph, within
    which both tables add up to the same: with one place or one word in it, a component is solved.
    In a larger one each place is taken as a non-negative mixture of the words of its component,
    which is right for words that occur once, and each word as one of places, which is right for
    places where one word stands; a pair is what both shares together speak for.

    Args:
        places: (n, width).
        words: (m, width).
        most: words at a place, the number of examples B.
        noise: standard deviation of the entries of both.
    """
    together = _components(places, words, noise)
    shares = _mixtures(places, words, together) + _mixtures(words, places, together.T).T
    pairs: list[tuple[int, int]] = []
    for place, share in enumerate(shares):
        top = np.argsort(-share)[:most]
        pairs += [(place, int(word)) for word in top if share[word] > 0.5]
    return pairs


def read_one(parts: Array, sums: Array, tokens: Ids, noise: float = 0.0) -> tuple[Ids, Ids]:
    """Returns the token of each place of one example, and the tokens that have found no place.

    Args:
        parts: (n, width), the places' gradients.
        sums: (m, width), the words'.
        tokens: (m,), their ids.
        noise: standard deviation of the entries of both.

    Returns:
        (n,), `UNKNOWN` where none fits; and the rest.
    """
    ids = np.append(tokens, UNKNOWN)[owners(parts, sums, noise)]
    # Where every place has its token, none is left over.
    whole = len(ids) and UNKNOWN not in ids
    return ids, tokens[:0] if whole else np.setdiff1d(tokens, ids)


def read_several(
    places: Ids, tokens: Ids, parts: Array, sums: Array, most: int, noise: float = 0.0
) -> Ids:
    """Returns tokens of several examples as `pairs_of` does; see `partners`."""
    found = np.array(partners(parts, sums, most, noise), np.int64).reshape(-1, 2)
    said = tokens[found[:, 1]]
    return pairs_of(places[found[:, 0]], said, np.setdiff1d(tokens, said))


def pairs_of(places: Ids, tokens: Ids, missed: Ids) -> Ids:
    """Returns places with their tokens, (n, 2), and behind them tokens without a known place."""
    placed = np.stack([places, tokens], axis=1)
    return np.concatenate([placed, np.stack([np.full(len(missed), UNKNOWN), missed], axis=1)])


def _mixtures(rows: Array, of: Array, allowed: NDArray[np.bool_]) -> Array:
    """Returns how much of which others each row is made of, non-negative least squares, (n, m)."""
    shares = np.zeros((len(rows), len(of)))
    for share, row, near in zip(shares, rows, allowed, strict=True):
        if near.any():  # scipy crashes on none
            share[near], _ = nnls(of[near].T, row)
    return shares


def _components(places: Array, words: Array, noise: float) -> NDArray[np.bool_]:
    """Returns which place and which word are in one component, (n, m); all where none is seen."""
    rows = np.concatenate([places, -words])
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    directions, values, _ = np.linalg.svd(rows / norms)
    everything = np.ones((len(places), len(words)), dtype=bool)
    if noise or len(values) < len(rows):
        return everything
    # Below the rounding of float32 there are no gaps to be seen.
    values = np.maximum(values, ROUNDING * values[0])
    relations = directions[:, below_gap(values, len(values) - 1)]
    # A projection on indicator vectors that do not overlap: one block for each of them.
    relations, _ = np.linalg.qr(relations / norms)
    blocks = np.abs(relations @ relations.T)[: len(places), len(places) :]
    blocks = np.maximum(blocks, ROUNDING)
    joined = ~below_gap(blocks.flatten(), blocks.size - 1).reshape(blocks.shape)
    return joined
