"""What is said of a membership attack: against scikit-learn and SciPy, and by hand."""

import time

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import accuracy_score, balanced_accuracy_score, roc_auc_score, roc_curve

from fedpriv.threat.claims import MEMBER, NO_GUESS, NON_MEMBER
from fedpriv.threat.scoring.membership import (
    Judged,
    found_at,
    membership_metrics,
    roc,
    tpr_limits,
)


def judged(members, scores, guesses=None, providers=None):
    members = np.array(members, bool)
    scores = np.array(scores, np.float64)
    if guesses is None:
        guesses = np.where(scores > 0, MEMBER, NON_MEMBER)
    names = providers if providers is not None else [f"p{i}" for i in range(len(members))]
    return Judged(tuple(names), members, scores, np.array(guesses, np.int8))


def random_trial(seed, size=80, shift=0.7, decimals=1):
    """A trial with ties among the scores."""
    rng = np.random.default_rng(seed)
    members = rng.permutation(np.arange(size) < size // 2)
    return judged(members, (rng.normal(size=size) + shift * members).round(decimals))


def metrics(*trials):
    return membership_metrics(trials).numbers


def test_one_trial_by_hand():
    found = metrics(
        judged(
            [1, 1, 1, 0, 0],
            [0.9, 0.5, 0.1, 0.5, 0.2],
            [MEMBER, NO_GUESS, NON_MEMBER, NON_MEMBER, NON_MEMBER],
        )
    )
    assert (found["n"], found["members"], found["trials"], found["prior"]) == (5, 3, 1, 0.6)
    assert found["accuracy"] == pytest.approx((1 + 0.5 + 0 + 1 + 1) / 5)
    assert found["accuracy_std"] == 0.0
    assert found["balanced_accuracy"] == pytest.approx((0.5 + 1) / 2)
    assert found["auc"] == pytest.approx((2 + 1.5 + 0) / 6)
    assert found["tpr_at_fpr"] == pytest.approx({"0.01": 1 / 3, "0.001": 1 / 3})


@pytest.mark.parametrize("seed", range(5))
def test_scikit_learn_agrees(seed):
    trial = random_trial(seed)
    found = metrics(trial)
    right, said, scores = trial.members, trial.guesses == MEMBER, trial.scores
    assert found["accuracy"] == pytest.approx(accuracy_score(right, said))
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(right, said))
    assert found["auc"] == pytest.approx(roc_auc_score(right, scores))
    false, true, _ = roc_curve(right, scores, drop_intermediate=False)
    for mine, theirs in zip(roc(right, scores), (false, true), strict=True):
        np.testing.assert_allclose(mine, theirs)
    for rate in (0.001, 0.05, 0.1, 0.3):
        assert found_at(rate, right, scores).mean() == pytest.approx(
            true[false <= rate + 1e-12].max()
        )


def test_several_trials_are_averaged():
    first = judged([1, 1, 0, 0], [1, 1, -1, -1])
    second = judged([1, 0, 0], [1, 1, -1], providers=["p0", "p2", "p3"])
    found = metrics(first, second)
    assert (found["n"], found["members"], found["trials"]) == (3.5, 1.5, 2)
    assert found["prior"] == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert found["accuracy"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["accuracy_std"] == pytest.approx(np.std([1, 2 / 3], ddof=1))
    assert found["auc"] == pytest.approx((1 + 3 / 4) / 2)


def test_constant_scores_tell_nothing():
    trial = judged([1, 1, 0, 0, 0], np.zeros(5))
    found = metrics(trial)
    assert found["auc"] == 0.5
    # As sure as of two coins, the smaller side: not at all.
    assert found["interval"]["auc"] == pytest.approx([0.0126, 0.9874], abs=1e-4)
    assert found["p_value_auc"] == found["p_value"] == 1.0
    assert found["tpr_at_fpr"] == {"0.01": 0.0, "0.001": 0.0}
    assert [line.tolist() for line in roc(trial.members, trial.scores)] == [[0, 1], [0, 1]]


def test_ties_count_against_the_attack():
    members = np.array([True] * 4 + [False] * 200)
    scores = np.concatenate([[9.0, 5.0, 5.0, 4.0], [6.0, 5.0], np.zeros(198)])
    # One false positive in a hundred: two of 200, so the threshold may pass 6 and 5, and 4 as well.
    assert found_at(0.01, members, scores).mean() == 1.0
    # One of 200: no threshold passes the members' 5 and not the non-member's.
    assert found_at(0.005, members, scores).mean() == 0.25
    # Fewer than a thousand non-members: no false positive at all.
    assert found_at(0.001, members, scores).mean() == 0.25


def test_three_providers_tell_nothing_however_well_they_are_told():
    found = metrics(judged([1, 1, 0], [2, 1, 0], [MEMBER, MEMBER, NON_MEMBER]))
    assert found["auc"] == found["balanced_accuracy"] == found["tpr_at_fpr"]["0.01"] == 1.0
    # The one of the smaller side: 1 - 0.975 of a single coin.
    assert found["interval"]["auc"] == pytest.approx([0.025, 1.0])
    assert found["p_value_auc"] == 1.0


@pytest.mark.parametrize("seed", range(20))
def test_interval_and_p_value_agree(seed):
    trials = [random_trial(seed, size=24, shift=0.9), random_trial(seed, size=24, shift=0.5)]
    found = metrics(*trials)
    for name, p in (("auc", "p_value_auc"), ("balanced_accuracy", "p_value")):
        low, high = found["interval"][name]
        assert (found[p] <= 0.05) == (not low <= 0.5 <= high)


def test_the_interval_has_the_width_that_theory_gives():
    """Balanced accuracy is the mean of two shares, whose deviations are binomial."""
    trial = judged([1] * 200 + [0] * 300, [1] * 120 + [-1] * 80 + [1] * 90 + [-1] * 210)
    low, high = metrics(trial)["interval"]["balanced_accuracy"]
    deviation = np.sqrt(0.6 * 0.4 / 200 + 0.7 * 0.3 / 300) / 2
    assert (low + high) / 2 == pytest.approx(0.65, abs=0.005)
    assert (high - low) / (2 * 1.96) == pytest.approx(deviation, rel=0.07)


def test_a_provider_in_five_trials_is_one_provider():
    """Judging the same providers again makes nothing surer."""
    trial = random_trial(1, size=100)
    once, often = metrics(trial), metrics(*[trial] * 5)
    for name in ("balanced_accuracy", "auc", "tpr"):
        widths = [high - low for low, high in (m["interval"][name] for m in (once, often))]
        assert widths[1] == pytest.approx(widths[0], rel=0.05)


def test_draws_that_differ_make_the_mean_less_sure():
    perfect = judged([1] * 20 + [0] * 20, [1] * 20 + [-1] * 20)
    useless = judged([1] * 20 + [0] * 20, np.zeros(40), [NO_GUESS] * 40)
    low, high = metrics(*[perfect, useless] * 2)["interval"]["auc"]
    # Halves of 0.29 over four draws: two standard errors either side of 0.75.
    assert high - low > 4 * np.std([1, 0.5, 1, 0.5], ddof=1) / 2 * 0.9


@pytest.mark.parametrize(
    ("trial", "message"),
    [
        (lambda: judged([1, 1], [0, 1]), "no non-members among the 2 suppliers"),
        (lambda: judged([0, 0], [0, 1]), "no members among the 2 suppliers"),
        (lambda: judged([1, 0], [0, np.nan]), "a score is nan: expected finite ones"),
        (lambda: judged([1, 0], [0, np.inf]), "a score is inf: expected finite ones"),
        (lambda: judged([1, 0], [0, -np.inf]), "a score is -inf: expected finite ones"),
        (lambda: judged([1, 0], [0, 1], [2, 0]), "expected 1, -1 or 0"),
        (lambda: judged([1, 0], [0, 1, 2]), "one value for each supplier"),
        (lambda: judged([1, 0], [0, 1], providers=["a", "a"]), "judged twice"),
    ],
)
def test_what_cannot_be_scored(trial, message):
    with pytest.raises(ValueError, match=message):
        trial()


def test_trials_must_agree_on_who_is_a_member():
    with pytest.raises(ValueError, match="'p0' is a member in one trial and not in another"):
        metrics(judged([1, 0], [0, 1]), judged([0, 1], [0, 1]))
    with pytest.raises(ValueError, match="no trial"):
        metrics()


def test_660_providers_in_five_trials_take_little_time():
    trials = [random_trial(0, size=660, decimals=9)] * 5
    began = time.process_time()
    metrics(*trials)
    # A quarter of a second on an idle core.
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize("others", [10, 60, 300])
@pytest.mark.parametrize("shift", [0.0, 2.0])
def test_the_tpr_is_covered_though_its_threshold_is_in_doubt(others, shift):
    rng = np.random.default_rng(3)
    true, missed, repeats = norm.sf(norm.isf(0.01) - shift), 0, 300
    members = np.arange(30 + others) < 30
    for _ in range(repeats):
        low, high = tpr_limits(members, rng.normal(size=len(members)) + shift * members)
        missed += not low <= true <= high
    assert missed / repeats <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / repeats)


def test_of_few_others_nothing_is_known_of_the_tpr_from_below():
    members = np.arange(60) < 30
    low, high = tpr_limits(members, members * 1.0)
    assert (low, high) == (0, 1)
