"""A model's gradients as functions of its page that can be differentiated once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, grad_and_value
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedpriv.attacks.local_steps import LocalSteps
from fedpriv.data.examples import Batch
from fedpriv.training.safe_masks import safe_masks

Measure = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Tensor]
"""Takes gradients and those that were sent, by name; returns a scalar."""


@dataclass(frozen=True)
class Sent:
    """What a gradient is compared with, and the batch that it is of, but for its pages."""

    columns: Batch
    gradient: Mapping[str, Tensor]


class Gradients(nn.Module):
    """The gradient of a model's loss by some of its parameters, or the sum over local steps.

    The model itself stays as it is: its parameters and buffers are lent as copies.

    Args:
        model: has `loss(batch)`.
        names: of the parameters.
        soft: whether a batch's labels are scores of their own (see `soft_loss`).
        steps: to be simulated, all of them on the whole batch; None for one gradient.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Sequence[str],
        soft: bool = False,
        steps: LocalSteps | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.soft = soft
        self.steps = steps
        every = {name: p.detach() for name, p in model.named_parameters()}
        if steps is not None:  # a parameter that is not matched moves all the same
            names = [name for name, p in model.named_parameters() if p.requires_grad]
        self._wanted = {f"model.{n}": every[n].clone().requires_grad_() for n in names}
        self._rest = {f"model.{n}": p for n, p in every.items() if n not in names}
        self._lent: dict[str, Tensor] = {f"model.{n}": b.clone() for n, b in model.named_buffers()}

    def forward(self, batch: Batch, labels: Sequence[Tensor]) -> Tensor:
        """Returns the loss."""
        if self.soft:
            return soft_loss(scores(self.model, batch), labels)
        loss: Tensor = self.model.loss(batch)  # type: ignore[operator]
        return loss

    def slopes(
        self, pages: Tensor, labels: Sequence[Tensor], of: Sent, far: Measure
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns how far the gradient is from the one that was sent, and the derivatives of that.

        Args:
            pages: (B, 3, H, W).
            labels: scores, where the labels are soft; otherwise none.
            of: what was sent, and the batch's other columns.
            far: measures.

        Returns:
            The distance, a scalar, and its derivatives by the pages and by each of the labels.
        """
        sought = [tensor.detach().requires_grad_() for tensor in (pages, *labels)]
        batch = {**of.columns, "pixels": sought[0]}

        def gradient(at: Mapping[str, Tensor]) -> dict[str, Tensor]:
            loss, wanted = self._loss(at, batch, sought[1:]), list(at.values())
            found = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
            return {
                name: torch.zeros_like(p) if g is None else g
                for (name, p), g in zip(at.items(), found, strict=True)
            }

        start = self._wanted
        update = gradient(start) if self.steps is None else self.steps.simulate(start, gradient)
        distance = far({name: update[f"model.{name}"] for name in of.gradient}, of.gradient)
        return distance.detach(), list(torch.autograd.grad(distance, sought))

    def slopes_together(
        self, pages: Tensor, labels: Sequence[Tensor], of: Sent, far: Measure
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the same of V victims at once; all tensors have V in front."""
        fixed = {name: p.detach() for name, p in self._wanted.items()}

        def distance(
            sought: list[Tensor], columns: Batch, gradient: Mapping[str, Tensor]
        ) -> Tensor:
            batch = {**columns, "pixels": sought[0]}
            found = grad(self._loss)(fixed, batch, sought[1:])
            return far(dict(zip(gradient, found.values(), strict=True)), gradient)

        # Untyped in torch. Both derivatives are taken within vmap: of a gradient by vmap, autograd
        # gets the derivative wrong where the gradient is that of a LayerNorm's weight.
        vmapped: Callable[..., Any] = torch.vmap(grad_and_value(distance))
        sought = [tensor.detach() for tensor in (pages, *labels)]
        with safe_masks():
            found, distances = vmapped(sought, dict(of.columns), dict(of.gradient))
        return distances, list(found)

    def _loss(self, wanted: Mapping[str, Tensor], batch: Batch, labels: Sequence[Tensor]) -> Tensor:
        given = {**self._rest, **self._lent, **wanted}
        loss: Tensor = functional_call(self, given, (batch, labels))
        return loss


def gradient_of(model: nn.Module, batch: Batch) -> dict[str, Tensor]:
    """Returns the gradient of a model's loss by its trainable parameters, by name.

    Zero where the loss does not use a parameter; the parameters' own `grad` stays as it is.
    """
    wanted = {name: p for name, p in model.named_parameters() if p.requires_grad}
    loss: Tensor = model.loss(batch)  # type: ignore[operator]
    found = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    return {
        name: torch.zeros_like(p) if g is None else g
        for (name, p), g in zip(wanted.items(), found, strict=True)
    }


def scores(model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
    """Returns the model's scores, of each question that it answers about an example one tensor."""
    found = model(batch)
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def soft_loss(found: Sequence[Tensor], labels: Sequence[Tensor]) -> Tensor:
    """Returns the cross-entropy of scores (B, n) with labels that are scores too, their mean.

    What the model has ruled out, with the lowest number there is, has no part in it.
    """
    losses = []
    for mine, label in zip(found, labels, strict=True):
        ruled_out = mine.detach() <= torch.finfo(mine.dtype).min / 2
        wanted = label.masked_fill(ruled_out, -torch.inf).softmax(-1)
        said = mine.log_softmax(-1).masked_fill(ruled_out, 0.0)
        losses.append(-(wanted * said).sum(-1).mean())
    return torch.stack(losses).mean()


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Takes attention's plain form: the fused ones have no second derivative (PyTorch 116350)."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def uses_fused_attention(model: nn.Module) -> bool:
    """Says whether a model of transformers was built with attention="sdpa"."""
    configs = (getattr(module, "config", None) for module in model.modules())
    return any(getattr(c, "_attn_implementation", None) == "sdpa" for c in configs)
