"""Properties of what is said about membership attacks, over generated scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.threat.claims import MEMBER, NON_MEMBER
from fedpriv.threat.scoring.membership import Judged, found_at, membership_metrics, roc
from fedpriv.threat.statistics import area

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


def auc(members, scores):
    return area([members], [scores], [np.arange(len(scores))]).value


def metrics(trial):
    return membership_metrics([trial]).numbers


@given(scored())
def test_auc_and_roc_do_not_change_under_rising_transforms(pair):
    members, scores = pair
    for transformed in (scores * 3 - 7, np.exp(scores / 10), scores**3, np.arctan(scores)):
        assert auc(members, transformed) == auc(members, scores)
        for mine, theirs in zip(roc(members, transformed), roc(members, scores), strict=True):
            np.testing.assert_array_equal(mine, theirs)


@given(scored())
def test_the_auc_is_the_area_under_the_roc_and_turns_with_the_scores(pair):
    members, scores = pair
    false, true = roc(members, scores)
    assert np.trapezoid(true, false) == pytest.approx(auc(members, scores))
    assert auc(members, -scores) == pytest.approx(1 - auc(members, scores))
    assert auc(~members, scores) == pytest.approx(1 - auc(members, scores))


@given(scored(), st.floats(0, 0.99))
def test_no_threshold_finds_more_members_at_the_rate(pair, rate):
    members, scores = pair
    best = max(
        scores[members].__ge__(threshold).mean()
        for threshold in [*scores, np.inf]
        if scores[~members].__ge__(threshold).mean() <= rate
    )
    assert found_at(rate, members, scores).mean() == pytest.approx(best)


@settings(max_examples=30)
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


@settings(max_examples=30)
@given(scored())
def test_everything_lies_where_it_must(pair):
    found = metrics(trial_of(*pair))
    for name in ("prior", "accuracy", "balanced_accuracy", "auc", "p_value", "p_value_auc"):
        assert 0 <= found[name] <= 1
    assert found["p_value"] > 0
    for low, high in found["interval"].values():
        assert 0 <= low <= high <= 1
