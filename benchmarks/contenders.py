"""Who runs the job: the bare loop and fedpriv here, the other frameworks in `peers`.

A contender is a function of (job, rounds, lap, folder) that calls `lap()` at the end of each round
and returns the final model. `start` is called where its own imports begin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from jobs import SEED, Job
from torch import nn

NEVER = 10**9

# As fedpriv's Ray workers have it: freed pages stay with the process.
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


def inline(job: Job, rounds: int, lap: Callable[[], None], folder: Path) -> nn.Module:
    """Runs fedpriv in this process."""
    return _fedpriv(job, rounds, lap, folder, workers=0)


def ray(job: Job, rounds: int, lap: Callable[[], None], folder: Path) -> nn.Module:
    """Runs fedpriv on two Ray workers."""
    return _fedpriv(job, rounds, lap, folder, workers=2)


def _fedpriv(job: Job, rounds: int, lap: Callable[[], None], folder: Path, *, workers: int):
    from clients.local_training import LocalTraining
    from fedpriv.data.federated import Bound
    from fedpriv.federation import Federation, Settings
    from fedpriv.progress import Progress
    from fedpriv.sampling import FixedSize
    from strategies.fedavg import FedAvg

    class Prepared:
        def bind(self, build_model, seed):
            return Bound(build_model, job.examples, job.rows)

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
    "a2": Contender("bare loop, malloc tuned", bare, environment=tuple(TUNED.items())),
    "b": Contender("fedpriv inline", inline, ("fedpriv", "flwr")),
    "b2": Contender("fedpriv inline, malloc tuned", inline, ("flwr",), tuple(TUNED.items())),
    "c": Contender("fedpriv Ray, 2 workers", ray, ("fedpriv", "flwr", "ray")),
    "d": Contender("Flower run_simulation, 2 actors", _flower, ("flwr.simulation", "ray")),
    "e": Contender("pfl-research, 1 process", _pfl, ("pfl",)),
}
