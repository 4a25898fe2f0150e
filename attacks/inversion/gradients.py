"""A model's gradients as functions of its page that can be differentiated once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedpriv.data.examples import Batch
from fedpriv.training.safe_masks import safe_masks

Measure = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Tensor]
"""Takes gradients and those that were sent, by name; returns a scalar."""


class Gradients(nn.Module):
    """The gradient of a model's loss by some of its parameters.

    The model itself stays as it is: its parameters and buffers are lent as copies.

    Args:
        model: has `loss(batch)`.
        names: of the parameters.
        soft: whether a batch's labels are scores of their own (see `soft_loss`).
    """

    def __init__(self, model: nn.Module, names: Sequence[str], soft: bool = False) -> None:
        super().__init__()
        self.model = model
        self.soft = soft
        every = {name: p.detach() for name, p in model.named_parameters()}
        self._wanted = {f"model.{n}": every[n].clone().requires_grad_() for n in names}
        self._rest = {f"model.{n}": p for n, p in every.items() if n not in names}
        self._lent: dict[str, Tensor] = {f"model.{n}": b.clone() for n, b in model.named_buffers()}

    def forward(self, batch: Batch, labels: Sequence[Tensor]) -> Tensor:
        """Returns the loss."""
        if self.soft:
            return soft_loss(scores(self.model, batch), labels)
        loss: Tensor = self.model.loss(batch)  # type: ignore[operator]
        return loss

    def distance(
        self, batch: Batch, labels: Sequence[Tensor], sent: Mapping[str, Tensor], far: Measure
    ) -> Tensor:
        """Returns how far the gradient at a batch is from the one that was sent, (1,)."""
        wanted = list(self._wanted.values())
        loss = self._loss(self._wanted, batch, labels)
        found = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
        dense = [
            torch.zeros_like(p) if g is None else g for p, g in zip(wanted, found, strict=True)
        ]
        return far(dict(zip(sent, dense, strict=True)), sent).reshape(1)

    def distances(
        self, batch: Batch, labels: Sequence[Tensor], sent: Mapping[str, Tensor], far: Measure
    ) -> Tensor:
        """Returns the same of V victims at once, (V,); all tensors have V in front."""
        fixed = {name: p.detach() for name, p in self._wanted.items()}

        def one(batch: Batch, labels: Sequence[Tensor], sent: Mapping[str, Tensor]) -> Tensor:
            found = grad(self._loss)(fixed, batch, labels)
            return far(dict(zip(sent, found.values(), strict=True)), sent)

        # Untyped in torch.
        vmapped: Callable[..., Any] = torch.vmap(one)
        with safe_masks():
            each: Tensor = vmapped(batch, list(labels), dict(sent))
        return each

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
