"""The first step of an optimiser, against torch's own."""

import pytest
import torch
from torch import nn

from fedpriv.training.loops import Optimizer

OPTIMIZERS = [
    Optimizer("sgd", lr=0.3),
    Optimizer("sgd", lr=0.3, momentum=0.9, weight_decay=0.1),
    Optimizer("adam", lr=0.01, weight_decay=0.2),
    Optimizer("adamw", lr=0.01),
    Optimizer("adamw", lr=0.01, weight_decay=0.5),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=repr)
def test_the_first_step_is_torchs_for_each_of_several_gradients(optimizer):
    torch.manual_seed(0)
    start = torch.randn(4, 3, dtype=torch.float64)
    scales = torch.tensor([0, 1e-12, 1e-8, 1, 1e6], dtype=torch.float64)
    gradients = torch.randn(5, 4, 3, dtype=torch.float64) * scales[:, None, None]
    kept = gradients.clone()
    changes = optimizer.first_step(start, gradients)
    assert torch.equal(gradients, kept)
    for gradient, change in zip(gradients, changes, strict=True):
        model = nn.Module()
        model.weight = nn.Parameter(start.clone())
        model.weight.grad = gradient.clone()
        optimizer.build(model).step()
        torch.testing.assert_close(change, model.weight.detach() - start, rtol=1e-9, atol=1e-14)
