"""Which tensors of a model travel, as flat vectors: one of floats, one of integers.

Parameters are exchanged by `named_parameters`, not by `state_dict`: tied weights travel once,
frozen ones not at all. A flat vector is one copy in shared memory instead of one per tensor.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Vector = Tensor
Vectors = dict[str, Vector]
"""``{"float": float32 or float64 of shape (d,), "integer": int64 of shape (e,)}``, without
``integer`` where no integer tensor travels; on the device of the model. Whoever gets one does not
change it, except a running sum its own."""

HOST_PIECE, DEVICE_PIECE = 1 << 16, 1 << 24
"""Elements worked on at a time: half a megabyte in float64 stays in the cache of a core, and a GPU
wants few and large kernels."""


class ParameterLayout:
    """The tensors of one model that travel between server and client.

    Trainable parameters always travel. Buffers (BatchNorm's running mean, its int64 counter)
    hold data of the client and travel only where the strategy asks for them; integers stay
    integers, in a vector of their own.

    Args:
        model: the model to read from and write to.
        buffers: whether the persistent buffers travel too.

    Raises:
        ValueError: if nothing of the model is trainable, or a tensor is of a kind that cannot
            travel (complex, quantised).
    """

    def __init__(self, model: nn.Module, *, buffers: bool = False) -> None:
        tensors: dict[str, Tensor] = {
            name: p for name, p in model.named_parameters() if p.requires_grad
        }
        if not tensors:
            raise ValueError(f"{type(model).__name__} has no trainable parameter to exchange")
        if buffers:
            kept = model.state_dict().keys()
            tensors |= {name: b for name, b in model.named_buffers() if name in kept}
        self._tensors: dict[str, dict[str, Tensor]] = {}
        for name, t in tensors.items():
            if t.is_complex() or t.is_quantized:
                raise ValueError(f"{name}: a tensor of {t.dtype} cannot travel")
            kind = "float" if t.is_floating_point() else "integer"
            self._tensors.setdefault(kind, {})[name] = t
        wide = any(t.dtype == torch.float64 for t in self._tensors["float"].values())
        self._wire = {"float": torch.float64 if wide else torch.float32, "integer": torch.int64}

    @property
    def bytes(self) -> int:
        """Size of the vectors in bytes, known without reading them, also on the meta device."""
        return sum(
            sum(t.numel() for t in tensors.values()) * self._wire[kind].itemsize
            for kind, tensors in self._tensors.items()
        )

    @torch.no_grad()
    def read(self) -> Vectors:
        """Returns a copy of the model's tensors, flattened in the order of their names."""
        return {kind: _flatten(t.values(), self._wire[kind]) for kind, t in self._tensors.items()}

    @torch.no_grad()
    def write(self, vectors: Mapping[str, Tensor]) -> None:
        """Copies the vectors into the model's tensors.

        Raises:
            ValueError: if a vector is missing or has another length than the model's.
        """
        for kind in self._wire:
            tensors = self._tensors.get(kind, {})
            size = sum(t.numel() for t in tensors.values())
            vector = as_tensor(vectors[kind]) if kind in vectors else torch.empty(0)
            if (got := vector.numel()) != size:
                raise ValueError(f"the model holds {size} {kind} values, the message {got}")
            if tensors:
                _unflatten(vector, tensors.values())

    def change_since(
        self, start: Mapping[str, Tensor], now: Mapping[str, Tensor] | None = None
    ) -> Vectors:
        """Returns the model's tensors minus `start`.

        Args:
            start: the vectors before.
            now: tensors by name that take the place of the model's own.
        """
        now = now or {}
        return {
            kind: _difference([now.get(name, t) for name, t in tensors.items()], start[kind])
            for kind, tensors in self._tensors.items()
        }

    def vectors(self, named: Mapping[str, Tensor]) -> Vectors:
        """Returns named tensors as vectors, the inverse of `named`.

        Raises:
            ValueError: if the names are not those of the model's tensors that travel.
        """
        own = [name for tensors in self._tensors.values() for name in tensors]
        if sorted(named) != sorted(own):
            odd = sorted(set(named) ^ set(own))
            raise ValueError(f"these tensors are not the model's: they differ in {odd[:3]}")
        return {
            kind: _flatten([named[name] for name in tensors], self._wire[kind])
            for kind, tensors in self._tensors.items()
        }

    def named(self, vectors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the vectors cut into tensors by name, in the shapes of the model's."""
        named: dict[str, Tensor] = {}
        for kind, tensors in self._tensors.items():
            pieces = _split(as_tensor(vectors[kind]), tensors.values())
            for (name, like), piece in zip(tensors.items(), pieces, strict=True):
                named[name] = piece.view(like.shape)
        return named


def as_tensor(vector: Tensor | NDArray[Any]) -> Tensor:
    """Returns a tensor as it is, and an array as one over its memory, not to be written to.

    Arrays in Ray's shared memory are read-only, and torch would warn of that. It has no strides
    below 0: such an array is copied.
    """
    if isinstance(vector, Tensor):
        return vector
    if any(stride < 0 for stride in vector.strides):
        vector = vector.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(vector)


def on_host(vector: Tensor) -> NDArray[Any]:
    """Returns a vector as a read-only NumPy array, for what is not of torch: the one way down.

    Of a vector on a CPU it is a view, and copies nothing.
    """
    array: NDArray[Any] = vector.detach().cpu().numpy().view()
    array.flags.writeable = False
    return array


def pieces(*vectors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Cuts flat vectors of one size, on one device, into what is worked on at a time."""
    size = HOST_PIECE if vectors[0].device.type == "cpu" else DEVICE_PIECE
    return zip(*(torch.split(vector, size) for vector in vectors), strict=True)


def over_(vector: Tensor, divisor: float) -> Tensor:
    """Divides in place. By a tensor: CUDA multiplies by 1/x where it is given a Python number."""
    return vector.div_(torch.full((), divisor, dtype=vector.dtype, device=vector.device))


def _flatten(tensors: Iterable[Tensor], dtype: torch.dtype) -> Tensor:
    return torch.cat([t.detach().reshape(-1).to(dtype) for t in tensors])


@torch.no_grad()
def _difference(tensors: Iterable[Tensor], start: Tensor) -> Tensor:
    """Returns the flattened tensors minus `start`, in one pass over the memory."""
    change, tensors = torch.empty_like(start), list(tensors)
    for tensor, before, out in zip(
        tensors, _split(start, tensors), _split(change, tensors), strict=True
    ):
        # To the wire's type first: a difference of bfloat16 would be rounded.
        torch.sub(tensor.detach().to(start).reshape(-1), before, out=out)
    return change


def _unflatten(vector: Tensor, tensors: Iterable[Tensor]) -> None:
    tensors = list(tensors)
    flat = vector.to(tensors[0].device)
    for tensor, piece in zip(tensors, _split(flat, tensors), strict=True):
        tensor.copy_(piece.view(tensor.shape))


def _split(flat: Tensor, like: Iterable[Tensor]) -> tuple[Tensor, ...]:
    return torch.split(flat, [t.numel() for t in like])
