"""One number over seeds: Student's interval of a metric, and an attack's own errors."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from thorough import examples

from fedpriv.studies.assessing.effects import verdict_of
from fedpriv.studies.estimate import Over, over, over_attacks, within
from fedpriv.threat.results import Number

HALF = 1.959963984540054


def number(value, half=0.1, n=100, control=0.5):
    return Number(value, (value - half, value + half), n, "provider", control)


def test_an_attack_under_one_seed_is_its_number():
    effect = over_attacks([number(0.7)])
    assert (effect.mean, effect.gain, effect.n) == (0.7, pytest.approx(0.2), 100)
    assert effect.below == effect.above == pytest.approx(0.1 / HALF)
    assert (effect.low, effect.high) == pytest.approx((0.6, 0.8))
    # Four of five: the quantiles of the normal distribution are tabulated as 1.96 and .8416.
    assert effect.detectable(1) == pytest.approx(0.5 + (1.959964 + 0.841621) * 0.1 / HALF)
    assert effect.detectable(10) == pytest.approx(0.5 + (2.807034 + 0.841621) * 0.1 / HALF)


def test_what_lies_beyond_the_scale_cannot_be_detected():
    """.5 + 2.8 · .2 / 1.96 = .786 of an AUC; with ten looks .872; of half as many units, 1.02."""
    auc = dataclasses.replace(number(0.5, 0.2), most=1.0)
    assert over_attacks([auc]).detectable(10) == pytest.approx(0.8723, abs=1e-3)
    few = over_attacks([dataclasses.replace(number(0.5, 0.3), most=1.0)])
    assert few.detectable(10) is None
    _, why, _ = verdict_of(few, 1.0, None, looks=10)
    assert why == "no success is shown; so few suppliers hardly show one, however large it is"
    assert over_attacks([number(0.5, 0.3)]).detectable(10) > 1  # such as bits, which have no end


def test_an_exact_interval_keeps_its_two_sides():
    """None of 20: by Clopper and Pearson (0, .1684). Twice that is no surer than (0, .1191)."""
    none = Number(0.0, (0.0, 0.1684), 20, "page", 0.0)
    for seeds, high in ((1, 0.1684), (2, 0.1684 / math.sqrt(2))):
        found = over_attacks([none] * seeds)
        assert (found.low, found.high) == pytest.approx((0, high))


def test_where_the_control_is_an_estimate_the_p_value_knows_it():
    """500 against 500 coins: the difference varies √2 times as much as either share."""
    one = Number(0.55, (0.5064, 0.5936), 500, "field", 0.5, p_value=0.1137)
    effect = over_attacks([one])
    assert effect.below == pytest.approx(math.sqrt(2) * 0.0436 / HALF, rel=0.01)
    assert effect.p_value == pytest.approx(0.1137)


def test_seeds_that_agree_halve_the_error_of_four():
    effect = over_attacks([number(0.7)] * 4)
    assert effect.below == pytest.approx(0.1 / HALF / 2)
    assert effect.n == 400


def test_seeds_that_disagree_widen_the_error():
    """Two numbers five of their own errors apart on either side of the mean: χ² = 50 over one."""
    error = 0.02 / HALF
    effect = over_attacks([number(0.6 - 5 * error, 0.02), number(0.6 + 5 * error, 0.02)])
    assert effect.mean == pytest.approx(0.6)
    assert effect.below == pytest.approx(error / math.sqrt(2) * math.sqrt(50))


@given(st.lists(st.floats(0.2, 0.8), min_size=2, max_size=6))
def test_the_interval_never_reaches_beyond_those_of_the_seeds(values):
    effect = over_attacks([number(value, 0.2) for value in values])
    assert effect.low >= min(values) - 0.2 - 1e-12
    assert effect.high <= max(values) + 0.2 + 1e-12


def test_the_level_of_the_effect_holds_over_honest_seeds():
    """Of 2 000 assessments without a leak, about one in twenty has p ≤ .05: at most 6.5 %."""
    rng = np.random.default_rng(0)
    shown = 0
    for _ in range(2000):
        found = [number(value, HALF * 0.05) for value in rng.normal(0.5, 0.05, 3)]
        shown += over_attacks(found).p_value <= 0.05
    assert shown / 2000 <= 0.065


@pytest.mark.parametrize(
    "useless",
    [
        Number(0.7, None, 10, "page", 0.5),
        Number(0.7, (0.6, 0.8), 10, "page"),
        Number(0.7, (0.6, math.inf), 10, "page", 0.5),
        Number(math.nan, (0.6, 0.8), 10, "page", 0.5),
        Number(0.7, (0.6, 0.8), 0, "page", 0.5),
    ],
)
def test_a_number_without_interval_or_control_has_no_effect(useless):
    assert over_attacks([useless]) is None
    assert over_attacks([useless, number(0.7)]).n == 100


def test_seeds_on_shared_data_make_nothing_surer():
    """Four that agree: on data of their own half the error, on the same data all of it."""
    own = over_attacks([number(0.7)] * 4)
    same = over_attacks([number(0.7)] * 4, True)
    assert (own.below, own.n) == (pytest.approx(0.05 / HALF), 400)
    assert (same.below, same.n) == (pytest.approx(0.1 / HALF), 100)


def test_a_metric_has_students_interval_from_two_seeds_on():
    """Quantiles of Student's t as they are tabulated: 12.706 of one degree of freedom, 2.776."""
    two, five = over([1.0, 2.0]), over([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (two.mean, two.low) == (1.5, pytest.approx(1.5 - 12.706 * 0.5, abs=1e-3))
    assert five.low == pytest.approx(3 - 2.776 * 2.5**0.5 / 5**0.5, abs=1e-3)
    assert str(over([0.5])) == "0.500"
    assert str(over([1.0, 1.0])) == "1.000"


@examples(50, 500)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=8))
def test_the_p_value_of_a_mean_is_that_of_students_test(values):
    found, scipy = over(values), stats.ttest_1samp(values, 0.0)
    if found.below > 1e-9:
        assert found.p_value == pytest.approx(float(scipy.pvalue), rel=1e-6, abs=1e-12)
        assert found.low == pytest.approx(scipy.confidence_interval(0.95).low, rel=1e-6, abs=1e-9)


def test_a_difference_takes_an_end_of_either():
    """.5 [.4, .7] − .2 [.1, .25]: down hypot(.1, .05), up hypot(.2, .1) (Zou & Donner 2008)."""
    found = within(0.5, 0.4, 0.7).minus(within(0.2, 0.1, 0.25))
    assert found.low == pytest.approx(0.3 - math.hypot(0.1, 0.05))
    assert found.high == pytest.approx(0.3 + math.hypot(0.2, 0.1))
    assert found.p_value == pytest.approx(
        float(2 * stats.norm.sf(0.3 / (math.hypot(0.1, 0.05) / HALF)))
    )
    assert found.minus(Over(0.3, 0.3, 0.3)).mean == pytest.approx(0)
