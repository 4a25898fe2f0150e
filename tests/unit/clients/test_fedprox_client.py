"""FedProx's half of the client: the gradient of its proximal term."""

import pytest
import torch
from flwr.serverapp.strategy import FedProx
from torch import nn
from toy import federation, weights

from fedpriv.clients.fedavg import LocalTraining, Proximal
from fedpriv.training.computing import Computing
from fedpriv.training.loops import Optimizer, train_epoch


class Quadratic(nn.Module):
    """F(w) = ½ ‖w - target‖², whose gradient is w - target."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0]))
        self.unused = nn.Parameter(torch.tensor([7.0]))

    def loss(self, batch):
        return 0.5 * (self.w - batch["target"][0]).square().sum()


def test_steps_follow_li_et_al():
    model, target, mu, lr = Quadratic(), torch.tensor([3.0, 0.0]), 0.5, 0.1
    start = w = model.w.detach().clone()
    optimizer = Optimizer(name="sgd", lr=lr).build(model)
    backward = Proximal(Computing(), model, mu)
    for _ in range(5):
        before = 0.5 * float((w - target).square().sum())
        loss = train_epoch(model, [{"target": target[None]}], optimizer, backward)
        # h(w) = F(w) + μ/2 ‖w - w_t‖² of Li et al. 2020, Eq. 2.
        w = w - lr * ((w - target) + mu * (w - start))
        assert model.w.tolist() == pytest.approx(w.tolist(), abs=1e-6)
        assert loss == pytest.approx(before)  # without the term
    assert model.unused.item() == 7


def test_clients_that_could_train_together_have_the_term_too(tmp_path):
    def run(batch):
        client = LocalTraining(batch_size=5, optimizer=Optimizer(lr=0.02))
        made = federation(
            strategy=FedProx(proximal_mu=0.5), client=client, cohort_batch=batch, runs=tmp_path
        )
        return weights(made.run(2))

    assert run(4) == run(1)
