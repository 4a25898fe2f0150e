"""A device that is not there: tensors that behave as on a GPU, computed by the CPU beneath.

It shows on a machine without a GPU what a program moves. What CUDA refuses is refused: NumPy, CPU
tensors beside those of the device unless they are scalars or indices, generators of the CPU. What
is slow on CUDA is counted with the line of code that asked for it: bytes to the host, bytes from
it, and waits for the device. The rest is computed by the CPU and has the CPU's bits.

    with FakeDevice() as gpu:
        model.to(DEVICE)
        ...
    assert gpu.to_host == 0, gpu.table()

What it cannot show: nothing is asynchronous, so no race shows, and there is no pinned memory.
It has no generator, and dropout draws from the CPU's global one. Activation checkpointing is an
error. Tied parameters stay tied on their way to the device, and come apart in `module.cpu()`.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("lazy", 0)
"""Of the devices that torch has no kernels for here, the only one that autograd works with."""

aten = torch.ops.aten

WAITS = {
    aten._linalg_check_errors,
    aten._local_scalar_dense,
    aten._unique2,
    aten.allclose,
    aten.bincount,
    aten.equal,
    aten.masked_select,
    aten.multinomial,
    aten.nonzero,
    aten.unique_consecutive,
    aten.unique_dim,
}
"""The host needs a number of these, or the size of their result, before it can go on."""

READS = {aten.index, aten._unsafe_index}
WRITES = {aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index_put}
FILLS = {aten.fill, aten.fill_, aten.masked_fill, aten.masked_fill_}
TAKES_SCALARS = {*WRITES, *FILLS, aten.floor_divide, aten.floor_divide_}
"""They take a scalar of the CPU, as all do that torch tags as pointwise."""

HALF, FULL = (
    frozenset(names.split())
    for names in (
        "addbmm addmm addmv addr baddbmm bmm conv1d conv2d conv3d conv_transpose1d "
        "conv_transpose2d conv_transpose3d einsum linear __matmul__ __rmatmul__ matmul mm "
        "multi_head_attention_forward mv prelu scaled_dot_product_attention",
        "acos asin binary_cross_entropy_with_logits cdist cosh cosine_similarity cross_entropy "
        "cumprod cumsum dist erfinv exp expm1 group_norm huber_loss kl_div l1_loss layer_norm "
        "linalg_vector_norm log log10 log1p log2 log_softmax logsumexp mse_loss nll_loss norm pow "
        "__pow__ prod reciprocal renorm rms_norm __rpow__ rsqrt sinh smooth_l1_loss softmax "
        "softplus sum tan",
    )
)
"""The functions that CUDA's autocast computes in half and in single precision, by name."""

Kind = Literal["to host", "from host", "wait"]


class Place(NamedTuple):
    """A line of code outside of torch.

    Attributes:
        file: the path below the folder that it was imported from.
        function: its qualified name.
        line: its number.
    """

    file: str
    function: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"


class FakeDevice(TorchDispatchMode):
    """The device, while the block lasts, and what crossed between it and the host.

    Attributes:
        amounts: the bytes, or the number of waits, by kind and place.
        times: how often, by kind and place.
    """

    current: FakeDevice | None = None

    def __init__(self) -> None:
        super().__init__()
        self.amounts: Counter[tuple[Kind, Place]] = Counter()
        self.times: Counter[tuple[Kind, Place]] = Counter()

    def __enter__(self) -> FakeDevice:
        if FakeDevice.current is not None:
            raise RuntimeError("there is one FakeDevice at a time")
        super().__enter__()
        FakeDevice.current, self._torch_autocast = self, torch.autocast
        torch.autocast = _autocast_with(torch.autocast)
        # `torch.tensor(…, device=DEVICE)` makes a tensor of the CPU, and then moves it.
        self._lifted = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        return self

    def __exit__(self, *error: Any) -> None:
        FakeDevice.current, torch.autocast = None, self._torch_autocast
        torch._C._set_only_lift_cpu_tensors(self._lifted)
        super().__exit__(*error)

    @property
    def to_host(self) -> int:
        """How many bytes went to the host."""
        return self._total("to host")

    @property
    def from_host(self) -> int:
        """How many bytes came from the host."""
        return self._total("from host")

    @property
    def waits(self) -> int:
        """How often the host waited for a number or for the size of a result.

        It waits for each copy to the host as well, which is not counted again.
        """
        return self._total("wait")

    def table(self) -> str:
        """Returns what was counted: a line for each kind and place, the largest amounts first."""
        return "\n".join(
            f"{self.times[kind, place]:6} × {kind:9} {amount:14,}  {place}"
            for (kind, place), amount in self.amounts.most_common()
        )

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.compute(op, args, kwargs or {})

    def compute(self, op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Does what torch asks for; what concerns no tensor of the device is torch's own matter."""
        leaves, form = pytree.tree_flatten((args, kwargs))
        ours = [x for x in leaves if isinstance(x, Faked)]
        target = kwargs.get("device")
        onto = target is not None and torch.device(target).type == DEVICE.type
        if not ours and not onto:
            return op(*args, **kwargs)
        if any(isinstance(x, torch.Generator) for x in leaves):
            raise RuntimeError(f"{op}: expected a generator of {DEVICE}, but found one of cpu")
        if op is aten._to_copy.default and target is not None:
            return self._moved(args[0], kwargs, onto)
        if op is aten.copy_.default:
            return self._copied(*args)
        if op is aten._foreach_copy_.default:
            for to, source in zip(*args[:2], strict=True):
                self._copied(to, source, *args[2:])
            return None
        wraps = onto or target is None
        if target is None:
            if op.overloadpacket in FILLS | WRITES and not isinstance(args[0], Faked):
                wraps = any(x.dim() for x in ours)  # the CPU fetches a scalar, and nothing else
            others = [x for x in leaves if isinstance(x, Tensor) and not isinstance(x, Faked)]
            if others and wraps:
                self._mixed(op, args, kwargs, others)
            self._note("wait", _waits(op, args, kwargs) if wraps else 1)
        inner_args, inner_kwargs = pytree.tree_unflatten([_inner(x) for x in leaves], form)
        if onto:
            inner_kwargs["device"] = torch.device("cpu")
        before = [_shape(x.inner) for x in ours]
        found = op(*inner_args, **inner_kwargs)
        for x, shape in zip(ours, before, strict=True):
            if _shape(x.inner) != shape:  # in place, by `squeeze_` and the like
                Tensor.data.__set__(x, Faked(x.inner))

        def outer(x: Any) -> Any:  # torch itself returns what was changed in place
            return Faked(x) if wraps and isinstance(x, Tensor) else x

        return pytree.tree_map(outer, found)

    def _moved(self, tensor: Tensor, kwargs: dict[str, Any], onto: bool) -> Tensor:
        on_cpu = {"device": torch.device("cpu"), "non_blocking": False}
        found = aten._to_copy.default(_inner(tensor), **{**kwargs, **on_cpu})
        if onto:
            found = Faked(found)
        self._crossing(found, tensor, kwargs.get("non_blocking", False))
        return found

    def _copied(self, to: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
        self._crossing(to, source, non_blocking)
        aten.copy_.default(_inner(to), _inner(source))
        return to

    def _crossing(self, to: Tensor, source: Tensor, non_blocking: bool) -> None:
        """Counts the bytes of a copy, if it leaves the device or comes to it."""
        onto = isinstance(to, Faked)
        if onto == isinstance(source, Faked):
            return
        # A blocking copy converts types on the host, another one on the device.
        travels = source if onto == non_blocking else to
        size = to.numel() * travels.dtype.itemsize
        self._note("from host" if onto else "to host", size)

    def _mixed(self, op: Any, args: Any, kwargs: dict[str, Any], others: list[Tensor]) -> None:
        """Raises where CUDA does for CPU tensors among its own; counts the indices that move."""
        packet, arguments = op.overloadpacket, op._schema.arguments
        named = dict(zip((a.name for a in arguments), args, strict=False)) | kwargs
        written = pytree.tree_leaves([named.get(a.name) for a in arguments if a.is_write])
        indices: list[Any] = []
        if packet in READS | WRITES and isinstance(args[0], Faked):
            indices = args[1]
        takes_scalars = (
            torch.Tag.pointwise in op.tags
            or packet in TAKES_SCALARS
            or packet.__name__.startswith("_foreach_")
        )
        fills = packet in WRITES and any(i is not None and _is_mask(i) for i in args[1])
        moves_scalars = packet is aten.where or (packet in WRITES and not fills)
        scalars = 0
        for x in others:
            if _is_in(x, indices):
                self._note("from host", (x.nonzero() if _is_mask(x) else x).nbytes)
                continue
            scalars += 1
            too_many = scalars > 1 and not moves_scalars
            if x.dim() or not takes_scalars or too_many or _is_in(x, written):
                raise RuntimeError(
                    f"{op}: expected all tensors to be on the same device, but found {DEVICE} and "
                    f"cpu, with a tensor of shape {tuple(x.shape)}"
                )
            self._note("from host", x.nbytes if moves_scalars else 0)

    def _note(self, kind: Kind, amount: int) -> None:
        if amount:
            at = kind, _place()
            self.amounts[at] += amount
            self.times[at] += 1

    def _total(self, kind: Kind) -> int:
        return sum(amount for (found, _), amount in self.amounts.items() if found == kind)


class Faked(Tensor):
    """A tensor on the device that is not there; `inner`, a tensor of the CPU, has its numbers."""

    inner: Tensor

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> Faked:
        made: Faked = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if FakeDevice.current is None:
            raise RuntimeError(f"{op}: a tensor of {DEVICE} was used outside of its FakeDevice")
        return FakeDevice.current.compute(op, args, kwargs or {})

    # Because of these two, `Module.to` leaves a parameter the object that it is, as on CUDA.

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(parts: dict[str, Tensor], *_: Any) -> Faked:
        return Faked(parts["inner"])

    # Where torch is written for its own tensors only.

    def numpy(self, *, force: bool = False) -> NDArray[Any]:
        """Raises torch's error for CUDA."""
        if not force:
            raise TypeError(
                f"can't convert {DEVICE} device type tensor to numpy. Use Tensor.cpu() to copy the "
                "tensor to host memory first."
            )
        return self.detach().cpu().numpy()

    def tolist(self) -> Any:
        """Fetches the numbers."""
        return self.cpu().tolist()

    def data_ptr(self) -> int:
        """Tells whether two tensors share their memory."""
        return self.inner.data_ptr()

    @property
    def data(self) -> Tensor:
        """The tensor without its history; another one can be put in its place."""
        return Tensor.data.__get__(self)

    @data.setter
    def data(self, new: Faked) -> None:
        Tensor.data.__set__(self, new)
        self.inner = new.inner.detach()

    def __setitem__(self, index: Any, value: Any) -> None:
        # As for CUDA, a number becomes a tensor of the CPU, for which nothing waits.
        number = isinstance(value, bool | int | float)
        super().__setitem__(index, torch.tensor(value, dtype=self.dtype) if number else value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if isinstance(self, nn.Parameter):
            parts = self.detach(), self.requires_grad, OrderedDict()
            return torch._utils._rebuild_parameter, parts
        values = self.detach().cpu(), self.dtype, str(DEVICE), self.requires_grad
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, values

    def __repr__(self, **_: Any) -> str:
        shown = self.inner if FakeDevice.current is None else self.detach().cpu()
        return f"{repr(shown).removesuffix(')')}, device='{DEVICE}')"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)


class Autocast(TorchFunctionMode):
    """What `torch.autocast` does on CUDA to the functions of `HALF` and `FULL`.

    Args:
        dtype: of the functions in `HALF`.
        enabled: whether it is on; if not, an outer one is off while it lasts.
    """

    def __init__(self, dtype: torch.dtype, enabled: bool) -> None:
        super().__init__()
        self.dtype, self.enabled = dtype, enabled

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        dtype = self.dtype if name in HALF else torch.float32 if name in FULL else None
        wide = torch.float64

        def cast(x: Any) -> Any:
            # Not `Faked` inside of `torch.vmap` and `torch.func.grad`.
            ours = isinstance(x, Tensor) and x.device.type == DEVICE.type
            return x.to(dtype) if ours and x.is_floating_point() and x.dtype != wide else x

        with torch._C.DisableTorchFunction():
            if self.enabled and dtype is not None:
                args, kwargs = pytree.tree_map(cast, (args, kwargs))
            return func(*args, **(kwargs or {}))


def _autocast_with(of_torch: Callable[..., Any]) -> Callable[..., Any]:
    """Returns torch's autocast with a kind more; torch has none for this kind of device."""

    def autocast(
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> Any:
        if device_type == DEVICE.type:
            return Autocast(dtype or torch.float16, enabled)
        return of_torch(device_type, dtype, enabled, cache_enabled)

    return autocast


def _waits(op: Any, args: Any, kwargs: dict[str, Any]) -> int:
    """Returns how often CUDA makes the host wait in this operation."""
    packet = op.overloadpacket
    if packet in READS | WRITES:
        if packet in WRITES and args[2].numel() == 1 and not isinstance(args[2], Faked):
            return 0  # the mask is filled
        return sum(isinstance(x, Faked) and _is_mask(x) for x in args[1])
    if packet is aten.repeat_interleave:
        return int(kwargs.get("output_size") is None)
    if packet in (aten.masked_fill, aten.masked_fill_):
        return int(isinstance(args[2], Faked))
    return int(packet in WAITS)


def _is_mask(index: Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def _shape(x: Tensor) -> tuple[Any, ...]:
    return x.shape, x.stride(), x.storage_offset()


def _is_in(tensor: Tensor, several: list[Any]) -> bool:
    return any(tensor is other for other in several)


def _inner(x: Any) -> Any:
    return x.inner if isinstance(x, Faked) else x


_TORCH = f"{Path(torch.__file__).parent}/"


def _place() -> Place:
    """Returns the innermost line of code that is neither torch's nor in this file.

    Whoever calls `on_host`, the one way down, or `is_finite` answers for it.
    """
    frame = sys._getframe(1)
    ours = ("on_host", "is_finite")
    while frame.f_back and (
        frame.f_code.co_filename.startswith((_TORCH, __file__)) or frame.f_code.co_name in ours
    ):
        frame = frame.f_back
    path = Path(frame.f_code.co_filename)
    # The path that it was imported by: the folders around a repository or an environment differ.
    depth = frame.f_globals.get("__name__", "").count(".") + 1 + (path.stem == "__init__")
    # Comprehensions are functions of their own up to Python 3.11.
    function = frame.f_code.co_qualname.partition(".<locals>.<")[0]
    return Place("/".join(path.parts[-depth:]), function, frame.f_lineno)
