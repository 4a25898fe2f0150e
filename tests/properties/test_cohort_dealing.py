"""Whatever the numbers, a cohort is a set of clients, drawn with the promised probabilities.

The statistical bounds are checked twice: they accept our sampling, and they reject one that is a
little off. Seeds are fixed, so neither is a matter of luck.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.privacy.sampling import FixedSize, Poisson

seeds = st.integers(0, 2**32)


def assert_is_a_cohort(cohort, clients):
    assert all(type(client) is int for client in cohort)
    assert cohort == sorted(set(cohort))
    assert set(cohort) <= set(range(clients))


@given(st.data(), st.integers(1, 60), seeds)
def test_fixed_size_draws_exactly_that_many(data, clients, seed):
    count = data.draw(st.integers(1, clients))
    cohort = FixedSize(count=count).draw(clients, np.random.default_rng(seed))
    assert_is_a_cohort(cohort, clients)
    assert len(cohort) == count


@given(st.floats(0, 1, exclude_min=True), st.integers(1, 60), seeds)
def test_a_fraction_draws_within_half_a_client_of_it_but_somebody(fraction, clients, seed):
    cohort = FixedSize(fraction=fraction).draw(clients, np.random.default_rng(seed))
    assert_is_a_cohort(cohort, clients)
    assert len(cohort) >= 1
    assert abs(len(cohort) - fraction * clients) <= 0.5 or len(cohort) == 1


@given(st.floats(0, 1), st.integers(1, 60), seeds)
def test_poisson_draws_a_set_of_clients(rate, clients, seed):
    assert_is_a_cohort(Poisson(rate).draw(clients, np.random.default_rng(seed)), clients)


def cohorts(sampling, clients, rounds):
    rng = np.random.default_rng(2023)
    return [tuple(sampling.draw(clients, rng)) for _ in range(rounds)]


def chi_square(observed, expected):
    return sum((observed.count(k) - e) ** 2 / e for k, e in expected.items())


class TestFixedSizeDrawsEachSetEquallyOften:
    """Six pairs of four clients, 6000 draws; chi-square on 5 degrees has 41 at p = 1e-7."""

    expected = dict.fromkeys(itertools.combinations(range(4), 2), 1000.0)
    bound = 41.0

    def test_ours_does(self):
        assert chi_square(cohorts(FixedSize(count=2), 4, 6000), self.expected) < self.bound

    def test_a_favourite_client_would_be_noticed(self):
        class Lopsided:
            def draw(self, clients, rng):
                return sorted(rng.choice(4, 2, replace=False, p=[0.28, 0.24, 0.24, 0.24]).tolist())

        assert chi_square(cohorts(Lopsided(), 4, 6000), self.expected) > self.bound


class TestPoissonDrawsAtItsRate:
    """100 clients, 1000 rounds: the number drawn is binomial; 5.3 deviations are p = 1e-7."""

    @staticmethod
    def deviations(draws, rate):
        trials = 100 * 1000
        return abs(sum(map(len, draws)) - trials * rate) / (trials * rate * (1 - rate)) ** 0.5

    @pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
    def test_ours_does(self, rate):
        assert self.deviations(cohorts(Poisson(rate), 100, 1000), rate) < 5.3

    @pytest.mark.parametrize(("rate", "wrong"), [(0.1, 0.11), (0.5, 0.51), (0.9, 0.89)])
    def test_another_rate_would_be_noticed(self, rate, wrong):
        assert self.deviations(cohorts(Poisson(wrong), 100, 1000), rate) > 5.3

    def test_every_client_is_drawn_at_it(self):
        drawn = list(itertools.chain.from_iterable(cohorts(Poisson(0.3), 20, 3000)))
        counts = np.bincount(drawn, minlength=20)
        deviation = (3000 * 0.3 * 0.7) ** 0.5
        assert (np.abs(counts - 900) < 5.5 * deviation).all()


class TestPoissonDrawsClientsIndependently:
    """The eight sets of three clients, 8000 rounds; chi-square on 7 degrees has 46 at p = 1e-7."""

    rate = 0.4
    bound = 46.0
    expected = {  # noqa: RUF012 - not changed
        cohort: 8000 * 0.4 ** len(cohort) * 0.6 ** (3 - len(cohort))
        for size in range(4)
        for cohort in itertools.combinations(range(3), size)
    }

    def test_ours_does(self):
        assert chi_square(cohorts(Poisson(self.rate), 3, 8000), self.expected) < self.bound

    def test_one_coin_for_neighbours_would_be_noticed(self):
        class Coupled:
            def draw(self, clients, rng):
                coins = rng.random(3)
                if rng.random() < 0.1:
                    coins[1] = coins[0]
                return np.flatnonzero(coins < 0.4).tolist()

        assert chi_square(cohorts(Coupled(), 3, 8000), self.expected) > self.bound

    def test_rounds_are_independent_too(self):
        draws = cohorts(Poisson(0.5), 1, 8001)
        same = sum(one == other for one, other in itertools.pairwise(draws))
        # Binomial with 8000 trials and probability 1/2: deviation 45.
        assert abs(same - 4000) < 5.3 * 45
