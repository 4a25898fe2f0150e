"""What was sent to a client stays as it is: a half that writes into it is found at once."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from toy_private import Double, federation, provider_data

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.federation.client import ClientUpdate
from fedpriv.federation.flower.checks import StrategyFailed
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.training.loops import Optimizer

pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")


@dataclass(frozen=True)
class Writing(LocalTraining):
    """Writes into the parameters, in one of torch's ways."""

    how: str = "mul_"

    def train(self, context):
        sent = context.parameters["float"]
        if self.how == "view":
            sent[:3] = 0
        elif self.how == "out":
            torch.add(sent, 1, out=sent)
        elif self.how == "data":
            sent.data.add_(1)
        elif self.how == "numpy":
            sent.numpy()[:] += 1
        else:
            getattr(sent, self.how)(2)
        return super().train(context)


@pytest.mark.parametrize("how", ["mul_", "fill_", "view", "out", "data", "numpy"])
def test_a_half_that_writes_into_what_it_was_sent_fails(how):
    run = federation(FedAvg(), Writing(how=how), provider_data(3, 2), Double)
    result = run.run(1)
    assert [(one.client, one.reason) for one in map(Told, result.failures)] == [
        (client, "ValueError") for client in range(3)
    ]
    assert "has changed the parameters that it was sent" in result.failures[0]["traceback"]


class InPlace(FedAvg):
    """Moves the model that it was given."""

    def moved(self, start, total, weight):
        return {name: old.add_(total[name]) for name, old in start.items()}


def test_a_strategy_that_moves_the_model_in_place_ends_the_run():
    run = federation(InPlace(buffers=False), LocalTraining(), provider_data(3, 2), Double)
    with pytest.raises(StrategyFailed, match=r"InPlace.*round 1.*changed in place: expected a new"):
        run.run(1)


class Told:
    def __init__(self, failure):
        self.client, self.reason = failure["client"], failure["reason"]


@dataclass(frozen=True)
class OfArrays:
    """A half of one's own that knows NumPy alone."""

    action = "local_training"
    follows = ("proximal-mu",)
    lr: float = 0.1

    def train(self, context):
        start = context.parameters["float"].numpy()
        change = -self.lr * np.sign(start).astype(start.dtype)
        return ClientUpdate({"float": change}, {"num-examples": 1, "train-loss": 0.5})


def test_a_half_that_returns_arrays_works_as_before():
    run = federation(FedAvg(buffers=False), OfArrays(), provider_data(3, 2), Double)
    result = run.run(2)
    assert result.failures == []
    assert [record["train_loss"] for record in result.metrics] == [0.5, 0.5]


def test_ours_change_nothing_that_they_were_sent():
    client = LocalTraining(optimizer=Optimizer("adam", lr=0.1))
    assert federation(FedAvg(), client, provider_data(3, 2), Double).run(2).failures == []
