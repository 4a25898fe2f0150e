"""What a run says at its end: against whom, how much, and whether what was asked held."""

import dataclasses

import pytest

from fedpriv.privacy.ledger import Attempt, Ledger, shared_release
from fedpriv.privacy.mechanism import Budget, provider_gaussian
from fedpriv.privacy.statement import in_short, statement, summary

NAMED = provider_gaussian(
    clip_norm=1,
    providers=4,
    noise_multiplier=0.771484375,
    client_rate=0.2,
    client_sampling="fixed",
    delta=1e-5,
)


def content(mechanism=NAMED, rounds=10, cohort=(1, 2), masked=False, **settings):
    ledger = Ledger(mechanism, masked, **settings)
    for round in range(1, rounds + 1):
        attempt = Attempt(round, 0, 10, cohort, cohort, released=True)
        ledger.book(shared_release(mechanism, attempt))
    return statement(ledger)


def asked(epsilon, view, rounds=10):
    budget = Budget(epsilon, rounds=rounds, view=view, clients=10)
    return provider_gaussian(clip_norm=1, providers=4, budget=budget, client_rate=0.2)


def test_the_server_is_the_one_that_this_run_has():
    plain, masked = summary(content())[0], summary(content(masked=True))[0]
    assert "against the server 23.69 (server_plain), from the global models 14.47" in plain
    assert "against the server 14.47 (server_masked), from the global models 14.47" in masked
    assert "privacy of one supplier, ε at δ = 1e-05 (pld)" in plain
    assert in_short(content()) == {"server_plain": "23.69", "global": "14.47"}


def test_a_budget_that_held_is_said_to_have_held():
    assert summary(content(asked(8, "global")))[1] == "  budget: 8 for global; kept"


def test_a_budget_that_more_rounds_have_exceeded_is_said_to_be_exceeded():
    line = summary(content(asked(8, "global"), rounds=14))[1]
    assert "EXCEEDED: 9." in line


def test_a_budget_for_another_server_is_pointed_out():
    line = summary(content(asked(4, "server_masked")))[1]
    assert line.endswith("kept. This run's server is server_plain, not server_masked")
    assert "This run" not in summary(content(asked(4, "server_masked"), masked=True))[1]


def test_what_no_epsilon_covers_is_said():
    told = content(uncovered=("the counts",))
    assert "  not guaranteed, because no ε covers: the counts" in summary(told)
    assert not told["views"]["global"]["guarantee"]


def test_what_bounds_attacks_is_said_only_where_it_is_guaranteed():
    bound = "  any attack on one supplier, from the global models: AUC at most 0.885, at 1 % false"
    assert any(line.startswith(bound) for line in summary(content()))
    doubted = content(uncovered=("the counts",))
    assert doubted["views"]["global"]["ceiling"] == content()["views"]["global"]["ceiling"]
    assert not any("any attack" in line for line in summary(doubted))


def test_what_is_outside_of_every_epsilon_is_listed_and_casts_no_doubt():
    told = content(entropy="seed")
    assert told["views"]["global"]["guarantee"]
    listed = " ".join(told["not_covered"])
    for what in ("time-out", "type of a client's error", "sizes of messages", "tuning", "seed"):
        assert what in listed, what
    for said in ("timing", "absence", "errors", "tuning", "seed"):
        assert said in summary(told)[-1]


def test_noise_from_the_operating_system_has_no_seed_to_be_known():
    told = content(entropy="os")
    assert not any("seed" in item for item in told["not_covered"])
    assert "seed" not in summary(told)[-1]
    kept = content(entropy="run")
    assert any("the salt of this run" in item for item in kept["not_covered"])
    assert "seed" not in summary(kept)[-1]


def test_a_run_that_is_not_private_says_so():
    told = statement(Ledger())
    assert summary(told) == ["privacy: no ε; the strategy has no mechanism of differential privacy"]
    assert in_short(told) == in_short(None) == {}


def test_without_noise_there_is_no_guarantee():
    told = content(dataclasses.replace(NAMED, noise_multiplier=0.0))
    assert {view["pld"] for view in told["views"].values()} == {"inf"}
    assert not any(view["guarantee"] for view in told["views"].values())


@pytest.mark.parametrize(("rounds", "epsilon"), [(1, 5.93), (3, 11.54), (10, 25.20)])
def test_given_who_was_drawn_nothing_is_averaged(rounds, epsilon):
    """FL-PROVIDER-DP's noise of PFL-DocVQA, Table 12, by the rounds of a client."""
    ledger = Ledger(NAMED)
    for round in range(1, 11):
        cohort = (3, 5) if round <= rounds else (6 + round % 2,)
        attempt = Attempt(round, 0, 10, cohort, cohort, released=True)
        ledger.book(shared_release(NAMED, attempt))
    of = {client: ledger.participation()[client] for client in (3, 5)}
    assert of == {3: rounds, 5: rounds}
    told = statement(ledger)["given_participation"]
    if rounds > 5:
        assert told["rounds"] == rounds
        assert told["epsilon"]["global"] == pytest.approx(epsilon, abs=0.01)
        assert told["epsilon"]["server_plain"] > told["epsilon"]["global"]
    only = Ledger(NAMED, releases=[r for r in ledger.releases if 3 in r.attempt.survivors])
    told = statement(only)["given_participation"]
    assert told["epsilon"]["server_masked"] == pytest.approx(epsilon, abs=0.01)
