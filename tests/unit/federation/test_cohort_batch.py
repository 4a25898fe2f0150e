"""`federation.cohort_batch`: the same updates up to rounding, and what cannot be trained so."""

import numpy as np
import pytest
import torch
from toy import Faulty, Net, data, federation, norm_net, weights

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.federation.faults import Dropout
from fedpriv.federation.loop import Unworkable
from fedpriv.federation.secagg.masking import Masking
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.training.computing import Computing
from fedpriv.training.loops import Optimizer

CLIENT = LocalTraining(epochs=2, batch_size=5, optimizer=Optimizer(lr=0.02))


class Exact(Net):
    """The toy network in float64."""

    def __init__(self):
        super().__init__()
        self.double()

    def loss(self, batch):
        return super().loss({**batch, "x": batch["x"].double()})

    def evaluate(self, examples):
        return {}


def run(tmp_path, name, **settings):
    given = {"model": Exact, "client": CLIENT, "chunk_size": 4, **settings}
    return federation(runs=tmp_path / name, **given).run(2)


def same(one, other):
    found, expected = one.model.state_dict(), other.model.state_dict()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-13)


def test_a_run_is_the_same_up_to_rounding(tmp_path):
    alone = run(tmp_path, "alone")
    cohorts = run(tmp_path, "cohorts", cohort_batch=4)
    same(cohorts, alone)
    assert weights(cohorts) != weights(alone)  # or nothing was trained together
    for one, other in zip(cohorts.metrics, alone.metrics, strict=True):
        assert one["train_loss"] == pytest.approx(other["train_loss"], abs=1e-12)


def test_cohorts_do_not_depend_on_workers(tmp_path):
    here = run(tmp_path, "here", cohort_batch=3)
    assert weights(run(tmp_path, "workers", cohort_batch=3, workers=2)) == weights(here)


def test_sums_under_masking_are_those_of_the_same_updates(tmp_path):
    cohorts, alone = (
        run(
            tmp_path,
            f"{count} in a pass",
            cohort_batch=count,
            masking=Masking(bound=1.0),
            strategy=FedAvg(weighted=False, buffers=False),
        )
        for count in (4, 1)
    )
    for name, value in alone.model.state_dict().items():  # to a step of the fixed-point numbers
        torch.testing.assert_close(cohorts.model.state_dict()[name], value, rtol=0, atol=1e-5)


def test_a_client_that_is_to_fail_fails_alone(tmp_path):
    dropped = {"on_purpose": Dropout(0.3)}
    cohorts = run(tmp_path, "cohorts", cohort_batch=4, **dropped)
    alone = run(tmp_path, "alone", **dropped)
    assert [f["client"] for f in cohorts.failures] == [f["client"] for f in alone.failures] != []
    same(cohorts, alone)


def test_a_client_whose_loss_is_not_finite_fails_alone(tmp_path):
    spoilt = data()
    spoilt.train["x"][spoilt.rows[3]] = np.inf
    cohorts = run(tmp_path, "cohorts", cohort_batch=4, data=spoilt)
    assert {failure["client"] for failure in cohorts.failures} == {3}
    same(cohorts, run(tmp_path, "alone", data=spoilt))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"client": Faulty()}, "Faulty trains one client at a time"),
        ({"model": norm_net}, "changes the buffer"),
        ({"computing": Computing(microbatch=2)}, "training.microbatch"),
        ({"workers": 1, "client_timeout": 5.0}, "client_timeout"),
    ],
)
def test_what_cannot_train_together_is_refused_before_training(tmp_path, settings, why):
    given = {"client": CLIENT, **settings}
    with pytest.raises(Unworkable, match=why) as error:
        federation(runs=tmp_path, cohort_batch=4, **given)
    assert "federation.cohort_batch=4" in str(error.value)


@pytest.mark.parametrize("value", [0, -1])
def test_a_cohort_has_at_least_one_client(tmp_path, value):
    with pytest.raises(ValueError, match=r"cohort_batch=.*at least 1"):
        federation(runs=tmp_path, cohort_batch=value)
