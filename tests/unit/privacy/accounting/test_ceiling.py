"""What any attack reaches at most: against closed forms, and against attacks that reach it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import roc_auc_score
from thorough import examples

from fedpriv.privacy.accounting.ceiling import RATES, Ceiling, ceiling, sentence
from fedpriv.privacy.accounting.event import ClientThenRecord


@examples(10, 40)
@given(st.floats(0.25, 30.0), st.integers(1, 20))
def test_a_gaussian_is_bounded_from_above_and_closely(sigma, releases):
    """Dong, Roth and Su 2022: n releases at σ are one at σ / √n, and f is that of two normals."""
    mu = math.sqrt(releases) / sigma
    found = ceiling([(ClientThenRecord(1.0, 1.0, sigma), releases)])
    area, apart = norm.cdf(mu / math.sqrt(2)), 2 * norm.cdf(mu / 2) - 1
    assert 0 <= found.auc - area < 2e-3
    assert -1e-9 <= found.advantage - apart < 2e-3
    for rate in RATES if mu < 4 else ():  # above, the ε that are tried are too few to be close
        reached = norm.cdf(norm.ppf(rate) + mu)
        assert -1e-9 <= found.tpr[f"{rate:g}"] - reached < 2e-3


def test_the_competition_on_document_vqa_has_the_numbers_of_its_mechanism():
    """FL-PROVIDER-DP at ε = 8, whose AUC was computed apart from this code."""
    found = ceiling([(ClientThenRecord(1.0, 415 / 4149, 0.93689), 100)])
    assert found.auc == pytest.approx(0.8214, abs=1e-4)
    assert found.advantage == pytest.approx(0.4717, abs=1e-4)
    assert found.tpr["0.01"] == pytest.approx(0.174, abs=1e-3)
    assert sentence(vars(found)) == "AUC at most 0.822, at 1 % false alarms at most 18 % found"


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_the_best_attack_on_sampled_releases_stays_below(sigma):
    """The likelihood ratio of a record that enters a release with probability .3, four times."""
    rng, rate, times, count = np.random.default_rng(0), 0.3, 4, 20_000
    entered = rng.random((count, times)) < rate
    seen = rng.normal(0, sigma, (2, count, times))
    seen[1] += entered
    ratio = np.log1p(rate * np.expm1((2 * seen - 1) / (2 * sigma**2))).sum(-1)
    area = roc_auc_score(np.repeat([0, 1], count), ratio.ravel())
    found = ceiling([(ClientThenRecord(1.0, rate, sigma), times)])
    # Its standard error is below .003, and both directions in f cost a few hundredths.
    assert area - 0.01 < found.auc < area + 0.05


def test_nothing_released_bounds_to_guessing_and_no_noise_to_nothing():
    assert ceiling([]) == Ceiling(0.5, 0.0, {f"{rate:g}": rate for rate in RATES})
    assert ceiling([(ClientThenRecord(1.0, 1.0, 0.0), 1)]) is None
    assert sentence(None) == ""
