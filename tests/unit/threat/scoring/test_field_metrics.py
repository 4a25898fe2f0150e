"""Distances of reconstructed fields, the improvement factor and the sorted reconstructions."""

import numpy as np
import pytest

from fedpriv.threat.scoring.fields import (
    Shots,
    Similarity,
    area_intervals,
    improvement,
    improvement_factor,
    improvement_terms,
    surest,
    tokens_gained,
)

RIGHT = Similarity(pr=1, hd=0, ham=0, ld=0, jwd=0)
WRONG = Similarity(pr=0, hd=4, ham=1, ld=1, jwd=1)
RESAMPLES = 200


def shots(confidence, right, ham=None):
    columns = (confidence, right, ham if ham is not None else [1 - one for one in right])
    return Shots(*(np.array(column, np.float64) for column in columns))


@pytest.mark.parametrize(
    ("guess", "expected"),
    [
        # By hand: Jaro = (3/4 + 3/4 + 1)/3 = 5/6, and two equal tokens at the front: + 2·0.1/6.
        pytest.param((1, 2, 9, 4), Similarity(0, 1, 1 / 4, 1 / 4, 1 / 6 * 0.8), id="one wrong"),
        # Jaro with one transposition: (1 + 1 + 3/4)/3 = 11/12, and two at the front.
        pytest.param((1, 2, 4, 3), Similarity(0, 2, 1 / 2, 1 / 2, 1 / 12 * 0.8), id="swapped"),
        # Levenshtein drops the 9 and adds a 4, while every place is wrong.
        pytest.param((9, 1, 2, 3), Similarity(0, 4, 1, 1 / 2, 1 / 6), id="shifted"),
        pytest.param((5, 6, 7, 8), WRONG, id="nothing right"),
        pytest.param((1, 2, 3, 4), RIGHT, id="perfect"),
    ],
)
def test_distances_are_of_tokens_at_their_places(guess, expected):
    found = Similarity.of((1, 2, 3, 4), guess)
    for name in ("pr", "hd", "ham", "ld", "jwd"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name)), name


def test_large_ids_of_any_integer_type_are_told_apart():
    true = tuple(np.array([101, 30521, 30520], np.int64))
    assert Similarity.of(true, (101, 30521, 30520)).pr == 1
    assert Similarity.of(true, (101, 30521, 30521)).hd == 1


def test_means_are_taken_measure_by_measure():
    assert Similarity.mean([RIGHT, WRONG, WRONG, WRONG]) == Similarity(0.25, 3, 0.75, 0.75, 0.75)


def test_the_improvement_factor_is_equation_6():
    attack = Similarity(pr=0.04, hd=2, ham=0, ld=0.49, jwd=0.24)
    baseline = Similarity(pr=0.01, hd=4.03, ham=0, ld=0.74, jwd=0.24)
    # .05/.02 = 2.5, 4.04/2.01 = 2.00995, .75/.5 = 1.5, .25/.25 = 1; their mean.
    assert improvement_factor(attack, baseline) == pytest.approx((2.5 + 4.04 / 2.01 + 1.5 + 1) / 4)


def test_epsilon_bounds_the_improvement_factor():
    assert improvement_factor(RIGHT, WRONG) == pytest.approx((101 + 401 + 101 + 101) / 4)
    assert improvement_factor(RIGHT, WRONG, epsilon=1) == pytest.approx((2 + 5 + 2 + 2) / 4)


def test_one_right_reconstruction_is_worth_less_than_a_hundred():
    """The two cases of CDMI, §5.3 that an ordinary AUC does not tell apart."""
    one = shots(np.arange(100, 0, -1), [1] + [0] * 99)
    all_of_them = shots(np.arange(100, 0, -1), [1] * 100)
    assert one.acc_auc == pytest.approx(sum(1 / i for i in range(1, 101)) / 100)
    assert all_of_them.acc_auc == 1
    assert (one.acc_at(0.01), one.acc_at(0.02), one.acc_at(1)) == (1, 0.5, 0.01)


def test_both_areas_by_hand():
    kept = shots([0.1, 0.9, 0.5], [0, 1, 0], [0.5, 0, 0.25])
    assert kept.acc_curve.tolist() == [1, 0.5, pytest.approx(1 / 3)]
    assert kept.ham_curve.tolist() == [0, 0.125, 0.25]
    assert kept.acc_auc == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert kept.ham_aac == pytest.approx(1 - (0 + 0.125 + 0.25) / 3)
    assert (kept.acc_at(0.34), kept.ham_at(0.34)) == (0.5, 0.125)


def test_confidence_may_be_infinite():
    kept = shots([-np.inf, np.inf, 0], [0, 1, 0])
    assert kept.acc_curve.tolist() == [1, 0.5, pytest.approx(1 / 3)]


@pytest.mark.parametrize(("p", "fields", "expected"), [(0.07, 100, 7), (0.05, 40, 2), (1, 3, 3)])
def test_rounding_errors_add_no_field(p, fields, expected):
    assert surest(p, fields) == expected


def hits(share, fields=400, documents=40, seed=0, shift=0.0):
    """Similarities of fields that are the more often right the easier their document is."""
    rng = np.random.default_rng(seed)
    ease = np.repeat(rng.beta(2 * share, 2 * (1 - share), documents), fields // documents)
    right = rng.random(fields) < ease + shift
    return [RIGHT if one else WRONG for one in right], np.repeat(np.arange(documents), 10)


def interval(attack, baseline, documents, level=0.95, **settings):
    names = [f"d{one}" for one in documents]
    return improvement(attack, baseline, names, **settings).limits(level)


def coverage(by_field=False, runs=200):
    """Returns how often the interval holds 1 where attack and baseline are drawn alike."""
    inside = 0
    for seed in range(runs):
        attack, documents = hits(0.4, seed=2 * seed)
        baseline, _ = hits(0.4, seed=2 * seed + 1)
        low, high = interval(attack, baseline, range(400) if by_field else documents)
        inside += low <= 1 <= high
    return inside / runs


def test_the_interval_covers_where_the_attack_is_no_better():
    # Of 200 runs, .95 has a standard deviation of .015.
    assert 0.9 <= coverage() <= 0.99


def test_the_same_check_fails_where_fields_of_a_document_count_as_independent():
    assert coverage(by_field=True, runs=40) < 0.85


def test_a_planted_gain_is_seen():
    baseline, documents = hits(0.4, seed=3)
    attack, _ = hits(0.4, seed=3, shift=0.2)
    low, high = interval(attack, baseline, documents)
    assert 1 < low < improvement_factor(Similarity.mean(attack), Similarity.mean(baseline)) < high


def test_attack_and_baseline_see_the_same_documents():
    baseline, documents = hits(0.4)
    assert interval(baseline, baseline, documents) == (1, 1)


def test_the_order_of_the_fields_and_the_names_do_not_matter_but_the_level_does():
    attack, documents = hits(0.5, seed=5)
    baseline, _ = hits(0.4, seed=6)
    wide = interval(attack, baseline, documents)
    backwards = interval(attack[::-1], baseline[::-1], documents[::-1])
    assert backwards == pytest.approx(wide)
    narrow = interval(attack, baseline, documents, level=0.5)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_a_single_document_tells_no_interval():
    low, high = interval([RIGHT, WRONG], [WRONG, WRONG], ["a", "a"])
    assert (low, high) == (0, np.inf)


def test_what_each_measure_adds_to_the_improvement_factor():
    attack, baseline = Similarity(0.04, 2, 0, 0.49, 0.24), Similarity(0.01, 4.03, 0, 0.74, 0.24)
    expected = {"pr": 2.5 / 4, "hd": 4.04 / 2.01 / 4, "ld": 1.5 / 4, "jwd": 1 / 4}
    assert improvement_terms(attack, baseline) == pytest.approx(expected)


def test_tokens_gained_are_a_mean_over_fields_by_whole_documents():
    half = Similarity(0, 2, 0.5, 0.5, 0.5)
    gained = tokens_gained([RIGHT, half, WRONG], [WRONG, WRONG, WRONG], ["a", "a", "b"])
    assert gained.value == pytest.approx((1 + 0.5 + 0) / 3)
    assert gained.n == 2


def test_few_fields_that_gain_alike_do_not_make_sure():
    alike = tokens_gained([RIGHT] * 3, [WRONG] * 3, ["a", "b", "c"])
    assert (alike.value, alike.n) == (1, 3)
    # Of 1, 1, 1, 1 and -1: standard deviation √.8, and 2.776 of Student's t with 4 degrees.
    assert alike.limits(0.95) == pytest.approx((1 - 2.776 * 0.4, 1 + 2.776 * 0.4), abs=1e-3)


def areas(attack, baseline, documents, seed=0):
    rng = np.random.default_rng(seed)
    return area_intervals(attack, baseline, documents, rng, resamples=RESAMPLES)


def test_areas_of_equal_sides_differ_by_nothing_and_a_planted_gain_is_seen():
    rng = np.random.default_rng(0)
    confidence, right = rng.random(120), rng.random(120) < 0.2
    documents = [f"d{i // 4}" for i in range(120)]
    same = shots(confidence, right.astype(float))
    assert areas(same, same, documents) == ((0, 0), (0, 0))
    better = shots(confidence, (right | (rng.random(120) < 0.3)).astype(float))
    of_acc, of_ham = areas(better, same, documents)
    assert of_acc[0] > 0
    assert of_acc[0] <= better.acc_auc - same.acc_auc <= of_acc[1]
    assert of_ham[0] > 0


def test_a_single_document_gives_an_interval_without_width():
    kept, other = shots([3, 2, 1], [1, 0, 1]), shots([3, 2, 1], [0, 1, 0])
    of_acc, _ = areas(kept, other, ["a"] * 3)
    assert of_acc == (kept.acc_auc - other.acc_auc,) * 2
