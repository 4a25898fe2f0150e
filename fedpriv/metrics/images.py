"""How alike two images are: PSNR, SSIM, distance of spectra, mean squared error in two ways.

Images are arrays of 0…255 of shape (channels, height, width), of any dtype. Papers on gradient
inversion print these numbers without saying over what, in which units or in which arithmetic; the
docstrings here say it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import correlate1d

Image = NDArray[Any]
Mask = NDArray[np.bool_]

LARGEST_PSNR = 20 * math.log10(2**24)
"""Decibels, 144.5: an error of the last bit of white in float32. JSON has no infinity."""

_RADIUS = 5
_SIGMA = 1.5


def psnr(original: Image, recovered: Image, mask: Mask | None = None) -> float:
    """Returns 10 log10(255² / MSE) in decibels, at most `LARGEST_PSNR`, also for equal images.

    Args:
        original: (C, H, W).
        recovered: likewise.
        mask: (H, W), which pixels to compare; all by default.

    Raises:
        ValueError: if the shapes differ, or nothing is to be compared.
    """
    error = mse(original, recovered, mask)
    if error == 0:
        return LARGEST_PSNR
    return min(LARGEST_PSNR, 10 * math.log10(255**2 / error))


def mse(original: Image, recovered: Image, mask: Mask | None = None) -> float:
    """Returns the mean squared difference, in the square of 0…255; arguments as of `psnr`."""
    _same(original, recovered)
    one, other = _chosen(original, mask), _chosen(recovered, mask)
    return float(np.mean((one.astype(np.float64) - other.astype(np.float64)) ** 2))


def mse_uint8_wrapped(original: Image, recovered: Image, mask: Mask | None = None) -> float:
    """Returns what ``((a - b) ** 2).mean()`` of two uint8 arrays is: both operations modulo 256.

    No measure of likeness: a difference of 16 counts as none. The MSE that GI-DQA (2025) prints
    beside its PSNR can be had this way (105 for noise, whose true MSE is about 10,000) and in no
    other known to us; this is for a comparison with its tables only. Arguments as of `psnr`;
    values are rounded and clipped to 0…255 first.
    """
    _same(original, recovered)
    one, other = _chosen(original, mask), _chosen(recovered, mask)
    difference = _uint8(one) - _uint8(other)
    return float(np.mean(difference * difference))


def ssim(original: Image, recovered: Image, mask: Mask | None = None) -> float:
    """Returns the mean structural similarity, in [-1, 1]; 1 for equal images.

    Of Wang, Bovik, Sheikh & Simoncelli 2004: Gaussian window of 11 x 11 with σ = 1.5, K1 = 0.01,
    K2 = 0.03, L = 255; of a colour image the mean over its channels.

    Args:
        original: (C, H, W), no side smaller than 11.
        recovered: likewise.
        mask: (H, W), the pixels around which the windows are; by default those whose window lies
            wholly on the image. At the edges the image is mirrored.

    Raises:
        ValueError: if the shapes differ, an image is too small, or the mask is empty.
    """
    _same(original, recovered)
    if min(original.shape[1:]) <= 2 * _RADIUS:
        raise ValueError(f"SSIM is of images of 11 x 11 pixels and more, got {original.shape[1:]}")
    if mask is None:
        mask = np.zeros(original.shape[1:], dtype=np.bool_)
        mask[_RADIUS:-_RADIUS, _RADIUS:-_RADIUS] = True
    x, y = original.astype(np.float64), recovered.astype(np.float64)
    mean_x, mean_y = _blurred(x), _blurred(y)
    variances = _blurred(x * x) - mean_x**2 + _blurred(y * y) - mean_y**2
    covariance = _blurred(x * y) - mean_x * mean_y
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    similarity = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    similarity /= (mean_x**2 + mean_y**2 + c1) * (variances + c2)
    return float(_chosen(similarity, mask).mean())


def fft_distance(original: Image, recovered: Image) -> float:
    """Returns 1 - cos(|F(original)|, |F(recovered)|), in [0, 1]: the smaller, the more alike.

    F is the two-dimensional Fourier transform of each channel. Of the magnitudes, since with the
    phases it would be the cosine of the pixels (Parseval). A black image is as far from any other
    as can be, and equal to another black one.

    Raises:
        ValueError: if the shapes differ.
    """
    _same(original, recovered)
    one, other = (np.abs(np.fft.fft2(x.astype(np.float64))).ravel() for x in (original, recovered))
    norms = float(np.linalg.norm(one)), float(np.linalg.norm(other))
    if 0.0 in norms:
        return float(norms[0] != norms[1])
    return max(0.0, 1 - float(one @ other) / (norms[0] * norms[1]))


def _blurred(image: NDArray[np.float64]) -> NDArray[np.float64]:
    weights = np.exp(-(np.arange(-_RADIUS, _RADIUS + 1) ** 2) / (2 * _SIGMA**2))
    weights /= weights.sum()
    rows = correlate1d(image, weights, axis=1, mode="reflect")
    blurred: NDArray[np.float64] = correlate1d(rows, weights, axis=2, mode="reflect")
    return blurred


def _chosen(image: Image, mask: Mask | None) -> Image:
    """Returns the pixels of the mask, (C, pixels)."""
    if mask is None:
        return image
    if mask.shape != image.shape[1:]:
        raise ValueError(f"a mask of shape {mask.shape} for an image of shape {image.shape}")
    if not mask.any():
        raise ValueError("the mask is empty: there is nothing to compare")
    return image[:, mask]


def _uint8(values: Image) -> NDArray[np.uint8]:
    return np.clip(np.round(values), 0, 255).astype(np.uint8)


def _same(original: Image, recovered: Image) -> None:
    if original.shape != recovered.shape or original.ndim != 3:
        raise ValueError(
            f"expected two images of one shape (channels, height, width), got {original.shape} "
            f"and {recovered.shape}"
        )
