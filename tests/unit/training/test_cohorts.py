"""Clients that are trained in one pass end where each of them ends alone."""

import copy
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from model_checks import LABELS, SMALL
from torch import nn

from fedpriv.data.examples import Examples
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.vt5 import vt5
from fedpriv.runtime.torch_state import isolated_randomness, seeded_model
from fedpriv.training.adapters import LoRA
from fedpriv.training.cohorts import automatic_cohort, obstacle, train_cohort
from fedpriv.training.computing import Computing
from fedpriv.training.loops import Optimizer, train_epoch

SGD = Optimizer("sgd", lr=0.1, momentum=0.9, weight_decay=0.1)
ADAM = Optimizer("adam", lr=0.01, weight_decay=0.1)
ADAMW = Optimizer("adamw", lr=0.01, weight_decay=0.3)


class Attentive(nn.Module):
    """Has a frozen weight, a layer that its loss does not use, dropout, and attention with some."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer, self.unused = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(2, 2)
        self.dropout = nn.Dropout(0.3)
        self.inner.weight.requires_grad_(False)
        self.double()

    def loss(self, batch):
        x = self.dropout(self.inner(batch["x"]).tanh()).view(-1, 2, 2, 4)
        x = nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.2)
        return nn.functional.cross_entropy(self.outer(x.reshape(-1, 2, 8)).mean(1), batch["y"])


def model():
    return seeded_model(Attentive, 0).train()


def of_sizes(sizes):
    """Examples of clients with so many each."""
    rng, count = np.random.default_rng(0), sum(sizes)
    table = Examples.of({"x": rng.normal(size=(count, 2, 4)), "y": rng.integers(0, 2, count)})
    ends = np.cumsum([0, *sizes])
    return [table.take(np.arange(a, b)) for a, b in itertools.pairwise(ends)]


def alone(net, own, optimizer, client, epochs, batch_size):
    net, shuffle, loss = copy.deepcopy(net), np.random.default_rng(client), 0.0
    stepper = optimizer.build(net)
    with isolated_randomness(50 + client):
        for _ in range(epochs):
            loss = train_epoch(net, own.batches(batch_size, shuffle=shuffle), stepper)
    return dict(net.named_parameters()), loss


def check_as_if_alone(net, examples, optimizer, epochs, batch_size, atol=1e-14):
    before = copy.deepcopy(net.state_dict())
    trained = train_cohort(
        net,
        examples,
        optimizer,
        epochs=epochs,
        batch_size=batch_size,
        shuffles=[np.random.default_rng(client) for client in range(len(examples))],
        seeds=[50 + client for client in range(len(examples))],
    )
    for client, own in enumerate(examples):
        expected, loss = alone(net, own, optimizer, client, epochs, batch_size)
        found = trained.of(client)
        assert set(found) == {name for name, p in expected.items() if p.requires_grad}
        for name, value in found.items():
            torch.testing.assert_close(value, expected[name].detach(), rtol=0, atol=atol)
        assert trained.losses[client] == pytest.approx(loss, abs=atol)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("optimizer", [SGD, ADAM, ADAMW], ids=lambda one: one.name)
def test_each_client_ends_where_it_ends_alone(optimizer):
    check_as_if_alone(model(), of_sizes([7, 3, 0, 8, 12, 5, 1]), optimizer, 2, 4)


@settings(max_examples=15)
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from([SGD, ADAM, ADAMW]),
)
def test_whatever_the_sizes(sizes, epochs, batch_size, optimizer):
    check_as_if_alone(model(), of_sizes(sizes), optimizer, epochs, batch_size)


@pytest.mark.parametrize(("build", "dropout"), [(layoutlmv3, 0.1), (vt5, 0.0)])
def test_adapters_of_document_models(build, dropout):
    net = seeded_model(lambda: build(LABELS, dropout=dropout), 0)
    LoRA(rank=2).apply(net)
    examples = net.encode(SMALL)
    assert len(examples) >= 3
    halves = [examples.take(np.arange(0, 1)), examples.take(np.arange(1, len(examples)))]
    check_as_if_alone(net.double().train(), halves, ADAMW, 2, 2, atol=1e-9)


def test_dropout_of_two_clients_differs():
    # Both have the same examples in the same order; only their masks differ.
    (own,) = of_sizes([8])
    pair = train_cohort(
        model(),
        [own, own],
        SGD,
        epochs=1,
        batch_size=4,
        shuffles=[np.random.default_rng(0) for _ in range(2)],
        seeds=[1, 2],
    )
    assert not torch.allclose(pair.of(0)["outer.weight"], pair.of(1)["outer.weight"])


class Normed(Attentive):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2).double()

    def loss(self, batch):
        return super().loss({**batch, "x": self.norm(batch["x"])})


class Masked(Attentive):
    def loss(self, batch):
        return super().loss({**batch, "x": batch["x"] * torch.rand_like(batch["x"])})


class Shuffled(Attentive):
    def loss(self, batch):
        return super().loss(batch) * np.random.rand()  # noqa: NPY002


class Branching(Attentive):
    def loss(self, batch):
        loss = super().loss(batch)
        return loss if loss > 0 else -loss


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Attentive, ""),
        (Normed, "changes the buffer 'norm.running_mean'"),
        (Masked, "draws random numbers beside dropout"),
        (Shuffled, "Python's or NumPy's global generator"),
        (Branching, "RuntimeError"),
    ],
)
def test_an_obstacle_is_found_before_training(kind, why):
    net = seeded_model(kind, 0).train()
    found = obstacle(net, of_sizes([3])[0], "cpu", Computing())
    assert why in found
    assert bool(found) == bool(why)


def test_automatic_cohorts_depend_on_size_and_device_only():
    assert automatic_cohort(model(), "cpu") == 1
    assert automatic_cohort(model(), "cuda") == 16
    with torch.device("meta"):
        large = nn.Linear(16384, 2048)  # 128 MiB
    assert automatic_cohort(large, "cuda") == 1  # and a little more, by its bias
