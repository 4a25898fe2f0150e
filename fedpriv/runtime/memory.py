"""Keeping large blocks of memory in the process instead of handing them back to the kernel."""

from __future__ import annotations

import ctypes

# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_KEPT = 32 * 1024 * 1024
"""The most that glibc takes for M_MMAP_THRESHOLD, in bytes; larger blocks come from the kernel."""


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
