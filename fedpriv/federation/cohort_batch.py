"""How many clients a worker trains in one pass, worked out from `federation.cohort_batch`."""

from __future__ import annotations

from fedpriv.federation.client import Client, TrainsMany
from fedpriv.federation.dataset import FederatedDataset
from fedpriv.federation.settings import Settings
from fedpriv.runtime.seeds import torch_seed
from fedpriv.runtime.torch_state import isolated_randomness, reproducible_torch, seeded_model
from fedpriv.training.cohorts import automatic_cohort, obstacle
from fedpriv.training.computing import Computing


def cohort_batch(
    client: Client,
    bound: FederatedDataset,
    seed: int,
    settings: Settings,
    computing: Computing,
) -> tuple[int, list[str]]:
    """Returns the number of clients in one pass, and why it cannot be the one that was asked for.

    "auto" takes 1 where several clients cannot be trained together.
    """
    asked = settings.cohort_batch
    if asked == 1 or (asked == "auto" and settings.device.partition(":")[0] == "cpu"):
        return 1, []
    why = _reason(client, settings, computing)
    if not why and len(bound.train):
        with reproducible_torch(settings.threads, settings.device):
            model = seeded_model(bound.build_model, seed).to(settings.device).train()
            with isolated_randomness(torch_seed(seed, "trial")):
                why = obstacle(model, bound.train, settings.device, computing)
            most = automatic_cohort(model, settings.device)
        if not why:
            return (most if asked == "auto" else asked), []
    if asked == "auto" or not why:
        return 1, []
    return 1, [f"federation.cohort_batch={asked}: {why}; take 1 or 'auto'"]


def _reason(client: Client, settings: Settings, computing: Computing) -> str:
    """Returns a reason that can be told without the model; "" if there is none."""
    if not isinstance(client, TrainsMany):
        return (
            f"{type(client).__name__} trains one client at a time; halves with a method "
            "`train_many`, such as fedpriv.clients.fedavg.LocalTraining, train several in one pass"
        )
    if settings.client_timeout is not None:
        return "client_timeout limits the time of one client, and several train at once"
    if computing.alone:
        return f"training.{computing.alone}: each client is computed by itself"
    return ""
