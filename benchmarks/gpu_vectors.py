"""The part `vectors` of gpu.py: what a round does with vectors of the model's size, one by one.

Each row is timed on the device, and beside it the same in NumPy on the host, as fedpriv did it
before vectors were tensors, in turns. On a CPU the first has as many threads as there are cores,
NumPy one, since it has no more. Seconds are wall-clock, each the median of several; `ratio` is that
of the two, within a turn, with its range.
"""

from __future__ import annotations

import functools
import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
from gpu import Options, Task, Values

from fedpriv.federation.messages import RunningSum
from fedpriv.federation.secagg.ring import Ring
from fedpriv.privacy.clipping import clip
from fedpriv.privacy.fingerprint import fingerprint
from fedpriv.privacy.noise import add_gaussian
from fedpriv.privacy.philox import add_gaussian_
from fedpriv.runtime.run_folder import Checkpoint, RunFolder
from fedpriv.runtime.versions import cores

SIZES = {"base": 125_328_901, "tiny": 30_001}
"""Parameters of LayoutLMv3-base; and few."""

TURNS = 5


def vectors(options: Options) -> Iterator[Task]:
    """Yields a row for each operation."""
    if options.device == "cpu":
        torch.set_num_threads(cores())
    size = SIZES[options.size]
    one = torch.randn(size, generator=torch.Generator().manual_seed(0))
    host, there = one.numpy(), one.to(options.device)
    other, kept = there * 0.5, torch.empty_like(there)
    half, out = host * np.float32(0.5), np.empty_like(host)
    rng = np.random.Generator(np.random.Philox(key=1))
    on_cpu = options.device == "cpu"

    def clipped() -> object:
        norm = np.sqrt(np.dot(host.astype(np.float64), host))
        np.multiply(host, np.float32(1 / norm), out=out)
        return np.dot(out.astype(np.float64), out)  # measured again

    def summed() -> object:
        total = RunningSum()
        for weight in (3, 5):
            total.add({"float": there}, weight)
        return total

    def added() -> object:
        total = host * np.float32(3)
        return np.add(total, host * np.float32(5), out=total)

    def noised() -> object:
        return np.add(host, 1e-3 * rng.standard_normal(size), out=out)

    ring = Ring.fitting(10.0, 8)
    ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "copy": (lambda: kept.copy_(there), lambda: np.copyto(out, host)),
        "difference": (
            lambda: torch.sub(there, other, out=kept),
            lambda: np.subtract(host, half, out=out),
        ),
        "clip": (lambda: clip(there, 1.0), clipped),
        "sum of two": (summed, added),
        "encode for masks": (
            lambda: ring.encode(there),
            lambda: np.clip(np.rint(host / ring.step), -ring.limit, ring.limit).astype(np.int32),
        ),
        "digest": (
            (lambda: hashlib.blake2b(host.data).digest())
            if on_cpu
            else (lambda: fingerprint(there)),
            lambda: hashlib.blake2b(host.data).digest(),
        ),
        "noise": (lambda: add_gaussian(kept, 1e-3, rng), noised),
        "noise as on a device": (lambda: add_gaussian_(kept, 1e-3, 7), noised),
    }
    for name, (way, as_before) in ways.items():
        yield name, functools.partial(_beside, way, as_before, options.device)
    yield "checkpoint, what a round waits for", functools.partial(_checkpoint, there)


def _beside(way: Callable[[], object], as_before: Callable[[], object], device: str) -> Values:
    way(), as_before()  # warm memory, and a compiled kernel
    pairs = [(_seconds(way, device), _seconds(as_before, device)) for _ in range(TURNS)]
    ratios = sorted(new / old for new, old in pairs)
    return {
        "seconds_of_one": round(median(new for new, _ in pairs), 6),
        "in_numpy": round(median(old for _, old in pairs), 6),
        "ratio": [round(found, 3) for found in (median(ratios), ratios[0], ratios[-1])],
    }


def _seconds(function: Callable[[], object], device: str) -> float:
    began = time.monotonic()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic() - began


def _checkpoint(vector: torch.Tensor) -> Values:
    """Times the copy that the loop waits for beside the whole write, as it waited for before."""
    kept = torch.empty(vector.shape, pin_memory=vector.device.type == "cuda")
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder.made(Path(place) / "run")
        written = iter(range(1, 100))

        def write() -> None:
            folder.save(Checkpoint(next(written), {"weight": vector.cpu()}), keep=1)

        return _beside(lambda: kept.copy_(vector), write, vector.device.type)
