"""Clients that tell whoever sees a sum what noise they added: what is left, and what that costs."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from fedpriv.privacy.accounting import accountants
from fedpriv.privacy.accounting.event import ClientThenRecord
from fedpriv.privacy.ledger import Attempt, Ledger, shared_release
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.privacy.statement import statement, summary
from fedpriv.strategies.fedavg_dp import FedAvgDP

FEAM = example_gaussian(
    clip_norm=0.1,
    examples=389,
    noise_multiplier=1.50146484375,
    client_rate=0.5,
    record_rate=2 / 7,
    delta=1 / 389,
)


def ledger_of(mechanism, cohort, clients, rounds=1, threshold=1.0, **settings):
    ledger = Ledger(mechanism, masked=True, **settings)
    for round in range(1, rounds + 1):
        attempt = Attempt(round, 0, clients, cohort, cohort, released=True)
        ledger.book(shared_release(mechanism, attempt, threshold))
    return ledger


def test_each_colluder_takes_its_share_of_the_noise():
    """PrIeD-KIE with 16 clients on FUNSD: ε = 7 by its own rule, 10.98 against a masked server."""
    told = statement(ledger_of(FEAM, tuple(range(8)), 16, rounds=350))
    rows = {row["colluders"]: row["epsilon"] for row in told["colluders"]}
    assert list(rows) == list(range(8))
    assert rows[0] == told["views"]["server_masked"]["pld"]
    for colluders, published in ((0, 10.98), (3, 16.21), (7, 80.42)):
        assert rows[colluders] == pytest.approx(published, abs=0.006)
        left = FEAM.noise_multiplier * math.sqrt((8 - colluders) / 8)
        alone = [(ClientThenRecord(0.5, 2 / 7, left), 350)]
        assert rows[colluders] == pytest.approx(accountants.epsilon(alone, 1 / 389), abs=1e-9)
    assert rows[7] == told["views"]["server_plain"]["pld"]
    (line,) = [line for line in summary(told) if "reveal their noise" in line]
    assert "with 1 12.23, with 2 13." in line
    assert line.endswith("with 7 80.43")


def test_fewer_shares_are_fewer_colluders():
    """Any two of four clients carry all of the noise, so one of them holds half of it."""
    told = statement(ledger_of(FEAM, (0, 1, 2, 3), 8, threshold=0.5))["colluders"]
    assert [row["colluders"] for row in told] == [0, 1]
    half = [(ClientThenRecord(0.5, 2 / 7, FEAM.noise_multiplier / math.sqrt(2)), 1)]
    assert told[1]["epsilon"] == pytest.approx(accountants.epsilon(half, 1 / 389), abs=1e-9)


@pytest.mark.parametrize("colluders", [1, 2])
def test_a_random_cohort_is_counted_size_by_size(colluders):
    """δ at the ledger's ε, by the sizes of a Poisson cohort; all who collude are in it."""
    clients, rate, sigma = 6, 0.5, 1.0
    mechanism = provider_gaussian(
        clip_norm=1, providers=1, noise_multiplier=sigma, client_rate=rate, delta=1e-3
    )
    rows = statement(ledger_of(mechanism, (0, 2, 5), clients))["colluders"]
    epsilon = rows[colluders]["epsilon"]

    def true_delta(epsilon):
        total = 0.0
        for size in range(1, clients + 1):
            left = size - min(colluders, size - 1)
            mu = 1 / (sigma * math.sqrt(left / size))
            moved = norm.cdf(mu / 2 - epsilon / mu)
            stayed = np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
            total += binom.pmf(size, clients, rate) * size / clients * (moved - stayed)
        return total

    assert true_delta(epsilon) <= 1e-3 < true_delta(epsilon - 0.01)


def test_an_attempt_that_was_made_again_is_counted_without_the_drawing():
    ledger = ledger_of(FEAM, (0, 1), 4)
    again = Attempt(1, 1, 4, (0, 1), (0, 1), released=True, sent="other")
    ledger.book(shared_release(FEAM, again))
    half = FEAM.noise_multiplier / math.sqrt(2)
    assert dict(ledger.history("server_masked", colluders=1)) == {
        ClientThenRecord(0.5, 2 / 7, half): 1,
        ClientThenRecord(1.0, 2 / 7, half): 1,
    }


def test_where_noise_is_missing_colluders_take_from_what_is_there():
    ledger = Ledger(FEAM, masked=True)
    ledger.book(shared_release(FEAM, Attempt(1, 0, 8, (0, 1, 2, 3), (0, 1, 2), released=True)))
    quarter = FEAM.noise_multiplier / 2
    ((event, _),) = ledger.history("server_masked", colluders=1)
    assert event == ClientThenRecord(1.0, 2 / 7, quarter * math.sqrt(2))
    ((event, _),) = ledger.history("server_masked", colluders=3)
    assert event == ClientThenRecord(1.0, 2 / 7, quarter)


def test_with_noise_of_ones_own_nobody_can_help():
    strategy = FedAvgDP(FEAM, steps=2)
    ledger = Ledger(FEAM)
    ledger.book(strategy.booked(Attempt(1, 0, 4, (0, 1), (0, 1), released=True)))
    told = statement(ledger)
    assert told["colluders"] == []
    assert not any("tell others" in line for line in summary(told))


def test_a_large_cohort_has_a_row_for_some_numbers():
    cohort = tuple(range(40))
    rows = [row["colluders"] for row in statement(ledger_of(FEAM, cohort, 80))["colluders"]]
    assert rows[:2] == [0, 1]
    assert rows[-1] == 39
    assert len(rows) <= 13


def test_only_whoever_sees_sums_can_be_helped():
    with pytest.raises(ValueError, match="colluders=1: view='server_plain' sees no sum"):
        ledger_of(FEAM, (0, 1), 4).history("server_plain", colluders=1)
