"""What an inversion works on: one message, the model it was computed with, what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from fedpriv.data.examples import Batch


@dataclass(frozen=True)
class Victim:
    """The gradient of one batch of B examples, and what the adversary holds of that batch.

    Attributes:
        model: holds the parameters that the client was sent, in evaluation mode; several victims
            of one round share it.
        gradient: by parameter name, the gradient of `model.loss(batch)`, as far as it was seen.
        batch: the model's columns but `pixels`, each of shape (B, …), recovered or given.
        template: the pages as far as known, (B, 3, H, W), float32 in 0…255; white where nothing is.
        private: which pixels are not known, (B, 1, H, W), bool.
    """

    model: nn.Module
    gradient: Mapping[str, Tensor]
    batch: Batch
    template: Tensor
    private: Tensor


@dataclass(frozen=True)
class Reconstruction:
    """What an inversion made of one victim.

    Attributes:
        pixels: (B, 3, H, W), float32 in 0…255; the template outside of the private pixels, unless
            the whole page was sought.
        evaluations: gradients of the model that were computed for it.
        seconds: of processor time, its share where several victims were inverted together.
        curve: what was measured on the way, in order: evaluations, objective and what else the
            method knows, without the truth.
    """

    pixels: Tensor
    evaluations: int
    seconds: float
    curve: tuple[Mapping[str, float], ...] = ()
