"""Properties of what is said about membership attacks, over generated scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from fedpriv.threat.claims import MEMBER, NON_MEMBER
from fedpriv.threat.scoring.membership import Judged, auc, membership_metrics, roc, tpr_at

whole = st.integers(-30, 30)


@st.composite
def scored(draw):
    """Members and scores, (n,) each, with at least one of either kind and many ties."""
    members = draw(st.lists(st.booleans(), min_size=2, max_size=30).filter(_both))
    scores = draw(st.lists(whole, min_size=len(members), max_size=len(members)))
    return np.array(members), np.array(scores, np.float64)


def _both(members):
    return any(members) and not all(members)


def trial_of(members, scores):
    guesses = np.where(scores > np.median(scores), MEMBER, NON_MEMBER).astype(np.int8)
    return Judged(tuple(f"p{i}" for i in range(len(members))), members, scores, guesses)


def metrics(trial, seed=0, resamples=50):
    return membership_metrics([trial], np.random.default_rng(seed), resamples=resamples)


@settings(deadline=None)
@given(scored())
def test_auc_and_roc_do_not_change_under_rising_transforms(pair):
    members, scores = pair
    for transformed in (scores * 3 - 7, np.exp(scores / 10), scores**3, np.arctan(scores)):
        assert auc(members, transformed) == auc(members, scores)
        for mine, theirs in zip(roc(members, transformed), roc(members, scores), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@settings(deadline=None)
@given(scored())
def test_the_auc_is_the_area_under_the_roc_and_turns_with_the_scores(pair):
    members, scores = pair
    false, true = roc(members, scores)
    assert np.trapezoid(true, false) == pytest.approx(auc(members, scores))
    assert auc(members, -scores) == pytest.approx(1 - auc(members, scores))
    assert auc(~members, scores) == pytest.approx(1 - auc(members, scores))


@settings(deadline=None)
@given(scored(), st.floats(0, 0.99))
def test_no_threshold_finds_more_members_at_the_rate(pair, rate):
    members, scores = pair
    best = max(
        scores[members].__ge__(threshold).mean()
        for threshold in [*scores, np.inf]
        if scores[~members].__ge__(threshold).mean() <= rate
    )
    assert tpr_at(rate, members, scores) == pytest.approx(best)


@settings(max_examples=30, deadline=None)
@given(scored(), st.randoms(use_true_random=False))
def test_the_order_of_the_providers_does_not_matter(pair, random):
    members, scores = pair
    order = np.array(random.sample(range(len(members)), len(members)))
    one, other = (
        metrics(trial_of(members, scores)),
        metrics(trial_of(members[order], scores[order])),
    )
    for name in ("accuracy", "balanced_accuracy", "auc", "tpr_at_fpr", "prior", "n", "members"):
        assert one[name] == pytest.approx(other[name])


@settings(max_examples=30, deadline=None)
@given(scored())
def test_everything_lies_where_it_must(pair):
    found = metrics(trial_of(*pair))
    for name in ("prior", "accuracy", "balanced_accuracy", "auc", "p_value", "p_value_auc"):
        assert 0 <= found[name] <= 1
    assert found["p_value"] > 0
    for low, high in found["interval"].values():
        assert 0 <= low <= high <= 1


def p_values(seeds, bias):
    """Returns the p-values of AUC on 40 providers whose scores know `bias` of membership."""
    found = []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        members = rng.permutation(np.arange(40) < 20)
        scores = rng.normal(size=40) + bias * members
        found.append(metrics(trial_of(members, scores), seed, 199)["p_value_auc"])
    return np.array(found)


def test_p_values_are_uniform_where_membership_is_random():
    # 199 permutations leave steps of 1/200, which the test on 300 values does not see.
    assert kstest(p_values(300, bias=0.0), "uniform").pvalue > 0.01


def test_the_same_check_rejects_a_small_bias():
    assert kstest(p_values(300, bias=0.25), "uniform").pvalue < 1e-6


@pytest.mark.parametrize("level", [pytest.param(0.05, marks=pytest.mark.slow), 0.2])
def test_twice_the_median_keeps_its_level_over_dependent_trials(level):
    """Five trials that share most of their providers, on scores that know nothing."""
    below = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        members, scores = rng.permutation(np.arange(40) < 20), rng.normal(size=40)
        trials = []
        for _ in range(5):
            kept = np.sort(rng.permutation(40)[:34])
            guesses = np.where(scores[kept] > 0, MEMBER, NON_MEMBER).astype(np.int8)
            names = tuple(f"p{i}" for i in kept)
            trials.append(Judged(names, members[kept], scores[kept], guesses))
        found = membership_metrics(trials, rng, resamples=99)
        below += found["p_value_auc"] <= level
    # Three standard deviations above the level.
    assert below / 200 <= level + 3 * np.sqrt(level * (1 - level) / 200)
