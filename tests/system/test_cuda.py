"""On a GPU: the same seed gives the same bits, and about the weights of the CPU."""

import functools

import numpy as np
import pytest
import torch
from toy import federation, norm_net, weights

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.data.examples import Examples
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.partition import ByProvider
from fedpriv.federation.dataset import DocumentData
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.training.computing import Computing
from fedpriv.training.loops import Optimizer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def test_the_same_seed_gives_the_same_bits(tmp_path):
    first, second = (
        federation(model=norm_net, runs=tmp_path, device="cuda").run(3) for _ in range(2)
    )
    assert weights(first) == weights(second)


def test_documents_and_dropout_too(tmp_path):
    def run():
        return federation(
            model=functools.partial(layoutlmv3, dropout=0.1),
            data=DocumentData(Invoices(providers=4, documents_per_provider=3), ByProvider(2)),
            client=LocalTraining(optimizer=Optimizer(lr=1e-3)),
            runs=tmp_path,
            device="cuda",
        ).run(2)

    assert weights(run()) == weights(run())


def test_the_gpu_computes_what_the_cpu_computes(tmp_path):
    # Without dropout, whose mask is drawn differently on a GPU.
    def net():
        model = norm_net()
        model.layers[3] = torch.nn.Identity()
        return model

    on_cpu, on_gpu = (
        federation(model=net, runs=tmp_path, device=device).run(2) for device in ("cpu", "cuda")
    )
    ours, theirs = (r.model.cpu().state_dict() for r in (on_cpu, on_gpu))
    for name, tensor in ours.items():
        np.testing.assert_allclose(tensor.numpy(), theirs[name].numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("precision", "distance"), [("bf16", 0.02), ("fp16", 0.005)])
def test_lower_precision_gives_the_same_bits_again_and_comes_close_to_float32(
    tmp_path, precision, distance
):
    def run(computing):
        made = federation(
            model=layoutlmv3,
            data=DocumentData(Invoices(providers=4, documents_per_provider=3), ByProvider(2)),
            client=LocalTraining(batch_size=3, optimizer=Optimizer("sgd", lr=0.01)),
            runs=tmp_path,
            device="cuda",
            computing=computing,
        )
        return weights(made.run(2))

    first, second = (run(Computing(precision, microbatch=2)) for _ in range(2))
    assert first == second
    low, plain = (np.frombuffer(bits, np.float32) for bits in (first, run(Computing())))
    assert np.linalg.norm(low - plain) < distance * np.linalg.norm(plain)


def test_batches_on_a_gpu_are_those_on_the_cpu():
    examples = Examples.of({"x": np.arange(22, dtype=np.float32).reshape(11, 2)})
    on_cpu, on_gpu = (
        list(examples.batches(4, shuffle=np.random.default_rng(0), device=device))
        for device in ("cpu", "cuda")
    )
    for ours, theirs in zip(on_cpu, on_gpu, strict=True):
        assert torch.equal(ours["x"], theirs["x"].cpu())
