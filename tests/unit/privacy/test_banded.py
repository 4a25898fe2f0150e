"""Banded matrix factorisation: sensitivity, error, turns, and what is booked."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.cli.main import main
from fedpriv.privacy.accounting import accountants
from fedpriv.privacy.accounting.event import ClientThenRecord
from fedpriv.privacy.banded import coefficients, error, turn
from fedpriv.privacy.ledger import Attempt, Group, Ledger, shared_release
from fedpriv.privacy.mechanism import Budget, provider_gaussian
from fedpriv.privacy.message_key import _settings
from fedpriv.privacy.statement import statement


def matrix(bands, rounds):
    """C, written out."""
    found = np.zeros((rounds, rounds))
    for age, weight in enumerate(coefficients(bands)[:rounds]):
        found += weight * np.eye(rounds, k=-age)
    return found


def mechanism(bands, rate=0.1, **settings):
    settings = {"noise_multiplier": 1.0, "delta": 1e-5, **settings}
    return provider_gaussian(
        clip_norm=1.0, providers=5, provider_rate=rate, bands=bands, **settings
    )


def ledger(planned, rounds, clients=4, threshold=1.0, survivors=None, again=()):
    found = Ledger(planned, masked=True)
    cohort = tuple(range(clients))
    for round in range(1, rounds + 1):
        there = (survivors or {}).get(round, cohort)
        for number in range(2 if round in again else 1):
            made = Attempt(round, number, clients, cohort, there, True, sent=str(number))
            found.book(shared_release(planned, made, threshold))
    return found


@given(st.integers(1, 40), st.integers(1, 60), st.data())
def test_what_one_unit_sends_in_all_rounds_is_no_longer_than_its_contributions(bands, rounds, data):
    """For every turn, and whichever entries dropouts leave out."""
    first = data.draw(st.integers(0, bands - 1))
    given_ = np.zeros(rounds)
    given_[first::bands] = 1.0
    sent = matrix(bands, rounds) @ given_
    left = np.where(data.draw(st.lists(st.booleans(), min_size=rounds, max_size=rounds)), sent, 0)
    count = int(given_.sum())
    assert sent @ sent <= count
    assert left @ left <= count
    # Each round tells of one contribution only.
    assert all(np.count_nonzero(matrix(bands, rounds)[t] * given_) <= 1 for t in range(rounds))


@pytest.mark.parametrize("bands", [1, 2, 5, 12])
def test_error_is_that_of_the_matrices(bands):
    rounds = 12
    of_sums = np.tril(np.ones((rounds, rounds))) @ np.linalg.inv(matrix(bands, rounds))
    assert error(bands, rounds) == pytest.approx(np.linalg.norm(of_sums) / rounds**0.5)


def test_the_square_root_of_prefix_sums():
    """With as many bands as rounds, C is ∝ A^(1/2) (Kalinin and Lampert 2024, Eq. 3)."""
    root = matrix(6, 6) / coefficients(6)[0]
    assert root @ root == pytest.approx(np.tril(np.ones((6, 6))))


@pytest.mark.parametrize(("bands", "rounds", "ratio"), [(2, 30, 0.769), (8, 120, 0.450)])
def test_noise_in_the_sum_of_all_rounds_is_less(bands, rounds, ratio):
    assert error(bands, rounds) / error(1, rounds) == pytest.approx(ratio, abs=0.001)


def test_turns_are_spread_evenly_and_no_unit_moves_another():
    turns = [turn(3, unit, 4) for unit in range(4000)]
    assert np.bincount(turns).min() > 900
    assert turns[:50] == [turn(3, unit, 4) for unit in range(50)]
    assert turns != [turn(4, unit, 4) for unit in range(4000)]


@pytest.mark.parametrize("bands", [2, 3, 8, 32])
def test_coefficients_stay_below_one_in_single_precision(bands):
    single = coefficients(bands).astype(np.float32).astype(np.float64)
    assert np.linalg.norm(single) <= 1
    assert np.linalg.norm(coefficients(bands)) == pytest.approx(1, abs=2e-6)


# What is booked


def test_rounds_are_booked_as_that_many_turns():
    """As jax-privacy and dp-accounting compose it: T/b subsampled Gaussians, rounded up."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    planned = mechanism(bands=3)
    assert planned.record_rate == pytest.approx(0.3)
    one = PoissonSampledDpEvent(planned.record_rate, GaussianDpEvent(1.0))
    theirs = PLDAccountant().compose(SelfComposedDpEvent(one, 4)).get_epsilon(1e-5)
    for view in ("global", "server_masked"):
        found = ledger(planned, rounds=10).history(view)
        assert found == [(ClientThenRecord(1.0, planned.record_rate, 1.0), 4)]
        assert accountants.epsilon(found, 1e-5) == pytest.approx(theirs, abs=0.01)
    assert [ledger(planned, 10).history("global", until=t)[0][1] for t in (1, 3, 4, 9, 10)] == [
        1, 1, 2, 3, 4,
    ]  # fmt: skip


def test_a_budget_holds_after_its_rounds():
    asked = Budget(epsilon=4.0, rounds=20)
    planned = mechanism(bands=3, noise_multiplier=None, budget=asked)
    spent = accountants.epsilon(ledger(planned, 20).history("global"), 1e-5)
    assert 3.98 < spent <= 4.0
    assert (
        planned.noise_multiplier
        > mechanism(1, noise_multiplier=None, budget=asked).noise_multiplier
    )


def test_fedpriv_budget_plans_what_the_ledger_books(capsys):
    planned = mechanism(bands=3, rate=0.1)
    words = "--noise-multiplier 1 --client-rate 1 --record-rate .1 --rounds 10 --delta 1e-5"
    words += " --bands 3"
    assert main(["budget", *words.split(), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    booked_ = accountants.epsilon(ledger(planned, 10).history("global"), 1e-5)
    assert answer["views"]["global"]["pld"] == pytest.approx(booked_)
    assert main(["budget", *words.split()]) == 0
    assert "record rate 0.1, in 3 bands, so 0.3 at a turn" in capsys.readouterr().out
    for more in (("--group-size", "2"), ("--steps", "2"), ("--client-rate", "0.5")):
        assert main(["budget", *words.split(), *more]) == 2
        assert "bands: " in capsys.readouterr().err


def test_dropouts_change_nothing_that_is_booked():
    planned = mechanism(bands=3)
    away = {4: (0, 1, 2), 5: (0, 3)}
    some = ledger(planned, 9, threshold=0.5, survivors=away)
    assert some.history("global") == ledger(planned, 9, threshold=0.5).history("global")


def test_a_repeated_round_is_booked_for_everybody_and_not_amplified():
    """Even in a round of another turn: it tells again of contributions of earlier ones."""
    found = dict(ledger(mechanism(bands=3), 6, again=(5,)).history("global"))
    assert found[ClientThenRecord(1.0, 1.0, 1.0)] == 1
    assert found[ClientThenRecord(1.0, mechanism(3).record_rate, 1.0)] == 2


def test_given_participation_is_that_of_the_turn_that_met_most():
    planned = mechanism(bands=3)
    everywhere = ledger(planned, 8)
    assert everywhere.history_of(0, "global") == everywhere.history("global")
    # The turn with the least noise, where several met as many: the second one, of which both
    # contributions reach a round with few answers.
    few = ledger(planned, 6, threshold=0.5, survivors=dict.fromkeys((4, 5, 6), (0, 1)))
    assert few.history_of(0, "global") == [(ClientThenRecord(1.0, planned.record_rate, 1.0), 2)]
    # Away in rounds 1 to 4, a client has shown one contribution less of every turn.
    late = ledger(planned, 8, threshold=0.5, survivors=dict.fromkeys((1, 2, 3, 4), (1, 2, 3)))
    ((event, times),) = late.history_of(0, "global")
    assert times == 2
    assert event.record_rate == planned.record_rate


def test_a_group_is_counted_as_if_always_drawn():
    planned = mechanism(bands=2)
    found = ledger(planned, 4)
    found.groups = {"client": Group(3)}
    told = statement(found)["larger_units"]["client"]
    alone = accountants.epsilon([(ClientThenRecord(1.0, 1.0, 1 / 3), 2)], 1e-5, "rdp")
    assert told["epsilon"]["global"] == pytest.approx(alone)
    assert "always drawn" in told["how"]


def test_clients_must_all_be_there():
    assert "take client_rate=1" in mechanism(2, client_rate=0.5).problem(4)
    assert mechanism(2).problem(4) is None


def test_runs_from_before_there_were_bands_keep_their_keys():
    assert "bands" not in _settings(mechanism(1))
    assert _settings(mechanism(2))["bands"] == 2
