"""A plan that is called a guarantee is not exceeded by a run of it, whoever is drawn or away."""

import dataclasses

import numpy as np
import pytest

from fedpriv.privacy.accounting import accountants
from fedpriv.privacy.ledger import Attempt, Ledger, shared_release
from fedpriv.privacy.mechanism import Budget, example_gaussian, provider_gaussian
from fedpriv.privacy.noise import shares

RUNS, ROUNDS, CLIENTS = 25, 10, 10
VIEWS = ("global", "server_masked", "server_plain")


def planned(name, view, threshold, epsilon=8.0):
    budget = Budget(epsilon, ROUNDS, view, clients=CLIENTS, threshold=threshold, accountant="rdp")
    if name == "fl_provider_dp":
        return provider_gaussian(
            clip_norm=1, providers=4, budget=budget, client_rate=0.2, delta=1e-5
        )
    return example_gaussian(
        clip_norm=0.1, examples=400, budget=budget, record_rate=0.3, client_rate=0.5, delta=1e-5
    )


def run_of(mechanism, threshold, rng, offline, dropout):
    """Returns the ledger of a run, and how many of its rounds released nothing."""
    ledger, refused = Ledger(mechanism), 0
    for round in range(1, ROUNDS + 1):
        cohort = tuple(mechanism.sampling().draw(CLIENTS, rng))
        there = tuple(c for c in cohort if c not in offline and rng.random() >= dropout)
        released = not cohort or len(there) >= shares(threshold, len(cohort))
        attempt = Attempt(round, 0, CLIENTS, cohort, there, released)
        ledger.book(shared_release(mechanism, attempt, threshold))
        refused += not released
    return ledger, refused


@pytest.mark.parametrize("absences", ["none", "some"])
@pytest.mark.parametrize("threshold", [1.0, 0.5])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", ["fl_provider_dp", "feam_dp"])
def test_no_run_exceeds_its_plan(name, view, threshold, absences):
    mechanism = planned(name, view, threshold)
    rng = np.random.default_rng([RUNS, len(name), len(view), round(10 * threshold)])
    offline, dropout = ((), 0.0) if absences == "none" else ((1, 7), 0.2)
    ledgers, refused = zip(
        *(run_of(mechanism, threshold, rng, offline, dropout) for _ in range(RUNS)), strict=True
    )
    assert (sum(refused) > 0) == (absences == "some")
    spent = [accountants.epsilon(ledger.history(view), 1e-5, "rdp") for ledger in ledgers]
    assert max(spent) <= 8.0
    assert min(spent) > 7.9  # nor is the plan held because next to nothing was booked
    assert accountants.epsilon(ledgers[0].history(view), 1e-5) <= 8.0


def test_a_plan_for_fewer_clients_would_be_exceeded():
    """What the test above compares with: half of the clients share the noise."""
    mechanism = planned("fl_provider_dp", "server_plain", 1.0)
    fewer = Budget(8.0, ROUNDS, "server_plain", clients=5)
    noise = fewer.noise_multiplier(0.2, 1.0, 1e-5)
    loud = dataclasses.replace(mechanism, noise_multiplier=noise)
    ledger, _ = run_of(loud, 1.0, np.random.default_rng(0), (), 0.0)
    assert accountants.epsilon(ledger.history("server_plain"), 1e-5) > 8.0
