"""One more round moves at most what it moves today between host and device.

Measured on a device that is not there (`tests/fake_device.py`), as the difference between a run of
two rounds and a run of one. Bounds hold for a function, in M, the bytes of one vector of the model.
Whoever moves less lowers a bound; a function without one moves a few numbers at most, and waits for
nothing. A round has two clients with three providers each, and ends with a checkpoint.
"""

import functools
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from fake_device import DEVICE, FakeDevice
from flwr.serverapp.strategy import FedAdam
from torch import nn
from toy_private import federation, provider_data

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.secagg.masking import Masking
from fedpriv.models.encoders.backbones import layoutlm
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.runtime.torch_state import isolated_randomness, reproducible_torch
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.strategies.provider_bandmf import ProviderBandMF
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.training.per_example import PerExample

pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")

CLIENTS, PROVIDERS, EXAMPLES = 2, 6, 24


class Net(nn.Module):
    """Its weights outweigh a batch by far, and a norm for each example by more."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 2000), nn.Tanh(), nn.Linear(2000, 3))

    def losses(self, batch):
        return nn.functional.cross_entropy(self.layers(batch["x"]), batch["y"], reduction="none")

    def loss(self, batch):
        return self.losses(batch).mean()


M = 4 * (4 * 2000 + 2000 + 2000 * 3 + 3)
FEW = M // 200
"""The most bytes of a function without a bound."""

BATCHES = "fedpriv/data/examples.py", "Examples.batch"
LOSSES = "fedpriv/training/loops.py", "train_epoch"
NORMS = "fedpriv/training/per_example.py", "_Sums._factor"
CHECKED = "fedpriv/training/ghost.py", "Ghost._check_apart"
ALONE = "fedpriv/training/ghost.py", "Ghost._check_values"
NORM = "fedpriv/privacy/clipping.py", "_norm"
LEFT = "fedpriv/federation/client.py", "ClientWorker._written_into"
FINITE = "fedpriv/federation/client.py", "_check"
SAVED = "fedpriv/federation/loop.py", "_Run._copy"
ENCODED = "fedpriv/federation/secagg/ring.py", "Ring.encode"
CUT = "fedpriv/federation/secagg/ring.py", "Ring.cut"
UNMASKED = "fedpriv/federation/secagg/masking.py", "Masked.aggregate_train"
WHOLE = "fedpriv/clients/share.py", "with_share"
OWED = "fedpriv/clients/banded.py", "with_owed"
SOLVED = "fedpriv/strategies/provider_bandmf.py", "ProviderBandMF.state"
KEPT = "fedpriv/threat/surfaces/server.py", "Observation._save"
TO_FLOWER = "fedpriv/federation/flower/adapter.py", "to_named"
FROM_FLOWER = "fedpriv/federation/flower/adapter.py", "to_flat"
MOMENTS = "fedpriv/training/server_optimizer.py", "ServerOptimizer.state"

EACH = {("to host", SAVED): M, ("wait", FINITE): CLIENTS}
"""A checkpoint; and whether a client's update is finite."""

DATA = {("from host", BATCHES): EXAMPLES * (4 * 4 + 8 + 8)}
"""Four numbers, a label and a provider of each example, once."""


def feam_dp():
    return FeAmDP(example_gaussian(clip_norm=1.0, examples=EXAMPLES, noise_multiplier=1.0))


def fl_provider_dp(strategy=FLProviderDP, **settings):
    settings = {"clip_norm": 1.0, "noise_multiplier": 1.0, "client_sampling": "fixed", **settings}
    return strategy(provider_gaussian(providers=PROVIDERS // CLIENTS, **settings))


def provider_bandmf():
    return fl_provider_dp(ProviderBandMF, bands=2, provider_rate=0.5)


PROVIDERS_BY_VMAP = ProviderUpdates(batch_size=4, method="vmap")
NOTHING = dict[str, Any]()

# By algorithm: its two halves, what a round of it moves, and the federation's settings. Between
# client and strategy it is nothing, but where masks or NumPy need the host.
TODAY = {
    "FedAvg": (FedAvg, LocalTraining(batch_size=4), {("wait", LOSSES): 2}, NOTHING),
    "FeAm-DP, example by example": (
        feam_dp,
        ExampleGradients(PerExample("loop")),
        {("to host", MOMENTS): 2 * M, ("wait", NORMS): EXAMPLES},
        NOTHING,
    ),
    "FeAm-DP by vmap": (
        feam_dp,
        ExampleGradients(PerExample("vmap")),
        {("to host", MOMENTS): 2 * M},
        NOTHING,
    ),
    "FeAm-DP by ghost": (
        feam_dp,
        ExampleGradients(PerExample("ghost")),
        # Of a model that is not ours each batch is checked.
        {("to host", MOMENTS): 2 * M, ("wait", CHECKED): CLIENTS, ("wait", ALONE): CLIENTS},
        NOTHING,
    ),
    "FL-PROVIDER-DP, provider by provider": (
        fl_provider_dp,
        ProviderUpdates(batch_size=4, method="loop"),
        {("wait", NORM): PROVIDERS},
        NOTHING,
    ),
    "FL-PROVIDER-DP by vmap": (
        fl_provider_dp,
        PROVIDERS_BY_VMAP,
        {("wait", NORM): PROVIDERS},
        NOTHING,
    ),
    "masked": (
        fl_provider_dp,
        PROVIDERS_BY_VMAP,
        # The words of each client go down, the sum of the updates comes back.
        {
            ("wait", NORM): PROVIDERS,
            ("wait", ENCODED): CLIENTS,
            ("wait", CUT): CLIENTS,
            ("to host", ENCODED): CLIENTS * M,
            ("from host", UNMASKED): M,
        },
        {"masking": Masking()},
    ),
    "masked, whole numbers": (
        fl_provider_dp,
        PROVIDERS_BY_VMAP,
        # Whole noise is the host's, of sums in double precision.
        {
            ("wait", NORM): PROVIDERS,
            ("to host", WHOLE): CLIENTS * 2 * M,
            ("from host", UNMASKED): M,
        },
        {"masking": Masking(mechanism="discrete")},
    ),
    "bands": (
        provider_bandmf,
        PROVIDERS_BY_VMAP,
        # What clients remember lies in files, and what is solved for in the checkpoint.
        {
            ("wait", NORM): PROVIDERS,
            ("to host", OWED): CLIENTS * M,
            ("from host", OWED): CLIENTS * M,
            ("to host", SOLVED): 2 * M,
        },
        NOTHING,
    ),
    "observed": (
        FedAvg,
        LocalTraining(batch_size=4),
        {("wait", LOSSES): 2, ("to host", KEPT): (1 + CLIENTS + 1) * M},
        {"keep": [KeepTranscript()]},
    ),
    "Flower's FedAdam": (
        FedAdam,
        LocalTraining(batch_size=4),
        # The model and the mean go to Flower's NumPy, and its model comes back.
        {("wait", LOSSES): 2, ("to host", TO_FLOWER): 2 * M, ("from host", FROM_FLOWER): M},
        NOTHING,
    ),
}


def one_round(strategy, client, settings=NOTHING):
    """Returns the bytes and the waits of a second round, by kind and place."""
    amounts = []
    for rounds in (1, 2):
        data = provider_data(CLIENTS, PROVIDERS // CLIENTS)
        where = {"device": str(DEVICE), "cohort_batch": 1, "one_noise": False}
        with FakeDevice() as gpu:
            made = federation(strategy(), client, data, model=Net, **where, **settings)
            result = made.run(rounds)
        assert result.failures == []
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
    strategy, client, bounds, settings = TODAY[algorithm]
    moved = one_round(strategy, client, settings)
    told = excess(moved, bounds | EACH | DATA)
    assert not told, "\n".join(told)
    # It was the device that trained: each example was there once, or those whose turn it was.
    batches = {(kind, place[:2]): amount for (kind, place), amount in moved.items()}
    assert 0 < batches["from host", BATCHES] <= DATA["from host", BATCHES]
    assert algorithm == "bands" or DATA.items() <= batches.items()


@dataclass(frozen=True)
class Careless(LocalTraining):
    """Looks at a layer's weights on the host, and at whether they are finite."""

    def train(self, context):
        weights = context.model.layers[0].weight
        weights.detach().cpu()
        assert weights.isfinite().all()
        return super().train(context)


def test_whoever_moves_more_is_named():
    strategy, _, bounds, _ = TODAY["FedAvg"]
    # What a half that is not ours has left of the parameters is compared with what was sent.
    more = {("wait", LEFT): CLIENTS}
    told = excess(one_round(strategy, Careless(batch_size=4)), bounds | EACH | DATA | more)
    copied, waited = sorted(told, key=lambda sentence: "waits" in sentence)
    line = r"test_transfers\.py:\d+ Careless\.train"
    assert re.match(rf"{line}: {2 * 4 * 4 * 2000} bytes to host in a round", copied)
    assert re.match(rf"{line}: 2 waits in a round", waited)


def test_for_a_model_of_ours_feam_dp_waits_twice_a_client_and_once_a_round():
    """For its norms, and whether its update is finite; then for the digest of the model."""
    waits = []
    for rounds in (1, 2):
        with FakeDevice() as gpu:
            federation(
                feam_dp(),
                ExampleGradients(),
                DocumentData(Invoices(4, 2), ByProvider(CLIENTS), HoldOut("document", 0.0)),
                model=functools.partial(layoutlmv3, layers=1, dropout=0.1),
                device=str(DEVICE),
                cohort_batch=1,
                checkpoint_every=1000,
            ).run(rounds)
        waits.append(Counter({at: n for at, n in gpu.times.items() if at[0] != "from host"}))
    kinds = Counter(at[1].function for at in (waits[1] - waits[0]).elements())
    assert kinds == {"_Sums.ghost": CLIENTS, "_check": CLIENTS, "fingerprint": 1}


def test_layoutlmv3_waits_for_no_mask_and_has_the_bits_of_the_cpu():
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
    with FakeDevice() as gpu, reproducible_torch(1, str(DEVICE)):
        found = gradients(DEVICE)
        assert (gpu.to_host, gpu.waits) == (0, 0), gpu.table()
        assert all(torch.equal(a.cpu(), b) for a, b in zip(found, expected, strict=True))


def test_an_evaluation_waits_for_the_device_at_its_end_only():
    documents = Invoices(providers=12, documents_per_provider=6).load()
    model = layoutlm(labels=documents.labels, layers=1, hidden_size=32)
    examples = model.encode(documents.documents)
    assert len(examples) > 64  # batches of 64
    with torch.no_grad():
        expected = model.eval().evaluate(examples)
        with FakeDevice() as gpu, reproducible_torch(1, str(DEVICE)):
            found = model.to(DEVICE).evaluate(examples)
            assert found == pytest.approx(expected, rel=1e-6)  # masks are built that mask nothing
            assert gpu.waits == 0, gpu.table()
            assert sum(gpu.times[at] for at in gpu.times if at[0] == "to host") <= 3, gpu.table()
