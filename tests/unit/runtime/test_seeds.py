"""Streams of random numbers: functions of (seed, purpose, round, client) and of nothing else."""

import hashlib
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.runtime.seeds import entropy, generator, torch_seed

KEY = {"seed": 7, "purpose": "client sampling", "round": 3, "client": 5}

keys = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**64),
        "purpose": st.text(st.characters(codec="utf-8", exclude_characters="\x1f"), max_size=20),
        "round": st.integers(0, 10_000),
        "client": st.integers(0, 10_000),
    }
)


def first_numbers(key):
    return generator(**key).integers(0, 2**63, size=8).tolist()


def philox_4x64(counter, key):
    """Philox4x64-10 of Salmon et al. 2011, in plain integers."""
    (a, b, c, d), (low, high), wrap = counter, key, 2**64
    for _ in range(10):
        left, right = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
        a, b, c, d = right // wrap ^ b ^ low, right % wrap, left // wrap ^ d ^ high, left % wrap
        low, high = (low + 0x9E3779B97F4A7C15) % wrap, (high + 0xBB67AE8584CAA73B) % wrap
    return [a, b, c, d]


def test_entropy_is_the_little_endian_blake2b_of_the_four_arguments():
    digest = hashlib.blake2b(b"7\x1fclient sampling\x1f3\x1f5", digest_size=16).digest()
    assert entropy(**KEY) == sum(byte << (8 * place) for place, byte in enumerate(digest))
    assert entropy(**KEY) == 0x2BF88290D256DB79CB49CD8040C07AD6


def test_the_generator_is_philox_under_that_key():
    low, high = 0xCB49CD8040C07AD6, 0x2BF88290D256DB79
    expected = philox_4x64([1, 0, 0, 0], [low, high]) + philox_4x64([2, 0, 0, 0], [low, high])
    assert generator(**KEY).bit_generator.random_raw(8).tolist() == expected


def test_one_stream_keeps_its_golden_values():
    raw = generator(**KEY).bit_generator.random_raw(3).tolist()
    assert raw == [3304294398218857061, 13412386049880320922, 9499936208358655232]
    assert generator(**KEY).permutation(8).tolist() == [7, 1, 3, 6, 0, 4, 2, 5]
    assert torch_seed(**KEY) == 0x4B49CD8040C07AD6


def test_round_and_client_are_zero_where_none_is_named():
    assert entropy(1, "partition") == entropy(1, "partition", 0, 0)


@given(keys)
def test_the_same_arguments_give_the_same_stream(key):
    assert first_numbers(key) == first_numbers(key)


@given(keys, keys, st.sampled_from(sorted(KEY)))
def test_any_argument_changed_gives_another_stream(key, other, name):
    changed = key | {name: other[name]}
    if changed != key:
        assert first_numbers(changed) != first_numbers(key)
        assert torch_seed(**changed) != torch_seed(**key)


def test_the_digits_of_two_arguments_do_not_run_together():
    close = [(1, 1, 11), (1, 11, 1), (11, 1, 1), (111, 0, 0), (0, 0, 111)]
    streams = {entropy(seed, "p", round, client) for seed, round, client in close}
    assert len(streams) == len(close)


def test_drawing_from_one_stream_leaves_every_other_alone():
    others = first_numbers(KEY | {"client": 6})
    drawn, fresh = generator(**KEY), generator(**(KEY | {"client": 6}))
    drawn.random(1000)
    assert fresh.integers(0, 2**63, size=8).tolist() == others


def test_streams_of_neighbouring_clients_are_uncorrelated():
    streams = [generator(0, "noise", 1, client).standard_normal(4096) for client in range(20)]
    # The correlation of 4096 independent pairs has standard deviation 1/64; 5 of them is 0.078.
    correlations = [np.corrcoef(one, other)[0, 1] for one, other in pairwise(streams)]
    assert max(map(abs, correlations)) < 0.078


@given(keys)
def test_torch_takes_its_seed(key):
    seed = torch_seed(**key)
    assert 0 <= seed < 2**63
    assert seed == entropy(**key) % 2**63
    assert torch.Generator().manual_seed(seed).initial_seed() == seed


@pytest.mark.parametrize("name", ["round", "client"])
def test_streams_do_not_share_a_prefix_with_a_later_part_of_another(name):
    """Philox streams of different keys are no shifted copies of each other."""
    one = generator(**KEY).bit_generator.random_raw(2000).tolist()
    other = generator(**(KEY | {name: KEY[name] + 1})).bit_generator.random_raw(2000).tolist()
    assert not set(one) & set(other)
