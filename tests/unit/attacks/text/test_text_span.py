"""Used rows, spans and sums, on tables whose make is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.attacks.text.span import below_gap, distances, row_space, upper_class, used_rows
from fedpriv.attacks.text.sums import UNKNOWN, owners, partners
from fedpriv.attacks.text.tied import Words

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(1, 20), st.sampled_from([0.0, 1e-9, 1e-3]))
def test_used_rows_are_those_that_hold_more_than_noise(seed, count, noise):
    rng = np.random.default_rng(seed)
    table = noise * rng.standard_normal((300, 32))
    used = rng.choice(300, count, replace=False)
    table[used] += rng.standard_normal((count, 32))
    found = np.flatnonzero(used_rows(table, noise))
    assert set(used) <= set(found)
    assert len(found) <= count + 2  # one row in a hundred tables is a false alarm


def test_of_noise_alone_hardly_a_row_counts_as_used():
    tables = np.random.default_rng(0).standard_normal((100, 500, 16))
    alarms = sum(used_rows(table, 1.0).sum() for table in tables)
    assert alarms <= 5  # one is to be expected


def test_the_widest_gap_parts_small_from_large_however_many_there_are():
    values = np.array([1e-7, 3.0, 2e-7, 0.5, 9.0])
    assert below_gap(values, 4).tolist() == [True, False, True, False, False]


def test_two_classes_are_not_drawn_by_an_outlier():
    many, few = np.full(1000, 1e-5), np.geomspace(1e-3, 1e-1, 100)
    upper = upper_class(np.concatenate([many, few, [1e6]]))
    assert upper.tolist() == [False] * 1000 + [True] * 101


@given(SEEDS, st.integers(1, 10))
def test_a_span_holds_what_it_was_made_of_and_nothing_else(seed, rank):
    rng = np.random.default_rng(seed)
    inside = rng.standard_normal((rank, 24))
    gradient = rng.standard_normal((40, rank)) @ inside
    basis, rest = row_space(gradient.astype(np.float32).astype(np.float64), 12)
    assert (len(basis), len(rest)) == (rank, 24 - rank)
    np.testing.assert_allclose(basis @ rest.T, 0, atol=1e-12)
    assert distances(inside, basis).max() < 1e-4
    assert distances(rng.standard_normal((5, 24)), basis).min() > 1e-2


@given(SEEDS, st.integers(1, 30), st.integers(1, 12))
def test_every_part_is_traced_to_the_sum_that_it_went_into(seed, count, sums):
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((count, 32))
    into = rng.integers(0, sums, count)
    totals = np.zeros((sums, 32))
    np.add.at(totals, into, parts)
    assert owners(parts, totals).tolist() == into.tolist()


@settings(max_examples=10)
@given(SEEDS)
def test_more_parts_than_dimensions_are_traced_where_sums_are_short(seed):
    rng = np.random.default_rng(seed)
    into = rng.permutation(np.concatenate([np.arange(40), np.repeat(np.arange(40, 52), 2)]))
    parts = rng.standard_normal((len(into), 32))
    totals = np.zeros((52, 32))
    np.add.at(totals, into, parts)
    assert owners(parts, totals).tolist() == into.tolist()


def test_a_part_that_went_nowhere_has_no_owner():
    parts = np.eye(4, 8)
    assert owners(parts, parts[:2] + 0.0).tolist() == [0, 1, UNKNOWN, UNKNOWN]


@given(SEEDS)
def test_of_two_examples_what_is_linked_alone_is_paired_exactly(seed):
    """One word at two places, two words at one place, and one at one."""
    rng = np.random.default_rng(seed)
    a, b, c, d, e = rng.standard_normal((5, 32))
    places, words = np.stack([a, b, c + d, e]), np.stack([a + b, c, d, e])
    assert set(partners(places, words, most=2)) == {(0, 0), (1, 0), (2, 1), (2, 2), (3, 3)}


@pytest.mark.parametrize("noise", [0.0, 1e-6])
def test_tied_words_are_told_from_the_scores_of_all_words(noise):
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((500, 6)) @ rng.standard_normal((6, 32))
    table = 0.01 * scores + noise * rng.standard_normal((500, 32))
    used = rng.choice(500, 40, replace=False)
    table[used] += 0.01 * rng.standard_normal((40, 32))
    words = Words.of(table, most_labels=10)
    assert words.labels == 6
    assert set(np.flatnonzero(words.used(noise, most=100))) == set(used)
