"""The parts of gpu.py that train: federations, bare loops, and what costs a loop its speed.

A row trains one model in one precision by one algorithm, twice: by fedpriv, one client at a time,
and by a loop that one writes by hand, whose weights never leave the device. Both see the same
examples in batches of the same size, from the same weights. The loops of FedAvg and of
FL-PROVIDER-DP take the same steps as fedpriv. FeAm-DP's loop takes the gradient of the same
examples without clipping any, so its ratio is the price of per-example gradients.

Seconds are wall-clock, of a whole round: broadcast, training, sum, metrics. The first round, in
which the device warms up, is left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import torch
from gpu import Options, Peak, Skipped, Task, Values
from torch import nn

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.document import DocumentSet
from fedpriv.data.examples import PROVIDER, Batch, Examples
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.data.readers.sroie import Sroie
from fedpriv.federation.dataset import DocumentData, FederatedDataset
from fedpriv.federation.loop import Federation
from fedpriv.federation.settings import Settings
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.vt5 import vt5
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.privacy.sampling import FixedSize
from fedpriv.runtime.progress import Progress
from fedpriv.runtime.safe_masks import safe_masks
from fedpriv.runtime.torch_state import kernels, reproducible_torch, seeded_model
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.training.adapters import LoRA
from fedpriv.training.computing import Computing
from fedpriv.training.loops import Optimizer
from fedpriv.training.per_example import PerExample, VmapError

MODELS: dict[str, Callable[..., nn.Module]] = {"LayoutLMv3": layoutlmv3, "VT5": vt5, "Donut": donut}
Precision = Literal["float32", "tf32", "bf16"]
PRECISIONS: dict[str, Precision] = {"fp32": "float32", "tf32": "tf32", "bf16": "bf16"}
"""As rows and as the setting `training.precision` name them."""

LARGE, MANY = 32, 200
"""Examples of a large batch, and of a client that has many."""

SEED, CLIP_NORM, NEVER = 0, 1.0, 10**9


@dataclass(frozen=True)
class Scale:
    """How much is trained.

    Attributes:
        documents: to read.
        clients: in the federation, all of them in every round.
        examples: of a client, at most.
        batches: examples of a step, by model.
        rounds: that are timed.
        lr: of AdamW at the clients.
    """

    documents: int
    clients: int
    examples: int
    batches: Mapping[str, int]
    rounds: int
    lr: float


SCALES = {
    "base": Scale(96, 4, 32, {"LayoutLMv3": 8, "VT5": 8, "Donut": 2}, rounds=2, lr=2e-4),
    "tiny": Scale(8, 2, 2, dict.fromkeys(MODELS, 2), rounds=1, lr=1e-3),
}


@dataclass(frozen=True)
class Job:
    """One federation to train, whoever trains it."""

    data: FederatedDataset
    scale: Scale
    batch: int
    computing: Computing
    device: str

    @property
    def examples(self) -> int:
        """Examples that a round trains on."""
        return sum(map(len, self.data.rows))

    def clients(self) -> Iterator[Examples]:
        """Yields the examples of each client."""
        return (self.data.train.take(rows) for rows in self.data.rows)

    def model(self) -> nn.Module:
        """Returns the model with the weights that fedpriv starts from."""
        model = seeded_model(self.data.build_model, SEED).to(self.device).train()
        self.computing.prepare(model)
        return model

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        """Returns the loss in the job's precision."""
        bf16 = self.computing.precision == "bf16"
        with torch.autocast(self.device, torch.bfloat16, enabled=bf16):
            found: torch.Tensor = model.loss(batch)  # type: ignore[operator]
        return found


class Prepared:
    """Data that is bound already, for a federation."""

    def __init__(self, data: FederatedDataset) -> None:
        self._data = data

    def bind(self, build_model: Callable[..., nn.Module], seed: int) -> FederatedDataset:
        """Returns it."""
        return self._data


class Laps(Progress):
    """Notes when each round ends."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def round(self, record: Mapping[str, Any]) -> None:
        """Notes the end of a round."""
        self.ends.append(time.monotonic())


@functools.cache
def documents() -> DocumentSet:
    """Returns SROIE's receipts where FEDPRIV_DATA says where they are, else generated invoices."""
    folder = os.environ.get("FEDPRIV_DATA")
    sroie = Path(folder) / "open" / "sroie" if folder else None
    if sroie and sroie.is_dir():
        return Sroie(sroie).load()
    return Invoices(providers=24, documents_per_provider=4).load()


def job(
    name: str, precision: str, options: Options, batch: int = 0, examples: int = 0, **more: Any
) -> Job:
    """Returns the federation of a model in a precision.

    Args:
        name: of the model.
        precision: as rows name it.
        options: of the call.
        batch: examples of a step; 0 for the scale's.
        examples: of each client, drawn again and again if it has fewer; 0 for its own.
        more: settings of `Computing`.
    """
    scale, dealt = SCALES[options.size], encoded(name, options.size)
    if examples:
        rows = tuple(np.resize(hand, examples) for hand in dealt.rows)
        dealt = dataclasses.replace(dealt, rows=rows)
    computing = Computing(precision=PRECISIONS[precision], **more)
    return Job(dealt, scale, batch or scale.batches[name], computing, options.device)


@functools.lru_cache(maxsize=1)
def encoded(name: str, size: str) -> FederatedDataset:
    """Returns the documents, dealt out by provider and encoded for a model."""
    scale, loaded = SCALES[size], documents()
    some = dataclasses.replace(loaded, documents=loaded.documents[: scale.documents])
    source = SimpleNamespace(load=lambda: some)
    data = DocumentData(source, ByProvider(scale.clients), HoldOut("document", 0.0))
    bound = data.bind(functools.partial(MODELS[name], size=size), SEED)
    rows = tuple(hand[: scale.examples] for hand in bound.rows)
    return FederatedDataset(bound.build_model, bound.train, rows)


def halves(job: Job, algorithm: str) -> tuple[Any, Any]:
    """Returns strategy and client of an algorithm."""
    optimizer = Optimizer(lr=job.scale.lr)
    if algorithm == "FedAvg":
        strategy = FedAvg(sampling=FixedSize(job.scale.clients))
        return strategy, LocalTraining(1, job.batch, optimizer)
    if algorithm == "FeAm-DP":
        examples = example_gaussian(
            clip_norm=CLIP_NORM, examples=job.examples, noise_multiplier=1.0
        )
        return FeAmDP(examples), ExampleGradients()
    providers = provider_gaussian(
        clip_norm=CLIP_NORM, providers=1, noise_multiplier=1.0, client_sampling="fixed"
    )
    return FLProviderDP(providers), ProviderUpdates(batch_size=job.batch, optimizer=optimizer)


def federated(
    job: Job,
    algorithm: str,
    workers: int = 0,
    cohort: int = 1,
    chunk: int | None = None,
    checkpoint_every: int = NEVER,
) -> list[float]:
    """Trains by fedpriv; returns the seconds of each timed round."""
    strategy, client = halves(job, algorithm)
    laps = Laps()
    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(
            model=job.data.build_model,
            data=Prepared(job.data),
            strategy=strategy,
            client=client,
            seed=SEED,
            settings=Settings(
                workers=workers,
                chunk_size=chunk,
                cohort_batch=cohort,
                device=job.device,
                evaluate_every=NEVER,
                checkpoint_every=checkpoint_every,
            ),
            computing=job.computing,
        )
        federation.run(1 + job.scale.rounds, run_dir=Path(folder) / "run", progress=laps)
    return np.diff(laps.ends).tolist()


def by_hand(job: Job, algorithm: str) -> list[float]:
    """Trains by the bare loop; returns the seconds of each timed round."""
    torch.set_num_threads(1)
    ends = []
    with kernels(deterministic=False, tf32=job.computing.precision == "tf32"):
        turn = BARE[algorithm](job)
        for _ in range(1 + job.scale.rounds):
            turn()
            if job.device == "cuda":
                torch.cuda.synchronize()
            ends.append(time.monotonic())
    return np.diff(ends).tolist()


def bare_fedavg(job: Job) -> Callable[[], None]:
    """Returns a round of FedAvg as one writes it by hand."""
    model = job.model()
    here = [p.data for p in model.parameters() if p.requires_grad]
    server, total = ([torch.clone(p) for p in here] for _ in range(2))
    shuffle = np.random.default_rng(SEED)

    def turn() -> None:
        torch._foreach_zero_(total)
        for examples in job.clients():
            torch._foreach_copy_(here, server)
            optimizer = Optimizer(lr=job.scale.lr).build(model)
            for batch in examples.batches(job.batch, shuffle=shuffle, device=job.device):
                optimizer.zero_grad(set_to_none=True)
                job.loss(model, batch).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            torch._foreach_sub_(here, server)
            torch._foreach_add_(total, here, alpha=len(examples) / job.examples)
        torch._foreach_add_(server, total)

    return turn


def bare_gradient(job: Job) -> Callable[[], None]:
    """Returns a step of Adam on the gradient of all clients' examples; nothing is clipped."""
    model = job.model()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)

    def turn() -> None:
        optimizer.zero_grad(set_to_none=True)
        for examples in job.clients():
            for batch in examples.batches(job.batch, device=job.device):
                share = len(batch["input_ids"]) / job.examples
                (job.loss(model, batch) * share).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return turn


def bare_providers(job: Job) -> Callable[[], None]:
    """Returns a round of FL-PROVIDER-DP as one writes it by hand: one step for each provider."""
    model = job.model()
    here = [p.data for p in model.parameters() if p.requires_grad]
    server, total = ([torch.clone(p) for p in here] for _ in range(2))
    shuffle = np.random.default_rng(SEED)

    def turn() -> None:
        torch._foreach_zero_(total)
        for examples in job.clients():
            owners = examples.column(PROVIDER)
            for provider in np.unique(owners):
                torch._foreach_copy_(here, server)
                optimizer = Optimizer(lr=job.scale.lr).build(model)
                own = examples.take(np.flatnonzero(owners == provider))
                batch = next(own.batches(job.batch, shuffle=shuffle, device=job.device))
                optimizer.zero_grad(set_to_none=True)
                job.loss(model, batch).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                torch._foreach_sub_(here, server)
                norm = torch.stack(torch._foreach_norm(here)).norm().item()
                torch._foreach_add_(total, here, alpha=min(1.0, CLIP_NORM / max(norm, 1e-12)))
        for change in total:
            change.add_(torch.randn_like(change), alpha=CLIP_NORM)
        torch._foreach_add_(server, total, alpha=1 / job.scale.clients)

    return turn


BARE = {"FedAvg": bare_fedavg, "FeAm-DP": bare_gradient, "FL-PROVIDER-DP": bare_providers}


def training(options: Options) -> Iterator[Task]:
    """Each model in each precision by each algorithm, against the bare loop.

    In the published size, LayoutLMv3 also with larger batches, compiled, and with clients that have
    more examples.
    """
    # A CPU has no TF32.
    precisions = [p for p in PRECISIONS if p != "tf32" or options.device == "cuda"]
    rows: list[tuple[str, str, str, dict[str, Any]]] = [
        (name, precision, algorithm, {})
        for name in MODELS
        for precision in precisions
        for algorithm in BARE
    ]
    large = {"batch": LARGE, "examples": MANY}
    if options.size == "base":
        rows += [
            *(("LayoutLMv3", precision, "FedAvg", large) for precision in precisions),
            ("LayoutLMv3", "bf16", "FedAvg", {**large, "compile": True}),
            ("LayoutLMv3", "bf16", "FedAvg", {**large, "deterministic": False}),
            *(("LayoutLMv3", "bf16", each, {"examples": MANY}) for each in ("FedAvg", "FeAm-DP")),
        ]
    for name, precision, algorithm, more in rows:
        told = "".join(f", {key} {value}" for key, value in more.items())
        yield (
            f"{name}, {precision}, {algorithm}{told}",
            functools.partial(compare, name, precision, algorithm, options, **more),
        )


def compare(name: str, precision: str, algorithm: str, options: Options, **more: Any) -> Values:
    """Returns the examples a second and the peak memory of both sides, and the ratio of seconds."""
    this = job(name, precision, options, **more)
    peak = Peak(options.device)
    bare = by_hand(this, algorithm)
    bare_peak = peak.mib()
    peak = Peak(options.device)
    ours = federated(this, algorithm)
    return {
        "examples/s": trained(this, algorithm) / median(ours),
        "bare examples/s": trained(this, algorithm) / median(bare),
        "seconds to bare": median(ours) / median(bare),
        "MiB": peak.mib(),
        "bare MiB": bare_peak,
        "examples": trained(this, algorithm),
        "batch": this.batch,
        "parameters": sum(p.numel() for p in this.model().parameters() if p.requires_grad),
    }


def trained(job: Job, algorithm: str) -> int:
    """Returns the examples of a round; FL-PROVIDER-DP takes one batch of each provider."""
    if algorithm != "FL-PROVIDER-DP":
        return job.examples
    each = (np.unique(e.column(PROVIDER), return_counts=True)[1] for e in job.clients())
    return int(sum(np.minimum(counts, job.batch).sum() for counts in each))


def clipping(options: Options) -> Iterator[Task]:
    """A clipped sum by each way, against the gradient of the same examples without clipping."""
    for name in MODELS:
        for precision in ("fp32", "bf16"):
            for way in ("ghost", "vmap"):
                yield (
                    f"{name}, {precision}, {way}",
                    functools.partial(clipped, name, precision, way, options),
                )


def clipped(name: str, precision: str, way: Literal["ghost", "vmap"], options: Options) -> Values:
    """Returns examples a second and memory of clipped sums over a client, and of a gradient."""
    this = job(name, precision, options)
    examples, model, how = next(this.clients()), this.model(), this.computing

    def ours() -> None:
        try:
            PerExample(way).clipped_sum(model, examples, CLIP_NORM, options.device, how)
        except VmapError as error:  # bf16 on a CPU, and what draws random numbers in its own way
            raise Skipped(str(error)) from error

    def bare() -> None:
        model.zero_grad(set_to_none=True)
        for batch in examples.batches(this.batch, device=options.device):
            this.loss(model, batch).backward()  # type: ignore[no-untyped-call]

    found: Values = {}
    with reproducible_torch(1, options.device):
        for which, side in (("", ours), ("unclipped, ", bare)):
            peak = Peak(options.device)
            found[f"{which}examples/s"] = len(examples) / seconds_of(side, options.device)
            found[f"{which}MiB"] = peak.mib()
    return found | {"seconds to unclipped": found["unclipped, examples/s"] / found["examples/s"]}


def seconds_of(side: Callable[[], None], device: str, repeats: int = 3) -> float:
    """Returns the median of the seconds that something takes, once it is warm."""
    taken = []
    for _ in range(1 + repeats):
        began = time.monotonic()
        side()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(time.monotonic() - began)
    return median(taken[1:])


def switches(options: Options) -> Iterator[Task]:
    """What each setting of torch costs a bare loop, alone."""
    for precision in ("fp32", "bf16"):
        for name in SWITCHES:
            yield (
                f"LayoutLMv3, {precision}, {name}",
                functools.partial(switched, name, precision, options),
            )


SWITCHES = (
    "nothing",
    "deterministic",
    "NaN in new memory",
    "optimiser not fused",
    "masks looked at",
)


def switched(name: str, precision: str, options: Options) -> Values:
    """Returns the examples a second of the bare loop of FedAvg with one thing otherwise."""
    this = job("LayoutLMv3", precision, options)
    examples, model = next(this.clients()), this.model()
    optimizer = Optimizer(lr=this.scale.lr).build(model)
    if name == "optimiser not fused":
        optimizer = torch.optim.AdamW(optimizer.param_groups[0]["params"], lr=this.scale.lr)

    def epoch() -> None:
        for batch in examples.batches(this.batch, device=options.device):
            optimizer.zero_grad(set_to_none=True)
            this.loss(model, batch).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    deterministic = name in ("deterministic", "NaN in new memory")
    masks = contextlib.nullcontext() if name == "masks looked at" else safe_masks()
    with kernels(deterministic=deterministic, tf32=False), masks:
        filling: Any = torch.utils.deterministic
        filling.fill_uninitialized_memory = name == "NaN in new memory"
        return {"examples/s": len(examples) / seconds_of(epoch, options.device)}


def files(options: Options) -> Iterator[Task]:
    """Rounds that end with a checkpoint, against rounds without."""
    for algorithm in ("FedAvg", "FeAm-DP"):
        yield f"LayoutLMv3, fp32, {algorithm}", functools.partial(kept, algorithm, options)


def kept(algorithm: str, options: Options) -> Values:
    """Returns the seconds of a round with and without a checkpoint."""
    this = job("LayoutLMv3", "fp32", options)
    without, each = (federated(this, algorithm, checkpoint_every=n) for n in (NEVER, 1))
    return {"s a round": median(each), "s without": median(without)}


def workers(options: Options) -> Iterator[Task]:
    """Clients side by side on one GPU, each in its own process, against one after another."""
    for count in (2, 4) if options.device == "cuda" else (2,):
        yield f"LayoutLMv3, fp32, FedAvg, {count} workers", functools.partial(share, count, options)


def share(count: int, options: Options) -> Values:
    """Returns the examples a second of so many workers on one device, and of one."""
    this = job("LayoutLMv3", "fp32", options)
    alone = federated(this, "FedAvg")
    with watched(options.device) as taken:
        together = federated(this, "FedAvg", count)
    return {
        "examples/s": this.examples / median(together),
        "one at a time, examples/s": this.examples / median(alone),
        "times as fast": median(alone) / median(together),
        **({"MiB of the GPU": max(taken)} if taken else {}),
    }


def cohorts(options: Options) -> Iterator[Task]:
    """Clients of FedAvg that train in one pass, against one after another."""
    counts = (4, 16) if options.size == "base" else (2,)
    for kind in COHORTS:
        for count in counts:
            yield (
                f"{kind}, FedAvg, {count} in one pass",
                functools.partial(together, kind, count, options),
            )


def adapted(labels: tuple[str, ...], size: str) -> nn.Module:
    """Returns LayoutLMv3 with adapters of rank 8."""
    model = layoutlmv3(labels, size=size)
    LoRA(rank=8).apply(model)
    return model


COHORTS: dict[str, Callable[..., nn.Module]] = {
    "LayoutLMv3 tiny": functools.partial(layoutlmv3, size="tiny"),
    "LayoutLMv3 with LoRA": adapted,
}
"""A whole small model, and adapters of the model of the size that is measured."""


def together(kind: str, count: int, options: Options) -> Values:
    """Returns the examples a second of cohorts and of single clients, with the memory of both."""
    scale = dataclasses.replace(SCALES[options.size], clients=count)
    build = COHORTS[kind]
    if build is adapted:
        build = functools.partial(adapted, size=options.size)
    some = dataclasses.replace(loaded := documents(), documents=loaded.documents[: scale.documents])
    data = DocumentData(
        SimpleNamespace(load=lambda: some), ByProvider(count), HoldOut("document", 0.0)
    ).bind(build, SEED)
    rows = tuple(hand[: scale.examples] for hand in data.rows)
    dealt = FederatedDataset(data.build_model, data.train, rows)
    this = Job(dealt, scale, scale.batches["LayoutLMv3"], Computing(), options.device)
    peak = Peak(options.device)
    alone = federated(this, "FedAvg", chunk=count)
    alone_peak = peak.mib()
    peak = Peak(options.device)
    many = federated(this, "FedAvg", cohort=count, chunk=count)
    return {
        "examples/s": this.examples / median(many),
        "one at a time, examples/s": this.examples / median(alone),
        "times as fast": median(alone) / median(many),
        "MiB": peak.mib(),
        "one at a time, MiB": alone_peak,
        "parameters": sum(p.numel() for p in this.model().parameters() if p.requires_grad),
    }


@contextlib.contextmanager
def watched(device: str) -> Iterator[list[int]]:
    """Gives a list that fills with the MiB that all processes together have of a GPU."""
    taken: list[int] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.05):
            free, total = torch.cuda.mem_get_info()
            taken.append((total - free) >> 20)

    watch = threading.Thread(target=look, daemon=True)
    if device == "cuda":
        watch.start()
    try:
        yield taken
    finally:
        stop.set()
        if device == "cuda":
            watch.join()
