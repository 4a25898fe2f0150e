"""Exposure by rank, its bound and baseline, the fitted tail, and the test of uniform ranks."""

import math

import numpy as np
import pytest

from fedpriv.threat.scoring.exposure import (
    expected_exposure,
    exposure,
    exposure_bound,
    exposure_by_repeats,
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


def p_values(shift, secrets=50, references=60, studies=200):
    """Of studies whose secrets have a loss that is `shift` lower than the references'."""
    draw = rng(5)
    found = []
    for _ in range(studies):
        ranks = [
            random_rank(loss, draw.normal(size=references), draw)
            for loss in draw.normal(-shift, 1, size=secrets)
        ]
        found.append(uniform_ranks_test(ranks, references, draw)[1])
    return np.array(found)


def test_untrained_models_are_accepted_at_the_level_of_the_test():
    found = p_values(0)
    # 5 % of 200, and three standard deviations.
    assert np.mean(found < 0.05) < 0.1
    assert np.mean(found < 0.5) == pytest.approx(0.5, abs=0.12)


def test_a_planted_bias_is_rejected():
    assert np.mean(p_values(0.8, studies=50) < 0.05) > 0.9


def test_references_that_all_secrets_share_are_no_independent_evidence():
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


def test_exposures_go_by_repeat_count():
    found = exposure_by_repeats([1.0, 3.0, 8.0], [1, 1, 10], 255)
    assert list(found) == ["1", "10"]
    assert (found["1"]["mean"], found["1"]["count"]) == (2, 2)
    assert 0 <= found["1"]["low"] < 2 < found["1"]["high"] <= 8
    # One secret alone: as sure as of one coin, with the bound of 8 bits.
    assert found["10"] == {"mean": 8, "low": pytest.approx(8 * 0.025), "high": 8, "count": 1}
