"""Lower bounds on ε from scores of canaries, on mechanisms whose ε is known by other means."""

import math

import numpy as np
import pytest
from scipy.stats import beta, norm

from fedpriv.privacy.accounting import pld
from fedpriv.privacy.accounting.event import ClientThenRecord
from fedpriv.privacy.lower_bounds import (
    counted,
    log_likelihood_ratio,
    rejects,
    sigma_fit,
    threshold_for,
    too_little,
)

DELTA = 1e-5


def seen_of(history, count, seed=0, less=1.0):
    """Scores and coins of the ideal mechanism, with so much of the noise."""
    rng = np.random.default_rng(seed)
    inside, scores = rng.random(count) < 0.5, np.zeros(count)
    for event, times in history:
        for _ in range(times):
            drawn = inside & (rng.random(count) < event.record_rate)
            noise = less * event.noise_multiplier * rng.standard_normal(count)
            scores += log_likelihood_ratio(drawn + noise, event.noise_multiplier, event.record_rate)
    return scores, inside


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("alpha", [0.02, 0.2, 0.5])
def test_the_trade_off_of_a_gaussian_is_that_of_the_closed_form(sigma, alpha):
    # Dong, Roth and Su 2022, Eq. 6: G_μ(α) = Φ(Φ⁻¹(1 - α) - μ).
    exact = norm.cdf(norm.ppf(1 - alpha) - 1 / sigma)
    found = pld.trade_off([(ClientThenRecord(1.0, 1.0, sigma), 1)], alpha)
    assert exact - 2e-3 < found <= exact + 1e-9


def test_releases_of_a_gaussian_compose():
    # Four releases under σ are one under σ / 2.
    four = pld.trade_off([(ClientThenRecord(1.0, 1.0, 4.0), 4)], 0.3)
    assert four == pytest.approx(norm.cdf(norm.ppf(0.7) - 0.5), abs=2e-3)


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_the_score_is_the_logarithm_of_two_densities(rate):
    y, sigma = np.linspace(-5, 6, 23), 1.3
    without = norm.pdf(y, scale=sigma)
    with_it = rate * norm.pdf(y - 1, scale=sigma) + (1 - rate) * without
    np.testing.assert_allclose(log_likelihood_ratio(y, sigma, rate), np.log(with_it / without))


def test_counting_is_clopper_and_pearson():
    inside = np.arange(4000) < 2000
    scores = np.where(np.arange(4000) % 2000 < np.where(inside, 700, 3), 1.0, -1.0)
    least, most = beta.ppf(0.025, 700, 1301), beta.ppf(0.975, 4, 1997)
    expected = math.log((least - DELTA) / most)
    assert counted(scores, inside, 0.0, DELTA, 0.95) == pytest.approx(expected)


def test_nothing_is_counted_where_nobody_is_told_apart():
    inside = np.arange(1000) % 2 == 0
    assert counted(np.zeros(1000), inside, 0.0, DELTA, 0.95) == 0


HISTORIES = {
    "half of six rounds": ((ClientThenRecord(1.0, 0.5, 1.4), 6),),
    "always": ((ClientThenRecord(1.0, 1.0, 3.0), 4),),
    "two kinds of rounds": ((ClientThenRecord(1.0, 0.5, 1.2), 2), (ClientThenRecord(1, 0.5, 2), 3)),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_the_bounds_are_below_epsilon_and_not_far_below(name):
    history = HISTORIES[name]
    scores, inside = seen_of(history, 1 << 18)
    true = pld.epsilon(history, DELTA)
    fitted = sigma_fit(scores, inside, history, DELTA, 0.95)
    assert 0.93 * true < fitted <= true
    threshold = threshold_for(history, len(scores), DELTA)
    assert 0.45 * true < counted(scores, inside, threshold, DELTA, 0.95) <= true


def test_missing_noise_is_rejected_and_the_fit_is_above_the_ledger():
    history = HISTORIES["half of six rounds"]
    scores, inside = seen_of(history, 1 << 18, less=0.9)
    assert rejects(scores, inside, history, 0.95)
    true = pld.epsilon(history, DELTA)
    assert true < sigma_fit(scores, inside, history, DELTA, 0.95) < 1.2 * true


@pytest.mark.parametrize("name", HISTORIES)
def test_too_little_is_what_noise_does_not_explain(name):
    history = HISTORIES[name]
    for seed in range(5):
        scores, inside = seen_of(history, 1 << 14, seed)
        assert not too_little(scores, inside, history)
    assert not too_little(*seen_of(history, 1 << 14, less=0.8), history)
    assert too_little(*seen_of(history, 1 << 16, less=1.3), history)
    assert too_little(-scores, inside, history)
    assert too_little(np.full(len(scores), np.nan), inside, history)


def test_scores_that_tell_nothing_show_nothing():
    rng = np.random.default_rng(3)
    inside = rng.random(10_000) < 0.5
    history = HISTORIES["always"]
    assert sigma_fit(rng.normal(size=10_000), inside, history, DELTA, 0.95) < 0.2
