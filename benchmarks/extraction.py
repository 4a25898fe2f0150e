"""What extraction costs beside the trainings that it consists of.

    python benchmarks/extraction.py --json extraction.json            # --only splits whole steps
    python benchmarks/extraction.py --only steps --size base --device cuda

splits: K = 8 splits of a tiny Donut on cards, as the experiment `extraction` trains them, on two
workers, against the same trainings written by hand, one after the other on one core: the same
model, examples, optimiser and steps, without data reading. Wall-clock time; the ratio is ours over
half of the other's, so that 1 is all of two cores.
whole: the experiment `extraction` from end to end, against 20 minutes.
steps: a training step of Donut at 1280 x 960, with and without gradient checkpointing: images a
second and the most memory on the device. For a GPU.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from models import Pair, Row, report

from fedpriv.attacks.extraction.attack import Extraction
from fedpriv.cli.main import main as fedpriv
from fedpriv.config import catalogue, composing, experiment
from fedpriv.data.examples import Examples
from fedpriv.data.generated.invoices import Invoices
from fedpriv.models.donut import donut
from fedpriv.runtime.torch_state import reproducible_torch
from fedpriv.studies import retraining
from fedpriv.studies.trials import Store, Trial
from fedpriv.threat.access import TrainingDocuments
from fedpriv.training.loops import Optimizer, train_epoch

SHARE_OF_CORES = 0.9
MOST_SECONDS = 1200.0
WORKERS = 2
ONLY_SPLITS = (
    "attack.blocking=false",
    "attack.contexts=[]",
    "attack.prompts=[]",
    "attack.controls=false",
    "attack.resolutions=null",
    "attack.dp=[]",
    "attack.exposure=null",
)


def splits(options: argparse.Namespace) -> Iterator[Row]:
    """The trainings of the splits against the loops that one writes by hand."""
    overrides = [*ONLY_SPLITS, f"attack.splits={options.splits}"]
    made = {"experiment": str(catalogue.experiment("extraction")), "overrides": overrides}
    config = {**experiment.load("extraction", overrides), composing.COMPOSED: made}
    rebuilt = retraining.Rebuilt(config, Path("extraction"), trust=True)
    attack = rebuilt.base.attack
    if not isinstance(attack, Extraction):
        raise TypeError(f"experiment extraction makes {attack!r}, not Extraction")
    documents = TrainingDocuments(*rebuilt.documents(), rebuilt.seed, 1, "cpu")
    plan = rebuilt.planned(attack.variants(attack.choose(documents)))
    chosen = {name: settings for name, settings in plan.items() if name.startswith("split")}
    pairs: list[Pair] = []
    for _ in range(options.repeats):
        theirs = wall(functools.partial(by_hand, [prepared(c) for c in chosen.values()]))
        with tempfile.TemporaryDirectory() as folder:
            ours = wall(functools.partial(by_fedpriv, chosen, Path(folder), rebuilt.base))
        pairs.append((ours, theirs / WORKERS))
    speeds = [theirs / ours for ours, theirs in pairs]
    more = {
        "splits/h": 3600 * len(chosen) / min(ours for ours, _ in pairs),
        "share of two cores": float(np.median(speeds)),
        "least": min(speeds),
        "most": max(speeds),
    }
    yield Row("splits", f"{len(chosen)} splits, tiny Donut", pairs, 1 / SHARE_OF_CORES, more)


def by_fedpriv(plan: retraining.Plan, folder: Path, base: experiment.Experiment) -> None:
    """Trains as an attack does, the start of Ray and of its workers included."""
    trials = [Trial(settings, name, named=name) for name, settings in plan.items()]
    Store(folder).run_all(trials, WORKERS, lambda line: None, ray=base.ray)


Prepared = tuple[Callable[[], Any], Examples, Optimizer, int, int]


def prepared(config: dict[str, Any]) -> Prepared:
    """Returns what a training by hand begins with; the time that it takes does not count."""
    parts = experiment.build(config)
    federation = parts.assemble(config)
    rows = federation.bound.rows[0]
    client: Any = parts.client
    epochs = client.epochs * parts.rounds
    examples = federation.bound.train.take(rows)
    return federation.bound.build_model, examples, client.optimizer, epochs, client.batch_size


def by_hand(trainings: list[Prepared]) -> None:
    """Trains one after the other on one core; nothing is evaluated or written."""
    for build, examples, optimizer, epochs, batch_size in trainings:
        with reproducible_torch(1, "cpu"):
            model = build().train()
            steps = optimizer.build(model)
            for epoch in range(epochs):
                order = np.random.default_rng(epoch)
                train_epoch(model, examples.batches(batch_size, shuffle=order), steps)


def whole(options: argparse.Namespace) -> Iterator[Row]:
    """The whole experiment, as `fedpriv run extraction` does it; pretraining included, once."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["run", "extraction", f"attack.splits={options.splits}", f"runs={folder}"]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            pairs = [(wall(functools.partial(fedpriv, command)), MOST_SECONDS)]
    yield Row("whole", f"{options.splits} splits and all sections", pairs, 1.0)


def steps(options: argparse.Namespace) -> Iterator[Row]:
    """A step of Donut with and without gradient checkpointing; the ratio is with over without."""
    model = donut(
        size=options.size, **({"image_size": (1280, 960)} if options.size == "base" else {})
    )
    model = model.to(options.device).train()
    pages = Invoices(providers=options.batch, documents_per_provider=1, questions=("total",)).load()
    examples = model.encode(pages.documents)
    (batch,) = examples.batches(options.batch, device=torch.device(options.device))
    optimizer = Optimizer("adamw", 3e-5).build(model)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    memory: dict[bool, float] = {}
    for repeat in range(options.repeats + 1):
        for checkpointed in (False, True):
            switch = model.network.gradient_checkpointing_enable
            (switch if checkpointed else model.network.gradient_checkpointing_disable)()
            took, peak = one_step(model, batch, optimizer, options.device)
            if repeat:  # the first warms up
                seconds[checkpointed].append(took)
                memory[checkpointed] = peak
    more = {
        "images/s": options.batch / float(np.median(seconds[False])),
        "images/s, checkpointed": options.batch / float(np.median(seconds[True])),
        "GiB": memory[False],
        "GiB, checkpointed": memory[True],
    }
    pairs = list(zip(seconds[True], seconds[False], strict=True))
    yield Row("steps", f"Donut {options.size}, batch {options.batch}", pairs, None, more)


def one_step(
    model: Any, batch: Any, optimizer: torch.optim.Optimizer, device: str
) -> tuple[float, float]:
    """Returns seconds and the most memory on the device in GiB; 0 on a CPU."""
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    began = time.perf_counter()
    train_epoch(model, [batch], optimizer)
    if cuda:
        torch.cuda.synchronize()
    took = time.perf_counter() - began
    return took, torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0


def wall(work: Callable[[], object]) -> float:
    """Returns the seconds that work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


PARTS = {"splits": splits, "whole": whole, "steps": steps}


def main() -> None:
    """Runs the parts and prints a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=["splits", "whole"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--size", choices=("tiny", "base"), default="tiny")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    report((row for part in options.only for row in PARTS[part](options)), options.json)


if __name__ == "__main__":
    main()
