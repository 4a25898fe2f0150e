"""What holds of splits, scores, exposures and ranks, whatever the models say."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedpriv.attacks.extraction.measures import (
    Scores,
    balanced_splits,
    histogram,
    memorised,
    memorised_share,
    rank_test,
    set_sizes,
    sizes_by_repeats,
)
from fedpriv.threat.scoring.exposure import (
    expected_exposure,
    exposure,
    exposure_bound,
    random_rank,
    rank,
)

seeds = st.integers(0, 2**32)
halves = st.integers(1, 13)
sets = st.integers(0, 30).flatmap(lambda n: st.tuples(arrays(bool, n), arrays(bool, n)))
losses = st.floats(-1e6, 1e6).map(lambda loss: round(loss, 2))
references = st.lists(losses, min_size=1, max_size=60)


@st.composite
def scores(draw):
    half = draw(halves)
    n = draw(st.integers(1, 20))
    counts = arrays(np.int64, n, elements=st.integers(0, half))
    return Scores(draw(counts), draw(counts), 2 * half)


@given(halves, st.integers(1, 60), seeds)
def test_each_canary_is_in_exactly_half_of_the_splits(half, canaries, seed):
    inside = balanced_splits(2 * half, canaries, np.random.default_rng(seed))
    assert inside.shape == (2 * half, canaries)
    assert inside.dtype == bool
    assert (inside.sum(axis=0) == half).all()
    again = balanced_splits(2 * half, canaries, np.random.default_rng(seed))
    assert (inside == again).all()


@given(halves, st.integers(1, 12), seeds, st.data())
def test_scores_are_in_their_ranges(half, canaries, seed, data):
    inside = balanced_splits(2 * half, canaries, np.random.default_rng(seed))
    correct = data.draw(arrays(bool, inside.shape))
    found = Scores.of(correct, inside)
    m, s = found.memorization, found.simplicity
    assert (np.abs(m) <= 1).all()
    assert ((s >= 0) & (s <= 2)).all()
    assert (np.abs(m) <= s + 1e-12).all()
    assert (s <= 2 - np.abs(m) + 1e-12).all()
    # To swap the sides turns the sign of M_E and leaves S_E.
    turned = Scores.of(correct, ~inside)
    np.testing.assert_array_equal(turned.memorization, -m)
    np.testing.assert_array_equal(turned.simplicity, s)
    # By definition, for the first canary.
    with_it, without = correct[inside[:, 0], 0], correct[~inside[:, 0], 0]
    assert m[0] == pytest.approx(with_it.mean() - without.mean())


@given(scores())
def test_the_histogram_counts_each_canary_once_at_its_place(found):
    counts = histogram(found.memorization, found.simplicity, found.splits)
    assert counts.sum() == len(found.hits_in)
    row, column = np.nonzero(counts)
    s, m = row / found.half, column / found.half - 1
    assert {(round(a, 9), round(b, 9)) for a, b in zip(m, s, strict=True)} == {
        (round(a, 9), round(b, 9))
        for a, b in zip(found.memorization, found.simplicity, strict=True)
    }


@given(sets, st.data())
def test_the_sets_are_sets(pair, data):
    e, g = pair
    m = memorised(e, g)
    assert not (m & g).any()
    assert (m <= e).all()
    answers = data.draw(st.lists(st.sampled_from("abc"), min_size=len(e), max_size=len(e)))
    sizes, turned = set_sizes(e, g, answers), set_sizes(g, e, answers)
    assert sizes["E"] - sizes["G"] == sizes["M"] - sizes["control"]
    assert sizes["control"] == turned["M"]
    assert sizes["answers_in_M"] <= min(3, sizes["M"])
    if len(e):
        low, high = sizes["interval"]
        assert 0 <= low <= sizes["answers_in_M"] <= high <= sizes["answers"]
        one, other = (memorised_share(*pair, answers).p_value for pair in ((e, g), (g, e)))
        assert 0 < one <= 1
        assert one == pytest.approx(other)


@given(sets, st.data())
def test_repeat_counts_share_the_sets_out(pair, data):
    repeats = data.draw(st.lists(st.integers(1, 4), min_size=len(pair[0]), max_size=len(pair[0])))
    answers = [str(place) for place in range(len(repeats))]
    rows = sizes_by_repeats(*pair, repeats, answers).values()
    assert sum(row["canaries"] for row in rows) == len(repeats)
    whole = set_sizes(*pair, answers)
    for name in ("E", "G", "M", "control", "answers", "answers_in_M"):
        assert sum(row[name] for row in rows) == whole[name]


@settings(max_examples=30)
@given(scores(), st.data())
def test_the_rank_test_is_of_ranks_only(found, data):
    in_m = data.draw(arrays(bool, found.hits_in.shape))
    assume(in_m.any() and not in_m.all())
    values = found.memorization
    one = rank_test(values[in_m], values[~in_m], np.random.default_rng(0), resamples=99)
    cubed = rank_test(values[in_m] ** 3, values[~in_m] ** 3, np.random.default_rng(0), resamples=99)
    assert one == cubed
    other = rank_test(values[~in_m], values[in_m], np.random.default_rng(0), resamples=99)
    assert one["auc"] + other["auc"] == pytest.approx(1)
    assert one["p"] is None or 0 < one["p"] <= 1


@given(losses, references)
def test_exposure_is_between_nothing_and_its_bound(loss, others):
    found = exposure(loss, others)
    assert 0 <= found <= exposure_bound(len(others))
    assert found == pytest.approx(math.log2(len(others) + 1) - math.log2(rank(loss, others)))
    if loss < min(others):
        assert found == exposure_bound(len(others))
    if loss > max(others):
        assert found == 0


@given(losses, references, st.floats(0.01, 1e6))
def test_a_likelier_secret_is_never_less_exposed(loss, others, step):
    assert exposure(loss - step, others) >= exposure(loss, others)


@given(losses, references, seeds)
def test_a_random_rank_lies_between_those_of_both_orders(loss, others, seed):
    found = random_rank(loss, others, np.random.default_rng(seed))
    first, last = 1 + sum(o < loss for o in others), 1 + sum(o <= loss for o in others)
    assert first <= found <= last
    assert rank(loss, others) == (first + last) / 2


@given(st.integers(1, 300))
def test_the_baseline_is_the_mean_over_all_ranks(n):
    others = list(range(n))
    bits = [exposure(place - 0.5, others) for place in range(n + 1)]
    assert sum(bits) / len(bits) == pytest.approx(expected_exposure(n))
    assert expected_exposure(n) < math.log2(math.e)
