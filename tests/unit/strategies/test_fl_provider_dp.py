"""FL-PROVIDER-DP against FedAvg, against providers one by one, and against numbers by hand."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from host_vectors import to_vectors
from toy import Net
from toy_private import (
    Double,
    Small,
    Watched,
    Wide,
    answers,
    data_of,
    federation,
    first_model,
    instruction,
    moved,
    numbers,
    provider_data,
    reply_to,
    rows_of,
    sent_by,
    variance_is,
    vector_of,
)

from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.examples import PROVIDER
from fedpriv.federation.dataset import ArrayData
from fedpriv.federation.loop import Unworkable
from fedpriv.federation.messages import instruction_of
from fedpriv.federation.round_statistics import TooFewClients
from fedpriv.privacy.mechanism import (
    Mechanism,
    client_gaussian,
    example_gaussian,
    provider_gaussian,
)
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.training.computing import Computing
from fedpriv.training.loops import Optimizer

SGD = Optimizer("sgd", lr=0.3)
ADAMW = Optimizer("adamw", lr=0.05)
HUGE = 1e9


pytestmark = pytest.mark.usefixtures("in_own_folder", "budget_untold")


def silent(clip_norm=HUGE, providers=1, **rates):
    return provider_gaussian(clip_norm=clip_norm, providers=providers, noise_multiplier=0, **rates)


def messages_of(mechanism, owners, half=None, build=Net, seed=0, scale=1.0, **asked):
    """What one client sends that holds two documents of each of these providers."""
    half = half or ProviderUpdates(steps=3, batch_size=2, optimizer=ADAMW)
    # A provider's documents are the same whoever else is there.
    parts = [numbers(2, seed=100 + owner, scale=scale) for owner in owners]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in ("x", "y")}
    columns |= {"y": columns["y"] % 2, PROVIDER: np.repeat(np.array(owners), 2)}
    strategy = FLProviderDP(mechanism)
    (message,), failures = answers(
        half, columns, rows_of(len(columns["y"])), instruction(strategy, 1, 1, **asked), build
    )
    return message, failures


# The whole algorithm


@pytest.mark.parametrize("optimizer", [SGD, ADAMW], ids=["sgd", "adamw"])
def test_without_noise_clipping_and_sampling_it_is_fedavg_over_providers(optimizer):
    """Three clients of four providers each, against twelve clients of FedAvg."""
    ours = federation(
        FLProviderDP(silent(providers=4)),
        ProviderUpdates(steps=5, batch_size=64, optimizer=optimizer),
        provider_data(clients=3, providers=4, documents=5),
    ).run(rounds=3)
    theirs = federation(
        FedAvg(weighted=False),
        LocalTraining(epochs=5, batch_size=64, optimizer=optimizer),
        provider_data(clients=12, providers=1, documents=5),
    ).run(rounds=3)
    way = np.linalg.norm(vector_of(theirs) - first_model())
    # 100 · 2⁻²⁴: batches are whole but shuffled, so sums are in another order.
    assert np.linalg.norm(vector_of(ours) - vector_of(theirs)) < 1e-5 * way
    halved = federation(
        FLProviderDP(silent(providers=8)),
        ProviderUpdates(steps=5, batch_size=64, optimizer=optimizer),
        provider_data(clients=3, providers=4, documents=5),
    ).run(rounds=1)
    whole = federation(
        FedAvg(weighted=False),
        LocalTraining(epochs=5, batch_size=64, optimizer=optimizer),
        provider_data(clients=12, providers=1, documents=5),
    ).run(rounds=1)
    change, half = (vector_of(result) - first_model() for result in (whole, halved))
    np.testing.assert_allclose(half, change / 2, atol=1e-5)


def test_the_server_divides_by_who_answered():
    strategy = FLProviderDP(silent(client_sampling="fixed"), threshold=0.5)
    start = {"float": np.array([10, 20], np.float32)}
    to = sent_by(strategy, start, clients=4)
    assert len(to) == 4
    replies = [
        reply_to(to[0], {"float": np.array([6, 3], np.float32)}, [0, 1]),
        reply_to(to[2], {"float": np.array([-3, 3], np.float32)}, [2]),
    ]
    assert moved(strategy, replies).tolist() == [11, 22]
    assert start["float"].tolist() == [10, 20]


def test_clients_are_told_the_mechanism_and_the_shares_and_asked_for_no_metric():
    mechanism = provider_gaussian(
        clip_norm=5, providers=3, noise_multiplier=0.7, client_sampling="fixed", client_rate=0.8
    )
    for threshold, shares in [(1.0, 4), (0.5, 2)]:
        strategy = FLProviderDP(mechanism, threshold=threshold)
        for message in sent_by(strategy, {"float": np.zeros(2, np.float32)}, clients=5):
            asked = instruction_of(message)
            assert Mechanism.from_settings(asked.settings) == mechanism
            assert asked.settings["shares"] == shares
            assert (asked.metrics, asked.weight, asked.buffers, asked.summed) == (
                (),
                "",
                False,
                True,
            )


def test_cohorts_are_poisson_with_the_mechanisms_rate():
    strategy = FLProviderDP(silent(client_rate=0.2))
    start = {"float": np.zeros(1, np.float32)}
    sizes = [len(sent_by(strategy, start, clients=10, round=r)) for r in range(1, 1001)]
    # Binomial(10, .2): mean 2 ± 5 · .04, variance 1.6 ± 5 · .07, none in .107 ± 5 · .0098.
    assert abs(np.mean(sizes) - 2) < 0.2
    assert abs(np.var(sizes) - 1.6) < 0.36
    assert abs(np.mean(np.array(sizes) == 0) - 0.107) < 0.05


def test_a_round_of_no_clients_adds_the_noise_all_the_same():
    mechanism = provider_gaussian(
        clip_norm=2, providers=5, noise_multiplier=1.5, client_rate=1e-9, client_sampling="poisson"
    )
    start = {"float": np.full(100_000, 7.0)}
    noises = []
    for round, number in [(1, 0), (2, 0), (1, 1)]:
        strategy = FLProviderDP(mechanism)
        assert sent_by(strategy, start, round=round, attempt=number) == []
        noises.append(moved(strategy, [], round) - 7)
    for noise in noises:
        assert variance_is(noise, (1.5 * 2 / 5) ** 2)
        assert not variance_is(noise * np.sqrt(2), (1.5 * 2 / 5) ** 2)
    for one, other in [(0, 1), (0, 2), (1, 2)]:
        assert abs(np.corrcoef(noises[one], noises[other])[0, 1]) < 0.016
    assert np.array_equal(start["float"], np.full(100_000, 7.0))


@pytest.mark.parametrize(("threshold", "needed"), [(1.0, 4), (0.6, 3), (0.5, 2)])
def test_below_the_shares_the_round_does_not_count(threshold, needed):
    strategy = FLProviderDP(silent(), threshold=threshold)
    start = {"float": np.zeros(2, np.float32)}
    to = sent_by(strategy, start, clients=4)
    one = {"float": np.ones(2, np.float32)}
    enough = reply_to(to[0], one, list(range(needed)))
    too_few = reply_to(to[0], one, list(range(needed - 1)))
    with pytest.raises(TooFewClients, match=f"{needed - 1} of 4 clients answered.*{needed} shares"):
        moved(strategy, [too_few])
    assert moved(strategy, [enough]).tolist() == pytest.approx([1 / needed] * 2)


def test_the_papers_variant_takes_what_arrives():
    strategy = FLProviderDP(silent(), variant="paper")
    to = sent_by(strategy, {"float": np.zeros(2, np.float32)}, clients=4)
    assert moved(strategy, [reply_to(to[0], {"float": np.ones(2, np.float32)}, [3])]).tolist() == [
        1,
        1,
    ]
    sent_by(strategy, {"float": np.full(2, 5.0, np.float32)}, clients=4)
    assert moved(strategy, []).tolist() == [5, 5]


# One client


def test_a_clients_message_is_the_sum_of_its_providers_changes_bit_by_bit():
    """With dropout in the model: a provider's change does not feel who else is there."""
    owners = [3, 8, 11, 40]
    alone = {owner: messages_of(silent(), [owner])[0] for owner in owners}
    for some in ([3, 8], [8, 11, 40], owners):
        together, _ = messages_of(silent(), some)
        expected = np.zeros_like(together)
        for owner in some:
            expected += alone[owner]
        assert together.tobytes() == expected.tobytes()
    assert len({change.tobytes() for change in alone.values()}) == 4


def test_dropout_draws_do_count():
    """The model above does drop out: without its own seed a provider's change would be another."""
    first, again = (messages_of(silent(), [3], round=r)[0] for r in (1, 2))
    assert not np.array_equal(first, again)


def test_two_providers_of_the_same_documents_drop_out_differently():
    one = numbers(1, seed=1)
    columns = {"x": np.repeat(one["x"], 4, axis=0), "y": np.zeros(4, np.int64)}
    asked = instruction(FLProviderDP(silent()), 1, 1)
    half = ProviderUpdates(steps=3, batch_size=64, optimizer=SGD)
    changes = []
    for owner in (3, 8, 3):
        owned = columns | {PROVIDER: np.full(4, owner)}
        changes += answers(half, owned, rows_of(4), asked, Net)[0]
    np.testing.assert_array_equal(changes[0], changes[2])
    assert not np.allclose(changes[0], changes[1], rtol=0.01)


@pytest.mark.parametrize("clip_norm", [1e-3, 0.1, 10.0])
def test_one_provider_more_changes_the_message_by_its_clipped_change(clip_norm):
    mechanism = silent(clip_norm, providers=1)
    raw, _ = messages_of(silent(), [40])
    norm = np.linalg.norm(raw.astype(float))
    assert 0.1 < norm < 10
    without, _ = messages_of(mechanism, [3, 8])
    with_it, _ = messages_of(mechanism, [3, 8, 40])
    expected = raw * min(1, clip_norm / norm)
    np.testing.assert_allclose(with_it - without, expected, atol=3e-7 * max(1, clip_norm))
    assert np.linalg.norm((with_it - without).astype(float)) <= clip_norm * (1 + 1e-4)
    alone, _ = messages_of(mechanism, [40])
    assert np.linalg.norm(alone.astype(float)) <= clip_norm


def test_the_sum_is_divided_by_the_public_constant_and_not_by_who_is_there():
    one, _ = messages_of(silent(providers=1), [3, 8])
    for constant in (2, 375):
        message, _ = messages_of(silent(providers=constant), [3, 8])
        assert np.array_equal(message, one / np.float32(constant))


def test_providers_are_drawn_one_by_one_with_the_rate():
    """Each provider pulls at a weight of its own, so a message tells who is in it."""

    @dataclass(frozen=True)
    class Roll(ProviderUpdates):
        def _change(self, context, provider, examples):
            change = torch.zeros_like(context.parameters["float"])
            change[provider] = 1
            return change

    owners = np.arange(1000)
    columns = numbers(1000, providers=owners)
    strategy = FLProviderDP(silent(provider_rate=0.3))
    drawn = []
    for round in (1, 2):
        asked = instruction(strategy, 1, 1, round=round)
        (message,), _ = answers(Roll(method="loop"), columns, rows_of(1000), asked, Wide)
        drawn.append(message[:1000])
    for coins in drawn:
        assert abs(coins.mean() - 0.3) < 5 * np.sqrt(0.21 / 1000)
    # A fixed number of them would be another algorithm.
    assert drawn[0].sum() != drawn[1].sum()
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 5 / np.sqrt(1000)


def test_no_provider_is_drawn_and_the_noise_is_sent():
    mechanism = provider_gaussian(
        clip_norm=2, providers=5, noise_multiplier=1.5, provider_rate=1e-9
    )
    columns = numbers(6, providers=[0, 0, 1, 1, 2, 2])
    asked = instruction(FLProviderDP(mechanism), 4, 4)
    (message,), _ = answers(ProviderUpdates(), columns, rows_of(6), asked, Wide)
    assert variance_is(message, (1.5 * 2 / 5) ** 2 / 4)


def test_a_change_that_is_not_finite_counts_as_nothing_and_is_noted():
    mechanism = silent(clip_norm=0.1)
    columns = numbers(6, providers=[3, 3, 8, 8, 11, 11])
    columns["x"][2, 0] = np.nan
    half = ProviderUpdates(steps=2, batch_size=2, optimizer=ADAMW)
    asked = instruction(FLProviderDP(mechanism), 1, 1)
    (message,), failures = answers(half, columns, rows_of(6), asked)
    others = {name: np.delete(column, [2, 3], axis=0) for name, column in columns.items()}
    (expected,), none = answers(half, others, rows_of(4), asked)
    assert message.tobytes() == expected.tobytes()
    assert np.isfinite(message).all()
    assert none == []
    (note,) = failures
    assert (note.kind, note.client) == ("noted", 0)
    assert note.reason == "provider 8: its change is not finite, counted as 0"


# One step of many providers at once


class Idle(Double):
    """With a parameter that its loss does not use."""

    def __init__(self):
        super().__init__()
        self.never = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))


def one_step(method, optimizer=ADAMW, build=Double, clip_norm=0.4, rate=0.8, **changes):
    """What a client sends whose providers have 1 to 13 documents; batches are of 4 at most."""
    owners = np.repeat(np.arange(9), [1, 2, 13, 5, 4, 1, 2, 3, 8])
    columns = numbers(owners.size, providers=owners) | changes
    half = ProviderUpdates(batch_size=4, optimizer=optimizer, method=method)
    asked = instruction(FLProviderDP(silent(clip_norm, provider_rate=rate)), 1, 1)
    (message,), notes = answers(half, columns, rows_of(owners.size), asked, build)
    return message, [note.reason for note in notes]


@pytest.mark.parametrize(
    "optimizer",
    [
        SGD,
        Optimizer("sgd", lr=0.3, momentum=0.9, weight_decay=0.1),
        Optimizer("adam", lr=0.05),
        ADAMW,
        Optimizer("adamw", lr=0.05, weight_decay=0.3),
    ],
    ids=repr,
)
@pytest.mark.parametrize("clip_norm", [0.1, HUGE])
def test_one_step_of_many_providers_at_once_is_that_of_each_alone(optimizer, clip_norm):
    expected, _ = one_step("loop", optimizer, Idle, clip_norm)
    together, _ = one_step("vmap", optimizer, Idle, clip_norm)
    assert np.linalg.norm(expected) > 0.01
    np.testing.assert_allclose(together, expected, rtol=1e-9, atol=1e-12)


def test_a_provider_that_is_not_finite_counts_as_nothing_at_once_as_well():
    broken = numbers(39)["x"]
    broken[5, 0] = np.inf  # a document of provider 2 in a batch of four of its thirteen
    broken[22, 0] = np.nan  # of provider 4, which has four
    expected, alone = one_step("loop", rate=1.0, x=broken)
    together, notes = one_step("vmap", rate=1.0, x=broken)
    assert "provider 4: its change is not finite, counted as 0" in notes
    assert sorted(notes) == sorted(alone)
    np.testing.assert_allclose(together, expected, rtol=1e-9, atol=1e-12)


class Nets(Net):
    """With dropout, in double precision."""

    def __init__(self):
        super().__init__()
        self.double()

    def loss(self, batch):
        return super().loss({"x": batch["x"].double(), "y": batch["y"] % 2})


def test_with_dropout_providers_are_taken_one_by_one_to_the_bit():
    loop, _ = one_step("loop", build=Nets)
    auto, _ = one_step("auto", build=Nets)
    assert auto.tobytes() == loop.tobytes()


def test_auto_takes_many_providers_at_once_for_one_step_only():
    model, plain = Small(), Computing()
    half = ProviderUpdates()
    assert half.choice(model, "cpu", plain)[0] == "vmap"
    assert half.choice(model, "cuda", Computing(precision="bf16"))[0] == "vmap"
    assert half.choice(model, "cuda", Computing(precision="fp16"))[0] == "loop"
    assert half.choice(model, "cpu", Computing(microbatch=2))[0] == "loop"
    assert ProviderUpdates(steps=2).choice(model, "cpu", plain) == ("loop", "automatic: 2 steps")
    assert ProviderUpdates(method="loop").choice(model, "cpu", plain) == ("loop", "set")


@pytest.mark.parametrize("computing", [Computing(microbatch=2), Computing(precision="fp16")])
def test_vmap_is_refused_where_a_batch_is_not_computed_at_once(computing):
    problems = computing.problems(ProviderUpdates(method="vmap"), Small(), "cuda")
    assert any("client.method='vmap': takes whole batches" in p for p in problems)
    assert computing.problems(ProviderUpdates(), Small(), "cuda") == []


def test_a_provider_without_a_column_of_its_own_is_a_problem():
    columns = numbers(12)
    with pytest.raises(Unworkable, match="the examples have no column 'provider'"):
        federation(FLProviderDP(silent()), ProviderUpdates(), ArrayData(columns, rows_of(6, 6)))


def test_a_provider_at_two_clients_is_a_problem():
    """It would be clipped twice: the sum moves by up to 2C, under noise that is made for C."""
    split = ArrayData(numbers(12, providers=[0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4]), rows_of(6, 6))
    with pytest.raises(Unworkable):
        federation(FLProviderDP(silent()), ProviderUpdates(), split)


# Rounds that are repeated, by choice or after a crash


def noisy(rate=1.0, threshold=0.5, **more):
    mechanism = provider_gaussian(
        clip_norm=0.5, providers=2, noise_multiplier=1.0, client_rate=rate, **more
    )
    return FLProviderDP(mechanism, threshold=threshold)


def events(folder):
    return json.loads((folder / "ledger.json").read_text("utf-8"))["events"]


def killed_in_round_three(faults):
    """Two rounds, killed in the third before any checkpoint; then all three, resumed."""
    parts = ProviderUpdates(optimizer=SGD), provider_data(clients=4, providers=2)
    first = federation(noisy(), *parts, checkpoint_every=9)
    before = Watched(first, faults | {(3, 0, 0): "killed"})
    with pytest.raises(KeyboardInterrupt):
        first.run(rounds=3, run_dir="here", grid=before)
    second = federation(noisy(), *parts, checkpoint_every=9)
    after = Watched(second)
    result = second.run(rounds=3, run_dir="here", resume=True, grid=after)
    return result, before, after


def messages_in(grid, round):
    return {
        reply.metadata.src_node_id: to_vectors(reply.content["update"])["float"]
        for reply in grid.replied
        if reply.metadata.group_id == str(round)
    }


def test_rounds_that_are_run_again_send_the_same_bits_and_are_booked_once():
    result, before, after = killed_in_round_three({})
    for round in (1, 2):
        first, second = messages_in(before, round), messages_in(after, round)
        assert {k: v.tobytes() for k, v in first.items()} == {
            k: v.tobytes() for k, v in second.items()
        }
    assert [event["round"] for event in events(result.run_dir) if event["released"]] == [1, 2, 3]


def test_a_round_run_again_from_another_model_is_another_release():
    """Round 1 is run again with one survivor more, so round 2 starts from another model.

    Its messages differ, and under the same noise: whoever keeps both subtracts it.
    """
    result, before, after = killed_in_round_three({(1, 0, 3): "train"})
    first, second = messages_in(before, 2), messages_in(after, 2)
    assert set(first) == set(second)
    assert all(not np.array_equal(first[node], second[node]) for node in first)
    told = [event for event in events(result.run_dir) if event["round"] == 2]
    assert len(told) == 2 or told[0]["attempt"] != 0


# DP-FedAvg: the client is the unit


def test_with_a_clients_mechanism_all_of_a_client_is_one_provider():
    half = ProviderUpdates(steps=4, batch_size=64, optimizer=ADAMW)
    columns = numbers(12, providers=[0] * 4 + [1] * 4 + [2] * 4)
    one = columns | {PROVIDER: np.zeros(12, np.int64)}
    for clip_norm in (0.05, HUGE):
        whole = FLProviderDP(client_gaussian(clip_norm=clip_norm, noise_multiplier=0))
        (message,), _ = answers(half, columns, rows_of(12), instruction(whole, 1, 1))
        single = FLProviderDP(silent(clip_norm))
        (expected,), _ = answers(half, one, rows_of(12), instruction(single, 1, 1))
        assert message.tobytes() == expected.tobytes()
        (parts,), _ = answers(half, columns, rows_of(12), instruction(single, 1, 1))
        assert not np.allclose(parts, message)
        if clip_norm < 1:
            assert clip_norm * 0.9999 < np.linalg.norm(message.astype(float)) <= clip_norm
            assert np.linalg.norm(parts.astype(float)) > clip_norm


def test_dp_fedavg_without_noise_and_clipping_is_fedavg():
    private = federation(
        FLProviderDP(client_gaussian(clip_norm=HUGE, noise_multiplier=0)),
        ProviderUpdates(steps=4, batch_size=64, optimizer=SGD),
        data_of(5, 9, 7),
    ).run(rounds=2)
    plain = federation(
        FedAvg(weighted=False),
        LocalTraining(epochs=4, batch_size=64, optimizer=SGD),
        data_of(5, 9, 7),
    ).run(rounds=2)
    np.testing.assert_allclose(vector_of(private), vector_of(plain), atol=1e-6)
    assert np.linalg.norm(vector_of(plain) - first_model()) > 0.05


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variant": "mine"}, "variant='mine': expected 'sound' or 'paper'"),
        ({"threshold": 0.0}, r"threshold=0.0: expected a value in \(0, 1\]"),
        ({"threshold": 1.1}, r"threshold=1.1: expected a value in \(0, 1\]"),
        ({"variant": "paper", "threshold": 0.5}, "variant='paper' has none; take variant='sound'"),
        (
            {"mechanism": example_gaussian(clip_norm=1, examples=9, noise_multiplier=1)},
            "FLProviderDP clips one provider or client, the mechanism protects one example: take "
            "provider_gaussian or client_gaussian",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        FLProviderDP(**({"mechanism": silent()} | arguments))


def test_rates_that_do_not_divide_the_clients_are_a_problem():
    strategy = FLProviderDP(silent(client_rate=0.5, client_sampling="fixed"))
    assert strategy.problems(4) == []
    (problem,) = strategy.problems(5)
    assert problem.startswith("mechanism: client_rate=0.5 of 5 clients is 2.5")


@pytest.mark.parametrize("name", ["steps", "batch_size"])
def test_a_client_takes_at_least_one_step_on_one_example(name):
    with pytest.raises(ValueError, match=f"{name}=0: expected at least 1"):
        ProviderUpdates(**{name: 0})


def test_a_way_that_does_not_exist_or_fit_is_refused():
    with pytest.raises(ValueError, match="method='hooks': expected 'auto', 'vmap' or 'loop'"):
        ProviderUpdates(method="hooks")
    with pytest.raises(ValueError, match=r"method='vmap': only one step .* and steps=3; take"):
        ProviderUpdates(steps=3, method="vmap")


# --- the server's optimiser


def rounds_of(optimizer, changes, state=None):
    """The weights after rounds with these noisy means, and the strategy's state."""
    strategy = FLProviderDP(silent(), optimizer=optimizer)
    strategy.load_state(state or {})
    start = {"float": np.array([1.0, -2.0, 3.0], np.float32)}
    for number, change in enumerate(changes, start=1):
        first, _ = sent_by(strategy, start, clients=2, round=number)
        total = {"float": np.array(change, np.float32) * 2}  # of two clients
        replies = [reply_to(first, total, [0, 1])]
        start = {"float": moved(strategy, replies, round=number)}
    return start["float"], strategy.state()


CHANGES = [[0.5, -0.25, 1.0], [0.125, 0.5, -2.0], [0.0, 1.0, 0.5]]


def test_a_servers_step_of_one_is_the_papers_sum():
    plain, nothing = rounds_of(None, CHANGES)
    assert nothing == {}
    np.testing.assert_array_equal(plain, np.array([1.0, -2.0, 3.0]) + np.sum(CHANGES, axis=0))
    step, _ = rounds_of(Optimizer("sgd", lr=1.0), CHANGES)
    np.testing.assert_array_equal(step, plain)


def test_a_servers_step_size_and_momentum_by_hand():
    found, _ = rounds_of(Optimizer("sgd", lr=0.5, momentum=0.5), CHANGES)
    first, second, third = np.array(CHANGES)
    momentum = [first, second + 0.5 * first, third + 0.5 * second + 0.25 * first]
    expected = np.array([1.0, -2.0, 3.0]) + 0.5 * np.sum(momentum, axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_server_with_adam_is_feam_dps_server_on_the_turned_mean():
    found, _ = rounds_of(Optimizer("adam", lr=0.1), CHANGES)
    theta = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    adam = torch.optim.Adam([theta], lr=0.1)
    for change in CHANGES:
        theta.grad = -torch.tensor(change)
        adam.step()
    np.testing.assert_allclose(found, theta.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("optimizer", [Optimizer("adam", lr=0.1), Optimizer("sgd", 0.1, 0, 0.9)])
def test_the_servers_optimiser_goes_on_from_its_saved_state(optimizer):
    whole, _ = rounds_of(optimizer, [*CHANGES, *CHANGES])
    half, state = rounds_of(optimizer, CHANGES)
    assert state
    strategy = FLProviderDP(silent(), optimizer=optimizer)
    strategy.load_state(state)
    start = {"float": half}
    for number, change in enumerate(CHANGES, start=4):
        first, _ = sent_by(strategy, start, clients=2, round=number)
        total = {"float": np.array(change, np.float32) * 2}
        start = {"float": moved(strategy, [reply_to(first, total, [0, 1])], round=number)}
    np.testing.assert_array_equal(start["float"], whole)


def test_the_servers_optimiser_changes_no_message():
    mechanism = provider_gaussian(clip_norm=1.0, providers=2, noise_multiplier=1.0)
    half = ProviderUpdates(optimizer=SGD)
    keys = {
        federation(
            FLProviderDP(mechanism, optimizer=optimizer),
            half,
            provider_data(3, 2),
            one_noise=False,
        ).spec.key
        for optimizer in (None, Optimizer("adam", lr=0.1))
    }
    assert len(keys) == 1
