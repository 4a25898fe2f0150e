"""Who runs the job: the bare loop and fedpriv here, the other frameworks in `peers`.

A contender is a function of (job, rounds, lap, folder) that calls `lap()` at the end of each round
and returns the final model. It imports its framework itself, so no process carries another's.
"""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jobs import SEED, Job, flat
from torch import nn

NEVER = 10**9

# As fedpriv's workers have it: freed pages stay with the process.
TUNED = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}


def bare(job: Job, rounds: int, lap: Callable[[], None], folder: Path) -> nn.Module:
    """FedAvg as one would write it by hand: a resident model, everything in place, one thread."""
    torch.set_num_threads(1)
    model = job.model()
    local = [p for p in model.parameters() if p.requires_grad]
    # Data of the parameters: in-place operations on them outside of autograd.
    local_data = [p.data for p in local]
    server = [p.clone() for p in local_data]
    total = [torch.zeros_like(p) for p in local_data]
    for round in range(1, rounds + 1):
        torch._foreach_zero_(total)
        examples = 0
        for client in job.cohort(round):
            torch._foreach_copy_(local_data, server)
            job.local_training(model, round, client)
            torch._foreach_sub_(local_data, server)
            torch._foreach_add_(total, local_data, alpha=len(job.rows[client]))
            examples += len(job.rows[client])
        torch._foreach_add_(server, total, alpha=1 / examples)
        lap()
    torch._foreach_copy_(local_data, server)
    return model


def bare_pair(job: Job, rounds: int, lap: Callable[[], None], folder: Path) -> nn.Module:
    """The bare loop on two processes that share memory: the least that two workers can cost."""
    torch.set_num_threads(1)
    model = job.model()
    local = [p.data for p in model.parameters() if p.requires_grad]
    server = [p.clone().share_memory_() for p in local]
    totals = [[torch.zeros_like(p).share_memory_() for p in local] for _ in range(2)]
    fork = multiprocessing.get_context("fork")
    gate = fork.Barrier(3)

    def work(half: int) -> None:
        for round in range(1, rounds + 1):
            gate.wait()
            torch._foreach_zero_(totals[half])
            for client in job.cohort(round)[half::2]:
                torch._foreach_copy_(local, server)
                job.local_training(model, round, client)
                torch._foreach_sub_(local, server)
                torch._foreach_add_(totals[half], local, alpha=len(job.rows[client]))
            gate.wait()

    processes = [fork.Process(target=work, args=(half,), daemon=True) for half in range(2)]
    for process in processes:
        process.start()
    for round in range(1, rounds + 1):
        gate.wait()
        gate.wait()
        examples = sum(len(job.rows[client]) for client in job.cohort(round))
        for total in totals:
            torch._foreach_add_(server, total, alpha=1 / examples)
        lap()
    for process in processes:
        process.join()
    torch._foreach_copy_(local, server)
    return model


def ordered(job: Job, rounds: int, lap: Callable[[], None], folder: Path) -> nn.Module:
    """FedAvg by hand that rounds as fedpriv does, to the bit: sums of chunks, then their sum."""
    torch.set_num_threads(1)
    model = job.model()
    server = flat(model)
    for round in range(1, rounds + 1):
        cohort = job.cohort(round)
        size = -(-len(cohort) // 8)
        chunks = [cohort[start : start + size] for start in range(0, len(cohort), size)]
        sums = []
        for chunk in chunks:
            updates = []
            for client in chunk:
                _write(model, server)
                job.local_training(model, round, client)
                updates.append((flat(model) - server) * np.float32(len(job.rows[client])))
            sums.append(functools.reduce(np.add, updates))
        examples = sum(len(job.rows[client]) for client in cohort)
        server = server + functools.reduce(np.add, sums) / np.float32(examples)
        lap()
    _write(model, server)
    return model


@torch.no_grad()
def _write(model: nn.Module, vector: np.ndarray) -> None:
    trained = [p for p in model.parameters() if p.requires_grad]
    pieces = torch.from_numpy(vector).split([p.numel() for p in trained])
    for parameter, piece in zip(trained, pieces, strict=True):
        parameter.copy_(piece.view(parameter.shape))


def inline(job: Job, rounds: int, lap: Callable[[], None], folder: Path) -> nn.Module:
    """Runs fedpriv in this process."""
    return _fedpriv(job, rounds, lap, folder, workers=0)


def workers(job: Job, rounds: int, lap: Callable[[], None], folder: Path) -> nn.Module:
    """Runs fedpriv on two worker processes."""
    return _fedpriv(job, rounds, lap, folder, workers=2)


def ray(job: Job, rounds: int, lap: Callable[[], None], folder: Path) -> nn.Module:
    """Runs fedpriv on two Ray workers."""
    return _fedpriv(job, rounds, lap, folder, workers=2, resources={"num_cpus": 1.0})


def _fedpriv(job: Job, rounds: int, lap, folder: Path, *, workers: int, resources=None):
    from fedpriv.clients.fedavg import LocalTraining
    from fedpriv.federation.dataset import FederatedDataset
    from fedpriv.federation.loop import Federation, Settings
    from fedpriv.privacy.sampling import FixedSize
    from fedpriv.runtime.progress import Progress
    from fedpriv.runtime.workers.ray_session import RaySettings
    from fedpriv.strategies.fedavg import FedAvg

    class Prepared:
        def bind(self, build_model, seed):
            return FederatedDataset(build_model, job.examples, job.rows)

    class Laps(Progress):
        def round(self, record):
            lap()

    federation = Federation(
        model=job.build_model,
        data=Prepared(),
        strategy=FedAvg(sampling=FixedSize(job.cohort_size)),
        client=LocalTraining(job.epochs, job.batch_size, job.optimizer),
        seed=SEED,
        settings=Settings(workers=workers, evaluate_every=NEVER, checkpoint_every=NEVER),
        ray=RaySettings(client_resources=resources or {}),
    )
    return federation.run(rounds, run_dir=folder / "run", progress=Laps()).model


def _flower(*args):
    import peers

    return peers.flower(*args)


def _pfl(*args):
    import peers

    return peers.pfl(*args)


@dataclass(frozen=True)
class Contender:
    """One row of the table.

    Attributes:
        name: as printed.
        run: the function.
        needs: modules without which it is skipped.
        environment: variables of its process, beside those that all have.
    """

    name: str
    run: Callable
    needs: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


CONTENDERS = {
    "a": Contender("bare PyTorch loop", bare),
    "a2": Contender("the same, malloc tuned", bare, environment=tuple(TUNED.items())),
    "a3": Contender("the same on 2 processes", bare_pair, environment=tuple(TUNED.items())),
    "b": Contender("fedpriv inline", inline, ("fedpriv", "flwr")),
    "b2": Contender("the same, malloc tuned", inline, ("flwr",), tuple(TUNED.items())),
    "c": Contender("fedpriv, 2 workers", workers, ("fedpriv", "flwr")),
    "c2": Contender("fedpriv Ray, 2 workers", ray, ("fedpriv", "flwr", "ray")),
    "d": Contender("Flower run_simulation, 2 actors", _flower, ("flwr.simulation", "ray")),
    "e": Contender("pfl-research, 1 process", _pfl, ("pfl",)),
    "exact": Contender("a loop that adds in fedpriv's order", ordered),
}
