"""Several clients trained in one pass, each as if it were alone.

The trained parameters of n clients are stacked, and one call of `torch.vmap` computes the losses of
all of them, each with its own parameters on its own batch. Frozen parameters and buffers are
shared. A GPU that trains a small model is idle most of the time, because each of its kernels is
short; here every kernel does the work of n.

Nothing is approximated, so each client gets the result that it gets alone, up to rounding:

- Data. Each client has its own order and its own batches. At step t, clients whose t-th batches
  have the same size are computed together; a client without a t-th batch is finished.
- Optimiser. It is torch's own, on the stacked tensors. SGD, Adam and AdamW treat each number by
  itself, and all clients at work have taken the same number of steps.
- Dropout. Each client's masks come from a generator of its own, with the seed and in the order in
  which the client draws them alone on a CPU. On a GPU, dropout of a client alone is computed in a
  fused kernel that draws in another way: masks of a cohort follow the same law there, but are not
  the same. Losses that draw other random numbers are refused.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from fedpriv.data.examples import Batch, Examples
from fedpriv.runtime.safe_masks import safe_masks
from fedpriv.training.computing import Computing
from fedpriv.training.loops import Optimizer
from fedpriv.training.per_example import _Loss, failure_of_vmap

LARGEST_COHORT = 16
"""The most clients of an automatic cohort: activations take memory too."""

COHORT_BYTES = 256 << 20
"""The most bytes that the parameters of an automatic cohort's models have, frozen ones included.

A model of more than half of it trains alone. Its kernels keep a GPU busy, and the activations of
two might not fit.
"""


def automatic_cohort(model: nn.Module, device: torch.device | str) -> int:
    """Returns how many clients of this model train in one pass if the setting is "auto".

    It is 1 on a CPU, where nothing was gained by more. Elsewhere it depends on the model's size
    only, and never on a measurement: the same seed must give the same bits.
    """
    if torch.device(device).type == "cpu":
        return 1
    size = sum(p.numel() * p.element_size() for p in model.parameters())
    return max(1, min(LARGEST_COHORT, COHORT_BYTES // max(1, size)))


@dataclass(frozen=True)
class TrainedCohort:
    """What n clients have made of one model.

    Attributes:
        parameters: the trained parameters by name, of shape (n, …), on the CPU.
        losses: the mean loss of each client over the batches of its last epoch; 0 without any.
    """

    parameters: dict[str, Tensor]
    losses: list[float]

    def of(self, client: int) -> dict[str, Tensor]:
        """Returns the parameters of the client at this place."""
        return {name: stack[client] for name, stack in self.parameters.items()}


def train_cohort(
    model: nn.Module,
    examples: Sequence[Examples],
    optimizer: Optimizer,
    *,
    epochs: int,
    batch_size: int,
    shuffles: Sequence[np.random.Generator],
    seeds: Sequence[int],
    device: torch.device | str = "cpu",
    computing: Computing | None = None,
) -> TrainedCohort:
    """Trains n clients for some epochs from the same model, each on its own examples.

    Each ends as after `epochs` of `fedpriv.training.loops.train_epoch` alone, up to rounding. The
    model is left unchanged.

    Args:
        model: has `loss(batch)`, a scalar; on `device`, in training mode, with the parameters that
            all clients start from.
        examples: of each client, n of them, taken from one table.
        optimizer: is built anew for each client.
        epochs: passes over a client's examples.
        batch_size: the number of examples in a step; the last batch of an epoch may be smaller.
        shuffles: draws the order of each epoch, for each client.
        seeds: of the generator from which each client draws its dropout.
        device: of the model.
        computing: the precision; None for float32.

    Raises:
        RuntimeError: if the loss draws random numbers other than dropout's. Any other error if vmap
            cannot take the model.
    """
    plans = [
        _batches(len(own), batch_size, [shuffle.permutation(len(own)) for _ in range(epochs)])
        for own, shuffle in zip(examples, shuffles, strict=True)
    ]
    # Clients with many steps first: those that are still at work are then the first rows.
    order = sorted(range(len(plans)), key=lambda client: -len(plans[client]))
    offsets = np.cumsum([0, *(len(own) for own in examples)])
    table = dataclasses.replace(examples[0], rows=np.concatenate([own.rows for own in examples]))
    plans = [[offsets[client] + batch for batch in plans[client]] for client in order]
    generators = [torch.Generator(device).manual_seed(seeds[client]) for client in order]

    loss = _Loss(model, computing)
    trained = {name: p for name, p in loss.named_parameters() if p.requires_grad}
    stacks = [p.detach().expand(len(plans), *p.shape).clone() for p in trained.values()]
    stepper = optimizer.build(nn.ParameterList(stacks))  # shares the memory of the stacks
    losses: list[list[Tensor]] = [[] for _ in plans]

    steps = [list(_groups(plans, step)) for step in range(max(map(len, plans)))]
    rows = (np.stack([plans[c][s] for c in g]) for s, groups in enumerate(steps) for g in groups)
    batches = table.batches_at(rows, device)
    for groups in steps:
        own = _keep_first(stepper, sum(map(len, groups)))
        stepper.zero_grad(set_to_none=True)
        for members in groups:
            here = slice(None) if len(members) == len(own[0]) else members
            now = _losses(
                loss,
                {name: p[here] for name, p in zip(trained, own, strict=True)},
                next(batches),
                [generators[client] for client in members],
            )
            now.sum().backward()  # type: ignore[no-untyped-call]
            for client, value in zip(members, now.detach(), strict=True):
                losses[client].append(value)
        stepper.step()

    back = np.argsort(order)
    last = [each[-(len(each) // epochs) :] for each in losses]
    means = [torch.stack(each).mean().item() if each else 0.0 for each in last]
    return TrainedCohort(
        {
            name.removeprefix("model."): stack[back]
            for name, stack in zip(trained, stacks, strict=True)
        },
        [means[place] for place in back],
    )


def obstacle(
    model: nn.Module, examples: Examples, device: torch.device | str, computing: Computing
) -> str:
    """Returns why clients of this model cannot be trained in one pass; "" if they can.

    It computes the losses of two clients, without gradients, which take more memory.

    Args:
        model: on the device, in training mode.
        examples: of which the first two are tried, by both.
        device: of the model.
        computing: the precision.
    """
    batch = examples.batch(np.arange(min(2, len(examples))), device)  # BatchNorm needs two
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with torch.no_grad(), computing.autocast(batch):
        model.loss(batch)  # type: ignore[operator]
    for name, buffer in model.named_buffers():
        if not torch.equal(buffer, before[name]):
            return f"its loss changes the buffer {name!r}, of which there is only one"
    loss = _Loss(model, computing)
    both = {
        name: p.detach().expand(2, *p.shape)
        for name, p in loss.named_parameters()
        if p.requires_grad
    }
    generators = [torch.Generator(device).manual_seed(seed) for seed in range(2)]
    pair = {name: column.expand(2, *column.shape) for name, column in batch.items()}

    def attempt() -> None:
        with torch.no_grad():
            _losses(loss, both, pair, generators)

    drawn = _global_randomness()
    if failure := failure_of_vmap(attempt, torch.device(device), required=False):
        random_numbers = "randomness error mode" in failure or "random operation" in failure
        return "its loss draws random numbers beside dropout" if random_numbers else failure
    if _global_randomness() != drawn:
        return "its loss draws random numbers from Python's or NumPy's global generator"
    return ""


def _global_randomness() -> str:
    return repr((random.getstate(), np.random.get_state()))  # noqa: NPY002


def _batches(count: int, size: int, orders: Sequence[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Returns the batches of all epochs, each as positions of examples."""
    return [order[start : start + size] for order in orders for start in range(0, count, size)]


def _groups(plans: Sequence[Sequence[NDArray[np.int64]]], step: int) -> Iterator[list[int]]:
    """Yields the clients whose batches of this step have the same size."""
    groups: dict[int, list[int]] = {}
    for client, batches in enumerate(plans):
        if step < len(batches):
            groups.setdefault(len(batches[step]), []).append(client)
    yield from groups.values()


def _keep_first(stepper: torch.optim.Optimizer, count: int) -> list[Tensor]:
    """Takes all but the first clients out of the optimiser; returns what it still trains.

    The returned parameters share the memory of those before, so whoever is taken out stays as it
    is. New ones are made because autograd remembers the shape of a parameter.
    """
    group = stepper.param_groups[0]
    if len(group["params"][0]) > count:
        for place, before in enumerate(group["params"]):
            group["params"][place] = now = nn.Parameter(before.detach()[:count])
            state = stepper.state.pop(before, {})
            # The number of steps is a tensor without dimensions.
            stepper.state[now] = {
                name: value[:count] if isinstance(value, Tensor) and value.dim() else value
                for name, value in state.items()
            }
    parameters: list[Tensor] = group["params"]
    return parameters


def _losses(
    loss: _Loss,
    parameters: dict[str, Tensor],
    batches: Batch,
    generators: Sequence[torch.Generator],
) -> Tensor:
    """Returns the losses of k clients, of shape (k,).

    Gradients are taken outside of vmap, by autograd. So it can tell that a parameter was not used,
    and no operation needs a rule for its gradient under vmap.

    Args:
        loss: of the model.
        parameters: of shape (k, …).
        batches: of shape (k, size, …).
        generators: from which the clients draw their dropout.
    """

    def one(own: dict[str, Tensor], batch: Batch, place: Tensor) -> Tensor:
        with _OwnDropout(place, generators):
            return loss.of_batch(own, batch)

    device = next(iter(batches.values())).device
    # On a CPU vmap would call the fused attention once for each client, and warn of it.
    attention = sdpa_kernel(SDPBackend.MATH) if device.type == "cpu" else nullcontext()
    vmapped: Callable[..., Tensor] = torch.vmap(one, randomness="error")
    with safe_masks(), attention:
        return vmapped(parameters, batches, torch.arange(len(generators), device=device))


class _OwnDropout(TorchFunctionMode):
    """Draws the dropout masks of each client from its own generator.

    Args:
        place: of the client, a tensor that vmap has batched.
        generators: of all clients.
    """

    def __init__(self, place: Tensor, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self._place, self._generators = place, generators

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Computes dropout, and attention with dropout; leaves everything else as it is."""
        kwargs = kwargs or {}
        if function is functional.dropout:
            return self._dropout(function, *args, **kwargs)
        if function is functional.scaled_dot_product_attention:
            return self._attention(function, *args, **kwargs)
        return function(*args, **kwargs)

    def _dropout(
        self,
        function: Callable[..., Tensor],
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        if not training or inplace or not 0 < p < 1:
            return function(input, p, training, inplace)
        dropped: Tensor = _Dropout.apply(input, self._place, p, self._generators)  # type: ignore[no-untyped-call]
        return dropped

    def _attention(
        self,
        function: Callable[..., Tensor],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **settings: Any,
    ) -> Tensor:
        if dropout_p > 0:
            # What torch computes on a CPU, where no fused kernel takes dropout.
            weights = torch.ops.aten._scaled_dot_product_attention_math(
                query, key, value, attn_mask, 0.0, is_causal, **settings
            )[1]
            if settings.get("enable_gqa"):
                value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
            return self._dropout(functional.dropout, weights, dropout_p) @ value
        return function(query, key, value, attn_mask, dropout_p, is_causal, **settings)


class _Dropout(torch.autograd.Function):
    """Dropout under vmap, as torch computes it on a CPU without vmap."""

    @staticmethod
    def forward(
        input: Tensor, place: Tensor, p: float, generators: Sequence[torch.Generator]
    ) -> Tensor:
        """Is not called, since `place` is always batched."""
        raise NotImplementedError("dropout of clients is computed by vmap")

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: Any) -> None:
        """Keeps nothing: autograd sees the operations of `vmap`."""

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        input: Tensor,
        place: Tensor,
        p: float,
        generators: Sequence[torch.Generator],
    ) -> tuple[Tensor, int]:
        """Multiplies each client's input with its own mask."""
        if in_dims[0] is None:
            input = input.expand(info.batch_size, *input.shape)
        else:
            input = input.movedim(in_dims[0], 0)
        masks = [
            torch.empty_like(one).bernoulli_(1 - p, generator=generator)
            for one, generator in zip(input.detach(), generators, strict=True)
        ]
        return input * torch.stack(masks).div_(1 - p), 0
