"""The jobs that every contender runs: a model, equal clients, and the same batches for all.

Nothing here imports Flower, Ray or pfl, so the bare loop's process carries none of them.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from fedpriv.data.examples import Examples
from fedpriv.privacy.sampling import FixedSize
from fedpriv.runtime.seeds import generator, torch_seed
from fedpriv.training.loops import Optimizer

SEED = 0


class Mlp(nn.Module):
    """784-1024-768-10: 1.6 M parameters, 6.4 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 768), nn.ReLU(), nn.Linear(768, 10)
        )

    def loss(self, batch):
        """Returns the mean cross-entropy."""
        return nn.functional.cross_entropy(self.layers(batch["x"]), batch["y"])


@dataclass(frozen=True)
class Job:
    """One federation to simulate.

    Attributes:
        name: of the job.
        build_model: returns the model; it has `loss(batch)`.
        examples: of all clients together.
        rows: for each client, its rows of `examples`; as many for each.
        cohort_size: clients a round.
        batch_size: examples a step.
        optimizer: of the clients, new in every round.
        epochs: of local training.
    """

    name: str
    build_model: Callable[[], nn.Module]
    examples: Examples
    rows: tuple[np.ndarray, ...]
    cohort_size: int
    batch_size: int
    optimizer: Optimizer
    epochs: int = 1

    @property
    def steps(self) -> int:
        """Optimiser steps of one client in one round."""
        return self.epochs * -(-len(self.rows[0]) // self.batch_size)

    def cohort(self, round: int) -> list[int]:
        """Returns the clients of a round: those that fedpriv draws."""
        rng = generator(SEED, "client sampling, attempt 0", round)
        return FixedSize(self.cohort_size).draw(len(self.rows), rng)

    def batches(self, round: int, client: int) -> Iterator[dict[str, torch.Tensor]]:
        """Yields the batches of a client's round: those that fedpriv draws."""
        shuffle = generator(SEED, "local shuffling, attempt 0", round, client)
        columns, rows = self.examples.columns, self.rows[client]
        for _ in range(self.epochs):
            order = rows[shuffle.permutation(len(rows))]
            for start in range(0, len(order), self.batch_size):
                taken = order[start : start + self.batch_size]
                batch = {name: torch.from_numpy(c[taken]) for name, c in columns.items()}
                for name, (array, pointer) in self.examples.shared.items():
                    batch[name] = torch.from_numpy(array[columns[pointer][taken]])
                yield batch

    def model(self) -> nn.Module:
        """Returns the model with the weights that fedpriv's first round starts from."""
        torch.manual_seed(torch_seed(SEED, "model initialisation"))
        return self.build_model().train()

    def local_training(self, model: nn.Module, round: int, client: int) -> float:
        """Trains the model as this client in this round; returns the mean loss."""
        optimizer = self.optimizer.build(model)
        losses = []
        for batch in self.batches(round, client):
            optimizer.zero_grad(set_to_none=True)
            loss = model.loss(batch)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).mean().item()


def _mlp_data():
    clients, rows = 100, 96
    rng = np.random.default_rng(SEED)
    patterns = rng.normal(size=(10, 784)).astype(np.float32)
    y = rng.integers(10, size=clients * rows)
    x = 0.2 * patterns[y] + rng.standard_normal((clients * rows, 784), dtype=np.float32)
    deal = np.arange(clients * rows).reshape(clients, rows)
    return {"x": x, "y": y}, {}, deal


def _layoutlmv3_data():
    from fedpriv.data.generated.invoices import Invoices
    from fedpriv.data.partition import ByProvider, HoldOut
    from fedpriv.federation.dataset import DocumentData

    source = Invoices(providers=16, documents_per_provider=4)
    data = DocumentData(source, ByProvider(clients=8), HoldOut("document", 0.0))
    bound = data.bind(_layoutlmv3_model, SEED)
    least = min(len(rows) for rows in bound.rows)
    deal = np.stack([rows[:least] for rows in bound.rows])
    return dict(bound.train.columns), dict(bound.train.shared), deal


def _layoutlmv3_model(labels=None):
    from fedpriv.data.generated.invoices import LABELS
    from fedpriv.models.layoutlmv3 import layoutlmv3

    return layoutlmv3(labels or LABELS)


_MAKERS = {
    "mlp": (
        _mlp_data,
        functools.partial(
            Job, "mlp", Mlp, cohort_size=20, batch_size=16, optimizer=Optimizer("sgd", lr=0.1)
        ),
    ),
    "layoutlmv3": (
        _layoutlmv3_data,
        functools.partial(
            Job,
            "layoutlmv3",
            _layoutlmv3_model,
            cohort_size=8,
            batch_size=8,
            optimizer=Optimizer("adamw", lr=4e-3),
        ),
    ),
}
NAMES = tuple(_MAKERS)


def prepare(name: str, folder: Path) -> None:
    """Writes a job's arrays, so that each contender can map them into its memory."""
    columns, shared, deal = _MAKERS[name][0]()
    place = folder / name
    place.mkdir(parents=True)
    np.save(place / "deal.npy", deal)
    for column, array in columns.items():
        np.save(place / f"column-{column}.npy", array)
    for column, (array, _) in shared.items():
        np.save(place / f"shared-{column}.npy", array)
    pointers = {column: pointer for column, (_, pointer) in shared.items()}
    index = {"columns": list(columns), "pointers": pointers}
    (place / "index.json").write_text(json.dumps(index))


def load(name: str, folder: Path, cohort_size: int | None = None) -> Job:
    """Reads what `prepare` wrote."""
    place = folder / name
    index = json.loads((place / "index.json").read_text())
    columns = {column: _mapped(place / f"column-{column}.npy") for column in index["columns"]}
    shared = {
        column: (_mapped(place / f"shared-{column}.npy"), pointer)
        for column, pointer in index["pointers"].items()
    }
    job = _MAKERS[name][1](examples=Examples.of(columns, shared), rows=_rows(place))
    return replace(job, cohort_size=cohort_size or job.cohort_size)


def flat(model: nn.Module) -> np.ndarray:
    """Returns the trained weights as one vector, in the order of their names in the model."""
    trained = [p.detach().reshape(-1) for p in model.parameters() if p.requires_grad]
    return torch.cat(trained).numpy()


def checksum(model: nn.Module) -> tuple[float, str]:
    """Returns the sum of the first weight matrix, and a hash of all trained bits."""
    first = next(p for p in model.parameters() if p.requires_grad and p.ndim == 2)
    digest = hashlib.sha256(flat(model).tobytes()).hexdigest()
    return first.detach().double().sum().item(), digest[:16]


def _rows(place: Path) -> tuple[np.ndarray, ...]:
    return tuple(np.load(place / "deal.npy"))


def _mapped(path: Path) -> np.ndarray:
    # A plain array over the file: a memmap would be pickled in one piece with its bytes.
    return np.asarray(np.load(path, mmap_mode="r"))
