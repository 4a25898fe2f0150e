"""What a federation costs by its size, when the cohort stays the same.

    python benchmarks/scale.py                                  # up to 10 000 clients with pages
    python benchmarks/scale.py --clients 100 1000 --pages 1     # smaller, in a minute
    python benchmarks/scale.py --profile 1000                   # where the start spends its time

Two jobs, each with 100 clients a round and no evaluation:

- **pages**: each client has 10 generated slips of 64 x 64 pixels, and trains LayoutLMv3-tiny on
  windows of 32 tokens. The pages are encoded beforehand, by a run that is not counted.
- **toy**: each client has 10 examples of 32 numbers and trains a linear model, so that nothing but
  the federation itself costs anything.

Every size runs in a process of its own, `--repeats` times in turns. Shown are the median and
(least-most). The sizes of one job see the same rounds of the same number of steps. "Start" is from
the start of the process until round 1 could begin, and contains the imports; "without imports" is
the part that reads, deals and binds the data. "Own memory" is the highest resident memory of the
driver that no file stands behind, with that of torch, and without the file of arrays that toy maps.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BEGAN = time.monotonic()

import meter  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

from fedpriv.clients.fedavg import LocalTraining  # noqa: E402
from fedpriv.data.generated.slips import Slips  # noqa: E402
from fedpriv.data.partition import ByProvider, HoldOut  # noqa: E402
from fedpriv.federation.dataset import ArrayData, DocumentData  # noqa: E402
from fedpriv.federation.loop import Federation  # noqa: E402
from fedpriv.federation.settings import Settings  # noqa: E402
from fedpriv.models.layoutlmv3 import layoutlmv3  # noqa: E402
from fedpriv.privacy.sampling import FixedSize  # noqa: E402
from fedpriv.strategies.fedavg import FedAvg  # noqa: E402
from fedpriv.training.loops import Optimizer  # noqa: E402

COHORT, WIDTH = 100, 32
SHOWN = {
    "start_s": "start, s",
    "made_s": "without imports, s",
    "first_s": "first round, s",
    "round_s": "a round, s",
    "own_mb": "own memory, MB",
    "folder_mb": "run folder, MB",
}


class Linear(nn.Module):
    """Ten classes of 32 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, 10)

    def loss(self, batch):
        """Returns the mean cross-entropy."""
        return nn.functional.cross_entropy(self.layer(batch["x"]), batch["y"])


def numbers(count: int, folder: Path) -> np.ndarray:
    """Returns so many random examples in a memory-mapped file, as encoded pages are."""
    path = folder / f"{count}.npy"
    if not path.exists():
        drawn = np.random.default_rng(0).standard_normal((count, WIDTH), np.float32)
        np.save(path, drawn)
    return np.asarray(np.load(path, mmap_mode="r"))


class Memory(threading.Thread):
    """Notes the highest resident memory of this process that no file stands behind."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.highest = 0.0
        self.start()

    def run(self) -> None:
        """Looks fifty times a second."""
        while True:
            lines = Path("/proc/self/status").read_text().splitlines()
            found = dict(line.split(":", 1) for line in lines)
            self.highest = max(self.highest, int(found["RssAnon"].split()[0]) / 1000)
            time.sleep(0.02)


def federation(job: str, clients: int, pages: int, folder: Path, workers: int) -> Federation:
    """Returns a federation of so many clients, with so many pages or examples each."""
    if job == "pages":
        source = Slips((64, 64), providers=clients, documents_per_provider=pages)
        cache = folder / "cache"
        data = DocumentData(source, ByProvider(clients), HoldOut(fraction=0), cache=cache)
        model, batch = (lambda labels: layoutlmv3(labels, max_length=32, image_size=32)), 4
    else:
        count = clients * pages
        rows = tuple(np.arange(count).reshape(clients, pages))
        data = ArrayData({"x": numbers(count, folder), "y": np.arange(count) % 10}, rows)
        model, batch = Linear, 4
    return Federation(
        model=model,
        data=data,
        strategy=FedAvg(sampling=FixedSize(count=min(COHORT, clients))),
        client=LocalTraining(optimizer=Optimizer(lr=4e-3), batch_size=batch),
        settings=Settings(workers=workers, threads=1, chunk_size=25, checkpoint_every=1000),
        runs=folder / "runs",
    )


def one(job: str, clients: int, pages: int, rounds: int, folder: Path, workers: int) -> dict:
    """Runs one federation; returns its figures."""
    if job == "toy":
        numbers(clients * pages, folder)
    memory, imported = Memory(), time.monotonic()
    made = federation(job, clients, pages, folder, workers)
    now = time.monotonic()
    result = made.run(rounds)
    seconds = [record["seconds"]["train"] for record in result.metrics]
    files = [path.stat().st_size for path in result.run_dir.rglob("*") if path.is_file()]
    return {
        "start_s": now - BEGAN,
        "made_s": now - imported,
        "first_s": seconds[0],
        "round_s": statistics.median(seconds[1:]),
        "own_mb": memory.highest,
        "folder_mb": sum(files) / 1e6,
    }


def measure(job: str, options: argparse.Namespace, folder: Path) -> str:
    """Runs all sizes of a job in turns; returns a table in Markdown."""

    def child(clients: int, rounds: int) -> dict:
        given = [job, clients, options.pages, rounds, str(folder), options.workers]
        command = [sys.executable, __file__, "--one", json.dumps(given)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout.splitlines()[-1])

    sizes = options.clients if job == "pages" else options.toy_clients
    told = ["before, a run that is not counted:"]
    for clients in sizes:  # it encodes the pages, and draws the numbers of toy
        first = child(clients, 2)
        told.append(f"{clients:,} clients {first['made_s']:.1f} s, {first['own_mb']:.0f} MB;")
    runs: dict[int, list[dict]] = {clients: [] for clients in sizes}
    for _ in range(options.repeats):
        for clients in sizes:
            runs[clients].append(child(clients, options.rounds))
    heads = ("clients", *SHOWN.values())
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for clients, found in runs.items():
        cells = [f"{clients:,}"]
        for name in SHOWN:
            values = sorted(run[name] for run in found)
            middle = statistics.median(values)
            digits = 2 if name.endswith("_s") or middle < 10 else 0
            spread = f"{values[0]:.{digits}f}–{values[-1]:.{digits}f}"
            cells.append(f"{middle:.{digits}f} ({spread})")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join((*lines, "", *told))


def profile(job: str, clients: int, options: argparse.Namespace, folder: Path) -> None:
    """Prints where the start of one size spends its time, once its pages are encoded."""
    if job == "pages":
        federation(job, clients, options.pages, folder, 0)
    profiler = cProfile.Profile()
    profiler.enable()
    made = federation(job, clients, options.pages, folder, 0)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("cumtime").print_stats(40)
    profiler = cProfile.Profile()
    profiler.enable()
    made.run(3)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("cumtime").print_stats(40)


def main() -> None:
    """Measures and prints one table for each job."""
    if sys.argv[1:2] == ["--one"]:
        job, clients, pages, rounds, folder, workers = json.loads(sys.argv[2])
        print(json.dumps(one(job, clients, pages, rounds, Path(folder), workers)))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", nargs="+", default=["pages", "toy"], choices=["pages", "toy"])
    parser.add_argument("--clients", nargs="+", type=int, default=[100, 1000, 10_000])
    parser.add_argument("--toy-clients", nargs="+", type=int, default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--pages", type=int, default=10, help="pages or examples of each client")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="keeps the encoded pages for another time")
    parser.add_argument("--profile", type=int, metavar="CLIENTS")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedpriv-scale-") as scratch:
        folder = options.folder or Path(scratch)
        for job in options.jobs:
            if options.profile:
                profile(job, options.profile, options, folder)
                continue
            began, busy, own = time.monotonic(), meter.busy_seconds(), os.times()
            table = measure(job, options, folder)
            now = os.times()
            used = sum(now[:4]) - sum(own[:4])
            others = (meter.busy_seconds() - busy - used) / (time.monotonic() - began)
            print(
                f"\n## {job}\n\n{table}\n\n{meter.machine()}, torch {torch.__version__}; ", end=""
            )
            print(f"other processes kept {others:.2f} cores busy")


if __name__ == "__main__":
    main()
