"""Clipping, for vectors of any magnitude: the bound holds in exact arithmetic, and nothing else
changes. The expectations are sums of fractions, which know no rounding."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from host_vectors import clip_array as clip
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from thorough import examples

from fedpriv.privacy.clipping import clip_factor

magnitudes = st.floats(-30, 30).map(lambda exponent: 10.0**exponent)
clip_norms = magnitudes
shapes = st.integers(1, 40)
signed = st.floats(-1, 1, width=32, allow_subnormal=False)


@st.composite
def vectors(draw, dtype=np.float32):
    """Floats from 1e-30 to 1e30, all of one magnitude or each of its own."""
    shape = draw(shapes)
    unit = draw(arrays.arrays(np.float32, shape, elements=signed)).astype(np.float64)
    if draw(st.booleans()):
        return (unit * draw(magnitudes)).astype(dtype)
    return (unit * draw(arrays.arrays(np.float64, shape, elements=magnitudes))).astype(dtype)


def exact_square(*arrays_of_one):
    return sum((Fraction(float(x)) ** 2 for array in arrays_of_one for x in array.flat), Fraction())


@examples(100, 300)
@given(vectors(), clip_norms)
def test_the_norm_is_at_most_c_in_exact_arithmetic(x, clip_norm):
    result = clip(x, clip_norm)
    assert result.clipped.dtype == np.float32
    assert result.clipped.shape == x.shape
    if result.clipped is not x:
        assert exact_square(result.clipped) <= Fraction(clip_norm) ** 2
    else:  # only the float64 norm can tell what is inside already
        assert exact_square(x) <= Fraction(clip_norm) ** 2 * (1 + Fraction(1, 2**48))


@given(vectors(np.float64), clip_norms)
def test_so_it_is_in_float64(x, clip_norm):
    result = clip(x, clip_norm)
    tolerance = 0 if result.clipped is not x else Fraction(1, 2**48)
    assert exact_square(result.clipped) <= Fraction(clip_norm) ** 2 * (1 + tolerance)


@examples(100, 200)
@given(vectors(), clip_norms)
def test_the_direction_is_kept_and_the_length_is_not_wasted(x, clip_norm):
    assume(clip_norm > 1e-28)  # below, results are subnormal and have no digits to keep it with
    result = clip(x, clip_norm)
    wide, clipped = x.astype(np.float64), result.clipped.astype(np.float64)
    norm = math.sqrt(exact_square(x))
    expected = wide * min(1.0, clip_norm / norm) if norm else wide
    # A millionth of C: margin and rounding together, and whatever is subnormal.
    assert np.abs(clipped - expected).max() <= 1e-6 * clip_norm
    assert np.all(clipped * wide >= 0)


@examples(100, 200)
@given(vectors(), clip_norms)
def test_clipping_twice_is_clipping_once(x, clip_norm):
    once = clip(x, clip_norm)
    twice = clip(once.clipped, clip_norm)
    assert twice.clipped is once.clipped
    assert twice.norm <= clip_norm


@given(vectors())
def test_what_is_inside_is_left_alone(x):
    before, norm = x.copy(), math.sqrt(exact_square(x))
    result = clip(x, max(norm * 1.0001, 1e-30))
    assert result.clipped is x
    np.testing.assert_array_equal(x, before)
    assert result.finite
    assert result.norm == pytest.approx(norm, rel=1e-14)


@given(vectors(), clip_norms, st.sampled_from([math.nan, math.inf, -math.inf]), st.data())
def test_one_number_that_is_not_finite_makes_all_zero(x, clip_norm, bad, data):
    x[data.draw(st.integers(0, x.size - 1))] = bad
    result = clip(x, clip_norm)
    assert not result.finite
    assert not math.isfinite(result.norm)
    assert result.clipped.shape == x.shape
    assert not result.clipped.any()


@examples(100, 300)
@given(vectors(), clip_norms)
def test_the_factor_in_float32_keeps_the_bound_too(x, clip_norm):
    """As the gradients are clipped: a float32 factor, float32 products."""
    norm = math.sqrt(exact_square(x))
    factor = clip_factor(norm, clip_norm, torch.float32)
    clipped = (torch.from_numpy(x) * factor).numpy() if factor != 1 else x
    # Subnormal products are rounded to a multiple of 2^-149, which no factor can prevent.
    slack = Fraction(x.size) * Fraction(1, 2**149)
    bound = Fraction(clip_norm) * (1 + (Fraction(1, 2**48) if factor == 1 else 0)) + slack
    assert exact_square(clipped) <= bound**2
