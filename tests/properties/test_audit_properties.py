"""The audited lower bound on ε: monotone, and true as often as it says."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fedpriv.privacy.accounting.gdp import gaussian_epsilon
from fedpriv.privacy.one_run import epsilon_lower, p_value

RUNS = 2000


@st.composite
def counts(draw):
    canaries = draw(st.integers(1, 300))
    guesses = draw(st.integers(0, canaries))
    return canaries, guesses, draw(st.integers(0, guesses))


deltas = st.sampled_from([0.0, 1e-8, 1e-5, 1e-3])
epsilons = st.floats(0, 12)


@given(counts(), epsilons, deltas)
def test_a_p_value_is_a_probability(made, epsilon, delta):
    assert 0 <= p_value(*made, epsilon, delta) <= 1


@settings(max_examples=60)
@given(counts(), deltas)
def test_more_right_guesses_never_show_less(made, delta):
    canaries, guesses, right = made
    assume(right < guesses)
    less = epsilon_lower(canaries, guesses, right, delta)
    assert epsilon_lower(canaries, guesses, right + 1, delta) >= less - 1e-9


@settings(max_examples=60)
@given(counts(), deltas, st.floats(0.5, 0.999), st.floats(0.5, 0.999))
def test_more_confidence_never_shows_more(made, delta, one, other):
    low, high = sorted((one, other))
    assert epsilon_lower(*made, delta, high) <= epsilon_lower(*made, delta, low) + 1e-9


@settings(max_examples=60)
@given(counts(), epsilons)
def test_a_larger_delta_never_shows_more(made, epsilon):
    by_delta = [p_value(*made, epsilon, delta) for delta in (0.0, 1e-8, 1e-5, 1e-3, 0.1)]
    assert by_delta == sorted(by_delta)
    bounds = [epsilon_lower(*made, delta) for delta in (0.0, 1e-8, 1e-5, 1e-3)]
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(bounds))


def too_high(bound, counts, epsilon):
    """Returns in which share of the runs a bound is above the true ε."""
    rights, times = np.unique(counts, return_counts=True)
    wrong = [times for right, times in zip(rights, times, strict=True) if bound(right) > epsilon]
    return sum(wrong) / len(counts)


@pytest.mark.parametrize(("canaries", "epsilon"), [(30, 0.5), (100, 1.0), (400, 3.0)])
def test_randomised_response_is_not_overrated(canaries, epsilon):
    # ε-randomised response says the truth with the largest probability that ε-DP allows.
    truthful = math.exp(epsilon) / (1 + math.exp(epsilon))
    rights = np.random.default_rng(0).binomial(canaries, truthful, RUNS)
    allowed = 0.05 + 3 * math.sqrt(0.05 * 0.95 / RUNS)

    def ours(right):
        return epsilon_lower(canaries, canaries, int(right))

    def estimate(right):
        """The ε that gives so many right guesses on average: no bound."""
        return math.log((right + 0.5) / (canaries - right + 0.5))

    def slack(right):
        """Two guesses too optimistic."""
        return epsilon_lower(canaries, canaries, min(int(right) + 2, canaries))

    assert too_high(ours, rights, epsilon) <= allowed
    assert too_high(ours, rights, epsilon) > 0.005  # it is tight, but for whole numbers
    assert too_high(estimate, rights, epsilon) > 2 * allowed
    assert too_high(slack, rights, epsilon) > allowed


@pytest.mark.parametrize("share", [0.1, 0.4, 1.0])
@pytest.mark.parametrize("sigma", [0.6, 1.0, 2.0])
def test_the_gaussian_mechanism_is_not_overrated(sigma, share):
    canaries, delta = 200, 1e-5
    epsilon = gaussian_epsilon(1 / sigma, delta)
    made = round(share * canaries)
    rng = np.random.default_rng(1)
    bounds = []
    for _ in range(100):
        coins = rng.integers(0, 2, canaries)
        scores = coins + rng.normal(scale=sigma, size=canaries)
        order = np.argsort(scores)
        low, high = order[: made // 2], order[canaries - (made - made // 2) :]
        right = int((coins[low] == 0).sum() + (coins[high] == 1).sum())
        bounds.append(epsilon_lower(canaries, made, right, delta))
    # Not tight: the accountant's ε counts outputs that are rarer than 200 canaries can show.
    assert max(bounds) <= epsilon
    assert max(bounds) > 0


def test_a_mechanism_with_less_noise_than_it_claims_is_caught():
    canaries, delta = 400, 1e-5
    claimed = gaussian_epsilon(1 / 2.0, delta)
    rng = np.random.default_rng(2)
    coins = rng.integers(0, 2, canaries)
    scores = coins + rng.normal(scale=0.2, size=canaries)
    order = np.argsort(scores)
    right = int((coins[order[:100]] == 0).sum() + (coins[order[-100:]] == 1).sum())
    assert epsilon_lower(canaries, 200, right, delta) > claimed
