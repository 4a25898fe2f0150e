"""Where an inversion starts."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

Start = Literal["noise", "normal", "white", "template"]


def start(kind: Start, template: Tensor, channels: int, rng: np.random.Generator) -> Tensor:
    """Returns the first guess at pages, (B, channels, H, W) in 0…255.

    Args:
        kind: "noise", uniform; "normal", with mean 0 and deviation 1 on the models' scale of
            -1…1, cut to 0…255; "white"; or the "template".
        template: (B, 3, H, W).
        channels: 1 for grey pages, otherwise 3; a grey template is the mean of the channels.
        rng: draws the noise, always as float64.
    """
    size = (template.shape[0], channels, *template.shape[2:])
    match kind:
        case "noise":
            guess = torch.from_numpy(rng.uniform(0, 255, size))
        case "normal":
            guess = torch.from_numpy(rng.normal(127.5, 127.5, size)).clamp(0, 255)
        case "white":
            guess = torch.full(size, 255.0)
        case "template":
            guess = template.mean(1, keepdim=True) if channels == 1 else template.clone()
    return guess.to(template)
