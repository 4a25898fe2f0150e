"""Whole sequences of a batch, from the span of a decoder's gradient (DAGER, Petrov et al. 2024).

What a causal decoder's second sublayer reads at a place depends on the tokens up to there alone,
and lies in the span of that layer's gradient if they are the beginning of an example. So all
examples are read at once, as a tree: each beginning is continued by every token with which it
stays in the span, the nearest as many as there are examples. An answer that is the beginning of
another is not told from it, nor are two that are alike. This needs a span that is not everything:
the distinct beginnings, about as many as the tokens of all examples, must be fewer than the network
is wide.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedpriv.attacks.text.span import Array, distances
from fedpriv.attacks.text.sums import Ids

NEAR = 3e-3
"""Distance of what counts as inside: float32 leaves up to 4e-4 for what is."""

LEAST_OUTSIDE = 4
"""Dimensions outside of the span. With t of them, one vector in NEAR**-t lies inside by chance."""


def tells(basis: Array) -> bool:
    """Returns whether a span is small enough to tell beginnings from other sequences.

    Args:
        basis: orthonormal, (rank, width).
    """
    rank, width = basis.shape
    return bool(width - rank >= LEAST_OUTSIDE)


def read_sequences(
    inputs: Callable[[Tensor], Array],
    start: int,
    candidates: Ids,
    basis: Array,
    size: int,
    longest: int,
    end: int | None = None,
) -> list[Ids]:
    """Returns the sequences of all examples, `start` included, the shortest first.

    Of examples that are alike there is one; and where one is the beginning of another, only the
    other, unless `end` tells where they end.

    Args:
        inputs: (n, length) ids → (n, width), what the sublayer reads at the last place.
        start: the first token of all.
        candidates: tokens that may follow.
        basis: of the span of that sublayer's gradient, for which `tells`.
        size: B, the number of examples.
        longest: tokens that a sequence can have.
        end: the last token of each; None if that has no place in the decoder's input.
    """
    written, ended = np.array([[start]], np.int64), list[Ids]()
    while len(written):
        tokens = candidates if written.shape[1] < longest else candidates[:0]
        parents = np.repeat(np.arange(len(written)), len(tokens))
        longer = np.column_stack([written[parents], np.tile(tokens, len(written))])
        inside = np.empty(0, np.int64)
        if len(longer):
            away = distances(inputs(torch.from_numpy(longer)), basis)
            inside = np.argsort(away)[:size]
            inside = np.sort(inside[away[inside] < NEAR])
        ended += [written[n] for n in sorted({*range(len(written))} - {*parents[inside].tolist()})]
        written = longer[inside]
        if end is not None:
            ended += list(written[written[:, -1] == end])
            written = written[written[:, -1] != end]
    return ended
