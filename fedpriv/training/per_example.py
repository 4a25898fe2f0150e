"""Sums of clipped per-example gradients, to which DP-SGD, DP-Adam and FeAm-DP add noise.

The gradient of an example is that of `model.loss` on a batch of this example alone (a mean over the
example's targets). There are three ways to compute their sum, equal up to rounding:

- the loop: one backward pass per example. The reference. It needs memory for one gradient and works
  for any model. On a CPU it is the cheapest way from a few million parameters on.
- vmap: `torch.func`'s vmap(grad) over chunks of examples. It does many times fewer and larger
  operations, which is cheaper for small models and on a GPU. It needs memory for a chunk of
  gradients.
- ghost: book-keeping (`fedpriv.training.ghost`), which makes no example's gradient. It needs a rule
  for each layer, and takes four products a layer where a plain training step takes three.

They differ in the last bits and, with dropout, in the masks drawn. Therefore a rule on public facts
decides which one runs (`PerExample.choice`), never a measurement at run time: two workers, or a
resumed run, would choose differently when the machine is busy, and the same seed would no longer
give the same model.

`batch_gradients` does the same for whole batches, such as those of the providers of FL-PROVIDER-DP.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from fedpriv.data.examples import Batch, Examples
from fedpriv.privacy.clipping import check_clip_norm, clip_factor, sum_of_squares
from fedpriv.runtime.safe_masks import safe_masks
from fedpriv.runtime.vectors import ParameterLayout
from fedpriv.training.computing import Computing
from fedpriv.training.ghost import Ghost, NoRule, is_ours, without_rule

Way = Literal["vmap", "loop"]
Method = Literal["ghost", "vmap", "loop"]

VMAP_PARAMETERS_ON_CPU = 2_000_000
"""The most trainable parameters with which `auto` takes vmap on a CPU."""

CHUNK_BYTES = {"cpu": 64 << 20, "cuda": 2 << 30}
"""The most bytes of gradients in an automatic chunk; constants, because chunks change bits."""

LARGEST_CHUNK = 32
"""The most examples in an automatic chunk of any model: activations take memory too."""


@dataclass(frozen=True)
class ClippedSum:
    """Σ clip(g_i, C) over B examples. All fields but `total` tell of single examples: private.

    Attributes:
        total: the sum, of shape (d,): the trainable parameters in the order and the dtype of
            `ParameterLayout`'s vector "float". No noise in it.
        norms: L2 norms before clipping, of shape (B,), in the order of the examples; NaN or
            infinite for an example that counts as zero.
        nonfinite: how many examples count as zero because their gradient was not finite.
        method: how the gradients were computed.
        reason: why so; if vmap failed, its error.
    """

    total: Tensor
    norms: NDArray[np.float64]
    nonfinite: int
    method: Method
    reason: str


class VmapError(RuntimeError):
    """vmap was asked for by name and does not work for this model."""


@dataclass(frozen=True)
class PerExample:
    """How per-example gradients are computed; the result is the same up to rounding.

    Args:
        method: how the gradients of single examples are computed: "loop" takes one example at a
            time, "vmap" many at once, "ghost" makes none of them, and needs `model.losses`, whose
            b-th is the loss of the b-th example. On a GPU, "auto" takes ghost for models of ours
            whose layers all have a rule, and vmap otherwise; on a CPU it takes vmap for small
            models. If vmap fails, it takes the loop. A way that is named and fails is an error.
        chunk_size: the number of examples that ghost or vmap take at a time; it need not divide the
            number of examples. A chunk needs memory for its activations, and by vmap for twice its
            gradients. None is 32 by ghost, and by vmap a size of at most 32 that keeps the
            gradients of a chunk below 64 MiB on a CPU and 2 GiB on a GPU.
    """

    method: Literal["auto", "ghost", "vmap", "loop"] = "auto"
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        if self.method not in ("auto", "ghost", "vmap", "loop"):
            expected = "'auto', 'ghost', 'vmap' or 'loop'"
            raise ValueError(f"method={self.method!r}: expected {expected}")
        if self.chunk_size is not None and self.chunk_size < 1:
            raise ValueError(f"chunk_size={self.chunk_size}: expected 1 or more, or none")

    def clipped_sum(
        self,
        model: nn.Module,
        examples: Examples,
        clip_norm: float,
        device: torch.device | str = "cpu",
        computing: Computing | None = None,
    ) -> ClippedSum:
        """Returns the sum of the examples' clipped gradients.

        The examples are the logical batch, such as a Poisson sample; the sum of none is zero. The
        model is left unchanged: parameters, `grad` and buffers. Dropout masks are drawn from
        torch's global generator, one for each example.

        Args:
            model: has `loss(batch)`, a scalar; on `device`, in the mode it is to be trained in.
            examples: B of them.
            clip_norm: C, in L2: ‖clip(g)‖ ≤ C for every example, frozen parameters left out.
            device: of the model.
            computing: the precision of the gradients; None for float32. They are clipped and summed
                in float32, whatever it is.

        Raises:
            ValueError: if the clip norm is not positive and finite, nothing is trainable, or a
                BatchNorm would mix the examples.
            NoRule: if the method is "ghost" and the model has a layer without a rule.
            VmapError: if the method is "vmap" and does not work for the model.
        """
        check_clip_norm(clip_norm)
        if problems := _mixing(model):
            raise ValueError("; ".join(problems))
        sums = _Sums(model, clip_norm, torch.device(device), computing or Computing())
        way, reason = self.choice(model, device, computing)
        if way == "ghost" and len(examples):
            try:
                sums.ghost(examples, self.chunk_size or LARGEST_CHUNK)
            except NoRule as error:
                if self.method == "ghost":
                    raise
                sums.clear()
                way, reason = "vmap", f"no ghost clipping: {error}"
            else:
                return sums.result(way, reason)
        if way == "vmap" and len(examples):
            chunk = self.chunk_size or automatic_chunk(model, device)
            failure = self._failure_of_vmap(sums, examples, chunk)
            if not failure:
                return sums.result(way, reason)
            way, reason = "loop", f"vmap failed: {failure}"
        sums.loop(examples)
        return sums.result(way, reason)

    def problems(self, model: nn.Module) -> list[str]:
        """Returns why examples of this model have no gradients of their own, or not by this method.

        Puts the model into training mode, as clients do. The only layer that mixes examples is
        BatchNorm. Other layers that look at the whole batch do no harm, because each example is a
        batch by itself.
        """
        if self.method != "ghost":
            return _mixing(model.train())
        missing = without_rule(model.train())
        why = f"no rule for {', '.join(missing[:3])}" if missing else ""
        why = why if hasattr(model, "losses") else "the model has no method `losses`"
        named = [f"per_example.method='ghost': {why}; take 'auto', 'vmap' or 'loop'"] if why else []
        return _mixing(model) + named

    def choice(
        self,
        model: nn.Module,
        device: torch.device | str = "cpu",
        computing: Computing | None = None,
    ) -> tuple[Method, str]:
        """Returns the method for this model, and the reason.

        "auto" is ghost on a GPU for a model of ours of which each layer has a rule, else as
        `vmap_or_loop` says.
        """
        if self.method != "auto":
            return self.method, "set"
        way, reason = vmap_or_loop(model, device, computing)
        ours, on_cpu = is_ours(model), torch.device(device).type == "cpu"
        if way == "vmap" and ours and not on_cpu and not without_rule(model):
            return "ghost", reason
        return way, reason

    def _failure_of_vmap(self, sums: _Sums, examples: Examples, chunk: int) -> str:
        """Tries vmap; returns its error, after which the loop gives the bits of the loop alone.

        The failure is not remembered: a resumed run would not know of it, and take another way.
        """
        required = self.method == "vmap"
        failure = failure_of_vmap(lambda: sums.vmap(examples, chunk), sums.device, required)
        if failure:
            sums.clear()
        return failure


def vmap_or_loop(
    model: nn.Module, device: torch.device | str = "cpu", computing: Computing | None = None
) -> tuple[Way, str]:
    """Returns by which of two ways gradients of examples, or of batches, are made, and the reason.

    It is vmap on a GPU, and on a CPU up to `VMAP_PARAMETERS_ON_CPU` trainable parameters; it is the
    loop with activation checkpointing, and in lower precision on a CPU.
    """
    if any(getattr(module, "gradient_checkpointing", False) for module in model.modules()):
        return "loop", "automatic: activations are computed again, which vmap cannot do"
    kind = torch.device(device).type
    if kind == "cpu" and computing and computing.casts:
        # torch's attention has no gradient by vmap there.
        return "loop", f"automatic: {computing.precision} on a CPU"
    if kind != "cpu":
        return "vmap", f"automatic: on {kind}"
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    if count <= VMAP_PARAMETERS_ON_CPU:
        return "vmap", f"automatic: {count} parameters, at most {VMAP_PARAMETERS_ON_CPU}"
    return "loop", f"automatic: {count} parameters, more than {VMAP_PARAMETERS_ON_CPU}"


def failure_of_vmap(job: Callable[[], object], device: torch.device, required: bool) -> str:
    """Does a job that uses vmap; returns its error in a line, or "" if there is none.

    After an error torch's generators are where they were, so that another way can be taken as if
    this one had not been tried. An error of memory is passed on: it depends on what else runs, and
    must not decide about bits.

    Args:
        job: what to do.
        device: where it computes.
        required: whether there is no other way.

    Raises:
        VmapError: if the job fails and is required.
    """
    random = torch.get_rng_state()
    random_on_gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        job()
    except Exception as error:
        told = str(error)
        memory = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if memory or "can't allocate memory" in told:  # torch's text on a CPU
            raise
        failure = f"{type(error).__name__}: {told.strip().splitlines()[0] if told else ''}"
        if required:
            raise VmapError(f"vmap cannot take this model ({failure}); use 'loop'") from error
        torch.set_rng_state(random)
        if random_on_gpu is not None:
            torch.cuda.set_rng_state(random_on_gpu, device)
        return failure
    return ""


def each_gradient(
    model: nn.Module,
    examples: Examples,
    names: Sequence[str],
    device: torch.device | str = "cpu",
) -> Iterator[Tensor]:
    """Yields each example's gradient by some parameters, as rows of shape (chunk, values).

    By vmap where `vmap_or_loop` takes it and the model allows it, else one by one.

    Args:
        model: has `loss(batch)`; on `device`, in the mode in which its gradients are wanted.
        examples: in whose order the rows come.
        names: of the parameters, in the order of the values.
        device: of the model.
    """
    loss, every = _Loss(model), dict(model.named_parameters())
    given = {f"model.{name}": every[name].detach() for name in names}
    way, chunk = vmap_or_loop(model, device)[0], automatic_chunk(model, device)
    for start in range(0, len(examples), chunk):
        places = np.arange(start, min(start + chunk, len(examples)))
        if way == "vmap":
            try:
                with torch.no_grad():  # the other parameters, which may be trainable, have none
                    found = loss.of_each(given, examples.batch(places, device))
            except Exception:
                way = "loop"  # torch.func has no rule for something that the model does
            else:
                yield torch.cat([found[n].reshape(len(places), -1) for n in given], dim=1)
                continue
        for batch in examples.take(places).batches(1, device=device):
            parts = loss.gradients([every[name] for name in names], batch)
            whole = (
                torch.zeros_like(every[n]) if g is None else g
                for n, g in zip(names, parts, strict=True)
            )
            yield torch.cat([part.reshape(1, -1) for part in whole], dim=1)


def batch_gradients(
    model: nn.Module,
    examples: Examples,
    rows: NDArray[np.int64],
    device: torch.device | str = "cpu",
    computing: Computing | None = None,
) -> Iterator[dict[str, Tensor]]:
    """Yields the gradients of batches of one size by vmap, several batches at a time.

    The gradient of a batch is that of `model.loss` on it, up to rounding, as if it were computed
    alone. The model is left unchanged.

    Args:
        model: has `loss(batch)`, a scalar; on `device`, in the mode it is to be trained in.
        examples: of which the batches are made.
        rows: positions of the examples of each batch, of shape (batches, size).
        device: of the model.
        computing: the precision; None for float32.

    Yields:
        The gradients by the trainable parameters, by name and of shape (chunk, …), in the order of
        the batches. Those of parameters that the loss does not use are zero. A chunk depends on the
        model and the size of the batches only, and has at most `LARGEST_CHUNK` examples.

    Raises:
        RuntimeError: if the loss draws random numbers: those of a batch would depend on which other
            batches there are. Any other error if vmap cannot take the model.
    """
    loss = _Loss(model, computing)
    parameters = {name: p.detach() for name, p in loss.named_parameters() if p.requires_grad}
    chunk = max(1, min(automatic_chunk(model, device), LARGEST_CHUNK // rows.shape[1]))
    for start in range(0, len(rows), chunk):
        gradients = loss.of_each_batch(
            parameters, examples.batch(rows[start : start + chunk], device)
        )
        yield {name.removeprefix("model."): g for name, g in gradients.items()}


def unused_parameters(model: nn.Module, batch: Batch) -> set[str]:
    """Returns the names of the trainable parameters that the loss on a batch does not use.

    Optimisers of torch leave them as they are, without weight decay.
    """
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    gradients = _Loss(model).gradients(list(trainable.values()), batch)
    return {name for name, g in zip(trainable, gradients, strict=True) if g is None}


def automatic_chunk(model: nn.Module, device: torch.device | str = "cpu") -> int:
    """Returns how many examples vmap takes at a time; depends on the model's size only."""
    budget = CHUNK_BYTES.get(torch.device(device).type, CHUNK_BYTES["cuda"])
    return max(1, min(LARGEST_CHUNK, budget // ParameterLayout(model).bytes))


class _Sums:
    """Running sums over one logical batch, on the model's device."""

    def __init__(
        self, model: nn.Module, clip_norm: float, device: torch.device, computing: Computing
    ) -> None:
        self.device = device
        self._clip_norm = clip_norm
        self._loss = _Loss(model, computing)
        trainable = {n: p for n, p in self._loss.named_parameters() if p.requires_grad}
        if not trainable:
            raise ValueError(f"{type(model).__name__} has no trainable parameter")
        self._parameters: dict[str, Tensor] = {**trainable}
        # Half precision is summed in float32.
        wide = any(p.dtype == torch.float64 for p in trainable.values())
        dtype = torch.float64 if wide else torch.float32
        self._sizes = [p.numel() for p in trainable.values()]
        self._total = torch.zeros(sum(self._sizes), dtype=dtype, device=device)
        self._norms: list[float] = []
        self._skipped = 0

    def clear(self) -> None:
        self._total.zero_()
        self._norms, self._skipped = [], 0

    def loop(self, examples: Examples) -> None:
        for batch in examples.batches(1, device=self.device):
            self._add_gradient(batch)

    def ghost(self, examples: Examples, chunk: int) -> None:
        if not hasattr(self._loss.model, "losses"):
            raise NoRule("the model has no `losses`, one for each example")
        ghost = Ghost(self._loss.model, self._loss.losses, self._loss, self._loss.computing)
        for batch in examples.batches(chunk, device=self.device):
            found, norms = ghost.clipped_sum(batch, self._clip_norm)
            pieces = torch.split(self._total, self._sizes)
            for place, name in zip(pieces, self._parameters, strict=True):
                place.add_(found[name.removeprefix("model.")].reshape(-1))
            self._norms += norms.tolist()
        self._skipped = sum(not math.isfinite(norm) for norm in self._norms)

    def vmap(self, examples: Examples, chunk: int) -> None:
        parameters = {name: p.detach() for name, p in self._parameters.items()}
        for batch in examples.batches(chunk, device=self.device):
            self._add_chunk(self._loss.of_each(parameters, batch))

    def result(self, way: Method, reason: str) -> ClippedSum:
        return ClippedSum(
            total=self._total,
            norms=np.array(self._norms, dtype=np.float64),
            nonfinite=self._skipped,
            method=way,
            reason=reason,
        )

    def _add_gradient(self, batch: Batch) -> None:
        """Adds one example. A function of its own frees the gradient before the next example."""
        gradients = self._loss.gradients(list(self._parameters.values()), batch)
        factor = self._factor(sum_of_squares(g for g in gradients if g is not None))
        if not factor:  # 0 · NaN would not be 0
            return
        for place, gradient in zip(torch.split(self._total, self._sizes), gradients, strict=True):
            if gradient is not None:
                place.add_(gradient.reshape(-1), alpha=factor)

    def _add_chunk(self, gradients: dict[str, Tensor]) -> None:
        pieces = [g.reshape(len(g), -1) for g in (gradients[n] for n in self._parameters)]
        rows = torch.cat([piece.to(self._total.dtype) for piece in pieces], dim=1)
        # Fetched from a GPU at once.
        squares_of_rows = torch.stack([sum_of_squares([row]) for row in rows]).cpu()
        for row, squares in zip(rows, squares_of_rows, strict=True):
            factor = self._factor(squares)
            if factor == 0:
                row.zero_()
            elif factor != 1:
                row.mul_(factor)
        self._total.add_(rows.sum(0))

    def _factor(self, squares: Tensor) -> float:
        norm = math.sqrt(squares.item())
        self._norms.append(norm)
        self._skipped += not math.isfinite(norm)
        return clip_factor(norm, self._clip_norm, self._total.dtype)


class _Loss(nn.Module):
    """The loss as a function of parameters and a batch, with no effect on the model.

    It works on copies of the buffers: a counter that a forward pass increments, or an average that
    it updates, would carry information from one example to the next.
    """

    def __init__(self, model: nn.Module, computing: Computing | None = None) -> None:
        super().__init__()
        self.model = model
        self.computing = computing or Computing()

    def forward(self, batch: Batch, each: bool = False) -> Tensor:
        with self.computing.autocast(batch):
            loss: Tensor = (self.model.losses if each else self.model.loss)(batch)  # type: ignore[operator]
        return loss

    def losses(self, batch: Batch) -> Tensor:
        """Returns the loss of each example, with the graph that leads to it."""
        return cast(Tensor, functional_call(self, self._copied_buffers(), (batch, True)))

    def gradients(self, parameters: Sequence[Tensor], batch: Batch) -> list[Tensor | None]:
        """Returns the gradients, None for parameters that the loss does not use."""
        with torch.enable_grad():
            loss = functional_call(self, self._copied_buffers(), (batch,))
            if not loss.requires_grad:  # a constant: no parameter was used
                return [None] * len(parameters)
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        return [g.to_dense() if g is not None and g.is_sparse else g for g in gradients]

    def of_each(self, parameters: dict[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Returns the gradients of all examples of a batch by vmap; the first axis is theirs."""
        return self._vmap(self.of_one, parameters, batch, "different")

    def of_each_batch(self, parameters: dict[str, Tensor], batches: Batch) -> dict[str, Tensor]:
        """Returns the gradients of batches of shape (batches, size, …); the first axis is theirs.

        Raises:
            RuntimeError: if the loss draws random numbers.
        """
        return self._vmap(self.of_batch, parameters, batches, "error")

    def _vmap(
        self,
        loss: Callable[[dict[str, Tensor], Batch], Tensor],
        parameters: dict[str, Tensor],
        batch: Batch,
        randomness: str,
    ) -> dict[str, Tensor]:
        # Untyped in torch.
        vmapped: Callable[..., dict[str, Tensor]] = torch.vmap(
            grad(loss), in_dims=(None, 0), randomness=randomness
        )
        # On a CPU vmap would call the fused attention once for each example, and warn of it.
        on_cpu = all(column.device.type == "cpu" for column in batch.values())
        attention: AbstractContextManager[None] = (
            sdpa_kernel(SDPBackend.MATH) if on_cpu else nullcontext()
        )
        with safe_masks(), attention:
            return vmapped(parameters, batch)

    def of_one(self, parameters: dict[str, Tensor], example: Batch) -> Tensor:
        """Returns the loss of one example; its tensors have no batch dimension."""
        return self.of_batch(parameters, {name: c.unsqueeze(0) for name, c in example.items()})

    def of_batch(self, parameters: dict[str, Tensor], batch: Batch) -> Tensor:
        """Returns the loss of a batch with these parameters."""
        loss: Tensor = functional_call(self, {**parameters, **self._copied_buffers()}, (batch,))
        return loss

    def _copied_buffers(self) -> dict[str, Tensor]:
        return {name: buffer.clone() for name, buffer in self.named_buffers()}


def _mixing(model: nn.Module) -> list[str]:
    return [
        f"{name or 'the model'} is a {type(module).__name__} that takes its statistics from the "
        "batch: no example has a gradient of its own, and differential privacy cannot hold; keep "
        "it in eval() mode, with statistics of its own, or use GroupNorm"
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
    ]
