"""Flower's own strategies in fedpriv's round loop: their arithmetic, and everything around it."""

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.app.message import arrayrecord
from flwr.serverapp import strategy as flower
from host_vectors import to_vectors
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from torch import nn
from toy import OutOfLuck, federation, norm_net, weights

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.federation.dataset import ArrayData
from fedpriv.federation.flower import state as flower_state
from fedpriv.federation.flower.adapter import FlowerAdapter, only_sums
from fedpriv.federation.grids.base import ClientGrid
from fedpriv.federation.loop import Unworkable
from fedpriv.federation.messages import (
    METRICS,
    NUM_EXAMPLES,
    UPDATE,
    instruction_of,
    to_array_record,
)
from fedpriv.federation.round_statistics import TooFewClients
from fedpriv.federation.secagg.masking import Masking
from fedpriv.runtime.run_folder import METRICS as METRICS_FILE
from fedpriv.runtime.vectors import ParameterLayout
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.threat.surfaces.server import KeepTranscript
from fedpriv.training.loops import Optimizer

TRAINING = LocalTraining(batch_size=5, optimizer=Optimizer(lr=0.02))


pytestmark = pytest.mark.usefixtures("in_own_folder", "no_garbage_is_collected")


@pytest.fixture
def no_garbage_is_collected(monkeypatch):
    """Flower's QFedAvg asks for it with every answer, which takes a tenth of a second each here."""
    monkeypatch.setattr(arrayrecord, "gc", SimpleNamespace(collect=lambda: 0))


def made(strategy, **settings):
    return federation(strategy=strategy, client=settings.pop("client", TRAINING), **settings)


# The arithmetic, on updates written out by hand


class Nodes(ClientGrid):
    """A grid that knows its clients and serves none of them."""

    def _deliver(self, messages, timeout):
        raise NotImplementedError


class ByHand:
    """Rounds of a strategy on a model of three weights and a bias, with updates that are given."""

    def __init__(self, strategy, start=(1.0, -2.0, 0.5, 3.0)):
        model = nn.Linear(3, 1)
        self.adapter = FlowerAdapter(strategy, LocalTraining())
        self.adapter.prepare(ParameterLayout(model, buffers=self.adapter.buffers))
        self.now, self.round = np.array(start, np.float32), 0

    def next(self, updates, examples, failed=()):
        """One round; returns the model after it, and the metrics."""
        self.round += 1
        config, grid = ConfigRecord({"seed": 0, "attempt": 0}), Nodes(len(updates))
        sent = self.adapter.configure_train(
            self.round, to_array_record({"float": self.now}), config, grid
        )
        vectors = [np.array(update, np.float32) for update in updates]
        summed = instruction_of(next(iter(sent))).summed
        replies = [Message(Error(2, "OutOfLuck"), reply_to=sent[client]) for client in failed]
        there = [k for k in range(len(updates)) if k not in failed]
        if summed:
            total = sum(np.float32(examples[k]) * vectors[k] for k in there)
            metrics = {
                "client": there,
                NUM_EXAMPLES: [examples[k] for k in there],
                "train-loss": [1.0 + k for k in there],
            }
            replies.append(self.reply(sent[there[0]], total, metrics))
        for k in [] if summed else there:
            metrics = {NUM_EXAMPLES: examples[k], "train-loss": 1.0 + k}
            replies.append(self.reply(sent[k], vectors[k], metrics))
        arrays, metrics = self.adapter.aggregate_train(self.round, iter(replies))
        if arrays is not None:
            self.now = to_vectors(arrays)["float"]
        return self.now, metrics

    @staticmethod
    def reply(message, vector, metrics):
        arrays = to_array_record({"float": vector})
        return Message(
            RecordDict({UPDATE: arrays, METRICS: MetricRecord(metrics)}), reply_to=message
        )


ROUNDS = (
    [(0.5, 0.25, -0.5, 0.0), (1.0, -0.5, 0.5, 0.25)],
    [(-0.25, 0.125, 0.5, 0.5), (0.75, 0.5, -1.0, 0.25)],
    [(0.25, 0.25, 0.25, 0.25), (0.0, -0.125, 0.0, 1.0)],
)
EXAMPLES = (1, 3)


def mean(updates):
    return np.average(np.array(updates, np.float64), axis=0, weights=EXAMPLES)


def rounds(strategy):
    hand = ByHand(strategy)
    start = hand.now.astype(np.float64)
    return start, [hand.next(updates, EXAMPLES)[0] for updates in ROUNDS]


def test_fedadam_takes_the_step_of_reddi_et_al():
    eta, b1, b2, tau = 0.1, 0.9, 0.99, 1e-3
    x, models = rounds(flower.FedAdam(eta=eta, beta_1=b1, beta_2=b2, tau=tau))
    m = v = np.zeros(4)
    for t, (updates, model) in enumerate(zip(ROUNDS, models, strict=True), 1):
        # Algorithm 2 of Reddi et al. 2021, with the bias corrections of Kingma and Ba 2015, whose
        # exponent Flower counts from 2.
        delta = mean(updates)
        m = b1 * m + (1 - b1) * delta
        v = b2 * v + (1 - b2) * delta**2
        rate = eta * np.sqrt(1 - b2 ** (t + 1)) / (1 - b1 ** (t + 1))
        x = x + rate * m / (np.sqrt(v) + tau)
        assert model == pytest.approx(x, abs=2e-6)


def test_fedyogi_and_fedadagrad_take_the_steps_of_reddi_et_al():
    eta, b1, b2, tau = 0.1, 0.9, 0.99, 1e-3
    x, models = rounds(flower.FedYogi(eta=eta, beta_1=b1, beta_2=b2, tau=tau))
    m = v = np.zeros(4)
    for updates, model in zip(ROUNDS, models, strict=True):
        delta = mean(updates)
        m = b1 * m + (1 - b1) * delta
        v = v - (1 - b2) * delta**2 * np.sign(v - delta**2)
        x = x + eta * m / (np.sqrt(v) + tau)
        assert model == pytest.approx(x, abs=2e-6)
    x, models = rounds(flower.FedAdagrad(eta=eta, tau=tau))
    v = np.zeros(4)
    for updates, model in zip(ROUNDS, models, strict=True):
        delta = mean(updates)
        v = v + delta**2
        x = x + eta * delta / (np.sqrt(v) + tau)
        assert model == pytest.approx(x, abs=2e-6)


def test_fedavgm_takes_the_step_of_hsu_et_al():
    x, models = rounds(flower.FedAvgM(server_learning_rate=0.5, server_momentum=0.75))
    v = np.zeros(4)
    for updates, model in zip(ROUNDS, models, strict=True):
        v = 0.75 * v + mean(updates)
        x = x + 0.5 * v
        assert model == pytest.approx(x, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_krum_picks_the_model_that_brute_force_picks(seed):
    n, f = 7, 2
    rng = np.random.default_rng(seed)
    updates = rng.normal(size=(n, 4)).astype(np.float32)
    updates[:f] += 20  # the attackers
    hand = ByHand(flower.Krum(num_malicious_nodes=f))
    start = hand.now.copy()
    apart = [[float(((a - b) ** 2).sum()) for b in updates] for a in updates]
    # The distance to itself, 0, comes first.
    scores = [sum(sorted(distances)[1 : n - f - 1]) for distances in apart]
    chosen = int(np.argmin(scores))
    assert chosen >= f
    model, metrics = hand.next(updates, [5] * n)
    assert model == pytest.approx(start + updates[chosen], abs=1e-6)
    assert metrics["train-loss"] == 1.0 + chosen


def test_fedmedian_and_the_trimmed_mean_ignore_who_lies():
    updates = [(1, 1, 1, 1), (2, 0, 1, 3), (3, -1, 1, 2), (1000, -1000, 1, 7), (2, 1, 1, 2)]
    start = ByHand(flower.FedMedian()).now.copy()
    model, _ = ByHand(flower.FedMedian()).next(updates, [1] * 5)
    assert model == pytest.approx(start + np.array([2, 0, 1, 2]), abs=1e-6)
    model, _ = ByHand(flower.FedTrimmedAvg(beta=0.2)).next(updates, [1] * 5)
    assert model == pytest.approx(start + np.array([7 / 3, 0, 1, 7 / 3]), abs=1e-6)


@pytest.mark.parametrize("strategy", [flower.FedAvg, flower.Krum])
def test_failed_clients_are_left_out(strategy):
    updates = [(1, 1, 1, 1), (9, 9, 9, 9), (1, 1, 1, 1), (1, 1, 1, 1)]
    hand = ByHand(strategy())
    start = hand.now.copy()
    assert hand.next(updates, [2] * 4, failed=[1])[0] == pytest.approx(start + 1)


@pytest.mark.parametrize("strategy", [flower.FedAvg, flower.FedMedian])
def test_clients_without_examples_move_nothing(strategy):
    hand = ByHand(strategy())
    start = hand.now.copy()
    assert hand.next([(5, 5, 5, 5)] * 2, [0, 0])[0].tolist() == start.tolist()


def test_a_strategy_that_cannot_aggregate_costs_the_round_only():
    hand = ByHand(flower.QFedAvg(client_learning_rate=0.1))  # wants the metric "train_loss"
    with pytest.raises(TooFewClients, match="QFedAvg cannot aggregate the answers"):
        hand.next([(1, 1, 1, 1)] * 2, [1, 1])


# Whole federations


@pytest.mark.parametrize("settings", [{}, {"model": norm_net}, {"chunk_size": 3}])
def test_flowers_fedavg_gives_the_bits_of_ours(settings):
    ours = made(FedAvg(), **settings).run(3)
    theirs = made(flower.FedAvg(), **settings).run(3)
    assert weights(theirs) == weights(ours)
    drop = ("seconds",)
    assert [{k: v for k, v in r.items() if k not in drop} for r in theirs.metrics] == [
        {k: v for k, v in r.items() if k not in drop} for r in ours.metrics
    ]


EVERY = {
    "FedAvgM": lambda: flower.FedAvgM(server_momentum=0.5),
    "FedProx": lambda: flower.FedProx(proximal_mu=0.1),
    "FedAdam": lambda: flower.FedAdam(eta=0.01),
    "FedYogi": lambda: flower.FedYogi(eta=0.01),
    "FedAdagrad": lambda: flower.FedAdagrad(eta=0.01),
    "Krum": lambda: flower.Krum(num_malicious_nodes=1),
    "MultiKrum": lambda: flower.MultiKrum(num_nodes_to_select=3),
    "Bulyan": lambda: flower.Bulyan(num_malicious_nodes=1),
    "FedMedian": flower.FedMedian,
    "FedTrimmedAvg": flower.FedTrimmedAvg,
    "QFedAvg": lambda: flower.QFedAvg(client_learning_rate=0.02, train_loss_key="train-loss"),
}


QUICK = ("FedAvgM", "FedAdam", "Krum", "QFedAvg")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in EVERY]
)
def test_every_strategy_runs_and_a_resumed_run_has_the_same_bits(name, tmp_path):
    whole = made(EVERY[name](), model=norm_net).run(4)
    assert whole.failures == []
    assert [record["clients"]["answered"] for record in whole.metrics] == [8] * 4
    assert len({record["loss"] for record in whole.metrics}) == 4  # every round moves the model
    made(EVERY[name](), model=norm_net).run(2, run_dir=tmp_path / "cut")
    cut = made(EVERY[name](), model=norm_net).run(4, run_dir=tmp_path / "cut", resume=True)
    assert weights(cut) == weights(whole)


def test_one_object_serves_several_federations_and_several_runs():
    strategy = flower.FedAdam(eta=0.01)
    first = made(strategy)
    bits = [weights(first.run(2)), weights(first.run(2)), weights(made(strategy).run(2))]
    assert len(set(map(str, bits))) == 1
    assert strategy.m_t is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["FedAdam", "Krum"])
def test_two_workers_give_the_bits_of_none(name):
    none, two = (made(EVERY[name](), workers=n).run(2) for n in (0, 2))
    assert weights(none) == weights(two)


def test_the_strategys_own_sampling_draws_the_cohort_from_the_seed():
    def cohorts(seed):
        result = made(flower.FedAvg(fraction_train=0.5), seed=seed).run(3)
        return [sorted(record["bytes_by_client"]) for record in result.metrics]

    drawn = cohorts(0)
    assert [len(cohort) for cohort in drawn] == [4, 4, 4]
    assert drawn == cohorts(0)
    assert drawn != cohorts(1)
    assert len(set(map(tuple, drawn))) > 1


@dataclass(frozen=True)
class Unlucky(LocalTraining):
    """Fails as clients 2 and 5."""

    def train(self, context):
        if context.client in (2, 5):
            raise OutOfLuck
        return super().train(context)


@pytest.mark.parametrize("name", ["FedAdam", "Krum"])
def test_a_run_goes_on_without_the_clients_that_fail(name):
    client = Unlucky(batch_size=5, optimizer=Optimizer(lr=0.02))
    result = made(EVERY[name](), client=client).run(2)
    assert [r["clients"] for r in result.metrics] == [
        {"sampled": 8, "answered": 6, "failed": 2, "missing": 0}
    ] * 2
    assert [r["accepted"] for r in result.metrics] == [True, True]


def transcript(run_dir, round, name):
    (path,) = run_dir.glob(f"transcript/**/*{round:04d}*/**/{name}.safetensors")
    return np.concatenate([v.ravel() for _, v in sorted(load_file(path).items())])


@pytest.mark.parametrize("name", ["FedAdam", "Krum"])
def test_an_observer_sees_what_the_server_saw(name):
    unseen = made(EVERY[name]()).run(2)
    seen = made(EVERY[name](), keep=[KeepTranscript(batches=False)]).run(2)
    assert weights(seen) == weights(unseen)
    updates = [transcript(seen.run_dir, 1, f"client-{k:04d}") for k in range(8)]
    before, after = (transcript(seen.run_dir, r, "parameters") for r in (1, 2))
    sizes = 12 + np.arange(8) % 3
    aggregate = transcript(seen.run_dir, 1, "aggregate")
    assert aggregate == pytest.approx(np.average(updates, axis=0, weights=sizes), abs=1e-6)
    if name == "Krum":  # the next model is the model of one of the clients that were seen
        assert min(np.abs(before + update - after).max() for update in updates) < 1e-6


def equal_data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    return ArrayData({"x": x, "y": y}, tuple(np.split(np.arange(64), 8)), {"x": x, "y": y})


@pytest.mark.parametrize("name", ["FedAvgM", "FedAdagrad"])
def test_strategies_that_only_average_are_masked(name):
    plain = made(EVERY[name](), data=equal_data()).run(2)
    masked = made(EVERY[name](), data=equal_data(), masking=Masking(bound=1.0)).run(2)
    off = [
        (a - b).detach().abs().max().item()
        for a, b in zip(plain.model.parameters(), masked.model.parameters(), strict=True)
    ]
    assert 0 < max(off) < 1e-4
    metrics = json.loads((masked.run_dir / METRICS_FILE).read_text().splitlines()[-1])
    assert metrics["train_loss"] > 0


# Refusals, before anything is trained


@dataclass(frozen=True)
class Deaf:
    """Local training that follows no settings of the server."""

    action: ClassVar[str] = "local_training"

    def train(self, context):
        return TRAINING.train(context)


class Hoarder(flower.FedAvg):
    """Keeps what no checkpoint can hold."""

    def aggregate_train(self, server_round, replies):
        self.seen = {object()}
        return super().aggregate_train(server_round, replies)


class Impatient(flower.FedAvg):
    """Waits for more nodes than will ever come."""

    def configure_train(self, server_round, arrays, config, grid):
        while len(list(grid.get_node_ids())) < 100:
            pass


class TwoRecords(flower.FedAvg):
    """Sends control variates beside the model, as SCAFFOLD does."""

    def configure_train(self, server_round, arrays, config, grid):
        for message in super().configure_train(server_round, arrays, config, grid):
            message.content["variates"] = arrays
            yield message


PRIVATE = flower.DifferentialPrivacyServerSideFixedClipping


@pytest.mark.parametrize(
    ("strategy", "settings", "why"),
    [
        (flower.FedAvg(min_available_nodes=9), {}, "min_available_nodes=9: the federation has 8"),
        (flower.FedAvg(min_train_nodes=9), {}, "min_train_nodes=9: the federation has 8 clients"),
        (flower.FedAvg(fraction_train=0.0), {}, "fraction_train=0.0: expected a share"),
        (flower.FedAvg(weighted_by_key="tokens"), {}, "weighted_by_key='tokens': clients send"),
        (flower.Bulyan(num_malicious_nodes=2), {}, "Required at least 11 .* received 8"),
        (flower.QFedAvg(client_learning_rate=0.1), {}, "key 'train_loss'"),
        (flower.FedXgbBagging(), {}, "it grows trees"),
        (PRIVATE(flower.FedAvg(), 1.0, 1.0, 8), {}, "take strategy=dp_fedavg"),
        (flower.Krum(), {"masking": Masking(bound=1.0)}, "take masking=off, or .*FedAdam"),
        (flower.FedAdam(), {"masking": Masking()}, "masking.bound=null: the strategy does not"),
        (flower.FedProx(proximal_mu=1.0), {"client": Deaf()}, "'proximal-mu', which client Deaf"),
        (Hoarder(), {}, "no checkpoint can hold what it keeps in seen; give it methods state"),
        (Impatient(), {}, "waits for more nodes than the 8 that there are"),
        (TwoRecords(), {}, "2 records of arrays, expected one"),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(strategy, settings, why):
    with pytest.raises(Unworkable, match=why):
        made(strategy, **settings)


def test_what_is_no_strategy_is_named():
    with pytest.raises(TypeError, match=r"builtins.dict is neither a strategy of fedpriv nor"):
        made({"eta": 1})


def test_a_client_half_of_another_algorithm_is_refused():
    from fedpriv.clients.fedsgd import BatchGradient

    with pytest.raises(Unworkable, match=r"FedAdam sends .* but client BatchGradient"):
        made(flower.FedAdam(), client=BatchGradient())


def test_who_averages_and_who_does_not():
    assert {name for name, build in EVERY.items() if only_sums(build())} == {
        *("FedAvgM", "FedProx", "FedAdam", "FedYogi", "FedAdagrad")
    }
    assert only_sums(type("Renamed", (flower.FedAvg,), {})())
    assert not only_sums(Hoarder())
    assert only_sums(type("Declared", (Hoarder,), {"only_sums": True})())
    assert not only_sums(flower.FedAvg(train_metrics_aggr_fn=lambda records, key: MetricRecord()))


# A strategy of the user's


class WithHistory(flower.FedAvg):
    """Saves its state by itself."""

    def __init__(self):
        super().__init__()
        self.rounds = set()

    def aggregate_train(self, server_round, replies):
        self.rounds = {*self.rounds, server_round}
        return super().aggregate_train(server_round, replies)

    def state(self):
        return {"rounds": np.array(sorted(self.rounds), np.int64)}

    def load_state(self, state):
        self.rounds = set(state["rounds"].tolist())


def test_a_strategy_may_save_its_state_by_itself(tmp_path):
    made(WithHistory()).run(2, run_dir=tmp_path / "run")
    again = made(WithHistory())
    again.run(3, run_dir=tmp_path / "run", resume=True)
    assert again.algorithm.stock.rounds == {1, 2, 3}


# FedProx


def test_fedprox_keeps_clients_near_the_global_model():
    def moved(mu):
        client = LocalTraining(epochs=20, batch_size=5, optimizer=Optimizer(name="sgd", lr=0.05))
        result = made(flower.FedProx(proximal_mu=mu), client=client).run(1)
        start = made(FedAvg(), client=client).run(0)
        return sum(
            (a - b).detach().square().sum().item()
            for a, b in zip(result.model.parameters(), start.model.parameters(), strict=True)
        )

    assert moved(0.0) > 2 * moved(1.0) > 4 * moved(10.0) > 0


# State as arrays

plain = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(width=64) | st.text()
numbers = st.lists(st.floats(width=32), max_size=4).map(lambda v: np.array(v, np.float32))
scalars = st.floats(width=32).map(np.float32)
values = st.recursive(
    plain | numbers | scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b or (a != a and b != b)


@given(st.dictionaries(st.text(min_size=1, max_size=8), values, max_size=4))
def test_attributes_survive_as_arrays(attributes):
    arrays = flower_state.to_arrays(attributes)
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    assert same(flower_state.to_attributes(arrays), attributes)


def test_array_records_survive_and_functions_are_left_out():
    record = ArrayRecord({"w": Array(np.arange(3.0))})
    arrays = flower_state.to_arrays({"record": record, "call": print, "one": Array(np.zeros(()))})
    back = flower_state.to_attributes(arrays)
    assert sorted(back) == ["one", "record"]
    assert type(back["record"]) is ArrayRecord
    assert back["record"]["w"].numpy().tolist() == [0, 1, 2]
    assert back["one"].numpy().shape == ()
