"""The parts `inversion`, `closed_form` and `cdmi` of gpu.py: attacks on full-size models."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np
import torch
from gpu import Options, Peak, Task, Values
from inversion import by_hand, mean_squares_and_cosine, pages, victims
from models import compared, seconds_on
from torch import nn

from fedpriv.attacks.closed_form import solve
from fedpriv.attacks.inversion import Objective, invert
from fedpriv.attacks.inversion.gradients import gradient_of
from fedpriv.attacks.inversion.presets import gi_dqa
from fedpriv.attacks.victim import Victim, victim_of
from fedpriv.data.generated.slips import Slips
from fedpriv.metrics.images import psnr
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.runtime.torch_state import reproducible_torch, seeded_model
from fedpriv.threat.access import Known

MODELS: dict[str, Callable[..., nn.Module]] = {
    "LayoutLMv3": functools.partial(layoutlmv3, task="answers"),
    "Donut": functools.partial(donut, attention="eager"),
}
STEPS = {"base": 5, "tiny": 2}
"""Iterations of one measurement."""

GRADIENTS = {"base": 5000, "tiny": 10}
"""Of a whole reconstruction: the paper's budget, in the published size."""

RECEIPTS = {"base": 2, "tiny": 1}
"""That are reconstructed."""

EVERY = 20
"""Gradients between two states of a reconstruction, from which the next call goes on."""


@functools.cache
def victim(name: str, options: Options, place: int = 0) -> Victim:
    """Returns a page's gradient, the middle of the page private, all of it on the device."""
    model = seeded_model(functools.partial(MODELS[name], size=options.size), 0)
    # A reconstruction's state is found again by these bits.
    with reproducible_torch(1, options.device):
        return victims(model.to(options.device).eval(), place + 1, options.device)[place]


def inversion(options: Options) -> Iterator[Task]:
    """GI-DQA with its own distance and priors: an iteration, and a whole reconstruction."""
    count = GRADIENTS[options.size]
    for name in MODELS:
        yield f"{name}, an iteration", functools.partial(iteration, name, options)
    for name in MODELS:
        for place in range(RECEIPTS[options.size]):
            yield (
                f"{name}, page {place + 1}, {count} gradients",
                functools.partial(reconstruct, name, place, count, options),
            )


def iteration(name: str, options: Options) -> Values:
    """Returns seconds and memory of an iteration, and of the bare double backward."""
    one, steps = victim(name, options), STEPS[options.size]
    names = [n for n, g in one.gradient.items() if g.any()]
    one = dataclasses.replace(one, gradient={n: one.gradient[n] for n in names})
    method = gi_dqa(steps, objective=Objective(mse=1, cosine=1, partial=True))

    def ours() -> None:
        invert([one], method, np.random.default_rng(0))

    def theirs() -> None:
        by_hand(one, names, steps, mean_squares_and_cosine)

    peaks = []
    for side in (ours, theirs):
        peak = Peak(options.device)
        side()
        peaks.append(peak.mib())
    repeats = 3 if options.size == "base" else 1
    pairs = compared((ours, theirs), repeats, seconds_on(options.device), steps)
    return {
        "s an iteration": median(mine for mine, _ in pairs),
        "bare s": median(bare for _, bare in pairs),
        "seconds to bare": median(mine / bare for mine, bare in pairs),
        "MiB": peaks[0],
        "bare MiB": peaks[1],
        "tensors": len(names),
    }


def reconstruct(name: str, place: int, count: int, options: Options) -> Values:
    """Returns how near a reconstruction comes; one that is cut off is gone on with."""
    one = victim(name, options, place)
    folder = options.scratch / "inversion"
    folder.mkdir(parents=True, exist_ok=True)
    method = gi_dqa(count, objective=Objective(mse=1, cosine=1))
    (found,) = invert([one], method, np.random.default_rng(0), checkpoint=folder, every=EVERY)
    page = one.model.encode(pages(place + 1)[place:]).batch(np.arange(1))["pixels"][0].numpy()
    private = one.private[0, 0].cpu().numpy()
    start = one.template[0].cpu().numpy()
    return {
        "PSNR": psnr(page, found.pixels[0].numpy(), private),
        "PSNR of a white page": psnr(page, start, private),
        "gradients": found.evaluations,
    }


def closed_form(options: Options) -> Iterator[Task]:
    """The page of a LayoutLMv3 by one solve, in float64 on the CPU, from a gradient of the GPU."""
    yield "LayoutLMv3, one page", functools.partial(solved, options)


def solved(options: Options) -> Values:
    """Returns the seconds of gradient and solve, and how near the page is."""
    build = functools.partial(layoutlmv3, task="answers", size=options.size, dropout=0.0)
    model = seeded_model(build, 0).to(options.device).eval()
    (document,) = Slips((224, 224), providers=1, documents_per_provider=1).load().documents
    batch = model.encode([document]).batch(np.arange(1), options.device)
    wait: Callable[[], Any] = torch.cuda.synchronize if options.device == "cuda" else lambda: None
    gradient_of(model, batch)
    wait()
    began = time.perf_counter()
    sent = gradient_of(model, batch)
    wait()
    computed = time.perf_counter()
    seen = {name: tensor.cpu() for name, tensor in sent.items()}
    page = solve(victim_of(model, seen, Known(1)))
    ended = time.perf_counter()
    truth = batch["pixels"][0].cpu()
    return {
        "gradient s": computed - began,
        "solve s": ended - computed,
        "PSNR": psnr(truth.numpy(), page[0].numpy()),
        "every pixel exact": bool(torch.equal(page[0].round().to(torch.uint8), truth)),
    }


def cdmi(options: Options) -> Iterator[Task]:
    """Candidates of CDMI a second, against bare forward passes of the same windows."""
    yield "LayoutLM", functools.partial(candidates, "layoutlm", options)


def candidates(name: str, options: Options) -> Values:
    """Returns candidates a second, and the speed as a share of the bare model's."""
    from cdmi import speed

    sizes = {"base": (4, 128, 128, 5), "tiny": (1, 8, 32, 1)}[options.size]
    fields, count, batch, repeats = sizes
    rows = speed(
        argparse.Namespace(
            device=options.device, size=options.size, models=[name],
            fields=fields, candidates=count, batch=batch, repeats=repeats,
        )
    )  # fmt: skip
    found: Values = {}
    for row in rows:
        seen = "page and text" if "page" in row.name else "text"
        found[f"{seen}, candidates/s"] = row.more["candidates/s"]
        found[f"{seen}, speed to bare"] = row.more["speed"]
    return found
