"""Features of the page's image under each token: the visual part of bimodal models (CDMI, §2.1).

A computer vision model makes a map of features of the page, and Region-of-Interest align averages
the features under a token's box (He et al., "Mask R-CNN", ICCV 2017, §3).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BeitConfig, BeitModel

from fedpriv.models.checkpoints import config_of, network_of
from fedpriv.models.presets import Attention
from fedpriv.models.readers.reader import normalised
from fedpriv.models.saving import there

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

    The outputs of an example depend on no other example, so per-example gradients can be computed,
    by vmap as well as in the loop.

    Args:
        network: turns (batch, 3, S, S) in -1…1 into a map (batch, channels, h, w).
        channels: of the map.
        hidden_size: H, of the model that reads the text.
        image_size: S, side of the square page image in pixels.
    """

    def __init__(
        self, network: nn.Module, channels: int, hidden_size: int, image_size: int
    ) -> None:
        super().__init__()
        self.network = network
        self.image_size = image_size
        self.projection = nn.Linear(channels, hidden_size)

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


def small_visual(hidden_size: int, image_size: int) -> RoiVisual:
    """Builds a small convolutional network with random weights and a cell for 8 × 8 pixels.

    Args:
        hidden_size: H, of the model that reads the text.
        image_size: S, side of the square page image in pixels, a multiple of 8.
    """
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
    return RoiVisual(nn.Sequential(*layers), CHANNELS, hidden_size, image_size)


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
    dropout: float | None = None,
    attention: Attention = "sdpa",
) -> RoiVisual:
    """Loads a pretrained BEiT or DiT, which is trained too; its patches are the cells of the map.

    Args:
        folder: a local folder or a hub id, such as microsoft/dit-base.
        hidden_size: H, of the model that reads the text.
        dropout: share of the layers that an example skips in training, which is all that a DiT
            drops; None for the pretrained model's own.
        attention: see `Attention`.

    Raises:
        OSError: if there is no such folder and no such model on the hub.
        ValueError: if the weights are of another architecture.
    """
    there(folder)
    drops: dict[str, Any] = {} if dropout is None else {"drop_path_rate": dropout}
    config = config_of(BeitConfig, folder, **drops)
    image_model, _ = network_of(
        BeitModel, folder, config=config, add_pooling_layer=False, attn_implementation=attention
    )
    channels, side = image_model.config.hidden_size, image_model.config.image_size
    return RoiVisual(PatchMap(image_model), channels, hidden_size, side)
