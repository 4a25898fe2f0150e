"""A strategy of one's own: what nobody calls or follows is named, and its errors are one line."""

import math
import re

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import FedAvg as Stock
from flwr.serverapp.strategy import FedProx
from toy_private import Double, federation, provider_data

from fedpriv.cli.endings import explanation
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.federation.flower.checks import NEVER_CALLED, StrategyFailed
from fedpriv.federation.loop import Unworkable
from fedpriv.federation.messages import instruction_of
from fedpriv.privacy.mechanism import provider_gaussian
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.training.loops import Optimizer

pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")
CLIENTS = 3


def made(strategy, client=None):
    return federation(
        strategy,
        client or LocalTraining(optimizer=Optimizer("sgd", lr=0.1)),
        provider_data(CLIENTS, 2),
        Double,
        one_noise=False,
    )


class Late(Stock):
    """Sends a setting from its second round on."""

    def configure_train(self, server_round, arrays, config, grid):
        if server_round > 1:
            config["lr"] = 1e-9
        return super().configure_train(server_round, arrays, config, grid)


def of_ours(base):
    class LateOfOurs(base):
        """The same, of fedpriv's kind."""

        def configure_train(self, server_round, arrays, config, grid):
            sent = list(super().configure_train(server_round, arrays, config, grid))
            if server_round > 1:
                for message in sent:
                    instruction = instruction_of(message)
                    settings = {**instruction.settings, "lr": 1e-9}
                    changed = type(instruction)(**{**vars(instruction), "settings": settings})
                    message.content["instruction"] = changed.to_record()
            return sent

    return LateOfOurs


def provider_dp(base=FLProviderDP):
    mechanism = provider_gaussian(
        clip_norm=0.5, providers=2, noise_multiplier=1.0, client_rate=1.0, client_sampling="fixed"
    )
    return base(mechanism, threshold=1.0)


LATE = {
    "stock": lambda: (Late(), None),
    "ours": lambda: (of_ours(FedAvg)(), None),
    "private": lambda: (provider_dp(of_ours(FLProviderDP)), ProviderUpdates()),
}


@pytest.mark.parametrize("kind", LATE)
def test_a_setting_that_nobody_follows_ends_the_run_in_its_round(kind):
    run = made(*LATE[kind]())
    with pytest.raises(StrategyFailed, match=r"strategy Late\w*, round 2: it sends .* 'lr', which"):
        run.run(rounds=3, run_dir="here")
    with open("here/metrics.jsonl") as file:
        assert len(file.readlines()) == 1


def told(message, kind=None, control=None, prefix="", **settings):
    """A message of another type, with a second record, other names or other settings."""
    content = RecordDict(dict(message.content))
    (name,) = content.array_records
    content[name] = ArrayRecord({prefix + key: one for key, one in content[name].items()})
    if control is not None:
        content["control"] = ArrayRecord([control])
    content["config"] = ConfigRecord({**dict(content["config"]), **settings})
    kind = kind or message.metadata.message_type
    return Message(content, message.metadata.dst_node_id, kind)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "query"}, r"a message of the type 'query': clients answer to 'train' alone"),
        ({"control": np.zeros(3)}, "its messages have 2 records of arrays, expected one"),
        ({"prefix": "x."}, "these tensors are not the model's"),
        ({"proximal-mu": "high"}, r"proximal-mu='high': client LocalTraining takes a number"),
        ({"proximal-mu": [0.1, 0.2]}, r"proximal-mu=\[0.1, 0.2\]: client LocalTraining takes"),
        ({"proximal-mu": math.nan}, "proximal-mu=nan: client LocalTraining takes a number"),
    ],
)
def test_a_message_that_no_client_can_follow_ends_the_run_in_its_round(change, why):
    class Odd(Stock):
        def configure_train(self, server_round, arrays, config, grid):
            sent = list(super().configure_train(server_round, arrays, config, grid))
            return [told(message, **change) for message in sent] if server_round > 1 else sent

    run = made(Odd())
    with pytest.raises(StrategyFailed, match=f"^strategy Odd, round 2: .*{why}"):
        run.run(rounds=3, run_dir="here")
    with open("here/metrics.jsonl") as file:
        assert len(file.readlines()) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("base", [Stock, FedAvg])
def test_a_model_that_is_not_finite_ends_the_run_in_its_round(base, value):
    class Broken(base):
        def aggregate_train(self, server_round, replies):
            arrays, metrics = super().aggregate_train(server_round, replies)
            broken = {name: one.numpy() * value for name, one in arrays.items()}
            if server_round > 1:
                arrays = ArrayRecord({name: Array(one) for name, one in broken.items()})
            return arrays, metrics

    with pytest.raises(StrategyFailed, match=r"Broken, round 2: the model .* has NaN or infinity"):
        made(Broken()).run(rounds=3, run_dir="here")


@pytest.mark.parametrize("strategy", [FedProx(proximal_mu=0.1), FedAvg(), provider_dp()])
def test_what_is_followed_is_sent(strategy, capsys):
    client = ProviderUpdates() if isinstance(strategy, FLProviderDP) else None
    made(strategy, client).run(rounds=2, run_dir="here")
    assert "strategy" not in capsys.readouterr().err


@pytest.mark.parametrize("base", [Stock, FedAvg])
@pytest.mark.parametrize("method", NEVER_CALLED)
def test_a_method_that_is_never_called_is_named_before_training(base, method, capsys):
    def own(self, *arguments, **settings):
        raise AssertionError

    made(type("Mine", (base,), {method: own})())
    assert f"strategy Mine: {method}() is not called: {NEVER_CALLED[method]}" in (
        capsys.readouterr().err
    )


def test_settings_of_methods_that_are_never_called_are_named(capsys):
    made(Stock(fraction_evaluate=0.5, evaluate_metrics_aggr_fn=lambda *given: None))
    said = capsys.readouterr().err
    assert "strategy FedAvg: fraction_evaluate has no effect" in said
    assert "strategy FedAvg: evaluate_metrics_aggr_fn has no effect" in said
    made(Stock(fraction_evaluate=0.0))  # as it is here
    made(Stock())
    assert capsys.readouterr().err == ""


def broken(base, method, when):
    def own(self, server_round, *arguments, **settings):
        found = getattr(super(kind, self), method)(server_round, *arguments, **settings)
        if server_round == when:
            return {}["no such key"]
        return found

    kind = type("Broken", (base,), {method: own, "__module__": __name__})
    return kind()


@pytest.mark.parametrize("base", [Stock, FedAvg])
@pytest.mark.parametrize("method", ["configure_train", "aggregate_train"])
def test_an_error_of_a_strategy_is_one_line_with_its_place(base, method):
    run = made(broken(base, method, when=2))
    with pytest.raises(StrategyFailed) as caught:
        run.run(rounds=3, run_dir="here")
    status, said = explanation(caught.value, None)
    assert status == 1
    line = (
        r"strategy Broken, round 2: KeyError: 'no such key' \(.*test_flower_checks.py, line \d+\)"
    )
    assert re.fullmatch(line, said)


def answering(base, answer):
    def own(self, server_round, replies):
        arrays, metrics = super(kind, self).aggregate_train(server_round, replies)
        return answer(arrays, metrics)

    kind = type("Broken", (base,), {"aggregate_train": own, "__module__": __name__})
    return kind()


BAD_ANSWERS = {
    "nothing": (lambda arrays, metrics: None, "aggregate_train returned None: expected arrays"),
    "arrays alone": (lambda arrays, metrics: arrays, "expected arrays and metrics"),
    "an empty record": (lambda arrays, metrics: (ArrayRecord(), metrics), "model"),
}


@pytest.mark.parametrize("base", [Stock, FedAvg])
@pytest.mark.parametrize("answer", BAD_ANSWERS)
def test_a_strategy_that_returns_no_model_is_named_with_its_round(base, answer):
    change, why = BAD_ANSWERS[answer]
    with pytest.raises((StrategyFailed, Unworkable)) as caught:  # the rehearsal may tell already
        made(answering(base, change)).run(rounds=2, run_dir="here")
    said = str(caught.value)
    early = isinstance(caught.value, Unworkable) and base is Stock and "Broken" in said
    assert early or re.match(rf"strategy Broken, round 1: .*{why}", said)
    assert "None)" not in said
