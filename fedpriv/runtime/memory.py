"""How much memory this process holds, what freed part of it is kept, and what the kernel gets."""

from __future__ import annotations

import ctypes
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_KEPT = 32 * 1024 * 1024
"""The most that glibc takes for M_MMAP_THRESHOLD, in bytes; larger blocks come from the kernel."""
LARGE_MODEL = 2**28
"""Bytes of parameters beyond which tidying up costs little beside a single step of training."""


def is_large(model: nn.Module) -> bool:
    """Returns whether a model is worth tidying up after: `LARGE_MODEL` and more."""
    return sum(p.numel() * p.element_size() for p in model.parameters()) >= LARGE_MODEL


def keep_large_blocks() -> bool:
    """Tells this process's malloc to reuse large blocks; returns whether it could.

    Every client needs vectors of the model's size, and so does every step of its training. glibc
    maps each of them from the kernel, page fault by page fault, and unmaps it again, which takes a
    fifth of the CPU time of a small model's round. The setting holds for the whole process, which
    then keeps the memory until it ends. Other C libraries are left alone.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    kept = mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
    return bool(kept and mallopt(M_TRIM_THRESHOLD, 1 << 30))


def release_free_blocks() -> bool:
    """Hands all memory that malloc holds and nobody uses back; returns whether it could.

    The activations of a large model leave gigabytes of free blocks between those that live on, and
    the next client's then add to them instead of fitting in.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return False
    return bool(trim(0))


@contextmanager
def watched_memory() -> Iterator[Callable[[], int]]:
    """Yields what tells the most memory that this process has held since then, in bytes.

    Linux can forget the peak of what was done before. Elsewhere it is that of the whole process.
    """
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")

    def most() -> int:
        with suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024

    yield most
