"""Flower's mods around local training."""

from functools import partial

import numpy as np
import pytest
from flwr.app import Array
from flwr.clientapp.mod import arrays_size_mod
from flwr.serverapp.strategy import FedAvg, FedMedian, FedProx
from toy import federation, norm_net, weights

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fedsgd import BatchGradient
from fedpriv.clients.modded import WithMods
from fedpriv.config import experiment
from fedpriv.training.loops import Optimizer

TRAINING = LocalTraining(batch_size=5, optimizer=Optimizer(lr=0.02))


pytestmark = pytest.mark.usefixtures("in_own_folder")


def note(message, context, call_next, *, notes):
    """Notes whom it serves, and what it is asked."""
    reply = call_next(message, context)
    config = dict(message.content["config"])
    notes.append((context.node_config["partition-id"], config, dict(reply.content["metrics"])))
    return reply


def flip(message, context, call_next, *, liars=(0,)):
    """Sends the opposite of what was learned, ten times over, in the liars' place."""
    start = {name: array.numpy() for name, array in message.content["arrays"].items()}
    reply = call_next(message, context)
    if context.node_config["partition-id"] in liars:
        arrays = reply.content["arrays"]
        for name, array in list(arrays.items()):
            arrays[name] = Array(np.asarray(start[name] - 10 * (array.numpy() - start[name])))
    return reply


def run(strategy, client, **settings):
    return federation(strategy=strategy, client=client, **settings).run(2)


@pytest.mark.parametrize("model", [{}, {"model": norm_net}])
def test_mods_that_change_nothing_leave_the_bits(model):
    notes = []
    mods = {"note": partial(note, notes=notes), "size": arrays_size_mod}
    inside = run(FedProx(proximal_mu=0.5), WithMods(TRAINING, mods), **model)
    assert inside.failures == []
    assert weights(inside) == weights(run(FedProx(proximal_mu=0.5), TRAINING, **model))
    assert [client for client, _, _ in notes] == [*range(8)] * 2
    assert notes[0][1] == {"proximal-mu": 0.5, "server-round": 1}
    assert {"num-examples", "train-loss"} <= set(notes[0][2])


def test_the_median_survives_liars_that_move_the_mean():
    def off(strategy, mods):
        loss = run(strategy, WithMods(TRAINING, mods)).metrics[-1]["loss"]
        return abs(loss - run(strategy, TRAINING).metrics[-1]["loss"])

    liars = {"flip": partial(flip, liars=(0, 1))}
    assert off(FedMedian(), liars) < off(FedAvg(), liars) / 3


def test_a_mod_may_change_the_model_that_is_trained():
    def zero(message, context, call_next):
        arrays = message.content["arrays"]
        for name, array in list(arrays.items()):
            arrays[name] = Array(np.zeros_like(array.numpy()))
        return call_next(message, context)

    still = LocalTraining(optimizer=Optimizer(name="sgd", lr=1e-12))
    result = run(FedAvg(), WithMods(still, {"zero": zero}))
    assert max(p.detach().abs().max().item() for p in result.model.parameters()) < 1e-6


def test_what_mods_cannot_go_around_is_refused():
    with pytest.raises(ValueError, match=r"BatchGradient answers .* take fedpriv.clients.fedavg"):
        WithMods(BatchGradient())
    with pytest.raises(ValueError, match="mods: typo: expected a function"):
        WithMods(TRAINING, {"typo": "my.mod"})


def test_settings_name_mods_as_sections():
    config = experiment.load("quickstart")
    config["client"] = {
        "_target_": "fedpriv.clients.modded.WithMods",
        "inner": {"_target_": "fedpriv.clients.fedavg.LocalTraining", "epochs": 2},
        "mods": {"size": {"_target_": "flwr.clientapp.mod.arrays_size_mod", "_partial_": True}},
    }
    client = experiment.build(config).client
    assert client.inner.epochs == 2
    assert client.mods["size"].func is arrays_size_mod
