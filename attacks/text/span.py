"""Which rows of a gradient were used, and which vectors a weight's gradient was made of.

The gradient of a linear layer is Σ (gradient of an output) (input)ᵀ, so its row space holds the
layer's inputs. The span test is that of DAGER (Petrov et al. 2024), but for three things: singular
values in float64 and all of them; thresholds from the data, for the fixed ones of the paper's code
fail in float32 (a true token of LayoutLMv3 stands at 2e-5 to 8e-5); value instead of query weights,
because the first place of a causal decoder looks at itself only and its query gets no gradient.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ROUNDING = 10 * float(np.finfo(np.float32).eps)
"""What is smaller, relative to the largest, may be rounding of a float32 gradient."""

FALSE_ALARMS = 0.01
"""Rows of pure noise that a whole table may be expected to show as used."""


def noise_level(table: Array) -> float:
    """Returns the standard deviation of the noise in a table of which most rows are unused.

    None leaves a row at zero: where one is, there is no noise, however many rows are used.

    Args:
        table: gradient of an embedding, (rows, width).
    """
    sizes = np.sqrt(np.mean(table**2, axis=1))
    return float(np.median(sizes)) if sizes.all() else 0.0


def used_rows(table: Array, noise: float) -> Mask:
    """Returns which rows hold more than Gaussian noise, (rows,).

    Args:
        table: gradient of an embedding, (rows, width).
        noise: standard deviation of each entry; without noise every row but zeros is used.
    """
    norms = np.linalg.norm(table, axis=1)
    return np.asarray(norms > largest_of_noise(table.shape, noise))


def largest_of_noise(shape: tuple[int, ...], noise: float) -> float:
    """Returns the norm that hardly any row of Gaussian noise exceeds, `FALSE_ALARMS` of a table.

    Args:
        shape: rows and width of the table.
        noise: standard deviation of each entry.
    """
    rows, width = shape
    return float(noise * np.sqrt(chi2.isf(FALSE_ALARMS / rows, width)))


def below_gap(values: Array, most: int) -> Mask:
    """Returns which values lie below the widest gap between neighbours, on a log scale, (n,).

    Args:
        values: not negative, (n,), n > 1.
        most: how many may lie below it.
    """
    tiny = np.finfo(np.float64).tiny
    logs = np.log(np.maximum(np.sort(values), tiny))
    gaps = np.diff(logs[: most + 1])
    split = int(np.argmax(gaps))
    return np.asarray(np.log(np.maximum(values, tiny)) <= logs[split])


def upper_class(values: Array) -> Mask:
    """Returns which values belong to the upper of two classes, on a log scale, (n,).

    Where many are small and some larger, by Otsu's criterion (1979): the split with the greatest
    variance between the classes. Single outliers do not draw it, as they do the widest gap.

    Args:
        values: positive, (n,), n > 1.
    """
    logs = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    order = np.sort(logs)
    below = np.arange(1, len(order))
    above = len(order) - below
    sums = np.cumsum(order)[:-1]
    apart = (order.sum() - sums) / above - sums / below
    split = int(np.argmax(below * above * apart**2))
    return np.asarray(logs > order[split])


def row_space(matrix: Array, most: int) -> tuple[Array, Array]:
    """Returns orthonormal bases of the rows' span, (rank, width), and of what is left of the space.

    Singular values count as rounding or noise up to twice the largest that can be nothing else;
    where every one may be a direction of the span, up to the widest gap.

    Args:
        matrix: (rows, width).
        most: the highest rank that the span can have.
    """
    _, values, directions = np.linalg.svd(matrix, full_matrices=len(matrix) < matrix.shape[1])
    if most < len(values):
        rank = int((values > max(2 * values[most], ROUNDING * values[0])).sum())
    else:
        rank = int((~below_gap(values, len(values) - 1)).sum())
    return directions[:rank], directions[rank:]


def distances(vectors: Array, basis: Array) -> Array:
    """Returns how far each vector, scaled to length 1, lies from a span, in 0…1, (n,).

    Args:
        vectors: (n, width), none of them zero.
        basis: orthonormal, (rank, width).
    """
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.linalg.norm(unit - unit @ basis.T @ basis, axis=1))
