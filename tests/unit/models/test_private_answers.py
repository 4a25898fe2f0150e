"""FL-PROVIDER-DP and FeAm-DP on models that write answers, with dropout and tied embeddings."""

import functools
import json

import numpy as np
import pytest
import torch

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.models.donut import donut
from fedpriv.models.vt5 import vt5
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.training.loops import Optimizer

MODELS = {
    "vt5": functools.partial(vt5, max_length=128, width=32, dropout=0.1),
    "donut": functools.partial(donut, dropout=0.1),
}
DATA = DocumentData(
    Invoices(providers=4, documents_per_provider=2, questions=("provider", "date")),
    ByProvider(clients=2),
    cache="off",
)


def federation(model, strategy, tmp_path, name):
    if strategy == "feam_dp":
        mechanism = example_gaussian(
            noise_multiplier=1.0, clip_norm=0.1, examples=12, record_rate=0.5, delta=1e-5
        )
        halves = FeAmDP(mechanism=mechanism), ExampleGradients()
    else:
        mechanism = provider_gaussian(
            noise_multiplier=1.0, clip_norm=0.5, providers=2, client_rate=1.0, delta=1e-5
        )
        client = ProviderUpdates(steps=2, batch_size=2, optimizer=Optimizer(lr=1e-3))
        halves = FLProviderDP(mechanism=mechanism), client
    return Federation(
        model=MODELS[model],
        data=DATA,
        strategy=halves[0],
        client=halves[1],
        runs=tmp_path / name,
        entropy="seed",
    )


@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("vt5", "fl_provider_dp"),
        pytest.param("donut", "feam_dp", marks=pytest.mark.slow),
        pytest.param("vt5", "feam_dp", marks=pytest.mark.slow),
        pytest.param("donut", "fl_provider_dp", marks=pytest.mark.slow),
    ],
)
def test_a_round_moves_the_model_is_booked_and_is_the_same_again(model, strategy, tmp_path):
    results = [federation(model, strategy, tmp_path, str(i)).run(rounds=1) for i in range(2)]
    start, first, second = (
        torch.cat([p.detach().flatten() for p in m.parameters() if p.requires_grad])
        for m in (_untrained(model), results[0].model, results[1].model)
    )
    assert torch.equal(first, second)
    assert not torch.equal(start, first)
    assert torch.isfinite(first).all()
    ledger = json.loads((results[0].run_dir / "ledger.json").read_text())
    assert ledger["events"][0]["released"]
    assert 0 < ledger["views"]["global"]["pld"] < 20
    assert np.isfinite(results[0].metrics[0].get("loss", 0.0))


def _untrained(model):
    from fedpriv.runtime.torch_state import seeded_model

    return seeded_model(MODELS[model], 0)
