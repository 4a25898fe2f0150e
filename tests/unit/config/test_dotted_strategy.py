"""`strategy=` with the dotted path of a class, such as one of Flower's."""

import pytest
from flwr.serverapp.strategy import FedAdam, Krum

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.config import experiment
from fedpriv.config.trust import untrusted
from fedpriv.runtime.refusals import Mistakes

ADAM = "flwr.serverapp.strategy.FedAdam"


def test_a_strategy_of_flowers_takes_its_own_parameters():
    config = experiment.load("quickstart", [f"strategy={ADAM}", "strategy.eta=0.01"])
    parts = experiment.build(config)
    assert type(parts.strategy) is FedAdam
    assert (parts.strategy.eta, parts.strategy.beta_1) == (0.01, 0.9)
    assert type(parts.client) is LocalTraining


def test_it_replaces_the_strategy_of_the_file_and_its_client_half():
    chosen = ["strategy=flwr.serverapp.strategy.Krum", "client.epochs=3"]
    parts = experiment.build(experiment.load("pried_kie_feam_dp", chosen))
    assert type(parts.strategy) is Krum
    assert type(parts.client) is LocalTraining
    assert parts.client.epochs == 3


@pytest.mark.parametrize(
    ("overrides", "why"),
    [
        ([f"strategy={ADAM}", "strategy.etta=1"], "FedAdam takes no 'etta'; did you mean 'eta'"),
        ([f"strategy={ADAM}", "strategy.eta=fast"], "strategy.eta: got 'fast'"),
        (["strategy=flwr.serverapp.strategy.FedAdm"], "no callable 'FedAdm'; did you mean"),
        (["strategy=flwr.server.strategy.FedAvg"], "FedAvg is no Strategy"),
    ],
)
def test_mistakes_are_told_with_what_was_meant(overrides, why):
    with pytest.raises(Mistakes, match=why):
        experiment.build(experiment.load("quickstart", overrides))


def test_a_run_folder_may_name_flowers_strategies_and_nothing_beside_them():
    named = {
        "strategy": {"_target_": ADAM},
        "a": {"_target_": "flwr.serverapp.strategy.fedavg.FedAvg"},
        "b": {"_target_": "flwr.serverapp.strategy.strategy_utils.sample_nodes"},
        "c": {"_target_": "flwr.serverapp.strategy.fedavg.log"},
        "d": {"_target_": "flwr.cli.app.app"},
        "e": {"_target_": "flwr.serverapp.strategy.strategy.time.sleep"},
    }
    assert [line.split(":")[0] for line in untrusted(named)] == [f"{k}._target_" for k in "bcde"]
