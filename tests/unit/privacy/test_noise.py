"""The noise: its scale for one client and for a cohort, and that no two uses share any of it.

Bounds are five standard deviations of the statistic at 100 000 coordinates, 2.2 % for a variance.
Every test of a scale is also put to noise that is √2 too large and too small, and must reject it.
"""

import itertools
import math

import numpy as np
import pytest
from host_vectors import on_arrays
from scipy import stats
from toy_private import Wide, answers, are_independent, instruction, mean_is_zero, numbers, rows_of
from toy_private import variance_is as variance_is_

from fedpriv.clients.feam_dp import ExampleGradients
from fedpriv.clients.fedavg_dp import DPLocalTraining
from fedpriv.clients.fl_provider_dp import ProviderUpdates
from fedpriv.privacy import noise as private_noise
from fedpriv.privacy.mechanism import example_gaussian, provider_gaussian
from fedpriv.privacy.noise import BLOCK, share_std
from fedpriv.runtime.seeds import generator
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg_dp import FedAvgDP
from fedpriv.strategies.fl_provider_dp import FLProviderDP
from fedpriv.training.loops import Optimizer

SIZE = 100_000
CLIP, SIGMA = 2.0, 1.5

add_gaussian = on_arrays(private_noise.add_gaussian)


def variance_is(noise, expected):
    """The verdict; the same noise √2 too large and too small must get the other one."""
    for wrong in (math.sqrt(2), math.sqrt(0.5)):
        assert not variance_is_(wrong * np.asarray(noise, np.float64), expected)
    return variance_is_(noise, expected)


def noise_of(std, *key, seed=0):
    return add_gaussian(np.zeros(SIZE), std, generator(seed, "test noise", *key))


@pytest.mark.parametrize("shares", [1, 2, 7, 50])
def test_a_share_has_its_part_of_the_variance_and_the_shares_add_up(shares):
    std = share_std(SIGMA * CLIP, shares)
    noises = [noise_of(std, 1, client) for client in range(shares)]
    assert variance_is(noises[0], 9 / shares)
    assert variance_is(np.sum(noises, axis=0), 9)


def test_the_published_codes_mistake_would_be_noticed():
    """Each client adding the whole noise makes a sum of |K| times the variance."""
    noises = [noise_of(SIGMA * CLIP, 1, client) for client in range(2)]
    assert not variance_is_(np.sum(noises, axis=0), 9)


@pytest.mark.parametrize("seed", range(5))
def test_the_mean_is_zero(seed):
    noise = noise_of(3.0, seed=seed)
    assert mean_is_zero(noise)
    assert not mean_is_zero(noise + 0.1)


def test_it_is_gaussian_and_of_that_scale():
    noise = noise_of(3.0)
    assert stats.kstest(noise / 3, "norm").pvalue > 1e-4
    assert stats.kstest(noise / 3 * math.sqrt(2), "norm").pvalue < 1e-4
    laplace = np.random.default_rng(0).laplace(scale=3 / math.sqrt(2), size=SIZE)
    assert stats.kstest(laplace / 3, "norm").pvalue < 1e-4


def test_coordinates_are_independent_also_across_blocks():
    noise = add_gaussian(np.zeros(4 * BLOCK), 1.0, generator(0, "test noise"))
    blocks = noise.reshape(4, BLOCK)
    for one, other in itertools.combinations(blocks, 2):
        assert are_independent(one, other)
    assert are_independent(noise[:-1], noise[1:])
    assert not are_independent(noise[:-1], noise[1:] + 0.1 * noise[:-1])


def test_it_is_added_to_what_is_there_in_place():
    vector = np.array([1e6, -3.0], np.float32)
    drawn = generator(0, "here").standard_normal(2)
    assert np.shares_memory(add_gaussian(vector, 0.5, generator(0, "here")), vector)
    assert vector.dtype == np.float32
    assert vector.tolist() == [np.float32(1e6 + 0.5 * drawn[0]), np.float32(-3 + 0.5 * drawn[1])]


def test_no_noise_draws_and_changes_nothing():
    rng = generator(0, "here")
    vector = add_gaussian(np.array([1.0, -0.0]), 0.0, rng)
    assert vector.tobytes() == np.array([1.0, -0.0]).tobytes()
    assert rng.random() == generator(0, "here").random()


@pytest.mark.parametrize("std", [-1.0, math.nan, math.inf])
def test_a_scale_that_is_none_is_refused(std):
    with pytest.raises(ValueError, match=f"std={std}: expected 0 or more"):
        add_gaussian(np.zeros(2), std, generator(0, "here"))


@pytest.mark.parametrize("shares", [0, -1])
def test_noise_cannot_be_split_into_nothing(shares):
    with pytest.raises(ValueError, match=f"shares={shares}: expected at least 1"):
        share_std(1.0, shares)


# What clients really send. Without examples a message is its noise and nothing else.

NOBODY = numbers(1, providers=[0]), [np.empty(0, np.int64)] * 4


def feam(threshold=1.0):
    strategy = FeAmDP(
        example_gaussian(clip_norm=CLIP, examples=40, record_rate=0.1, noise_multiplier=SIGMA),
        threshold=threshold,
    )
    return strategy, ExampleGradients(), 4.0


def provider(threshold=1.0):
    mechanism = provider_gaussian(clip_norm=CLIP, providers=5, noise_multiplier=SIGMA)
    return FLProviderDP(mechanism, threshold=threshold), ProviderUpdates(), 5.0


@pytest.mark.parametrize("algorithm", [feam, provider])
def test_four_clients_messages_carry_a_quarter_each_and_together_all(algorithm):
    strategy, half, divisor = algorithm()
    messages, _ = answers(half, *NOBODY, instruction(strategy, 4, 4), Wide)
    for message in messages:
        assert variance_is(message * divisor, 9 / 4)
        assert mean_is_zero(message)
    assert variance_is(np.sum(messages, axis=0, dtype=np.float64) * divisor, 9)
    for one, other in itertools.combinations(messages, 2):
        assert are_independent(one, other)


@pytest.mark.parametrize("algorithm", [feam, provider])
def test_any_three_of_four_carry_all_of_it_where_three_must_do(algorithm):
    strategy, half, divisor = algorithm(threshold=0.75)
    messages, _ = answers(half, *NOBODY, instruction(strategy, 4, 4), Wide)
    for three in itertools.combinations(messages, 3):
        assert variance_is(np.sum(three, axis=0, dtype=np.float64) * divisor, 9)
    assert variance_is(np.sum(messages, axis=0, dtype=np.float64) * divisor, 12)


@pytest.mark.parametrize("algorithm", [feam, provider])
def test_another_round_attempt_or_seed_has_other_noise(algorithm):
    strategy, half, _ = algorithm()
    asked = [instruction(strategy, 4, 4, round=r, attempt=a) for r, a in [(1, 0), (2, 0), (1, 1)]]
    noises = [answers(half, *NOBODY, one, Wide)[0][0] for one in asked]
    noises.append(answers(half, *NOBODY, asked[0], Wide, seed=6)[0][0])
    for one, other in itertools.combinations(noises, 2):
        assert are_independent(one, other)
    again, _ = answers(half, *NOBODY, asked[0], Wide)
    assert again[0].tobytes() == noises[0].tobytes()
    assert not are_independent(again[0], noises[0])


def test_the_noise_does_not_depend_on_the_data():
    strategy, half, _ = feam()
    asked = instruction(strategy, 4, 4)
    empty, _ = answers(half, *NOBODY, asked, Wide)
    columns = numbers(40, providers=np.zeros(40, int), scale=100)
    full, _ = answers(half, columns, rows_of(10, 10, 10, 10), asked, Wide)
    for one, other in zip(empty, full, strict=True):
        assert np.array_equal(one[4:], other[4:])  # the data reaches four weights only


@pytest.mark.parametrize("steps", [1, 3])
def test_fedavg_dps_every_step_of_every_client_has_all_of_it(steps):
    mechanism = example_gaussian(
        clip_norm=CLIP, examples=80, record_rate=0.1, noise_multiplier=SIGMA
    )
    strategy = FedAvgDP(mechanism, steps=steps)
    half = DPLocalTraining(optimizer=Optimizer("sgd", lr=0.5))
    messages, _ = answers(half, *NOBODY, instruction(strategy, 4, 4), Wide)
    # A client's batch is .1 · 80 / 4 = 2, and each step moves by lr times the noisy mean.
    for message in messages:
        assert variance_is(message * 2 / 0.5, 9 * steps)
    for one, other in itertools.combinations(messages, 2):
        assert are_independent(one, other)
