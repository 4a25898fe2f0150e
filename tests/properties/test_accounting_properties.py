"""What holds of every history: order, composition, closed forms, and the ways back."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm
from thorough import examples

from fedpriv.privacy.accounting import prv
from fedpriv.privacy.accounting.accountants import epsilon, noise_multiplier
from fedpriv.privacy.accounting.event import ClientThenRecord


def spread(low, high):
    """Numbers whose logarithm is even between the two."""
    return st.floats(math.log(low), math.log(high)).map(math.exp).map(lambda x: min(x, high))


RATES = spread(1e-3, 1)
STAGES = spread(0.03, 1)
"""Rates of the two stages: their product is in the range of `RATES`."""
NOISES = spread(0.5, 10)
TIMES = st.integers(1, 500)
DELTAS = spread(1e-8, 1e-3)
LARGEST = 40
"""Of the ε at which all accountants are compared: PRV takes seconds above."""

quick = examples(6, 10)
"""An example takes up to seconds; `make test-all` takes more of them."""


def slack(value):
    """What pld may be too high by."""
    return max(2e-3, 1e-3 * value)


def at(qc, qm, sigma, times, delta, accountant="pld"):
    return epsilon([(ClientThenRecord(qc, qm, sigma), times)], delta, accountant)


def delta_of_gaussian(eps, mu):
    """Balle and Wang 2018, Theorem 8."""
    return norm.sf(eps / mu - mu / 2) - math.exp(eps + norm.logsf(eps / mu + mu / 2))


def delta_of_one_release(eps, q, sigma):
    """Neighbour removed: the cut is where the loss is eps. Valid for eps >= 0."""
    y = sigma**2 * math.log((math.expm1(eps) + q) / q) + 0.5
    with_record = (1 - q) * norm.sf(y / sigma) + q * norm.sf((y - 1) / sigma)
    return with_record - math.exp(eps + norm.logsf(y / sigma))


def root(delta_of, delta, *parameters, most=600):
    if delta_of(1e-12, *parameters) <= delta:
        return 0.0
    return brentq(lambda e: delta_of(e, *parameters) - delta, 1e-12, most, xtol=1e-12)


@quick
@given(NOISES, TIMES, DELTAS)
def test_without_sampling_epsilon_is_that_of_the_gaussian(sigma, times, delta):
    exact = root(delta_of_gaussian, delta, math.sqrt(times) / sigma, most=3000)
    found = at(1.0, 1.0, sigma, times, delta)
    assert exact - 1e-6 <= found <= exact + slack(exact)
    assert at(1.0, 1.0, sigma, times, delta, "gdp") == pytest.approx(exact, rel=1e-6, abs=1e-8)
    assert at(1.0, 1.0, sigma, times, delta, "rdp") >= exact - 1e-9


@quick
@given(spread(1e-3, 0.999), NOISES, DELTAS)
def test_one_release_has_a_closed_form(q, sigma, delta):
    exact = root(delta_of_one_release, delta, q, sigma)
    found = at(1.0, q, sigma, 1, delta)
    assert exact - 1e-6 <= found <= exact + slack(exact)


@quick
@given(RATES, NOISES, DELTAS)
def test_one_release_seen_with_who_took_part(q, sigma, delta):
    # Seen together with who took part, an absent client's release costs nothing: delta is
    # client_rate times that of the release, so epsilon is that of delta / client_rate.
    qc = 0.3
    exact = root(delta_of_one_release, delta / qc, q, sigma)
    found = at(qc, q, sigma, 1, delta)
    assert exact - 1e-6 <= found <= exact + slack(exact)


@quick
@given(RATES, NOISES, DELTAS)
def test_epsilon_and_delta_are_each_others_inverse(q, sigma, delta):
    found = at(1.0, q, sigma, 1, delta)
    assert delta_of_one_release(found + 1e-6, q, sigma) <= delta * (1 + 1e-6)
    if found > 2 * slack(found):
        assert delta_of_one_release(found - slack(found), q, sigma) >= delta * (1 - 1e-6)


@quick
@given(STAGES, STAGES, NOISES, TIMES, DELTAS, st.sampled_from(["pld", "rdp", "prv"]))
def test_monotone_in_everything(qc, qm, sigma, times, delta, accountant):
    assume(at(qc, qm, sigma, times, delta, "rdp") < LARGEST)
    here = at(qc, qm, sigma, times, delta, accountant)
    # The bracket of prv is relative above epsilon 30, and its estimate no bound within it.
    room = {"pld": slack(here), "rdp": 1e-9 * (1 + here), "prv": 2e-3 + 1e-3 * here}[accountant]
    below = [
        at(qc, qm, 1.2 * sigma, times, delta, accountant),
        at(qc, qm, sigma, times, 1.5 * delta, accountant),
        at(0.8 * qc, qm, sigma, times, delta, accountant),
        at(qc, 0.8 * qm, sigma, times, delta, accountant),
        at(qc, qm, sigma, times // 2, delta, accountant),
    ]
    assert all(0 <= value <= here + room for value in below), (here, below)


@quick
@given(STAGES, STAGES, NOISES, TIMES, DELTAS)
def test_a_client_stage_lies_between_the_paper_and_none(qc, qm, sigma, times, delta):
    paper, cluster = at(1.0, qc * qm, sigma, times, delta), at(qc, qm, sigma, times, delta)
    alone = at(1.0, qm, sigma, times, delta)
    assert paper <= cluster + slack(paper)
    assert cluster <= alone + slack(cluster)
    assert at(qc, qm, sigma, times, delta, "rdp") >= cluster - slack(cluster)


def test_the_paper_is_wrong_by_a_factor():
    """Lest the inequality above hold because both sides are the same."""
    assert at(0.2, 1.0, 2.825684, 10, 1e-5) > 2.8 * at(1.0, 0.2, 2.825684, 10, 1e-5)
    assert at(1.0, 1.0, 2.825684, 10, 1e-5) > 1.7 * at(0.2, 1.0, 2.825684, 10, 1e-5)


@quick
@given(STAGES, STAGES, NOISES, TIMES, DELTAS)
def test_the_reference_lies_in_prvs_bracket_and_below_rdp(qc, qm, sigma, times, delta):
    assume(at(qc, qm, sigma, times, delta, "rdp") < LARGEST)
    event = ClientThenRecord(qc, qm, sigma)
    pld, rdp = (at(qc, qm, sigma, times, delta, name) for name in ("pld", "rdp"))
    assert pld <= rdp + slack(pld)
    if delta >= -math.expm1(times * math.log1p(-min(event.inclusion, 1 - 1e-16))):
        assert pld == rdp == 0
        return
    low, estimate, high = prv.bracket(((event, times),), delta)
    assert low <= estimate <= high
    assert low - 1e-4 <= pld <= high + slack(pld)
    # Two computations that share nothing but the mechanism.
    assert max(estimate, 0) == pytest.approx(pld, abs=4e-3, rel=2e-3)


@quick
@given(STAGES, STAGES, NOISES, st.integers(2, 500), st.floats(0.05, 0.95), DELTAS)
def test_splitting_a_run_changes_nothing(qc, qm, sigma, times, share, delta):
    assume(at(qc, qm, sigma, times, delta, "rdp") < LARGEST)
    first = min(max(1, round(times * share)), times - 1)
    whole = ClientThenRecord(qc, qm, sigma)
    # Not equal, so that the two are composed as different events.
    twin = ClientThenRecord(qc, qm, sigma * (1 + 1e-12))
    for accountant, room in (("pld", None), ("rdp", 1e-9), ("prv", 2e-3)):
        together = epsilon([(whole, times)], delta, accountant)
        parts = epsilon([(whole, first), (twin, times - first)], delta, accountant)
        assert parts == pytest.approx(together, rel=1e-3, abs=room or slack(together))


@quick
@given(NOISES, st.integers(1, 100), DELTAS)
def test_without_sampling_only_times_over_noise_squared_counts(sigma, times, delta):
    once = at(1.0, 1.0, sigma, times, delta)
    assert at(1.0, 1.0, 2 * sigma, 4 * times, delta) == pytest.approx(once, abs=slack(once))
    assert at(1.0, 1.0, 2 * sigma, 4 * times, delta, "rdp") == pytest.approx(
        at(1.0, 1.0, sigma, times, delta, "rdp"), rel=1e-9
    )


@pytest.mark.slow
@quick
@given(STAGES, STAGES, TIMES, st.floats(0.3, 12), st.sampled_from(["pld", "rdp", "prv"]))
def test_calibration_comes_back_to_its_target(qc, qm, times, target, accountant):
    delta = 1e-6

    def history(sigma):
        return [(ClientThenRecord(qc, qm, sigma), times)]

    sigma = noise_multiplier(history, target, delta, accountant)
    reached = epsilon(history(sigma), delta, accountant)
    assert target - 0.01 <= reached <= target


@quick
@given(spread(1e-2, 0.9), NOISES, st.integers(1, 100), DELTAS, st.integers(2, 5))
def test_a_group_costs_more_than_one_and_less_than_all_at_once(q, sigma, times, delta, size):
    one = at(1.0, q, sigma, times, delta)
    group = epsilon([(ClientThenRecord(1.0, q, sigma, size), times)], delta)
    # At worst the unit enters whenever any of its records does, and then whole.
    whole = at(1.0, -math.expm1(size * math.log1p(-q)), sigma / size, times, delta)
    assert one <= group + slack(one)
    assert group <= whole + slack(group)


def test_the_central_limit_is_not_a_bound():
    """GDP below the true epsilon, by a factor of 25: that is why it is labelled."""
    event = (1.0, 5.9e-4, 0.42, 27, 1.8e-8)
    assert at(*event, "gdp") < 0.25
    assert at(*event) > 6
