"""E, G and M, the scores over K splits, their intervals and the tests that go with them."""

import numpy as np
import pytest

from fedpriv.attacks.extraction.measures import (
    Scores,
    assignment_p_value,
    balanced_splits,
    histogram,
    memorised,
    memorised_share,
    memorization_metrics,
    null_memorization,
    pii_counts,
    rank_test,
    set_sizes,
    sizes_by_repeats,
)
from fedpriv.threat.scoring.summaries import mean_interval


def rng(seed=0):
    return np.random.default_rng(seed)


def bools(text):
    return np.array([letter == "1" for letter in text])


def hits(inside, outside, splits):
    return Scores(np.array(inside), np.array(outside), splits)


def said(inside, p_in, p_out, seed=1):
    """What models say: with probability p_in where they were trained with the canary."""
    return rng(seed).random(inside.shape) < np.where(inside, p_in, p_out)


def test_memorised_is_what_only_the_trained_model_says():
    assert memorised(bools("1100"), bools("1010")).tolist() == [False, True, False, False]
    sizes = set_sizes(bools("11011"), bools("10100"), ["a", "b", "c", "b", "d"])
    low, high = sizes.pop("interval")
    # Of a and b, b is said by f alone of both its samples, a of one; c by f_G alone; d by f.
    assert sizes == {"E": 4, "G": 2, "M": 3, "control": 1, "answers": 4, "answers_in_M": 2}
    assert 0 <= low < 2 < high <= 4


def test_nobody_asked_is_no_set_and_no_interval():
    assert set_sizes([], [], []) == {
        **dict.fromkeys(("E", "G", "M", "control", "answers", "answers_in_M"), 0),
        "interval": None,
    }


def test_many_samples_of_one_answer_are_one_piece_of_evidence():
    in_e, in_g = bools("1" * 40 + "0" * 40), bools("0" * 80)
    alone = memorised_share(in_e, in_g, [str(i) for i in range(80)])
    twins = memorised_share(in_e, in_g, [str(i // 20) for i in range(80)])
    assert (alone.value, alone.n, twins.value, twins.n) == (0.5, 80, 0.5, 4)
    assert alone.p_value == pytest.approx(2 * 0.5**40)
    assert twins.p_value == pytest.approx(2 * 0.5**2)
    assert alone.interval[0] > 0 == twins.interval[0]


def test_a_leak_of_the_published_size_is_shown():
    """Of 4,654 canaries with answers of their own, 94 are said by f alone and 20 by f_G alone."""
    said = np.zeros((2, 4654), bool)
    said[0, :94], said[1, 94:114] = True, True
    found = memorised_share(*said, [str(i) for i in range(4654)])
    assert found.p_value < 1e-11
    assert found.interval[0] > found.control
    assert found.detectable < 0.015


def test_models_that_say_as_much_of_each_other_have_memorised_nothing():
    share = memorised_share(bools("1100"), bools("0011"), list("abcd"))
    assert (share.value, share.control, share.p_value) == (0.5, 0.5, 1.0)


def test_sizes_go_by_repeat_count_from_the_least_up():
    found = sizes_by_repeats(bools("11110"), bools("01000"), [10, 2, 2, 1, 1], list("abbcd"))
    assert list(found) == ["1", "2", "10"]
    counts = [[row[n] for n in ("canaries", "E", "G", "M", "control")] for row in found.values()]
    assert counts == [[2, 1, 0, 1, 0], [2, 2, 1, 1, 0], [1, 1, 0, 1, 0]]
    # One of b's two samples is said by f_G too, so b is not in M.
    assert [(row["answers_in_M"], row["answers"]) for row in found.values()] == [
        (1, 2), (0, 1), (1, 1)
    ]  # fmt: skip


def test_unique_pii_is_memorised_personal_and_trained_on_once():
    pii = ["person", "", "person", "contact", "place"]
    found = pii_counts(bools("11110"), pii, [1, 1, 3, 1, 1])
    assert found == {"pii": 3, "unique_pii": 2, "pii_classes": {"person": 2, "contact": 1}}


def test_every_half_of_the_splits_is_as_likely():
    drawn = balanced_splits(4, 6000, rng())
    patterns, counts = np.unique(drawn, axis=1, return_counts=True)
    assert patterns.shape[1] == 6
    # 1000 each, with a standard deviation of 29.
    assert counts.min() > 880
    assert counts.max() < 1120


def test_scores_are_the_shares_with_and_without_the_canary():
    # Canary 0: inside of splits 0, 1; said by 0, 1, 2. Canary 1: inside of 2, 3; said by 0 alone.
    inside = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], bool)
    correct = np.array([[1, 1], [1, 0], [1, 0], [0, 0]], bool)
    scores = Scores.of(correct, inside)
    assert scores.memorization.tolist() == [0.5, -0.5]
    assert scores.simplicity.tolist() == [1.5, 0.5]


def test_the_mean_of_canaries_on_few_pages_is_less_sure():
    values = np.repeat([0.0, 1.0], 20)
    alone = mean_interval(values, (0, 1))
    together = mean_interval(values, (0, 1), [f"page {i // 10}" for i in range(40)])
    assert alone["mean"] == together["mean"] == 0.5
    # Standard errors: 0.5/√40 = 0.079 and 0.5/√4 = 0.25.
    assert alone["high"] - alone["low"] == pytest.approx(4 * 0.079, rel=0.2)
    assert together["high"] - together["low"] > 0.6


def test_the_mean_of_nothing_is_none():
    nothing = {"mean": None, "low": None, "high": None, "count": 0}
    assert mean_interval([], (0, 1)) == nothing


def test_a_mean_between_ends_is_that_of_shares_stretched():
    found, share = mean_interval([-1, 1, 1], (-1, 1)), mean_interval([0, 1, 1], (0, 1))
    assert found["mean"] == pytest.approx(1 / 3)
    for end in ("low", "high"):
        assert found[end] == pytest.approx(2 * share[end] - 1)


@pytest.mark.parametrize("splits", [8, 10])
def test_the_null_is_centred_on_zero_whatever_the_models_say(splits):
    inside = balanced_splits(splits, 60, rng())
    scores = Scores.of(said(inside, 0.9, 0.4), inside)
    null = null_memorization(scores, rng(2))
    assert abs(null["mean"]) < 0.02
    assert null["low"] < 0 < null["high"]
    assert null["high"] < 0.2


def test_the_null_has_the_width_of_shuffled_models():
    # 2 of 4 unseen models say each of 100 answers: 2 against 2 gives M = 1, 0, -1 with 1/6, 4/6,
    # 1/6, so the mean of 100 has the standard deviation √(1/3)/10 = 0.0577.
    null = null_memorization(hits([4] * 100, [2] * 100, 8), rng(), resamples=4000)
    assert null["high"] == pytest.approx(1.96 * 0.0577, abs=0.012)
    assert null["low"] == pytest.approx(-1.96 * 0.0577, abs=0.012)


def test_two_splits_leave_nothing_to_halve():
    assert null_memorization(hits([1, 0], [0, 0], 2), rng()) is None
    assert null_memorization(hits([], [], 8), rng()) is None
    assert assignment_p_value(hits([], [], 8), rng()) is None


def test_the_null_rejects_an_assignment_that_looked_at_the_answers():
    # No model has seen any canary; the assignment prefers the splits that happen to be right.
    fair = balanced_splits(8, 80, rng())
    correct = said(fair, 0.3, 0.3)
    peeked = (-(correct + rng(3).random(correct.shape))).argsort(axis=0).argsort(axis=0) < 4
    for inside, biased in ((fair, False), (peeked, True)):
        scores = Scores.of(correct, inside)
        null = null_memorization(scores, rng(4))
        mean = scores.memorization.mean()
        assert (mean > null["high"]) == biased
        assert (assignment_p_value(scores, rng(5)) < 0.01) == biased


def test_p_values_of_models_that_memorise_nothing_are_not_too_small():
    found = []
    for seed in range(200):
        inside = balanced_splits(8, 30, rng(seed))
        # Models differ, and so do canaries: neither is a reason to reject.
        chance = rng(seed + 1000).random((8, 1)) * rng(seed + 2000).random((1, 30))
        correct = rng(seed + 3000).random((8, 30)) < chance
        found.append(assignment_p_value(Scores.of(correct, inside), rng(seed), resamples=199))
    assert np.mean(np.array(found) <= 0.1) < 0.17
    assert np.mean(np.array(found) <= 0.5) > 0.35


def test_a_planted_memoriser_is_found():
    inside = balanced_splits(8, 60, rng())
    p_in = np.where(np.arange(60) < 15, 0.9, 0.05)
    scores = Scores.of(said(inside, p_in, 0.05), inside)
    planted, rest = scores.memorization[:15], scores.memorization[15:]
    assert planted.mean() > 0.6
    assert abs(rest.mean()) < 0.1
    assert assignment_p_value(scores, rng(6)) < 0.005
    found = rank_test(planted, rest, rng(7))
    assert found["auc"] > 0.95
    assert found["p"] < 0.001


def test_the_rank_test_counts_ties_half_and_takes_them_for_no_evidence():
    # Pairs: 1 > 0 twice, 0.5 > 0 twice, 0 = 0 twice: (4 + 2/2)/6. Of the ten ways to choose three
    # of (1, .5, 0, 0, 0), three take both large ones.
    found = rank_test(np.array([1, 0.5, 0]), np.array([0.0, 0]), rng())
    assert found == {"auc": pytest.approx(5 / 6), "p": pytest.approx(0.3, abs=0.02), "M": 3, "G": 2}


def test_the_rank_test_says_none_where_it_cannot_tell():
    nothing = {"auc": None, "p": None, "M": 2, "G": 0}
    assert rank_test(np.ones(2), np.array([]), rng()) == nothing
    assert rank_test(np.ones(2), np.ones(3), rng()) == {"auc": 0.5, "p": None, "M": 2, "G": 3}


def test_the_histogram_has_a_place_for_each_pair_of_counts():
    scores = hits([2, 2, 0, 0, 1], [0, 0, 2, 0, 1], 4)
    counts = histogram(scores.memorization, scores.simplicity, 4)
    # Rows S_E = 0, ½ … 2, columns M_E = -1 … 1.
    expected = np.zeros((5, 5), int)
    expected[2, 4], expected[2, 0], expected[0, 2], expected[2, 2] = 2, 1, 1, 1
    assert counts.tolist() == expected.tolist()


def test_the_metrics_of_a_study_are_of_all_of_m_of_g_and_by_repeats():
    scores = hits([4, 4, 4, 0, 0], [0, 0, 4, 0, 0], 8)
    found = memorization_metrics(
        scores, bools("11100"), bools("00100"), [1, 5, 5, 1, 1], rng(), resamples=50
    )
    of_all = found["memorization"]
    assert (of_all["mean"], of_all["count"]) == (0.4, 5)
    assert (of_all["of_M"]["mean"], of_all["of_M"]["count"]) == (1, 2)
    assert (of_all["of_G"]["mean"], of_all["of_G"]["count"]) == (0, 1)
    assert {name: row["mean"] for name, row in of_all["by_repeats"].items()} == {
        "1": pytest.approx(1 / 3),
        "5": 0.5,
    }
    assert of_all["rank_test"]["auc"] == 1
    assert of_all["low"] <= 0.4 <= of_all["high"]
    # By chance, two canaries with 4 hits of 8 are as high once in 70 · 70 times.
    assert of_all["p"] == pytest.approx(1 / 51)
    assert found["simplicity"]["mean"] == pytest.approx(0.8)
