"""Devices of torch, and its global state: set for the same bits from a seed, then restored."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from fedpriv.runtime.safe_masks import safe_masks
from fedpriv.runtime.seeds import torch_seed


def seeded_model(build_model: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Builds the model with the weights of this seed, the same in every process.

    By one thread: how many factorise a matrix may decide about the bits of what is drawn.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with isolated_randomness(torch_seed(seed, "model initialisation")):
            return build_model()
    finally:
        torch.set_num_threads(threads)


@contextmanager
def isolated_randomness(seed: int) -> Iterator[None]:
    """Seeds the global generators of torch, NumPy and Python, and restores them afterwards.

    For code that draws from them by itself: dropout, weight initialisation.
    """
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    on_gpu = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    gpus = torch.cuda.get_rng_state_all() if on_gpu else []
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)  # noqa: NPY002
    # Not torch.manual_seed: before CUDA is in use, it keeps a stack trace of every call for later.
    torch.default_generator.manual_seed(seed)
    if on_gpu:
        torch.cuda.manual_seed_all(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])
        if on_gpu:
            torch.cuda.set_rng_state_all(gpus)


@contextmanager
def reproducible_torch(
    threads: int, device: str, *, deterministic: bool = True, tf32: bool = False
) -> Iterator[None]:
    """Makes torch give the same bits for the same seed while the block lasts.

    On a CPU the bits depend on the number of threads only. On a GPU torch must avoid kernels that
    add in any order, and it warns where there is no other kernel; and the masks of transformers are
    all built, since it would wait for the device to see whether one masks anything.

    Args:
        threads: of torch.
        device: where it computes.
        deterministic: whether a GPU avoids those kernels.
        tf32: as in `kernels`; torch by itself takes TF32 for convolutions.
    """
    threads_before, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(threads)
    try:
        # The gradient's mode is restored, whatever happens inside.
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            if torch.device(device).type == "cpu":
                yield
            else:
                # cuBLAS reads it when it is first used, and refuses deterministic products without.
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
                with kernels(deterministic=deterministic, tf32=tf32), safe_masks():
                    yield
    finally:
        torch.set_num_threads(threads_before)
        torch.set_default_dtype(dtype)


@contextmanager
def kernels(*, deterministic: bool, tf32: bool) -> Iterator[None]:
    """Chooses among torch's kernels for a GPU while the block lasts.

    Args:
        deterministic: whether only kernels that give the same bits each time, where there are such.
        tf32: whether products and convolutions of float32 round their factors to 10 bits.
    """
    filling: Any = torch.utils.deterministic  # untyped
    before = torch.are_deterministic_algorithms_enabled(), filling.fill_uninitialized_memory
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        precision = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    except RuntimeError as error:
        raise RuntimeError(
            "this program has set an fp32_precision of torch.backends, which cannot be read with "
            "torch's older settings: leave it out, and take training.precision=tf32"
        ) from error
    # The older settings are those that torch's compiler reads. They do not tell "none" from "ieee".
    exactly = {one: one.fp32_precision for one in _PRECISE if hasattr(one, "fp32_precision")}
    torch.use_deterministic_algorithms(deterministic, warn_only=True)
    # torch would fill each new tensor with NaN, on which no bit of a right program depends.
    filling.fill_uninitialized_memory = False
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=warn_only)
        filling.fill_uninitialized_memory = before[1]
        torch.set_float32_matmul_precision(precision[0])
        torch.backends.cudnn.allow_tf32 = precision[1]
        for one, value in exactly.items():
            one.fp32_precision = value


_BACKENDS: Any = torch.backends  # typed in part
_PRECISE: tuple[Any, ...] = (_BACKENDS.cuda.matmul, getattr(_BACKENDS.mkldnn, "matmul", None))
"""What `torch.set_float32_matmul_precision` sets, in torch 2.9 and later."""


def gpus_of(device: str) -> list[str]:
    """Returns the GPUs that workers share by "cuda", by name; none for a device that is one."""
    if device != "cuda":
        return []
    count = torch.cuda.device_count()  # CUDA looks at the names up to the first that is none
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return [name.strip() for name in given if name.strip()][:count] or [*map(str, range(count))]


def unusable_device(name: str) -> str | None:
    """Returns why torch cannot use a device here, and which ones it can; None if it can."""
    try:
        torch.ones(1, device=name).item()  # fails on "meta" too, which holds no numbers
    except Exception as error:
        kind = name.partition(":")[0]
        why = str(error).splitlines()[0]
        if kind not in ("cpu", "cuda", "mps", "xpu"):
            why = "torch has no device of that name to train on"
        there = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        return f"{why.rstrip('.')}; this machine has {', '.join(there)}"
    return None
