"""How the gradient of a batch is computed: in which precision, in how many parts, in what memory.

These settings change how fast a training goes and how much memory it takes. They do not change the
algorithm: parameters, optimiser state, clipping, sums and noise stay in the model's own precision,
which is float32.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from fedpriv.data.examples import Batch, Examples

PRECISIONS = ("float32", "tf32", "bf16", "fp16")

FIRST_SCALE = 2.0**16
"""By how much a loss in fp16 is multiplied at first, as in torch's GradScaler."""

MOST_VARIANTS = 128
"""Of compiled layers, in one process."""

LARGEST_DIFFERENCE = 1e-3
"""How far, relatively, a loss may be from the one that its parts add up to."""


_OF_EACH = {
    "microbatch": "it computes the gradient of each example already; "
    "client.per_example.chunk_size sets how many of them at once",
    "compile": "it clips the gradient of each example, which compiled layers do not make",
}
"""Why a half that clips single examples does not follow a setting."""


@dataclass(frozen=True)
class Computing:
    """How clients, and pretraining, compute gradients.

    Args:
        precision: the precision of the forward and the backward pass: "float32", "tf32", or "bf16"
            or "fp16" by torch's autocast. Parameters, optimisers, clipping, sums and noise stay in
            float32, and so does evaluation. "tf32" needs a GPU; products and convolutions round
            their factors to 10 bits and add in float32. "fp16" needs one, too; it scales the loss,
            and computes a batch again at half the scale if its gradient overflows.
        microbatch: the largest number of examples in one forward and backward pass. Larger batches
            are computed in parts whose gradients are added up, which gives the same optimiser step
            up to rounding and needs less memory; only dropout draws other masks. None takes each
            batch at once.
        checkpointing: whether the layers keep only their inputs and compute the rest again in the
            backward pass, which takes less memory and more time.
        compile: whether torch compiles the layers of transformers, in a few variants for each kind,
            one of which takes batches of any size. It takes a minute at first, and pays on a GPU
            with large batches.
        deterministic: whether a GPU takes kernels that give the same bits each time. What its
            fastest kernels compute differs in the last bits from run to run.
    """

    precision: Literal["float32", "tf32", "bf16", "fp16"] = "float32"
    microbatch: int | None = None
    checkpointing: bool = False
    compile: bool = False
    deterministic: bool = True

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            expected = "'float32', 'tf32', 'bf16' or 'fp16'"
            raise ValueError(f"precision={self.precision!r}: expected {expected}")
        if self.microbatch is not None and self.microbatch < 1:
            raise ValueError(f"microbatch={self.microbatch}: expected 1 or more, or none")

    def changed(self) -> dict[str, Any]:
        """Returns the settings that differ from their defaults, by name."""
        values = {f.name: (getattr(self, f.name), f.default) for f in dataclasses.fields(Computing)}
        return {name: value for name, (value, default) in values.items() if value != default}

    @property
    def casts(self) -> bool:
        """Whether the forward pass has other types than the parameters'."""
        return self.precision in ("bf16", "fp16")

    def autocast(self, batch: Batch) -> AbstractContextManager[Any]:
        """Returns the context in which a model computes its loss on the batch."""
        if not self.casts:
            return nullcontext()
        kind = next(iter(batch.values())).device.type
        dtype = torch.bfloat16 if self.precision == "bf16" else torch.float16
        # Without its cache of converted weights, which torch.func's transforms would share.
        return torch.autocast(kind, dtype=dtype, cache_enabled=False)

    def prepare(self, model: nn.Module, *, compiles: bool = True) -> None:
        """Turns checkpointing or compilation on in the model's layers of transformers, in place.

        Args:
            model: to be trained.
            compiles: whether to compile, too; a trial need not.

        Raises:
            ValueError: if one of them is set, and the model has no such layer.
        """
        if not (self.checkpointing or self.compile):
            return
        layers = [m for m in model.modules() if hasattr(m, "gradient_checkpointing")]
        if not layers:
            wanted = "checkpointing" if self.checkpointing else "compile"
            raise ValueError(
                f"training.{wanted}=true: {type(model).__name__} has no layer of transformers that "
                "can be compiled, or compute its activations again; leave it out"
            )
        if self.compile:
            from transformers.modeling_layers import GradientCheckpointingLayer  # slow to import

            # All kinds of layers count as one function there, and each has variants: for a single
            # example, with and without gradients. Beyond the limit layers would not be compiled.
            config: Any = torch._dynamo.config
            config.recompile_limit = max(config.recompile_limit, MOST_VARIANTS)
            for layer in layers:
                if compiles and isinstance(layer, GradientCheckpointingLayer):
                    # For any size at once: what was compiled may not depend on what came before.
                    layer.compile(dynamic=True)
            return
        for layer in layers:
            # What `gradient_checkpointing_enable` of transformers does, also for networks whose
            # layers have it though the network does not say so, such as LayoutLMv3's.
            layer.gradient_checkpointing = True  # type: ignore[assignment]
            # The reentrant kind gives no gradient where a layer's inputs need none.
            layer._gradient_checkpointing_func = functools.partial(  # type: ignore[assignment]
                checkpoint, use_reentrant=False
            )

    def problems(self, client: object, model: nn.Module, device: str) -> list[str]:
        """Returns why a client half cannot train this model on this device so.

        Args:
            client: names the settings that it follows in its class variable `computes`.
            model: in training mode.
            device: where clients train.
        """
        found, per_example = [], hasattr(client, "per_example")
        name = type(client).__name__
        kind = torch.device(device).type
        if self.precision in ("tf32", "fp16") and kind == "cpu":
            found.append(
                f"training.precision={self.precision!r}: needs a GPU, and federation.device is "
                "'cpu'; take 'bf16' or 'float32'"
            )
        elif self.precision == "tf32" and not _has_tf32(device):
            found.append(
                f"training.precision='tf32': {device} has no TF32, which NVIDIA's GPUs have since "
                "2020 (A100, RTX 30); take 'float32', 'bf16' or 'fp16'"
            )
        if not self.deterministic and kind in ("cpu", "mps", "xpu"):
            found.append(
                f"training.deterministic=false: federation.device is {device!r}, where it changes "
                "nothing; leave it out"
            )
        if self.compile and self.checkpointing:
            found.append("training.compile=true: not with training.checkpointing; leave one out")
        if self.precision == "fp16" and per_example:
            found.append(
                f"training.precision='fp16': {name} clips the gradient of each example, and small "
                "values would be lost before that; take 'bf16', which has the range of float32"
            )
        advice = dict.fromkeys(
            ("precision", "microbatch", "compile"),
            "it does not follow this setting (its class variable `computes` would name it)",
        )
        found += [
            f"training.{setting}={getattr(self, setting)!r}: {name}: {told}"
            for setting, told in (advice | (_OF_EACH if per_example else {})).items()
            if setting in self.changed() and setting not in getattr(client, "computes", ())
        ]
        way = "client.per_example.method" if per_example else "client.method"
        if getattr(getattr(client, "per_example", client), "method", "") == "vmap":
            if self.checkpointing:
                found.append(
                    f"training.checkpointing=true: {way}='vmap' cannot compute activations again; "
                    "take 'auto' or 'loop'"
                )
            elif not per_example and self.alone:
                found.append(
                    f"{way}='vmap': takes whole batches, and not with training.{self.alone}; take "
                    "'auto' or 'loop'"
                )
        if self.microbatch is not None:
            found += [
                f"training.microbatch={self.microbatch}: {module_name or 'the model'} is a "
                f"{type(module).__name__}, whose statistics depend on which examples are computed "
                "together; leave microbatch out"
                for module_name, module in model.named_modules()
                if isinstance(module, _BatchNorm) and module.training
            ]
        return found

    @property
    def alone(self) -> str:
        """The first setting with which several batches cannot be computed together; "" for none."""
        if self.precision == "fp16":
            return "precision='fp16'"
        if self.microbatch is not None:
            return f"microbatch={self.microbatch}"
        return "checkpointing" if self.checkpointing else "compile" if self.compile else ""

    def trial(self, model: nn.Module, examples: Examples, device: str) -> list[str]:
        """Returns a problem if the losses of parts of a batch do not add up to that of the whole.

        Args:
            model: on the device; it is put into evaluation mode.
            examples: of which the first four are tried.
            device: of the model.
        """
        if self.microbatch is None:
            return []
        model.eval()
        with torch.no_grad():
            batch = examples.batch(np.arange(min(4, len(examples))), device)
            whole = float(model.loss(batch))  # type: ignore[operator]
            parts = [sum_and_weight(model, part) for part in split(batch, 1)]
        weight = max(1.0, sum(float(weight) for _, weight in parts))
        added = sum(float(loss) for loss, _ in parts) / weight
        if abs(added - whole) <= LARGEST_DIFFERENCE * abs(whole):
            return []
        return [
            f"training.microbatch={self.microbatch}: the loss of {type(model).__name__} on "
            f"{len(parts)} examples is {whole:.6g}, and their own losses add up to {added:.6g}; "
            "give it a method `summed_loss` that returns the sum and what `loss` divides it by, or "
            "leave microbatch out"
        ]


class Backward:
    """Computes the gradient of a batch's loss; made anew for each optimiser.

    In fp16 small gradients would become 0, so the loss is multiplied by a scale first and the
    gradient divided by it. A gradient that overflows is computed again at half the scale, which
    stays. torch's GradScaler leaves the step out instead, and a training of a few steps, such as a
    provider's, would hardly move.

    Args:
        computing: how.
    """

    def __init__(self, computing: Computing | None = None) -> None:
        self.computing = computing or Computing()
        self.scale = FIRST_SCALE if self.computing.precision == "fp16" else 1.0

    def __call__(self, model: nn.Module, batch: Batch) -> Tensor:
        """Puts the gradient of `model.loss(batch)` into `grad` of the parameters.

        Args:
            model: whose parameters have no gradients yet.
            batch: on the model's device.

        Returns:
            The loss, a scalar without a gradient.
        """
        if not self.computing.casts and self.computing.microbatch is None:
            loss: Tensor = model.loss(batch)  # type: ignore[operator]
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()
        while True:
            total, weight = self._accumulated(model, batch)
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            for gradient in gradients:
                gradient.div_(weight * self.scale)
            if self.scale == 1.0 or _finite(gradients):
                return total / weight
            self.scale /= 2
            model.zero_grad(set_to_none=True)

    def _accumulated(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        """Adds the gradients of the scaled sums over the parts; returns their sum and weight."""
        sums, weights = [], []
        for part in split(batch, self.computing.microbatch):
            with self.computing.autocast(part):
                loss, weight = sum_and_weight(model, part)
            (loss * self.scale).backward()  # type: ignore[no-untyped-call]
            sums.append(loss.detach())
            weights.append(torch.as_tensor(weight))
        return torch.stack(sums).sum(), torch.stack(weights).sum().clamp(min=1)


def _has_tf32(device: str) -> bool:
    """Whether a device rounds to TF32; of one that is not there, only its kind can be told."""
    if torch.device(device).type in ("mps", "xpu"):
        return False
    return not torch.cuda.is_available() or torch.cuda.get_device_capability(device) >= (8, 0)


def sum_and_weight(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | int]:
    """Returns a loss as a sum, and what `model.loss` divides it by: `loss` is their quotient.

    A model whose loss is not the mean over its examples says so in a method `summed_loss`.
    """
    if hasattr(model, "summed_loss"):
        summed: tuple[Tensor, Tensor] = model.summed_loss(batch)  # type: ignore[operator]
        return summed
    size = len(next(iter(batch.values())))
    loss: Tensor = model.loss(batch)  # type: ignore[operator]
    return loss * size, size


def split(batch: Batch, size: int | None) -> Iterator[Batch]:
    """Yields a batch in parts of `size` examples, the last of which may be smaller."""
    if size is None:
        yield batch
        return
    pieces = (torch.split(column, size) for column in batch.values())
    for part in zip(*pieces, strict=True):
        yield dict(zip(batch, part, strict=True))


def _finite(gradients: list[Tensor]) -> bool:
    return all(bool(f) for f in torch.stack([g.isfinite().all() for g in gradients]).tolist())
