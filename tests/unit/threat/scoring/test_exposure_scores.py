"""Exposure by rank, its bound and baseline, the fitted tail, and the test of uniform ranks."""

import math

import numpy as np
import pytest

from fedpriv.threat.scoring.exposure import (
    expected_exposure,
    exposure,
    exposure_bound,
    exposure_by_repeats,
    extrapolated_exposure,
    random_rank,
    rank,
    uniform_ranks_test,
)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("loss", "place", "bits"),
    [
        pytest.param(0.5, 1, 3, id="below all seven"),
        pytest.param(1.5, 2, 2, id="second of eight"),
        pytest.param(3.5, 4, 1, id="in the middle"),
        pytest.param(9.0, 8, 0, id="above all"),
        pytest.param(1.0, 1.5, math.log2(8 / 1.5), id="tied with the first"),
    ],
)
def test_exposure_is_the_bits_that_the_rank_saves(loss, place, bits):
    others = [4, 2, 1, 3, 5, 7, 6]
    assert rank(loss, others) == place
    assert exposure(loss, others) == pytest.approx(bits)


def test_a_model_that_says_the_same_of_everything_exposes_a_bit_at_most():
    assert rank(2.0, [2.0] * 9) == 5.5
    assert exposure(2.0, [2.0] * 9) == pytest.approx(math.log2(10 / 5.5))


def test_bound_and_baseline():
    assert exposure_bound(1023) == 10
    # One reference: 1 bit or none. Three: 2, 1, 2 - log2 3 and 0.
    assert expected_exposure(1) == pytest.approx(0.5)
    assert expected_exposure(3) == pytest.approx((5 - math.log2(3)) / 4)
    assert expected_exposure(10**6) == pytest.approx(math.log2(math.e), abs=1e-4)


@pytest.mark.parametrize("function", [exposure_bound, expected_exposure])
def test_nothing_is_shown_without_references(function):
    with pytest.raises(ValueError, match="references=0: expected 1 or more"):
        function(0)


@pytest.mark.parametrize(
    ("loss", "others", "words"),
    [
        (1.0, [], "expected"),
        (1.0, [[1.0]], r"\(1, 1\)"),
        (math.nan, [1.0], "not finite"),
        (1.0, [math.inf], "not finite"),
    ],
)
def test_losses_that_cannot_be_ranked_are_refused(loss, others, words):
    with pytest.raises(ValueError, match=words):
        exposure(loss, others)


def test_untrained_secrets_have_the_baseline_exposure():
    draw = rng(1)
    bits = [exposure(*draw.normal(size=1), draw.normal(size=255)) for _ in range(2000)]
    # Its standard deviation is about 1.4 bits: 0.03 for the mean.
    assert np.mean(bits) == pytest.approx(expected_exposure(255), abs=0.1)


def test_the_fitted_tail_goes_on_below_the_references_and_says_so():
    others = rng(2).normal(20, 2, size=1000)
    found = extrapolated_exposure([10.0, 16.0, 20.0, 30.0], others)
    # Of the normal distribution that they came from: 21.7, 5.46, 1 and 0 bits.
    assert found.bits[1:] == pytest.approx([5.46, 1, 0], abs=0.4)
    assert found.bits[0] > 15
    assert found.beyond.tolist() == [True, False, False, False]
    assert found.fit_p_value > 0.05


def test_the_fitted_tail_ends_where_its_numbers_are_noise():
    others = rng(2).normal(20, 2, size=100)
    found = extrapolated_exposure([-1e6], others)
    assert found.bits[0] == pytest.approx(49.83, abs=0.01)
    assert found.beyond.all()


def test_a_bad_fit_is_told():
    others = np.concatenate([rng(3).normal(0, 0.1, 300), rng(4).normal(9, 0.1, 300)])
    assert extrapolated_exposure([1.0], others).fit_p_value < 0.001


@pytest.mark.parametrize("others", [np.arange(29.0), np.ones(100)])
def test_nothing_is_fitted_to_few_or_equal_references(others):
    with pytest.raises(ValueError, match="expected 30 or more that differ"):
        extrapolated_exposure([1.0], others)


def p_values(shift, shared, secrets=50, references=60, studies=200):
    """Of studies whose secrets have a loss that is `shift` lower than the references'."""
    draw = rng(5)
    found = []
    for _ in range(studies):
        common = draw.normal(size=references)
        ranks = [
            random_rank(loss, common if shared else draw.normal(size=references), draw)
            for loss in draw.normal(-shift, 1, size=secrets)
        ]
        found.append(uniform_ranks_test(ranks, references, draw, shared=shared)[1])
    return np.array(found)


@pytest.mark.parametrize("shared", [False, True])
def test_untrained_models_are_accepted_at_the_level_of_the_test(shared):
    found = p_values(0, shared)
    # 5 % of 200, and three standard deviations.
    assert np.mean(found < 0.05) < 0.1
    assert np.mean(found < 0.5) == pytest.approx(0.5, abs=0.12)


@pytest.mark.parametrize("shared", [False, True])
def test_a_planted_bias_is_rejected(shared):
    assert np.mean(p_values(0.8, shared, studies=50) < 0.05) > 0.9


def test_references_that_all_share_need_the_test_that_knows_it():
    draw = rng(6)
    found = []
    for _ in range(100):
        common = draw.normal(size=60)
        ranks = [random_rank(loss, common, draw) for loss in draw.normal(size=50)]
        found.append(uniform_ranks_test(ranks, 60, draw)[1])
    assert np.mean(np.array(found) < 0.05) > 0.15


def test_few_references_are_no_reason_to_reject():
    # Ranks 1 and 2 only: without the draw within steps, KS would see a jump of a half.
    ranks = [1, 2] * 200
    statistic, p_value = uniform_ranks_test(ranks, 1, rng(7))
    assert statistic < 0.1
    assert p_value > 0.05
    assert uniform_ranks_test([1] * 400, 1, rng(7))[1] < 1e-6


def test_ties_are_broken_by_the_generator():
    others = [1.0, 2.0, 2.0, 2.0, 3.0]
    drawn = {random_rank(2.0, others, rng(seed)) for seed in range(60)}
    assert drawn == {2, 3, 4, 5}
    assert random_rank(0.0, others, rng()) == 1


@pytest.mark.parametrize("ranks", [[1.5], [0], [12]])
def test_ranks_that_are_none_are_refused(ranks):
    with pytest.raises(ValueError, match="expected a whole number from 1 to 11; break ties with"):
        uniform_ranks_test(ranks, 10, rng())
    with pytest.raises(ValueError, match="there is no rank"):
        uniform_ranks_test([], 10, rng())


def test_exposures_go_by_repeat_count():
    found = exposure_by_repeats([1.0, 3.0, 8.0], [1, 1, 10], rng(), resamples=100)
    assert list(found) == ["1", "10"]
    assert (found["1"]["mean"], found["1"]["count"]) == (2, 2)
    assert 1 <= found["1"]["low"] <= 2 <= found["1"]["high"] <= 3
    assert found["10"] == {"mean": 8, "low": 8, "high": 8, "count": 1}
    with pytest.raises(ValueError, match="2 exposures and 1 repeat counts"):
        exposure_by_repeats([1.0, 2.0], [1], rng())
