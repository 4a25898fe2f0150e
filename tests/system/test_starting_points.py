"""Workers start from pretrained weights, adapters and mapped pages, as one process does."""

import functools

import pytest
from toy import weights

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.federation.dataset import DocumentData
from fedpriv.federation.loop import Federation
from fedpriv.federation.settings import Settings
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.training.adapters import LoRA
from fedpriv.training.loops import Optimizer
from fedpriv.training.pretraining import Pretraining

PUBLIC = Invoices(providers=3, documents_per_provider=2, seed=77)
PRIVATE = Invoices(providers=5, documents_per_provider=3)


def run(folder, workers):
    federation = Federation(
        model=functools.partial(layoutlmv3, max_length=64),
        data=DocumentData(
            PRIVATE, ByProvider(2), HoldOut(unseen=0.2), cache=folder / "cache" / "examples"
        ),
        strategy=FedAvg(),
        client=LocalTraining(optimizer=Optimizer(lr=4e-3)),
        settings=Settings(workers=workers),
        runs=folder / "runs",
        finetuning=LoRA(rank=2, dropout=0.1),
        pretraining=Pretraining(PUBLIC, epochs=1, cache=folder / "cache" / "pretraining"),
    )
    return federation.run(2)


@pytest.mark.slow
def test_the_bits_are_those_of_one_process(tmp_path):
    here, there = run(tmp_path, workers=0), run(tmp_path, workers=2)
    assert here.failures == there.failures == []
    assert weights(here) == weights(there)
    names = ("loss", "f1", "f1_seen", "f1_unseen", "bytes_up", "bytes_by_client")
    assert [[m[name] for name in names] for m in here.metrics] == [
        [m[name] for name in names] for m in there.metrics
    ]
    kept = [path.name for path in (tmp_path / "cache").rglob("*") if path.suffix == ".safetensors"]
    assert len(kept) == 1  # the second run found the first one's
