"""The page as a function of the pixels that are sought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Pixels = Literal["ink", "grey", "rgb"]
Region = Literal["private", "page"]


@dataclass(frozen=True)
class Canvas:
    """Pages of which some pixels are free, the others the template's.

    Attributes:
        template: (…, 3, H, W), in 0…255.
        free: where pixels are sought, (…, 1, H, W), bool.
        ink: how much of each channel the ink takes away where it is darkest, (…, 3, 1, 1), 1 of
            one channel at least; none for no ink of its own.
    """

    template: Tensor
    free: Tensor
    ink: Tensor | None = None

    @classmethod
    def of(
        cls, template: Tensor, private: Tensor, region: Region, pixels: Pixels = "rgb"
    ) -> Canvas:
        """Returns the pages with the private pixels free, or with all."""
        free = torch.ones_like(private) if region == "page" else private
        return cls(template, free, ink_of(template) if pixels == "ink" else None)

    def page(self, pixels: Tensor) -> Tensor:
        """Returns pages (…, 3, H, W) of free pixels (…, 1 or 3, H, W).

        One channel means grey, or the shades between white and the page's own ink.
        """
        if self.ink is not None:
            pixels = 255 - self.ink * (255 - pixels)
        return torch.where(self.free, pixels.expand_as(self.template), self.template)


def ink_of(template: Tensor) -> Tensor:
    """Returns the ink of each page, (…, 3, 1, 1), by the darkest pixel of its template.

    A template without anything on it counts as printed in black.
    """
    taken = (255 - template).flatten(-2)
    darkest = taken.sum(-2, keepdim=True).argmax(-1, keepdim=True)
    colour = taken.gather(-1, darkest.expand(*taken.shape[:-1], 1))
    most = colour.amax(-2, keepdim=True)
    ink = torch.where(most > 0, colour / most.clamp(min=1), torch.ones_like(colour))
    return ink.unsqueeze(-1)


def channels(pixels: Pixels) -> int:
    """Returns how many numbers a pixel is."""
    return 3 if pixels == "rgb" else 1
