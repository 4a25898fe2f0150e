"""A model's gradients as functions of its page that can be differentiated once more."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vjp
from torch.nn.attention import SDPBackend, sdpa_kernel

from fedpriv.attacks.local_steps import LocalSteps
from fedpriv.data.examples import Batch
from fedpriv.runtime.safe_masks import safe_masks

Measure = Callable[[Mapping[str, Tensor]], tuple[Tensor, Mapping[str, Tensor]]]
"""Takes gradients by name; returns a scalar and its derivatives by each of them."""


class Gradients(nn.Module):
    """The gradient of a model's loss by some of its parameters, or the sum over local steps.

    The model itself stays as it is: what is run is a copy, which shares the parameters' memory.

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
        self._names = tuple(names)
        every = {name: p.detach() for name, p in model.named_parameters()}
        if steps is not None:  # a parameter that is not matched moves all the same
            names = [name for name, p in model.named_parameters() if p.requires_grad]
        self._wanted = {f"model.{n}": every[n].requires_grad_() for n in names}
        self._rest = {f"model.{n}": p for n, p in every.items() if n not in names}
        self._lent: dict[str, Tensor] = {f"model.{n}": b.clone() for n, b in model.named_buffers()}

    def forward(self, batch: Batch, labels: Sequence[Tensor]) -> Tensor:
        """Returns the loss."""
        return self._loss_of(self.model, batch, labels)

    def slopes(
        self, pages: Tensor, labels: Sequence[Tensor], columns: Batch, far: Measure
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns how far the gradient is from the one that was sent, and the derivatives of that.

        Args:
            pages: (B, 3, H, W).
            labels: scores, where the labels are soft; otherwise none.
            columns: the batch's others.
            far: measures.

        Returns:
            The distance, a scalar, and its derivatives by the pages and by each of the labels.
        """
        sought = [tensor.detach().requires_grad_() for tensor in (pages, *labels)]
        batch = {**columns, "pixels": sought[0]}
        if self.steps is None:
            # Not by functional_call, which would put every parameter in place and back again.
            model, wanted = self._copy
            loss = self._loss_of(model, batch, sought[1:])
            found = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
            named = zip(self._names, wanted, found, strict=True)
            update = {n: torch.zeros_like(p) if g is None else g for n, p, g in named}
        else:
            update = self._simulated(self.steps, batch, sought[1:])
        distance, by_gradient = far(update)
        reached = {name: slope for name, slope in by_gradient.items() if update[name].requires_grad}
        gradients = [update[name] for name in reached]
        return distance, list(torch.autograd.grad(gradients, sought, list(reached.values())))

    def _simulated(
        self, steps: LocalSteps, batch: Batch, labels: Sequence[Tensor]
    ) -> dict[str, Tensor]:
        """Returns the sum of the local steps' updates."""

        def gradient(at: Mapping[str, Tensor]) -> dict[str, Tensor]:
            loss, wanted = self._loss(at, batch, labels), list(at.values())
            found = torch.autograd.grad(loss, wanted, create_graph=True, allow_unused=True)
            return {
                name: torch.zeros_like(p) if g is None else g
                for (name, p), g in zip(at.items(), found, strict=True)
            }

        update = steps.simulate(self._wanted, gradient)
        return {name.removeprefix("model."): total for name, total in update.items()}

    def slopes_together(
        self,
        pages: Tensor,
        labels: Sequence[Tensor],
        columns: Batch,
        sent: Mapping[str, Tensor],
        against: Callable[[Mapping[str, Tensor]], Measure],
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the same of V victims at once; all tensors have V in front.

        Args:
            pages: (V, B, 3, H, W).
            labels: scores, where the labels are soft; otherwise none.
            columns: the batches' others.
            sent: the victims' gradients.
            against: makes of one victim's gradient what measures the distance to it.
        """
        fixed = {name: p.detach() for name, p in self._wanted.items()}

        def slopes(
            sought: list[Tensor], columns: Batch, gradient: Mapping[str, Tensor]
        ) -> tuple[Tensor, list[Tensor]]:
            def gradients(sought: list[Tensor]) -> dict[str, Tensor]:
                found = grad(self._loss)(fixed, {**columns, "pixels": sought[0]}, sought[1:])
                return dict(zip(gradient, found.values(), strict=True))

            pulled: tuple[Any, ...] = vjp(gradients, sought)
            found, back = pulled
            distance, by_gradient = against(gradient)(found)
            by_sought: list[Tensor] = back(by_gradient)[0]
            return distance, by_sought

        # Untyped in torch. Both derivatives are taken within vmap: of a gradient by vmap, autograd
        # gets the derivative wrong where the gradient is that of a LayerNorm's weight.
        vmapped: Callable[..., Any] = torch.vmap(slopes)
        sought = [tensor.detach() for tensor in (pages, *labels)]
        with safe_masks():
            distances, found = vmapped(sought, dict(columns), dict(sent))
        return distances, list(found)

    @functools.cached_property
    def _copy(self) -> tuple[nn.Module, list[nn.Parameter]]:
        """The model with the wanted parameters trained alone, and these."""
        lent: dict[int, Any] = {
            id(p): nn.Parameter(p.detach(), requires_grad=name in self._names)
            for name, p in self.model.named_parameters()
        }
        model = copy.deepcopy(self.model, lent)
        return model, [model.get_parameter(name) for name in self._names]

    def _loss_of(self, model: nn.Module, batch: Batch, labels: Sequence[Tensor]) -> Tensor:
        if self.soft:
            return soft_loss(scores(model, batch), labels)
        loss: Tensor = model.loss(batch)  # type: ignore[operator]
        return loss

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
