"""Global state of torch, set so that the same seed gives the same bits, and then restored."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn

from fedpriv.runtime.seeds import torch_seed


def seeded_model(build_model: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Builds the model with the weights of this seed, the same in every process."""
    with isolated_randomness(torch_seed(seed, "model initialisation")):
        return build_model()


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
def reproducible_torch(threads: int, device: str) -> Iterator[None]:
    """Makes torch give the same bits for the same seed while the block lasts.

    On a CPU the bits depend on the number of threads only. On a GPU torch must avoid kernels that
    add in any order. It warns where there is no other kernel.
    """
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    dtype = torch.get_default_dtype()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    on_gpu = torch.device(device).type == "cuda"
    torch.set_num_threads(threads)
    if on_gpu:
        # cuBLAS reads it when it is first used; without it, torch refuses deterministic products.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.set_grad_enabled(torch.is_grad_enabled()):  # restored, whatever happens inside
            yield
    finally:
        torch.set_num_threads(before[0])
        torch.set_default_dtype(dtype)
        if on_gpu:
            torch.use_deterministic_algorithms(before[1], warn_only=warn_only)
