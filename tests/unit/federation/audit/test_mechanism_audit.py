"""The mechanism of each private strategy, measured through its own parts against its ledger."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from toy import OutOfLuck
from toy_private import answers, federation, instruction, provider_data

from fedpriv.clients import fedavg_dp, fl_provider_dp, share
from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg import LocalTraining
from fedpriv.clients.fedavg_dp import DPLocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.data.examples import PROVIDER
from fedpriv.federation.audit import mechanism as mechanism_audit
from fedpriv.federation.audit.axes import AXIS, Axes, Pairs
from fedpriv.federation.audit.mechanism import audit_mechanism, audit_problems, quick_axes
from fedpriv.federation.faults import Dropout
from fedpriv.federation.secagg.masking import Masking
from fedpriv.federation.secagg.stages import MaskedRound
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.lower_bounds import rejects
from fedpriv.privacy.mechanism import (
    Budget,
    client_gaussian,
    example_gaussian,
    provider_gaussian,
)
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg import FedAvg
from fedpriv.strategies.fedavg_dp import FedAvgDP
from fedpriv.strategies.fl_provider_dp import FLProviderDP

CLIENTS, ROUNDS, CANARIES = 4, 4, 1 << 16


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def providers(epsilon=4.0, **more):
    mechanism = provider_gaussian(
        clip_norm=0.5,
        providers=60,
        budget=Budget(epsilon, ROUNDS),
        provider_rate=0.5,
        **{name: more.pop(name) for name in ("client_rate", "client_sampling") if name in more},
    )
    return FLProviderDP(mechanism, **more)


def examples(**more):
    mechanism = example_gaussian(
        clip_norm=0.5, examples=100, budget=Budget(4.0, ROUNDS), record_rate=0.5
    )
    return FeAmDP(mechanism, **more)


def own_noise():
    budget = Budget(4.0, ROUNDS, steps=2)
    mechanism = example_gaussian(clip_norm=0.5, examples=100, budget=budget, record_rate=0.5)
    return FedAvgDP(mechanism, steps=2)


def whole_clients():
    return FLProviderDP(client_gaussian(clip_norm=2.0, budget=Budget(4.0, ROUNDS)))


PAIRS = {
    "FL-PROVIDER-DP": (providers, ProviderUpdates(), share),
    "FeAm-DP": (examples, ExampleGradients(), share),
    "FedAvg-DP": (own_noise, DPLocalTraining(), fedavg_dp),
    "DP-FedAvg": (whole_clients, ProviderUpdates(), share),
}


def made(strategy, client, masking=None, faults=None, **settings):
    toy = federation(
        strategy, client, provider_data(CLIENTS, 3), masking=masking, one_noise=False, **settings
    )
    toy.faults = faults
    return toy


@functools.cache
def honest(name, masked):
    """The audit of a strategy as it stands, and whether a view is rejected at 99.99 %."""
    strategy, client, _ = PAIRS[name]
    masking = Masking() if masked else None
    if masked and name == "FedAvg-DP":  # what its clients send is bounded by no clip norm
        masking = Masking(bound=100.0)
    toy = made(strategy(), client, masking)
    with pytest.MonkeyPatch.context() as patch:
        seen = functools.cache(mechanism_audit.canaries_seen)
        patch.setattr(mechanism_audit, "canaries_seen", seen)
        audit = audit_mechanism(toy, ROUNDS, axes=CANARIES)
    _, found = seen(toy, ROUNDS, CANARIES, 0)
    return audit, [rejects(*scored, history, 0.9999) for _, (history, _), *scored in found]


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
def test_every_strategy_gives_away_what_its_ledger_says_and_no_more(name, masked):
    # At 95 % one of 20 honest audits alarms, and the processor's rounding decides which.
    audit, surely = honest(name, masked)
    assert not any(surely)
    assert set(audit.views) == (
        {"global", "server_masked"} if masked and name != "FedAvg-DP" else
        {"global", "server_plain"}
    )  # fmt: skip
    for found in audit.views.values():
        assert found.canaries == CANARIES
        assert 0.85 * found.ledger < found.sigma_fit < 1.02 * found.ledger
        assert 0.35 * found.ledger < found.count < found.sigma_fit
        assert 0.2 * found.ledger < found.one_run < found.sigma_fit
    assert audit.largest == pytest.approx(1, abs=1e-4)
    whole = next(iter(audit.views.values()))
    if masked or name == "FedAvg-DP":
        assert whole.ledger == pytest.approx(4, 0.01)


def test_the_servers_view_of_single_messages_is_held_against_its_own_epsilon():
    found = honest("FL-PROVIDER-DP", False)[0].views
    assert found["server_plain"].ledger > 2 * found["global"].ledger
    assert found["server_plain"].sigma_fit > 1.5 * found["global"].ledger


@pytest.mark.parametrize("name", ["FL-PROVIDER-DP", "FedAvg-DP"])
def test_a_tenth_too_little_noise_is_an_alarm(name, monkeypatch):
    strategy, client, half = PAIRS[name]
    real = half.add_gaussian
    monkeypatch.setattr(half, "add_gaussian", lambda v, std, rng: real(v, 0.9 * std, rng))
    audit = audit_mechanism(made(strategy(), client), ROUNDS, axes=CANARIES)
    assert audit.contradicted
    assert audit.lines()[0].startswith("ALARM")
    assert all(found.contradicted for found in audit.views.values())


def test_noise_divided_once_too_often_is_an_alarm(monkeypatch):
    # A share of std / n in place of std / √n: n shares add up to 1 / √n of the noise.
    monkeypatch.setattr(share, "share_std", lambda std, shares: std / shares)
    audit = audit_mechanism(made(examples(), ExampleGradients(), Masking()), ROUNDS, axes=1 << 14)
    assert audit.contradicted
    found = audit.views["global"]
    assert max(found.sigma_fit, found.count) > 1.5 * found.ledger


def test_a_client_half_that_does_not_clip_is_an_alarm(monkeypatch):
    def unclipped(change, clip_norm):
        return replace(fl_clip(change, clip_norm), clipped=change)

    fl_clip = fl_provider_dp.clip
    monkeypatch.setattr(fl_provider_dp, "clip", unclipped)
    audit = audit_mechanism(made(providers(), ProviderUpdates()), 1, axes=1 << 14)
    assert audit.largest > 100
    assert audit.contradicted
    assert "moved a client's sum by" in audit.lines()[-1]


def clipping_each_coordinate(monkeypatch):
    def clip(change, clip_norm):
        return replace(real(change, clip_norm), clipped=np.clip(change, -clip_norm, clip_norm))

    real = fl_provider_dp.clip
    monkeypatch.setattr(fl_provider_dp, "clip", clip)


def clipping_each_document(monkeypatch):
    monkeypatch.setattr(fl_provider_dp, "_owners", lambda rows, _: np.arange(len(rows)))


def clipping_the_clients_sum_alone(monkeypatch):
    monkeypatch.setattr(fl_provider_dp, "_owners", lambda rows, _: np.zeros(len(rows), np.int64))


def clipping_at_once_only(monkeypatch):
    real = ProviderUpdates._change

    def change(self, *arguments):
        monkeypatch.setattr(fl_provider_dp, "clip", unclipped)
        return real(self, *arguments)

    def unclipped(vector, clip_norm):
        return replace(clip(vector, clip_norm), clipped=vector)

    clip = fl_provider_dp.clip
    monkeypatch.setattr(ProviderUpdates, "_change", change)


FAULTS = (
    clipping_each_coordinate,
    clipping_each_document,
    clipping_the_clients_sum_alone,
    clipping_at_once_only,
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_norm_other_than_the_clip_norm_is_an_alarm(fault, monkeypatch):
    fault(monkeypatch)
    audit = audit_mechanism(made(providers(), ProviderUpdates()), 1, axes=1 << 14)
    assert audit.contradicted or audit.blind
    assert abs(audit.largest - 1) > 0.1


@pytest.mark.parametrize("name", ["FL-PROVIDER-DP", "FeAm-DP"])
def test_canaries_that_do_not_arrive_are_an_alarm(name, monkeypatch):
    strategy, client, _ = PAIRS[name]
    rng = np.random.default_rng(0)

    def unmasked(self, clients, words):
        return rng.integers(0, 1 << 32, words.size, dtype=np.uint32)

    monkeypatch.setattr(MaskedRound, "unmasked", unmasked)
    audit = audit_mechanism(made(strategy(), client, Masking()), ROUNDS, axes=1 << 14)
    assert audit.blind
    assert not audit.contradicted
    assert audit.lines()[0].startswith("ALARM: canaries were seen less")


def test_a_ledger_that_states_less_than_it_books_is_an_alarm(monkeypatch):
    real = Ledger.history
    monkeypatch.setattr(Ledger, "history", lambda self, view, *_, **__: real(self, view, until=1))
    audit = audit_mechanism(made(providers(), ProviderUpdates()), ROUNDS, axes=CANARIES)
    assert audit.contradicted


class Silent(ProviderUpdates):
    """Forgets the noise, and inherits how it is audited."""

    def train(self, context):
        raise NotImplementedError


def test_another_algorithm_is_not_taken_for_the_one_that_it_derives_from():
    (problem,) = audit_problems(made(providers(), Silent()))
    assert "Silent has a `train` of its own and inherits `on_axes`" in problem


def test_clients_drawn_by_a_second_coin_are_refused():
    strategy = whole_clients()
    strategy.mechanism = replace(strategy.mechanism, record_rate=0.5)
    (problem,) = audit_problems(made(strategy, ProviderUpdates()))
    assert problem.startswith("strategy.mechanism.record_rate: one coin")


@pytest.mark.parametrize("most", [6, 16])
def test_of_many_clients_few_canaries_clipping_is_looked_at(most, monkeypatch):
    """Not every client has a canary then, and the vectors that all of them send are small."""
    sizes = []

    def pairs(size):
        sizes.append(size)
        return Pairs(size)

    monkeypatch.setattr(mechanism_audit, "Pairs", pairs)
    monkeypatch.setattr(mechanism_audit, "MOST_REAL", most)
    strategy = providers(client_rate=0.25, client_sampling="fixed")
    toy = federation(strategy, ProviderUpdates(), provider_data(8, 1), one_noise=False)
    assert mechanism_audit._largest(toy) == pytest.approx(1, abs=1e-4)
    assert set(sizes) == {most}


def test_clients_that_are_drawn_by_coins_are_held_against_their_participation():
    strategy = providers(client_rate=0.5)
    found = audit_mechanism(made(strategy, ProviderUpdates()), ROUNDS, axes=CANARIES, runs=3).views
    for one in found.values():
        assert 0 < one.releases < ROUNDS
        assert one.canaries < 3 * CANARIES
        assert 0.85 * one.ledger < one.sigma_fit <= one.ledger


@pytest.mark.parametrize("masking", [None, Masking()], ids=["plain", "masked"])
def test_clients_that_drop_out_and_rounds_that_are_refused(masking):
    # Round 1 loses one client, which is allowed for; round 2 loses three, and is refused.
    strategy, faults = providers(threshold=0.75), Dropout(at={1: [0], 2: [0, 1, 2]})
    toy = made(strategy, ProviderUpdates(), masking, faults)
    found = audit_mechanism(toy, ROUNDS, axes=CANARIES).views
    assert found["global"].releases == ROUNDS - 1
    # Clients 1 to 3 have the history of most canaries.
    assert found["global"].canaries == CANARIES * 3 // 4
    for one in found.values():
        assert 0.85 * one.ledger < one.sigma_fit <= one.ledger
    if not masking:  # of the refused round, the server has seen what arrived
        assert found["server_plain"].releases < ROUNDS


def test_workers_show_the_same():
    here, there = (
        audit_mechanism(
            made(providers(), ProviderUpdates(), Masking(), workers=workers), 2, axes=1 << 14
        )
        for workers in (0, 2)
    )
    assert here.views == there.views


@pytest.mark.parametrize("name", PAIRS)
def test_canaries_at_once_are_what_the_real_half_computes_one_by_one(name):
    strategy, client, _ = PAIRS[name]
    server, size, count = strategy(), 24, 12
    clip_norm = server.mechanism.clip_norm
    server.mechanism = replace(server.mechanism, noise_multiplier=0.0)
    blocks = server.steps if name == "FedAvg-DP" else 1
    if name == "DP-FedAvg":
        count = 1  # all of a client's canaries would be clipped together
    axes = np.random.default_rng(1).permutation(size)[:count]
    columns = {AXIS: axes, PROVIDER: axes}
    asked = instruction(server, 1, 1)

    def sent(half, blocks):
        build = functools.partial(Axes, size * blocks)
        (vector,), _ = answers(half, columns, [np.arange(count)], asked, build)
        return vector

    at_once = sent(client.on_axes(size), blocks).reshape(blocks, size)
    one_by_one = sent(client.steepest(clip_norm, "loop"), 1)
    sign = -1 if name == "FeAm-DP" else 1  # a gradient points up, a change of weights down
    np.testing.assert_allclose(at_once.sum(0), sign * one_by_one, rtol=2e-5, atol=1e-9)
    assert np.count_nonzero(at_once) > 0


def test_it_is_repeatable_and_runs_differ():
    toy = made(providers(), ProviderUpdates(), Masking())
    once, again = (audit_mechanism(toy, 2, axes=1 << 14).views for _ in range(2))
    assert once == again
    more = audit_mechanism(toy, 2, axes=1 << 14, runs=2).views
    assert more["global"].canaries == 1 << 15
    assert more["global"].sigma_fit != once["global"].sigma_fit
    assert more["global"].one_run == once["global"].one_run  # of the first run alone


def test_what_cannot_be_audited_is_told():
    plain = federation(FedAvg(), LocalTraining(), provider_data(2, 2))
    assert audit_problems(plain) == ["strategy: FedAvg has no mechanism of privacy to audit"]
    paper = made(examples(variant="paper"), ExampleGradients())
    assert "no ε covers it; take variant=sound" in audit_problems(paper)[0]
    silent = made(providers(), ProviderUpdates())
    silent.strategy.mechanism = replace(silent.strategy.mechanism, noise_multiplier=0.0)
    silent.client = object()
    assert [problem.split(":")[0] for problem in audit_problems(silent)] == [
        "strategy.mechanism", "client",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no methods `on_axes` and `steepest`"):
        audit_mechanism(silent, 2)
    with pytest.raises(ValueError, match="rounds=0"):
        audit_mechanism(made(providers(), ProviderUpdates()), 0)


def test_where_nothing_was_released_nothing_is_claimed():
    faults = Dropout(at={1: [0, 1, 2, 3], 2: [0, 1, 2, 3]})
    toy = made(providers(threshold=0.75), ProviderUpdates(), Masking(), faults)
    with pytest.raises(ValueError, match="in 1 run of 2 rounds nothing was released"):
        audit_mechanism(toy, 2, axes=1 << 14)


def test_a_quick_check_draws_a_bounded_number_of_normals():
    for clients, rounds, steps in [
        (1, 1, 1),
        (10, 30, 1),
        (100, 50, 1),
        (4, 2, 5),
        (1000, 1000, 9),
    ]:
        axes = quick_axes(clients, rounds, steps)
        most = max(mechanism_audit.QUICK, clients * rounds * steps**2 * mechanism_audit.LEAST_AXES)
        assert axes * clients * rounds * steps**2 <= most
        assert mechanism_audit.LEAST_AXES <= axes <= mechanism_audit.MOST_AXES


def test_a_failing_client_ends_nothing(monkeypatch):
    real, calls = share.add_gaussian, iter(range(10**6))

    def unlucky(vector, std, rng):
        if next(calls) == 1:
            raise OutOfLuck("no paper left")
        return real(vector, std, rng)

    monkeypatch.setattr(share, "add_gaussian", unlucky)
    toy = made(providers(threshold=0.75), ProviderUpdates())
    assert not audit_mechanism(toy, 1, axes=1 << 14).contradicted


# --- level and power


def told_apart(strategy, client, seed, axes):
    """Whether the ledger's mechanism is rejected, per view, in one run."""
    toy = made(strategy(), client)
    toy.seed = seed
    _, found = mechanism_audit.canaries_seen(toy, ROUNDS, axes)
    return {
        view: rejects(scores, inside, history, 0.95) for view, (history, _), scores, inside in found
    }


@pytest.mark.slow
def test_honest_noise_is_rejected_in_one_of_twenty_at_most():
    found = [told_apart(providers, ProviderUpdates(), seed, 1 << 14) for seed in range(100)]
    for view in found[0]:
        # At a level of 5 %, more than 11 of 100 have a probability of .4 %.
        assert sum(one[view] for one in found) <= 11


@pytest.mark.slow
def test_a_twentieth_of_missing_noise_is_caught_in_nine_of_ten(monkeypatch):
    real = share.add_gaussian
    monkeypatch.setattr(share, "add_gaussian", lambda v, std, rng: real(v, 0.95 * std, rng))
    found = [told_apart(providers, ProviderUpdates(), seed, 1 << 18) for seed in range(10)]
    for view in found[0]:
        assert sum(one[view] for one in found) >= 9
