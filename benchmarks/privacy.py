"""What privacy costs: per-example gradients, masking, `fedpriv budget`, and provider updates.

    python benchmarks/privacy.py --json privacy.json          # a quarter of an hour on idle cores
    python benchmarks/privacy.py --only providers one_step budget

Each part compares with a reference in the same run and reports CPU time as median (least–most)
over interleaved repeats; `benchmarks/per_example.py` and `benchmarks/masking.py` can be run alone.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch

from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.examples import PROVIDER, Examples
from fedpriv.data.generated.invoices import Invoices
from fedpriv.federation.client import ClientWorker, WorkerSpec
from fedpriv.federation.messages import Instruction
from fedpriv.federation.private_strategy import SHARES
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.privacy.mechanism import provider_gaussian
from fedpriv.runtime.memory import keep_large_blocks
from fedpriv.runtime.torch_state import reproducible_torch, seeded_model
from fedpriv.runtime.vectors import ParameterLayout
from fedpriv.training.loops import Optimizer
from fedpriv.training.per_example import PerExample

HERE = Path(__file__).parent
PROVIDERS, STEPS, BATCH = 100, 4, 8
SGD = Optimizer("sgd", lr=1e-3)

Spread = tuple[float, float, float]
"""Median, least and most."""


def main() -> None:
    """Runs the parts and prints a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}; CPU time; median (least–most)", flush=True)
    found = {part: PARTS[part](options.repeats) for part in options.only}
    if options.json:
        options.json.write_text(json.dumps({"load": os.getloadavg(), **found}, indent=1))


def gradients(repeats: int) -> object:
    """A step with per-example clipping against a plain step, tiny and base."""
    return _script("per_example.py", "--sizes", "tiny", "base", "--repeats", str(repeats))


def masking(repeats: int) -> object:
    """Masking 30 M parameters for 8 clients."""
    return _script("masking.py", "--repeats", str(repeats))


def budget(repeats: int) -> dict[str, Spread]:
    """`fedpriv budget`, from the start of the process to its end; the limit is 3 s."""
    rates = ["--client-rate", "0.5", "--record-rate", "0.2857", "--delta", "1e-5", "--cohort", "8"]
    command = [str(Path(sys.executable).with_name("fedpriv")), "budget", *rates, "--json"]
    asked = {
        "10 rounds": ["--rounds", "10", "--noise-multiplier", "1.5"],
        "350 rounds": ["--rounds", "350", "--noise-multiplier", "1.5"],
        "350 rounds, σ for ε = 8": ["--rounds", "350", "--epsilon", "8", "--view", "server_plain"],
    }
    found = {}
    for name, arguments in asked.items():
        runs = [_process([*command, *arguments]) for _ in range(repeats)]
        for clock, seconds in zip(("wall", "CPU"), zip(*runs, strict=True), strict=True):
            found[f"{name}, {clock} s"] = _spread(list(seconds))
    _show("fedpriv budget", found)
    return found


def providers(repeats: int) -> dict[str, Spread]:
    """FL-PROVIDER-DP's client over 100 providers against the bare loop over the same providers."""
    worker, layout, examples = _site()
    ours = functools.partial(_fedpriv, worker, worker.spec.client)
    bare = functools.partial(_bare, worker, layout, examples)
    ratios, seconds = [], []
    with reproducible_torch(1, "cpu"):
        ours(), bare()
        for repeat in range(repeats):
            order = [ours, bare] if repeat % 2 else [bare, ours]
            took = {job: _cpu(job) for job in order}
            ratios.append(took[ours] / took[bare])
            seconds.append(took[bare])
    found = {"bare loop, s": _spread(seconds), "fedpriv / bare loop": _spread(ratios)}
    _show(f"{PROVIDERS} providers, {STEPS} AdamW steps each, LayoutLMv3-tiny", found)
    return found


def one_step(repeats: int) -> dict[str, Spread]:
    """FL-PROVIDER-DP with one step: at once, one by one; and FeAm-DP's sum on the same examples."""
    ms: dict[str, list[float]] = {}
    for documents in (1, 4):
        worker, _, examples = _site(documents)
        ways: dict[str, Callable[[], object]] = {
            way: functools.partial(_fedpriv, worker, ProviderUpdates(optimizer=SGD, method=way))
            for way in ("vmap", "loop")
        }
        ways["FeAm-DP"] = functools.partial(
            PerExample("vmap").clipped_sum, worker.model, examples, 1.0
        )
        with reproducible_torch(1, "cpu"):
            for job in ways.values():
                job()
            for _ in range(repeats):
                for name, job in ways.items():
                    key = f"{len(examples) / PROVIDERS:.3g} examples each, {name}, ms"
                    ms.setdefault(key, []).append(1e3 * _cpu(job) / PROVIDERS)
    found = {name: _spread(numbers) for name, numbers in ms.items()}
    _show(f"a provider's one SGD step, of {PROVIDERS}, LayoutLMv3-tiny", found)
    return found


def _site(documents: int = 4) -> tuple[ClientWorker, ParameterLayout, Examples]:
    loaded = Invoices(providers=PROVIDERS, documents_per_provider=documents).load()
    build = functools.partial(layoutlmv3, loaded.labels)
    examples = seeded_model(build, 0).encode(loaded.documents)
    _, owners = np.unique([d.provider for d in loaded.documents], return_inverse=True)
    examples = examples.with_column(PROVIDER, owners[examples.column("document")])
    client = ProviderUpdates(steps=STEPS, batch_size=BATCH, optimizer=Optimizer(lr=1e-3))
    worker = ClientWorker(WorkerSpec(build, client, examples, (np.arange(len(examples)),), seed=0))
    return worker, ParameterLayout(worker.model), examples


def _fedpriv(worker: ClientWorker, client: ProviderUpdates) -> None:
    mechanism = provider_gaussian(clip_norm=1.0, providers=PROVIDERS, noise_multiplier=1.0)
    instruction = Instruction(round=1, settings={**mechanism.to_settings(), SHARES: 1})
    parameters = ParameterLayout(worker.model).read()
    client.train(worker.visit(0, instruction, parameters))


def _bare(worker: ClientWorker, layout: ParameterLayout, examples: Examples) -> None:
    """What the paper's loop costs without anything around it: train, subtract, add up."""
    model, start = worker.model, layout.read()
    total = np.zeros_like(start["float"])
    owners = examples.column(PROVIDER)
    shuffle = np.random.default_rng(0)
    for provider in range(PROVIDERS):
        own = examples.take(np.flatnonzero(owners == provider))
        layout.write(start)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
        done = 0
        while done < STEPS:
            for batch in own.batches(BATCH, shuffle=shuffle):
                if done == STEPS:
                    break
                optimizer.zero_grad(set_to_none=True)
                model.loss(batch).backward()
                optimizer.step()
                done += 1
        total += layout.change_since(start)["float"]


def _cpu(job: Callable[[], object]) -> float:
    began = time.process_time()
    job()
    return time.process_time() - began


def _process(command: list[str]) -> tuple[float, float]:
    """Returns the wall and the CPU seconds of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _script(name: str, *arguments: str) -> object:
    """Runs one of the other benchmarks; its table goes to standard output."""
    out = HERE / f".{name}.json"
    try:
        command = [sys.executable, str(HERE / name), *arguments, "--json", str(out)]
        subprocess.run(command, check=True)
        return json.loads(out.read_text())
    finally:
        out.unlink(missing_ok=True)


def _spread(numbers: list[float]) -> Spread:
    return median(numbers), min(numbers), max(numbers)


def _show(title: str, found: dict[str, Spread]) -> None:
    print(title)
    for name, (middle, least, most) in found.items():
        print(f"  {name:<40} {middle:.2f} ({least:.2f}–{most:.2f})", flush=True)


PARTS = {
    "providers": providers,
    "one_step": one_step,
    "budget": budget,
    "masking": masking,
    "gradients": gradients,
}

if __name__ == "__main__":
    keep_large_blocks()
    main()
