"""FedAvg-DP's noise holds its ε in every run of its plan, whoever is drawn and whoever is away."""

import numpy as np
import pytest

from fedpriv.config import experiment
from fedpriv.privacy.accounting import accountants
from fedpriv.privacy.ledger import Attempt, Ledger
from fedpriv.privacy.views import VIEWS

CLIENTS, ROUNDS, STEPS, RUNS = 8, 6, 3, 300


@pytest.fixture(scope="module")
def strategy():
    overrides = [
        f"rounds={ROUNDS}",
        f"strategy.steps={STEPS}",
        "strategy.mechanism.client_rate=0.5",
        f"data.partition.clients={CLIENTS}",
    ]
    config = experiment.load("pried_kie_fedavg_dp", overrides)
    return experiment.build(config).strategy


def simulated(strategy, seed):
    """The ledger of one run in which some clients are always away and others now and then."""
    rng = np.random.default_rng(seed)
    away = set(rng.choice(CLIENTS, rng.integers(0, 4), replace=False).tolist())
    ledger = Ledger(strategy.mechanism)
    for round in range(1, ROUNDS + 1):
        cohort = tuple(strategy.mechanism.sampling().draw(CLIENTS, rng))
        here = tuple(k for k in cohort if k not in away and rng.random() < 0.9)
        released = len(here) >= 2
        ledger.book(strategy.booked(Attempt(round, 0, CLIENTS, cohort, here, released)))
    return ledger


def test_no_run_exceeds_the_plan(strategy):
    asked, delta = strategy.mechanism.asked_epsilon, strategy.mechanism.delta
    assert (asked, delta) == (8.0, 1e-5)
    histories = {
        tuple(simulated(strategy, seed).history(view)) for seed in range(RUNS) for view in VIEWS
    }
    # Of a few lengths only: all steps are alike, and only how many a client took differs.
    steps = sorted(sum(times for _, times in history) for history in histories)
    assert len(steps) > 2
    assert steps[-1] <= ROUNDS * STEPS
    assert max(accountants.epsilon(history, delta) for history in histories) <= asked


def test_the_client_that_is_in_every_round_takes_all_of_the_budget(strategy):
    ledger = Ledger(strategy.mechanism)
    for round in range(1, ROUNDS + 1):
        cohort = (0, *range(1 + round % 3, 4 + round % 3))
        ledger.book(strategy.booked(Attempt(round, 0, CLIENTS, cohort, cohort, released=True)))
    spent = accountants.epsilon(ledger.history("server_plain"), strategy.mechanism.delta)
    assert 7.98 < spent <= 8.0
