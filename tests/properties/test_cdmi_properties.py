"""What must hold of CDMI's nucleus and of its draws, whatever the likelihoods."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedpriv.attacks.cdmi.likelihoods import (
    Sampling,
    drawn,
    in_nucleus,
    paper_likelihoods,
    scaled_likelihoods,
)

positive = st.floats(1e-6, 1e3)
rows = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 3), st.integers(1, 12)), elements=positive
)
likelihoods = rows.map(lambda table: table / table.sum(axis=1, keepdims=True))
masses = st.floats(0.01, 1.0)


@given(likelihoods, masses)
def test_a_nucleus_is_a_distribution_over_at_least_one_token(table, mass):
    found = in_nucleus(table, mass)

    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert (found >= 0).all()
    assert ((found > 0).sum(axis=1) >= 1).all()


@given(likelihoods, masses)
def test_a_nucleus_reaches_the_mass_and_without_its_last_token_does_not(table, mass):
    kept = in_nucleus(table, mass) > 0

    for row, mine in zip(table, kept, strict=True):
        inside = np.sort(row[mine])
        assert inside.sum() >= mass - 1e-9
        assert inside[1:].sum() < mass + 1e-9


@given(likelihoods, masses)
def test_no_token_outside_is_likelier_than_one_inside(table, mass):
    kept = in_nucleus(table, mass) > 0

    for row, mine in zip(table, kept, strict=True):
        assert row[~mine].max(initial=0.0) <= row[mine].min()


@given(likelihoods, masses)
def test_inside_likelihoods_keep_their_proportions(table, mass):
    found = in_nucleus(table, mass)

    for row, mine in zip(table, found, strict=True):
        inside = mine > 0
        np.testing.assert_allclose(mine[inside], row[inside] / row[inside].sum())


@given(likelihoods, masses, st.floats(0, 1, exclude_max=True))
def test_draws_are_from_the_nucleus(table, mass, number):
    found = in_nucleus(table, mass)

    columns = drawn(found, np.full(len(found), number))

    assert (found[np.arange(len(found)), columns] > 0).all()


@given(likelihoods)
def test_evenly_spread_numbers_draw_each_token_as_often_as_it_is_likely(table):
    numbers = (np.arange(2000) + 0.5) / 2000
    row = table[:1]

    columns = drawn(np.repeat(row, 2000, axis=0), numbers)

    shares = np.bincount(columns, minlength=row.shape[1]) / 2000
    np.testing.assert_allclose(shares, row[0], atol=1.1 / 2000)


@given(rows, st.floats(0.05, 2.0))
def test_a_lower_loss_is_never_less_likely(losses, temperature):
    found = paper_likelihoods(losses, temperature)

    for row, told in zip(losses, found, strict=True):
        assert (np.diff(told[np.argsort(row, kind="stable")]) <= 1e-9).all()


@given(rows, st.floats(1.0, 100.0))
def test_the_unit_of_the_loss_does_not_matter(losses, unit):
    found = paper_likelihoods(losses * unit, 0.3)

    np.testing.assert_allclose(found, paper_likelihoods(losses, 0.3), rtol=1e-6, atol=1e-6)


@given(rows, st.integers(-3, 9), st.integers(0, 100))
def test_neither_unit_nor_origin_of_the_loss_matters_where_it_is_scaled(losses, power, origin):
    whole = np.round(losses * 1024)  # so that no rounding is taken for a spread

    found = scaled_likelihoods(whole * 2.0**power + origin, 0.3)

    np.testing.assert_allclose(found, scaled_likelihoods(whole, 0.3), rtol=1e-6, atol=1e-6)


@given(likelihoods, st.floats(0, 1), st.sampled_from(["geometric", "arithmetic"]))
def test_a_blend_is_a_distribution_between_the_two(table, weight, mean):
    settings = Sampling(weight=weight, mean=mean)
    silent = np.full_like(table, 1 / table.shape[1])

    blended = np.exp(settings.blend(np.log(table), np.log(silent)))

    np.testing.assert_allclose(blended.sum(axis=1), 1.0)
    assert (blended.max(axis=1) <= table.max(axis=1) + 1e-9).all()
