"""Features of the page's image under each token: the visual part of bimodal models (CDMI, §2.1).

A computer vision model makes a map of features of the page, and Region-of-Interest align averages
the features under a token's box (He et al., "Mask R-CNN", ICCV 2017, §3).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import BeitModel

from fedpriv.models.readers.reader import normalised
from fedpriv.models.saving import there

STRIDE = 8
"""Pixels of the page's image per cell of the small network's map, in each direction."""

GROUP = 8
"""Channels that are normalised together."""


def roi_align(features: Tensor, boxes: Tensor, *, bins: int = 1, samples: int = 2) -> Tensor:
    """Returns the features under each box, of shape (batch, L, C, bins, bins).

    A box is cut into bins × bins parts. Each part gives the mean over samples × samples evenly
    spaced points, at which the map is interpolated bilinearly. A cell's value belongs to the cell's
    centre, which is the "aligned" convention, half a cell from that of the paper's first code.
    Beyond the outermost centres the map continues with its last value. A box without size gives the
    value at its point.

    The mean over these points is the map times a weight for its rows and one for its columns, hence
    a product of matrices. Unlike `grid_sample`, it can be differentiated twice, adds in the same
    order on a GPU each time, and works with vmap.

    Args:
        features: (batch, C, h, w).
        boxes: (batch, L, 4), left, top, right, bottom in fractions of the image, 0…1.
        bins: of a box in each direction.
        samples: of a bin in each direction.

    Raises:
        ValueError: if `bins` or `samples` is less than 1.
    """
    if bins < 1 or samples < 1:
        raise ValueError(f"bins={bins}, samples={samples}: expected 1 or more")
    left, top, right, bottom = boxes.to(features.dtype).unbind(-1)
    down = _weights(top, bottom, features.shape[-2], bins, samples)
    across = _weights(left, right, features.shape[-1], bins, samples)
    weights = down[:, :, :, None, :, None] * across[:, :, None, :, None, :]
    found = weights.flatten(4).flatten(1, 3) @ features.flatten(2).transpose(1, 2)
    return found.reshape(*boxes.shape[:2], bins, bins, -1).permute(0, 1, 4, 2, 3)


def _weights(low: Tensor, high: Tensor, cells: int, bins: int, samples: int) -> Tensor:
    """Returns the weight of each cell of one direction in each bin, (batch, L, bins, cells)."""
    steps = (torch.arange(bins * samples, device=low.device, dtype=low.dtype) + 0.5) / (
        bins * samples
    )
    points = low.unsqueeze(-1) + (high - low).unsqueeze(-1) * steps
    places = (points * cells - 0.5).clamp(0, cells - 1)
    centres = torch.arange(cells, device=low.device, dtype=low.dtype)
    nearness = (1 - (places.unsqueeze(-1) - centres).abs()).clamp(min=0)
    return nearness.reshape(*low.shape, bins, samples, cells).mean(-2)


class RoiVisual(nn.Module):
    """A visual vector for each token, to be added to its embedding.

    The outputs of an example depend on no other example, so per-example gradients can be computed,
    by vmap as well as in the loop.

    Attributes:
        image_size: S, side in pixels of the images that `network` reads.

    Args:
        network: turns (batch, 3, S, S) in -1…1 into a map (batch, channels, h, w).
        channels: of the map.
        hidden_size: H.
        image_size: S.
        bins: see `roi_align`.
    """

    def __init__(
        self, network: nn.Module, channels: int, hidden_size: int, image_size: int, bins: int = 1
    ) -> None:
        super().__init__()
        self.network = network
        self.projection = nn.Linear(channels * bins * bins, hidden_size)
        self.image_size = image_size
        self.bins = bins

    def forward(self, pixels: Tensor, bbox: Tensor) -> Tensor:
        """Returns (batch, L, H).

        Args:
            pixels: (batch, 3, S, S), uint8.
            bbox: (batch, L, 4), integers in 0…1000 of the page.
        """
        dtype = self.projection.weight.dtype
        features = self.network(normalised(pixels, dtype))
        found = roi_align(features, bbox.to(dtype) / 1000, bins=self.bins)
        projected: Tensor = self.projection(found.flatten(2))
        return projected


def roi_visual(
    hidden_size: int, image_size: int, *, channels: int = 32, bins: int = 1
) -> RoiVisual:
    """Builds a small convolutional network with random weights and a cell for 8 × 8 pixels.

    Args:
        hidden_size: H, of the model that reads the text.
        image_size: S, side of the square page image in pixels, a multiple of 8.
        channels: of all its layers, a multiple of 8.
        bins: of a token's box in each direction.
    """
    if image_size < STRIDE or image_size % STRIDE:
        raise ValueError(f"image_size={image_size}: expected a multiple of {STRIDE} pixels")
    if channels < GROUP or channels % GROUP:
        raise ValueError(f"channels={channels}: expected a multiple of {GROUP}")
    layers = [_layer(inputs, channels) for inputs in (3, channels, channels)]
    return RoiVisual(nn.Sequential(*layers), channels, hidden_size, image_size, bins)


def _layer(inputs: int, outputs: int) -> nn.Sequential:
    """Returns a convolution that halves the sides, with a norm over single examples."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=2, padding=1),
        nn.GroupNorm(outputs // GROUP, outputs),
        nn.GELU(),
    )


class PatchMap(nn.Module):
    """A BEiT's outputs for the page's patches, as a map.

    Args:
        image_model: BEiT or DiT.
    """

    def __init__(self, image_model: BeitModel) -> None:
        super().__init__()
        self.image_model = image_model
        for name, parameter in image_model.named_parameters():
            # Neither is used, so they could not learn, and must get no noise.
            if "mask_token" in name or "pooler" in name:
                parameter.requires_grad_(False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Returns (batch, width, side, side) of side² patches for pixels in -1…1."""
        config = self.image_model.config
        side = config.image_size // config.patch_size
        outputs: Tensor = self.image_model(pixel_values=pixels).last_hidden_state[:, 1:]
        return outputs.transpose(1, 2).reshape(len(outputs), -1, side, side)


def beit_visual(
    folder: Path | str,
    hidden_size: int,
    *,
    bins: int = 1,
    attention: Literal["sdpa", "eager"] = "sdpa",
) -> RoiVisual:
    """Loads a pretrained BEiT or DiT, which is trained too; its patches are the cells of the map.

    Args:
        folder: a local folder or a hub id, such as microsoft/dit-base.
        hidden_size: H, of the model that reads the text.
        bins: of a token's box in each direction.
        attention: "eager" where gradients of gradients are needed, as by gradient inversion.

    Raises:
        OSError: if there is no such folder and no such model on the hub.
    """
    there(folder)
    image_model = BeitModel.from_pretrained(
        str(folder), add_pooling_layer=False, dtype=torch.float32, attn_implementation=attention
    )
    config = image_model.config
    network = PatchMap(image_model)
    return RoiVisual(network, config.hidden_size, hidden_size, config.image_size, bins)
