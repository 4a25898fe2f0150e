"""The other frameworks, each used as its own documentation shows, with no handicap.

Flower's clients and pfl's users train on the same batches of the same clients as the bare loop.
This module must be importable in Flower's Ray actors: client code in `__main__` would travel by
value with every message, and nothing could stay resident.
"""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import jobs
import torch
from torch import nn

SPEC = "FEDPRIV_BENCHMARK_JOB"
"""Environment variable that tells Flower's actors which job to load: name, folder, cohort size."""


# ------------------------------------------------------------------------------------- Flower


@functools.cache
def _resident() -> tuple[jobs.Job, nn.Module]:
    """Returns this actor's job and model, built once."""
    torch.set_num_threads(1)
    name, folder, cohort_size = json.loads(os.environ[SPEC])
    job = jobs.load(name, Path(folder), cohort_size)
    return job, job.model()


def flower(job: jobs.Job, rounds: int, lap: Callable[[], None], folder: Path) -> nn.Module:
    """Runs Flower's own FedAvg on Flower's own simulation engine.

    Only the choice of clients is not stock: node ids are random in each run, so the server tells
    the nodes that Flower has drawn which client's data to train on.
    """
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    logging.getLogger("flwr").setLevel(logging.ERROR)
    clients = len(job.rows)
    final = {}

    class SameClients(FedAvg):
        def configure_train(self, server_round, arrays, config, grid):
            messages = list(super().configure_train(server_round, arrays, config, grid))
            for message, client in zip(messages, job.cohort(server_round), strict=True):
                told = ConfigRecord({"server-round": server_round, "client": client})
                message.content = RecordDict({"arrays": arrays, "config": told})
            return messages

    server = ServerApp()

    @server.main()
    def main(grid, context):
        def after_round(server_round, arrays):
            if server_round:
                lap()

        strategy = SameClients(
            fraction_train=job.cohort_size / clients,
            fraction_evaluate=0.0,
            # Where few nodes have registered yet, the fraction alone would draw fewer.
            min_train_nodes=job.cohort_size,
            min_available_nodes=clients,
        )
        start = ArrayRecord(job.model().state_dict())
        result = strategy.start(grid, start, num_rounds=rounds, evaluate_fn=after_round)
        final["arrays"] = result.arrays

    backend = {
        "init_args": {"num_cpus": 2},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server, _client_app(), clients, backend_config=backend)
    model = job.model()
    model.load_state_dict(final["arrays"].to_torch_state_dict())
    return model


def _client_app():
    from flwr.clientapp import ClientApp

    app = ClientApp()
    app.train()(_flower_train)
    return app


def _flower_train(message, context):
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

    job, model = _resident()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    config = message.content["config"]
    loss = job.local_training(model, config["server-round"], config["client"])
    metrics = {"train-loss": loss, "num-examples": len(job.rows[config["client"]])}
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    return Message(RecordDict(content), reply_to=message)


# ------------------------------------------------------------------------------- pfl-research


class PflModule(nn.Module):
    """The job's model with the interface that pfl asks for."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def loss(self, **batch):
        """Returns the mean loss."""
        return self.model.loss(batch)

    def metrics(self, **batch):
        """Returns nothing: no contender evaluates."""
        return {}


def pfl(job: jobs.Job, rounds: int, lap: Callable[[], None], folder: Path) -> nn.Module:
    """Runs pfl's FederatedAveraging on its simulated backend, weighted by examples."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByDatapoints
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    torch.set_num_threads(1)

    class User(Dataset):
        def __init__(self, visit):
            self.round, self.client = visit
            super().__init__(raw_data=(job.rows[self.client],), user_id=str(self.client))

        def iter(self, batch_size):
            return job.batches(self.round, self.client)

    class Laps(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            lap()
            return False, Metrics()

    module = PflModule(job.model())
    trained = [p for p in module.parameters() if p.requires_grad]
    model = PyTorchModel(module, _pfl_optimizer(job), torch.optim.SGD(trained, lr=1.0))
    visits = ((round, client) for round in itertools.count(1) for client in job.cohort(round))
    users = FederatedDataset(User, functools.partial(next, visits))
    algorithm = FederatedAveraging()
    # It counts from 0, where it would evaluate every user twice, and evaluation cannot be off.
    algorithm._current_central_iteration = 1
    algorithm.run(
        NNAlgorithmParams(
            central_num_iterations=rounds + 1,
            evaluation_frequency=10**9,
            train_cohort_size=job.cohort_size,
            val_cohort_size=None,
        ),
        SimulatedBackend(users, users, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_num_epochs=job.epochs,
            local_learning_rate=job.optimizer.lr,
            local_batch_size=job.batch_size,
        ),
        callbacks=[Laps()],
    )
    return module.model


def _pfl_optimizer(job: jobs.Job):
    """Returns what pfl calls with (parameters, lr=…) for each user."""
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    own = {"momentum": job.optimizer.momentum} if job.optimizer.name == "sgd" else {}
    return functools.partial(
        kinds[job.optimizer.name], weight_decay=job.optimizer.weight_decay, **own
    )
