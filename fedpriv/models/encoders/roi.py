"""Features of the page's image under each token: the visual part of bimodal models (CDMI, §2.1).

A computer vision model makes a map of features of the page, and Region-of-Interest align averages
the features under a token's box (He et al., "Mask R-CNN", ICCV 2017, §3).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedpriv.models.readers.reader import normalised

STRIDE = 8
"""Pixels of the page's image per cell of the map, in each direction."""

CHANNELS, GROUP = 32, 8
"""Channels of all layers, and how many of them are normalised together."""

SAMPLES = 2
"""Points under a box at which the map is read, in each direction."""


def roi_align(features: Tensor, boxes: Tensor) -> Tensor:
    """Returns the features under each box, of shape (batch, L, C).

    They are the mean over `SAMPLES` × `SAMPLES` evenly spaced points, at which the map is
    interpolated bilinearly. A cell's value belongs to the cell's centre, which is the "aligned"
    convention, half a cell from that of the paper's first code. Beyond the outermost centres the
    map continues with its last value. A box without size gives the value at its point.

    The mean over these points is the map times a weight for its rows and one for its columns, hence
    a product of matrices. Unlike `grid_sample`, it can be differentiated twice, adds in the same
    order on a GPU each time, and works with vmap.

    Args:
        features: (batch, C, h, w).
        boxes: (batch, L, 4), left, top, right, bottom in fractions of the image, 0…1.
    """
    left, top, right, bottom = boxes.to(features.dtype).unbind(-1)
    down = _weights(top, bottom, features.shape[-2])
    across = _weights(left, right, features.shape[-1])
    weights = (down.unsqueeze(-1) * across.unsqueeze(-2)).flatten(2)
    return weights @ features.flatten(2).transpose(1, 2)


def _weights(low: Tensor, high: Tensor, cells: int) -> Tensor:
    """Returns the weight of each cell of one direction under each box, (batch, L, cells)."""
    steps = (torch.arange(SAMPLES, device=low.device, dtype=low.dtype) + 0.5) / SAMPLES
    points = low.unsqueeze(-1) + (high - low).unsqueeze(-1) * steps
    places = (points * cells - 0.5).clamp(0, cells - 1)
    centres = torch.arange(cells, device=low.device, dtype=low.dtype)
    return (1 - (places.unsqueeze(-1) - centres).abs()).clamp(min=0).mean(-2)


class RoiVisual(nn.Module):
    """A visual vector for each token, to be added to its embedding.

    A small convolutional network with random weights makes the map, with a cell for 8 × 8 pixels.
    The outputs of an example depend on no other example, so per-example gradients can be computed,
    by vmap as well as in the loop.

    Args:
        hidden_size: H, of the model that reads the text.
        image_size: S, side of the square page image in pixels, a multiple of 8.
    """

    def __init__(self, hidden_size: int, image_size: int) -> None:
        super().__init__()
        if image_size < STRIDE or image_size % STRIDE:
            raise ValueError(f"image_size={image_size}: expected a multiple of {STRIDE} pixels")
        layers = (  # each halves the sides
            nn.Sequential(
                nn.Conv2d(inputs, CHANNELS, 3, stride=2, padding=1),
                nn.GroupNorm(CHANNELS // GROUP, CHANNELS),
                nn.GELU(),
            )
            for inputs in (3, CHANNELS, CHANNELS)
        )
        self.network = nn.Sequential(*layers)
        self.projection = nn.Linear(CHANNELS, hidden_size)

    def forward(self, pixels: Tensor, bbox: Tensor) -> Tensor:
        """Returns (batch, L, H).

        Args:
            pixels: (batch, 3, S, S), uint8.
            bbox: (batch, L, 4), integers in 0…1000 of the page.
        """
        dtype = self.projection.weight.dtype
        features = self.network(normalised(pixels, dtype))
        projected: Tensor = self.projection(roi_align(features, bbox.to(dtype) / 1000))
        return projected
