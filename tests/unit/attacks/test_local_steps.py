"""Local steps, simulated: against torch's own optimisers, and what a server knows of them."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call

from fedpriv.attacks.local_steps import LocalSteps
from fedpriv.training.loops import Optimizer

OPTIMIZERS = [
    Optimizer("sgd", lr=0.1),
    Optimizer("sgd", lr=0.1, momentum=0.8, weight_decay=0.05),
    Optimizer("adam", lr=0.02, weight_decay=0.05),
    Optimizer("adamw", lr=0.02, weight_decay=0.5),
]


def loss_of(model, given, page):
    return functional_call(model, given, (page,)).square().sum()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_simulation_ends_where_torch_ends(optimizer):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    page = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    start = {n: p.detach().clone().requires_grad_() for n, p in model.named_parameters()}

    def gradient(at):
        loss = loss_of(model, at, page)
        found = torch.autograd.grad(loss, list(at.values()), create_graph=True)
        return dict(zip(at, found, strict=True))

    total = LocalSteps(4, optimizer).simulate(start, gradient)
    trained = copy.deepcopy(model)
    steps = optimizer.build(trained)
    for _ in range(4):
        steps.zero_grad()
        trained(page.detach()).square().sum().backward()
        steps.step()
    for name, after in trained.named_parameters():
        expected = (start[name] - after) / optimizer.lr
        torch.testing.assert_close(total[name], expected, rtol=1e-6, atol=1e-8)
    (slope,) = torch.autograd.grad(sum(t.sum() for t in total.values()), page)
    assert torch.isfinite(slope).all()
    assert slope.abs().max() > 0


def test_what_is_simulated_of_sgd_has_the_derivative_of_its_steps():
    curve = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    steps = LocalSteps(2, Optimizer("sgd", lr=0.1))
    start = {"w": torch.tensor(2.0, dtype=torch.float64)}
    total = steps.simulate(start, lambda at: {"w": curve * at["w"]})["w"]
    # g_1 + g_2 = c w + c (w - 0.1 c w) = 2 c w - 0.1 c² w; by c: 2 w - 0.2 c w.
    assert total.item() == pytest.approx(2 * 3 * 2 - 0.1 * 9 * 2)
    (slope,) = torch.autograd.grad(total, curve)
    assert slope.item() == pytest.approx(2 * 2 - 0.2 * 3 * 2)


def test_momentum_adds_early_gradients_up_more_often():
    assert LocalSteps(3, Optimizer("sgd", lr=1.0)).weight == 3
    assert LocalSteps(3, Optimizer("sgd", lr=1.0, momentum=0.5)).weight == 1.75 + 1.5 + 1


def test_the_steps_follow_from_public_settings_and_the_number_of_examples():
    optimizer = {"name": "sgd", "lr": 0.1, "weight_decay": 0.0, "momentum": 0.0}
    client = {"class": "LocalTraining", "epochs": 2, "batch_size": 8, "optimizer": optimizer}
    assert LocalSteps.of(client, 9) == LocalSteps(4, Optimizer("sgd", lr=0.1))
    assert LocalSteps.of(client, 8).count == 2
    assert LocalSteps.of(client, 0) is None
    assert LocalSteps.of({"optimizer": optimizer}, 9) is None
