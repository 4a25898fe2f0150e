"""One more round moves at most what it moves today between host and device.

Measured on a device that is not there (`tests/fake_device.py`), as the difference between a run of
two rounds and a run of one. Bounds hold for a function, in M, the bytes of one vector of the model.
Whoever moves less lowers a bound; a function without one moves a few numbers at most, and waits for
nothing. A round has two clients with three providers each, and ends with a checkpoint.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from fake_device import DEVICE, FakeDevice
from torch import nn
from toy_private import federation, provider_data

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.generated.invoices import Invoices
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.runtime.torch_state import isolated_randomness
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.training.per_example import PerExample
from fedpriv.training.safe_masks import safe_masks

pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")

CLIENTS, PROVIDERS, EXAMPLES = 2, 6, 24


class Net(nn.Module):
    """Its weights outweigh a batch by far, and a norm for each example by more."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 2000), nn.Tanh(), nn.Linear(2000, 3))

    def loss(self, batch):
        return nn.functional.cross_entropy(self.layers(batch["x"]), batch["y"])


M = 4 * (4 * 2000 + 2000 + 2000 * 3 + 3)
FEW = M // 200
"""The most bytes of a function without a bound."""

BATCHES = "fedpriv/data/examples.py", "Examples.batch"
WEIGHTS = "fedpriv/runtime/vectors.py", "_unflatten"
CHANGES = "fedpriv/runtime/vectors.py", "_difference"
JOINED = "fedpriv/runtime/vectors.py", "_flatten"
LOSSES = "fedpriv/training/loops.py", "train_epoch"
SUMS = "fedpriv/training/per_example.py", "_Sums.result"
NORMS = "fedpriv/training/per_example.py", "_Sums._factor"

DATA = {("from host", BATCHES): EXAMPLES * (4 * 4 + 8 + 8)}
"""Four numbers, a label and a provider of each example, once."""


def feam_dp():
    return FeAmDP(example_gaussian(clip_norm=1.0, examples=EXAMPLES, noise_multiplier=1.0))


def fl_provider_dp():
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "client_sampling": "fixed"}
    return FLProviderDP(provider_gaussian(providers=PROVIDERS // CLIENTS, **settings))


# By algorithm: its two halves, and what a round of it moves.
TODAY = {
    "FedAvg": (
        FedAvg,
        LocalTraining(batch_size=4),
        {("from host", WEIGHTS): 2 * M, ("to host", CHANGES): 2 * M, ("wait", LOSSES): 2},
    ),
    "FeAm-DP, example by example": (
        feam_dp,
        ExampleGradients(PerExample("loop")),
        {("from host", WEIGHTS): 2 * M, ("to host", SUMS): 2 * M, ("wait", NORMS): EXAMPLES},
    ),
    "FeAm-DP by vmap": (
        feam_dp,
        ExampleGradients(PerExample("vmap")),
        {("from host", WEIGHTS): 2 * M, ("to host", SUMS): 2 * M},
    ),
    "FL-PROVIDER-DP, provider by provider": (
        fl_provider_dp,
        ProviderUpdates(batch_size=4, method="loop"),
        {("from host", WEIGHTS): 8 * M, ("to host", CHANGES): 6 * M},
    ),
    "FL-PROVIDER-DP by vmap": (
        fl_provider_dp,
        ProviderUpdates(batch_size=4, method="vmap"),
        {("from host", WEIGHTS): 2 * M, ("to host", JOINED): 6 * M},
    ),
}


def one_round(strategy, client):
    """Returns the bytes and the waits of a second round, by kind and place."""
    amounts = []
    for rounds in (1, 2):
        data = provider_data(CLIENTS, PROVIDERS // CLIENTS)
        settings = {"device": str(DEVICE), "cohort_batch": 1, "one_noise": False}
        with FakeDevice() as gpu:
            federation(strategy(), client, data, model=Net, **settings).run(rounds)
        amounts.append(gpu.amounts)
    return amounts[1] - amounts[0]


def excess(moved, bounds):
    """Returns a sentence for each line of a function that moves more than it may."""
    lines = defaultdict(list)
    for (kind, place), amount in moved.items():
        lines[kind, (place.file, place.function)].append((place, amount))
    told = []
    for (kind, function), found in lines.items():
        unit = "waits" if kind == "wait" else f"bytes {kind}"
        most = bounds.get((kind, function), 0 if kind == "wait" else FEW)
        if sum(amount for _, amount in found) > most:
            told += [
                f"{place}: {amount} {unit} in a round, allowed are {most}"
                for place, amount in found
            ]
    return told


@pytest.mark.parametrize("algorithm", TODAY)
def test_a_round_moves_no_more_than_today(algorithm):
    strategy, client, bounds = TODAY[algorithm]
    moved = one_round(strategy, client)
    told = excess(moved, bounds | DATA)
    assert not told, "\n".join(told)
    # Each example was there once: it was the device that trained.
    batches = {(kind, place[:2]): amount for (kind, place), amount in moved.items()}
    assert DATA.items() <= batches.items()


@dataclass(frozen=True)
class Careless(LocalTraining):
    """Looks at a layer's weights on the host, and at whether they are finite."""

    def train(self, context):
        weights = context.model.layers[0].weight
        weights.detach().cpu()
        assert weights.isfinite().all()
        return super().train(context)


def test_whoever_moves_more_is_named():
    strategy, _, bounds = TODAY["FedAvg"]
    told = excess(one_round(strategy, Careless(batch_size=4)), bounds | DATA)
    copied, waited = sorted(told, key=lambda sentence: "waits" in sentence)
    line = r"test_transfers\.py:\d+ Careless\.train"
    assert re.match(rf"{line}: {2 * 4 * 4 * 2000} bytes to host in a round", copied)
    assert re.match(rf"{line}: 2 waits in a round", waited)


def test_layoutlmv3_waits_for_one_mask_and_has_the_bits_of_the_cpu():
    """transformers looks whether a mask hides anything; nothing is waited for in `safe_masks`."""
    documents = Invoices(providers=2, documents_per_provider=1).load()
    model = layoutlmv3(labels=documents.labels, layers=1)
    examples = model.encode(documents.documents)

    def gradients(device):
        model.zero_grad()
        with isolated_randomness(0):  # dropout
            model.to(device).loss(examples.batch(np.arange(2), device)).backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    expected = gradients("cpu")
    assert len(expected) > 20
    with FakeDevice() as gpu:
        found = gradients(DEVICE)
        assert gpu.to_host == 0, gpu.table()
        assert gpu.waits <= 1, gpu.table()
        assert all(torch.equal(a.cpu(), b) for a, b in zip(found, expected, strict=True))
    with FakeDevice() as gpu, safe_masks():
        gradients(DEVICE)
        assert gpu.waits == 0, gpu.table()
