"""Cohort sizes, and what the settings refuse."""

import numpy as np
import pytest

from fedpriv.privacy.sampling import FixedSize, Poisson


def draw(sampling, clients, seed=0):
    return sampling.draw(clients, np.random.default_rng(seed))


def test_fixed_size_takes_every_client_unless_told_otherwise():
    assert draw(FixedSize(), 5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("fraction", "clients", "size"),
    [(0.5, 10, 5), (0.1, 10, 1), (0.01, 10, 1), (0.74, 10, 7), (0.76, 10, 8), (1.0, 3, 3)],
)
def test_a_fraction_is_rounded_and_at_least_one_client(fraction, clients, size):
    assert len(draw(FixedSize(fraction=fraction), clients)) == size


def test_a_count_goes_before_the_fraction():
    assert len(draw(FixedSize(count=3, fraction=0.5), 10)) == 3


def test_more_clients_than_there_are_is_a_problem_and_as_many_is_none():
    assert FixedSize(count=9).problem(8) == "count=9, but the federation has 8 clients"
    assert FixedSize(count=8).problem(8) is None
    assert FixedSize(fraction=1.0).problem(1) is None


@pytest.mark.parametrize("clients", [1, 2, 1000])
def test_poisson_works_on_any_number_of_clients(clients):
    assert Poisson(0.5).problem(clients) is None


def test_rate_zero_is_always_empty_and_rate_one_is_everybody():
    assert [draw(Poisson(0), 50, seed) for seed in range(200)] == [[]] * 200
    assert [draw(Poisson(1), 50, seed) for seed in range(200)] == [list(range(50))] * 200


@pytest.mark.parametrize("sampling", [FixedSize(count=3), FixedSize(fraction=0.4), Poisson(0.5)])
def test_the_generator_alone_decides(sampling):
    assert draw(sampling, 8, seed=3) == draw(sampling, 8, seed=3)
    assert len({tuple(draw(sampling, 8, seed)) for seed in range(50)}) > 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedSize(count=0), "count=0: a round needs at least 1 client"),
        (lambda: FixedSize(count=-2), "count=-2: a round needs at least 1 client"),
        (lambda: FixedSize(fraction=0), r"fraction=0: expected a value in \(0, 1\]"),
        (lambda: FixedSize(fraction=1.5), r"fraction=1\.5: expected a value in \(0, 1\]"),
        (lambda: FixedSize(fraction=float("nan")), r"fraction=nan: expected a value in \(0, 1\]"),
        (lambda: Poisson(-0.1), r"rate=-0\.1: expected a probability in \[0, 1\]"),
        (lambda: Poisson(1.2), r"rate=1\.2: expected a probability in \[0, 1\]"),
        (lambda: Poisson(float("nan")), r"rate=nan: expected a probability in \[0, 1\]"),
    ],
)
def test_settings_say_what_would_work(make, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        make()
