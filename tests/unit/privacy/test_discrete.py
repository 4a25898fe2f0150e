"""The discrete mechanism: exact draws, rotation, the ring of 16 bits, and what is booked."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from fedpriv.privacy import discrete
from fedpriv.privacy.banded import coefficients
from fedpriv.privacy.discrete import (
    BITS,
    LEAST,
    PART,
    SMALL,
    DrawTable,
    Steps,
    noisy,
    restored,
    signs_of,
    table,
)

FITTING = {"units": 60.0, "clients": 10}


def steps(size=1000, noise=1.0, clip_norm=0.5, **more):
    return Steps.fitting(clip_norm, noise, size, **{**FITTING, **more})


def pmf(s, centre, values):
    weights = np.exp(-((values - centre) ** 2) / (2 * s**2))
    return weights / weights.sum()


@pytest.mark.parametrize(("s", "centre"), [(1.5, 0.0), (4.0, 0.25), (4.0, 0.75)])
def test_draws_have_the_probabilities_of_the_discrete_gaussian(s, centre):
    rng, count = np.random.default_rng(3), 200_000
    parts = np.full(count, int(centre * 4))
    found = DrawTable(s, 4).around(rng, parts) if centre else DrawTable(s).draw(rng, count)
    values = np.arange(-int(4 * s), int(4 * s) + 1)
    seen = np.array([np.sum(found == v) for v in values])
    expected = pmf(s, centre, np.arange(-60, 61))[60 + values] * count
    keep = expected > 20
    assert (
        chisquare(seen[keep], expected[keep] * seen[keep].sum() / expected[keep].sum()).pvalue
        > 1e-4
    )


def test_probabilities_are_exact_to_a_hundred_bits():
    """By the table itself, against sums in fractions of e^(-v²/2s²) with 100 digits."""
    from decimal import Decimal, localcontext

    made, s = DrawTable(2.0), Decimal(2)
    with localcontext(prec=100):
        whole = sum((-(Decimal(v) ** 2) / (2 * s * s)).exp() for v in range(-40, 41))
        so_far = Decimal(0)
        for place, value in enumerate(range(-made._reach, made._reach + 1)):
            so_far += (-(Decimal(value) ** 2) / (2 * s * s)).exp()
            edge = (int(made._high[0, place]) << 64) + int(made._low[0, place])
            assert abs(Decimal(edge) / 2**128 - so_far / whole) < Decimal(2) ** -100


def test_two_draws_are_one_around_the_number():
    """N_Z(f, 16) + N_Z(0, s² - 16) is N_Z(f, s²) (Peikert 2010, Theorem 3.1)."""
    s, f, values = 9.0, 0.3, np.arange(-150, 151)
    both = np.convolve(pmf(SMALL, f, values), pmf(math.sqrt(s**2 - SMALL**2), 0, values), "same")
    assert both == pytest.approx(pmf(s, f, values), abs=1e-15)


def test_it_is_what_becomes_of_a_continuous_gaussian():
    """A Gaussian of variance s² - 4, and a whole number drawn around it, by integration."""
    s, x = 5.0, 0.37
    inner, width = math.sqrt(s**2 - 4), 1e-3
    g = np.arange(-60, 60, width)
    density = np.exp(-((g - x) ** 2) / (2 * inner**2)) / (inner * math.sqrt(2 * math.pi)) * width
    values = np.arange(-60, 61)
    around = np.exp(-((values[:, None] - g) ** 2) / 8)
    found = (around / around.sum(axis=0)) @ density
    assert found == pytest.approx(pmf(s, x, values), abs=1e-9)


@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_a_rotation_keeps_lengths_and_is_taken_back(size, seed):
    rng = np.random.default_rng(seed)
    vector, signs = rng.normal(size=size), signs_of(size, rng)
    made = Steps(2.0**20, 1.0, size)  # so fine that rounding is nothing
    turned = discrete._rotated(vector, signs)
    assert np.linalg.norm(turned) == pytest.approx(np.linalg.norm(vector))
    assert discrete._unrotated(turned, signs) == pytest.approx(vector)
    assert made.inflation >= 1


def test_a_rotation_spreads_whatever_there_is():
    """The largest coordinate is what a sum is clipped or wrapped by."""
    rng, size = np.random.default_rng(0), 3000
    for place in (0, 1500, 2999):
        spike = np.zeros(size)
        spike[place] = 1.0
        assert abs(discrete._rotated(spike, signs_of(size, rng))).max() < 5 * math.sqrt(2 / size)


@settings(max_examples=25)
@given(st.integers(2, 400), st.integers(1, 8), st.floats(0.3, 4), st.integers(0, 10**6))
def test_a_sum_comes_back_with_noise_of_the_planned_size(size, clients, noise, seed):
    rng = np.random.default_rng(seed)
    made = steps(size, noise, clients=clients)
    signs, share = signs_of(size, rng), made.share(noise, clients)
    sums = [rng.normal(size=size) for _ in range(clients)]
    sums = [6 * 0.5 * s / np.linalg.norm(s) for s in sums]
    sent = [noisy(s, made, share, signs, rng) for s in sums]
    for one in sent:
        assert (one == np.rint(one)).all()
        assert abs(one).max() <= 2 ** (BITS - 1)
    total = np.sum([one.astype(np.int64) for one in sent], axis=0) + 2**BITS * rng.integers(-3, 3)
    apart = restored(total, made, signs) - np.sum(sums, axis=0)
    expected = math.sqrt(clients) * share / made.scale
    assert np.linalg.norm(apart) < expected * (math.sqrt(size) + 6)


@given(st.integers(1, 500), st.integers(0, 10**6), st.sampled_from([1, 3]))
def test_two_sums_that_differ_by_one_unit_are_no_farther_apart_than_is_booked(size, seed, bands):
    """Rounded as they are before noise is drawn around them; over all rounds it reaches."""
    rng = np.random.default_rng(seed)
    made = Steps(64.0, 0.5, size, bands)
    unit = rng.normal(size=size)
    unit *= 0.5 / np.linalg.norm(unit)
    squares = 0.0
    for weight in coefficients(bands):
        signs, others = signs_of(size, rng), rng.normal(size=size)
        one, two = (
            np.rint(discrete._rotated(v, signs) * made.scale * PART) / PART
            for v in (others, others + weight * unit)
        )
        squares += float(np.sum((one - two) ** 2))
    assert math.sqrt(squares) <= made.sensitivity


@pytest.mark.parametrize(
    ("parameters", "units", "clients", "noise", "clip_norm"),
    [
        (402_688, 600, 10, 0.8, 0.5),
        (226_000_000, 800, 10, 0.77, 5.0),
        (125_000_000, 54, 16, 1.5, 0.1),
    ],
)
def test_sixteen_bits_do_at_published_sizes(parameters, units, clients, noise, clip_norm):
    made = Steps.fitting(clip_norm, noise, parameters, units=units, clients=clients)
    assert made.inflation < 1.05
    assert made.share(noise, clients) > 10 * LEAST


def test_any_shares_cover_the_noise():
    """What t - c shares leave after the small noise is at least that part of the planned noise."""
    made, sigma, t = steps(), 1.3, 6
    own = made.share(sigma, t) ** 2
    for left in range(1, t + 1):
        assert left * own - 4 >= left / t * (sigma * made.sensitivity) ** 2


def test_the_same_table_is_not_made_twice():
    assert table(3.0) is table(3.0)
