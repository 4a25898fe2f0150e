"""Steps 3 to 6 of CDMI, and its membership metrics, against numbers worked out by hand."""

import math

import numpy as np
import pytest

from fedpriv.attacks.cdmi.likelihoods import (
    Sampling,
    drawn,
    in_nucleus,
    paper_likelihoods,
    scaled_likelihoods,
    spreads,
)
from fedpriv.attacks.cdmi.membership import confidences, public_confidence

SCORES = np.log([[0.5, 0.3, 0.2]])
LOSSES = np.array([[1.0, 2.0, 4.0]])
# Median 2: 2 - l/2 is (1.5, 1, 0); its exponentials 4.4817, 2.7183 and 1 add up to 8.2.
TOLD = [0.54655, 0.33150, 0.12195]


def test_the_publics_likelihoods_are_the_softmax_at_its_temperature():
    settings = Sampling(first_temperature=0.5, decay_steps=3)

    found = np.exp(settings.public_likelihoods(SCORES, step=0))

    # Squares of (5, 3, 2), which add up to 38.
    np.testing.assert_allclose(found, [[25 / 38, 9 / 38, 4 / 38]])


def test_equation_5():
    np.testing.assert_allclose(np.exp(paper_likelihoods(LOSSES, 1.0)), [TOLD], atol=1e-5)


def test_equation_5_at_half_the_temperature_squares_the_likelihoods():
    squares = np.square(TOLD)

    found = np.exp(paper_likelihoods(LOSSES, 0.5))

    np.testing.assert_allclose(found, [squares / squares.sum()], atol=1e-4)


def test_geometric_mean_with_equal_weights():
    settings = Sampling(weight=0.5)

    found = np.exp(settings.blend(SCORES, paper_likelihoods(LOSSES, 1.0)))

    # √(.5 · .54655) = .52277, √(.3 · .3315) = .31536, √(.2 · .12195) = .15617; together .99430.
    np.testing.assert_allclose(found, [[0.52577, 0.31717, 0.15706]], atol=1e-4)


def test_weight_is_the_targets():
    for mean in ("geometric", "arithmetic"):
        settings = Sampling(weight=1.0, mean=mean)
        found = np.exp(settings.blend(SCORES, paper_likelihoods(LOSSES, 1.0)))
        np.testing.assert_allclose(found, [TOLD], atol=1e-5)


def test_arithmetic_mean():
    settings = Sampling(weight=0.25, mean="arithmetic")

    found = np.exp(settings.blend(SCORES, paper_likelihoods(LOSSES, 1.0)))

    np.testing.assert_allclose(found, [[0.51164, 0.30788, 0.18049]], atol=1e-4)


def test_without_weight_the_target_has_no_say():
    for mean in ("geometric", "arithmetic"):
        settings = Sampling(weight=0.0, mean=mean)
        found = settings.blend(SCORES, paper_likelihoods(LOSSES, 1.0))
        np.testing.assert_array_equal(found, SCORES)


def test_a_saturated_model_without_any_loss_says_nothing():
    found = np.exp(paper_likelihoods(np.zeros((1, 4)), 0.3))

    np.testing.assert_allclose(found, np.full((1, 4), 0.25))


def test_where_the_median_is_no_loss_at_all_the_ones_with_a_loss_are_out():
    found = np.exp(paper_likelihoods(np.array([[0.0, 0.0, 0.0, 1e-3]]), 0.3))

    np.testing.assert_allclose(found, [[1 / 3, 1 / 3, 1 / 3, 0.0]], atol=1e-9)


def test_temperature_falls_by_equal_steps_over_three_tokens():
    settings = Sampling(first_temperature=1.0, public_temperature=0.4, decay_steps=3)

    found = [settings.temperature(step) for step in range(5)]

    np.testing.assert_allclose(found, [1.0, 0.8, 0.6, 0.4, 0.4])


def test_no_decay_is_the_last_temperature_from_the_first_token():
    assert Sampling(public_temperature=0.4, decay_steps=0).temperature(0) == 0.4


def test_nucleus_of_half_the_mass():
    found = in_nucleus(np.array([[0.2, 0.4, 0.3, 0.1]]), 0.6)

    np.testing.assert_allclose(found, [[0.0, 4 / 7, 3 / 7, 0.0]])


def test_scaled_likelihoods_take_the_spread_of_the_losses_as_their_unit():
    # Mean 2, standard deviation √(2/3): the least is 1.2247 of them below.
    weights = np.exp(np.array([1.0, 0.0, -1.0]) / np.sqrt(2 / 3) / 0.5)

    found = np.exp(scaled_likelihoods(np.array([[1.0, 2.0, 3.0]]), 0.5))

    np.testing.assert_allclose(found, [weights / weights.sum()])


def test_losses_that_are_nearly_alike_tell_next_to_nothing_by_equation_5_only():
    alike = np.array([[1.0, 1.001, 1.002, 1.003]])

    assert np.ptp(paper_likelihoods(alike, 0.3)) < 0.011
    assert np.ptp(scaled_likelihoods(alike, 0.3)) > 5


def test_equal_losses_tell_nothing_by_either_formula():
    for likelihood in ("paper", "scaled"):
        found = Sampling(likelihood=likelihood).target_likelihoods(np.full((1, 4), 0.7))
        np.testing.assert_allclose(np.exp(found), np.full((1, 4), 0.25))


def test_the_spread_of_losses_is_over_their_median():
    np.testing.assert_allclose(spreads(np.array([[1.0, 2.0, 3.0]])), [np.sqrt(2 / 3) / 2])


def test_nucleus_takes_no_more_than_reach_the_mass():
    found = in_nucleus(np.array([[0.25, 0.5, 0.25]]), 0.5)

    np.testing.assert_array_equal(found, [[0.0, 1.0, 0.0]])


def test_numbers_choose_in_descending_order_of_likelihood():
    likelihoods = np.tile([0.25, 0.5, 0.0, 0.25], (5, 1))
    numbers = np.array([0.0, 0.49, 0.5, 0.75, 0.999])

    np.testing.assert_array_equal(drawn(likelihoods, numbers), [1, 1, 0, 3, 3])


def test_rounding_chooses_no_token_without_likelihood():
    likelihoods = np.array([[0.1] * 9 + [0.1 - 1e-12, 0.0]])

    assert drawn(likelihoods, np.array([np.nextafter(1.0, 0.0)]))[0] == 9


# Two tokens, p = (0.5, 0.5), ĝ = (0.25, 0.0625): perplexities 2 and √(4 · 16) = 8.
TARGET = [math.log(0.5), math.log(0.5)]
OF_PUBLIC = [math.log(0.25), math.log(0.0625)]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [("raw", 8.0), ("ratio", 4.0), ("raw_and_ratio", 32.0), ("gap", 0.4375), ("token_ratio", 8.0)],
)
def test_membership_metric(metric, expected):
    assert confidences(TARGET, OF_PUBLIC)[metric] == pytest.approx(expected)


def test_the_gap_keeps_its_sign():
    assert confidences(OF_PUBLIC, TARGET)["gap"] == pytest.approx(-0.25)


def test_the_baseline_is_surest_of_what_it_finds_plausible():
    (sure,), (unsure,) = (public_confidence(own).values() for own in (TARGET, OF_PUBLIC))

    assert (sure, unsure) == (pytest.approx(-2.0), pytest.approx(-8.0))


def test_confidences_stay_numbers_where_the_public_likelihood_is_next_to_nothing():
    found = confidences([-1.0, -1.0], [-5000.0, -5000.0])

    assert all(math.isfinite(value) for value in found.values())


@pytest.mark.parametrize(
    "wrong",
    [
        {"candidates": 0},
        {"public_temperature": 0.0},
        {"first_temperature": -1.0},
        {"target_temperature": float("nan")},
        {"decay_steps": -1},
        {"mean": "harmonic"},
        {"likelihood": "flat"},
        {"weight": 1.1},
        {"nucleus": 0.0},
        {"nucleus": 1.5},
    ],
)
def test_wrong_settings_are_named_with_their_value(wrong):
    (name, value), *_ = wrong.items()

    with pytest.raises(ValueError, match=f"{name}='?{value}"):
        Sampling(**wrong)
