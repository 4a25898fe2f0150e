"""The page as a function of the pixels that are sought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Pixels = Literal["grey", "rgb"]
Region = Literal["private", "page"]


@dataclass(frozen=True)
class Canvas:
    """Pages of which some pixels are free, the others the template's.

    Attributes:
        template: (…, 3, H, W), in 0…255.
        free: where pixels are sought, (…, 1, H, W), bool.
    """

    template: Tensor
    free: Tensor

    @classmethod
    def of(cls, template: Tensor, private: Tensor, region: Region) -> Canvas:
        """Returns the pages with the private pixels free, or with all."""
        return cls(template, torch.ones_like(private) if region == "page" else private)

    def page(self, pixels: Tensor) -> Tensor:
        """Returns pages (…, 3, H, W) of free pixels (…, 1 or 3, H, W); one channel means grey."""
        return torch.where(self.free, pixels.expand_as(self.template), self.template)


def channels(pixels: Pixels) -> int:
    """Returns how many numbers a pixel is."""
    return 1 if pixels == "grey" else 3
