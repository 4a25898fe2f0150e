"""Under a private strategy nothing reaches the server but updates: no metric, no count, no word.

Every message is caught on its way: what each client answered, and what the grid made of it. The
skeleton of a message is all of it but the numbers in its update; it must be the same whatever the
data are. The same capture is put to what does tell more, and must notice it.
"""

import functools
import itertools

import numpy as np
import pytest
from flwr.app import ConfigRecord
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from toy_private import Watched, federation, first_model, numbers, rows_of

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fedavg_dp import DPLocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.federation.dataset import ArrayData
from fedpriv.federation.secagg.masking import Masking
from fedpriv.privacy.mechanism import client_gaussian, example_gaussian, provider_gaussian
from fedpriv.privacy.sampling import FixedSize
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fedavg_dp import FedAvgDP
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.training.per_example import PerExample

CLIENTS = 4
SIZE = first_model().size
LOOP = PerExample("loop")


pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")


def examples(**rates):
    return example_gaussian(
        clip_norm=0.5, examples=20, noise_multiplier=1.0, record_rate=0.5, **rates
    )


def providers(**rates):
    return provider_gaussian(
        clip_norm=0.5, providers=2, noise_multiplier=1.0, client_sampling="fixed", **rates
    )


PARTS = {
    "feam_dp": lambda **kw: (FeAmDP(examples(), **kw), ExampleGradients(LOOP)),
    "fl_provider_dp": lambda **kw: (FLProviderDP(providers(), **kw), ProviderUpdates()),
    "dp_fedavg": lambda **kw: (
        FLProviderDP(client_gaussian(clip_norm=0.5, noise_multiplier=1.0), **kw),
        ProviderUpdates(),
    ),
    "fedavg_dp": lambda **kw: (
        FedAvgDP(examples(), steps=2, **kw),
        DPLocalTraining(per_example=LOOP),
    ),
}


@pytest.fixture(autouse=True, scope="module")
def untried():
    """Examples without a finite loss are refused beforehand if they come first; here they run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedpriv.federation.loop._training_problems", lambda *args: [])
        yield


def data_of(sizes, seed, scale, odd=None):
    columns = numbers(sum(sizes), seed, np.repeat(np.arange(len(sizes)), sizes), scale)
    if odd is not None and sum(sizes):
        columns["x"][:: max(1, sum(sizes) // 3)] = odd
    return ArrayData(columns, rows_of(*sizes))


def caught(parts, data, masked=False, rounds=2, faults=None, chunk_size=1):
    strategy, client = parts
    masking = Masking(threshold=0.6, bound=50.0) if masked else None
    made = federation(strategy, client, data, masking=masking, max_refused=0)
    grid = Watched(made, faults, chunk_size)
    made.run(rounds=rounds, grid=grid)
    return grid


def skeleton(message):
    """All of a message but the numbers in its arrays and the bytes of keys and shares."""
    meta = message.metadata
    route = (meta.src_node_id, meta.dst_node_id, meta.message_type, meta.group_id)
    if message.has_error():
        return (*route, message.error.code, message.error.reason)
    records = {}
    for name, record in message.content.items():
        if name in message.content.array_records:
            values = {k: (v.numpy().dtype.str, v.numpy().shape) for k, v in record.items()}
        elif isinstance(record, ConfigRecord):
            values = {k: outline(v) for k, v in record.items()}
        else:
            values = dict(record)
        records[name] = values
    return (*route, records)


def outline(value):
    """Keys and shares by their lengths: they are as random as the seed is."""
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, list) and any(isinstance(item, bytes) for item in value):
        return [len(item) for item in value]
    return value


def skeletons(grid):
    return [skeleton(reply) for reply in grid.replied], [skeleton(m) for m in grid.received]


@functools.cache
def usual(name, masked):
    """Skeletons of a round on data of no special kind."""
    return skeletons(caught(PARTS[name](), data_of([5] * CLIENTS, 0, 1.0), masked, rounds=1))


PLAIN = {"update": {"float": ("<f4", (SIZE,))}, "metrics": {}}
MASKED = {"update": {"masked": ("<i4", (SIZE,))}, "metrics": {}}
STAGES = {
    "query.advertise": {"encryption", "masking"},
    "query.share": {"receivers", "boxes"},
    "query.reveal": {"client", "alive", "seeds", "dropped", "keys"},
}


@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize("name", PARTS)
def test_a_client_sends_its_update_and_nothing_else(name, masked):
    grid = caught(PARTS[name](), data_of([6, 3, 9, 5], 0, 1.0), masked)
    training = 0
    for reply in grid.replied:
        *_, action, _, records = skeleton(reply)
        if action.startswith("train."):
            training += 1
            assert records == (MASKED if masked else PLAIN)
        else:
            assert set(records) == {"secagg"}
            assert set(records["secagg"]) == STAGES[action]
    assert training == 2 * CLIENTS
    assert any(reply.metadata.message_type == "query.reveal" for reply in grid.replied) is masked


@pytest.mark.parametrize("chunk_size", [1, 3, None])
@pytest.mark.parametrize("name", PARTS)
def test_the_server_learns_who_is_in_a_sum_and_nothing_else(name, chunk_size):
    grid = caught(PARTS[name](), data_of([6, 3, 9, 5], 0, 1.0), chunk_size=chunk_size)
    clients = []
    for message in grid.received:
        *_, records = skeleton(message)
        assert set(records) == {"update", "metrics"}
        assert records["update"] == PLAIN["update"]
        assert set(records["metrics"]) == {"client"}
        clients += records["metrics"]["client"]
    assert clients == [0, 1, 2, 3] * 2


SIZES = st.lists(st.integers(0, 8), min_size=CLIENTS, max_size=CLIENTS).filter(any)
ODD = st.sampled_from([None, np.nan, np.inf, -np.inf, 3e38])


@pytest.mark.parametrize("name", PARTS)
@settings(
    max_examples=5,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    sizes=SIZES,
    seed=st.integers(0, 99),
    scale=st.floats(1e-3, 1e3),
    odd=ODD,
    masked=st.booleans(),
)
@example(sizes=[0, 0, 0, 1], seed=0, scale=1.0, odd=np.nan, masked=False)
@example(sizes=[8, 1, 0, 4], seed=1, scale=1e3, odd=np.inf, masked=True)
def test_what_reaches_the_server_has_one_shape_whatever_the_data(
    name, sizes, seed, scale, odd, masked
):
    """Also where examples are not finite, or none: no client fails for what it holds."""
    grid = caught(PARTS[name](), data_of(sizes, seed, scale, odd), masked, rounds=1)
    assert skeletons(grid) == usual(name, masked)
    for message in grid.received:
        assert not message.has_error()


@pytest.mark.parametrize("stage", ["train", "advertise", "share", "reveal"])
@pytest.mark.parametrize("name", PARTS)
def test_no_word_of_an_error_reaches_the_server(name, stage):
    masked = stage != "train"
    strategy = PARTS[name]() if name == "fedavg_dp" else PARTS[name](threshold=0.5)
    grid = caught(strategy, data_of([5] * 4, 0, 1.0), masked, 1, {(1, 0, 2): stage})
    errors = [message for message in grid.received if message.has_error()]
    assert [message.error.reason for message in errors] == ["Exception"]
    for message in grid.received:
        assert "ACME" not in repr(message)
    for message in errors:
        assert b"ACME" not in message.deflate()


# What does tell more is noticed


@pytest.mark.parametrize("name", ["feam_dp", "fedavg_dp"])
def test_the_papers_variant_tells_the_numbers_of_examples(name):
    sizes = [6, 3, 9, 5]
    grid = caught(PARTS[name](variant="paper"), data_of(sizes, 0, 1.0), rounds=1)
    metrics = [skeleton(message)[-1]["metrics"] for message in grid.received]
    told = [m["num-examples"] for m in metrics]
    assert list(itertools.chain.from_iterable(told)) == sizes
    other = caught(PARTS[name](variant="paper"), data_of([5] * 4, 0, 1.0), rounds=1)
    assert skeletons(grid) != skeletons(other)


def test_a_strategy_that_is_not_private_tells_its_clients_losses():
    parts = FedAvg(FixedSize(), weighted=False), LocalTraining()
    one, other = (caught(parts, data_of([5] * 4, seed, 1.0), rounds=1) for seed in (0, 1))
    assert skeletons(one) != skeletons(other)
    assert "train-loss" in skeleton(one.received[0])[-1]["metrics"]


def test_a_client_that_fails_for_what_it_holds_is_noticed():
    parts = FedAvg(FixedSize(), weighted=False), LocalTraining()
    grid = caught(parts, data_of([5] * 4, 0, 1.0, odd=np.nan), rounds=1)
    assert any(message.has_error() for message in grid.received)
