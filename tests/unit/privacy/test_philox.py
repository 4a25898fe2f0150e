"""Noise drawn on a device: published words, a normal distribution with its tail, and no cuts."""

import math
import shutil

import numpy as np
import pytest
import torch
from fake_device import DEVICE, FakeDevice
from scipy import stats

from fedpriv.privacy.fingerprint import fingerprint
from fedpriv.privacy.noise import add_gaussian
from fedpriv.privacy.philox import LOW, add_gaussian_, compiled, drawn, normals, philox
from fedpriv.runtime.seeds import generator

KNOWN = [  # Random123's kat_vectors, philox4x32 10
    ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((LOW,) * 4, (LOW, LOW), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_published_words(counter, key, expected):
    assert tuple(map(int, philox(tuple(torch.tensor([c]) for c in counter), key))) == expected


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000, 70_001])
def test_noise_does_not_depend_on_how_it_is_cut(size):
    whole, cut = torch.zeros(size), torch.zeros(size)
    add_gaussian_(whole, 0.5, 1 << 100 | 7)
    add_gaussian_(cut, 0.5, 1 << 100 | 7, at_once=333)
    assert torch.equal(whole, cut)


@pytest.mark.parametrize("bit", [0, 31, 32, 63, 64, 95, 96, 127])
def test_every_bit_of_the_key_gives_other_noise(bit):
    one, other = (add_gaussian_(torch.zeros(999), 1.0, key) for key in (5, 5 ^ (1 << bit)))
    assert (one == other).sum() == 0
    assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(999)


@pytest.mark.parametrize("count", [10**5, pytest.param(10**7, marks=pytest.mark.slow)])
def test_the_numbers_are_normal(count):
    numbers = add_gaussian_(torch.zeros(count, dtype=torch.float64), 2.0, 42).numpy() / 2
    assert stats.kstest(numbers, "norm").pvalue > 1e-3
    edges = stats.norm.ppf(np.linspace(0, 1, 1001))
    assert stats.chisquare(np.histogram(numbers, edges)[0]).pvalue > 1e-3
    for one, other in ((numbers[0::2], numbers[1::2]), (numbers[:-2], numbers[2:])):
        for power in (1, 2):  # squares, too: uncorrelated numbers need not be independent
            assert abs(np.corrcoef(one**power, other**power)[0, 1]) < 5 / math.sqrt(one.size)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler here")
def test_compiled_the_words_are_the_same_and_the_numbers_to_the_last_bit(monkeypatch):
    counter = tuple(torch.randint(0, 1 << 32, (4097,)) for _ in range(4))
    key = torch.tensor([3, LOW, 1 << 31, 7])
    words = torch.compile(philox, fullgraph=True)(counter, tuple(key[:2]))
    plain = philox(counter, tuple(map(int, key[:2])))
    assert all(torch.equal(one, other) for one, other in zip(words, plain, strict=True))
    start = torch.full((), 5)
    found, expected = compiled()(key, start, 4096), drawn(key, start, 4096)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-15)
    monkeypatch.setattr(torch, "compile", lambda *_, **__: pytest.fail("it is compiled once"))
    assert torch.equal(compiled()(key, start, 4096), found)


def test_where_nothing_can_be_compiled_the_numbers_are_drawn_all_the_same(monkeypatch):
    tried = []

    def broken(function, **settings):
        def fails(*arguments):
            tried.append(arguments)
            raise RuntimeError("no C++ compiler")

        return fails

    monkeypatch.setattr(torch, "compile", broken)
    monkeypatch.setattr("fedpriv.privacy.philox.BLOCKS", 64)
    compiled.cache_clear()
    expected = add_gaussian_(torch.zeros(1000), 1.0, 5, at_once=77)
    assert torch.equal(add_gaussian_(torch.zeros(1000), 1.0, 5, at_once=64), expected)
    assert len(tried) == 1
    compiled.cache_clear()


def test_the_tail_reaches_beyond_what_a_delta_would_see():
    zero = torch.zeros(1, dtype=torch.int64)
    largest = normals((zero, zero, zero, zero))[0].item()
    assert largest == pytest.approx(math.sqrt(2 * 53 * math.log(2)))
    assert largest > 8.57
    full = torch.full((1,), LOW)
    assert normals((full, full, zero, zero))[0].item() == 0  # and none is infinite


def test_what_is_added_is_rounded_once():
    start = torch.full((1001,), 1e6)
    noise = add_gaussian_(torch.zeros(1001, dtype=torch.float64), 0.3, 9)
    expected = (start.double() + noise).float()
    assert torch.equal(add_gaussian_(start.clone(), 0.3, 9), expected)


def test_a_device_draws_the_same_words_and_moves_nothing():
    there_and_here = []
    with FakeDevice() as gpu:
        vector = torch.zeros(5001).to(DEVICE)
        before = gpu.to_host
        add_gaussian(vector, 0.7, generator(3, "noise"))
        assert gpu.to_host == before
        assert gpu.waits == 0, gpu.table()
        there_and_here.append(vector.cpu())
    key = int.from_bytes(generator(3, "noise").bytes(16), "little")
    there_and_here.append(add_gaussian_(torch.zeros(5001), 0.7, key))
    assert torch.equal(*there_and_here)


def test_a_fingerprint_sees_one_bit_anywhere():
    vector = torch.randn(3 * 4096 + 17)
    seen = {fingerprint(vector), fingerprint(vector[:-1]), fingerprint(vector.double())}
    for place in (0, 4095, 4096, 3 * 4096, len(vector) - 1):
        for bit in (0, 15, 31):
            other = vector.clone()
            other.view(torch.int32)[place] ^= torch.tensor(
                1 << bit if bit < 31 else -(1 << 31), dtype=torch.int32
            )
            seen.add(fingerprint(other))
    assert len(seen) == 18
    assert fingerprint(vector) == fingerprint(vector.clone())
    assert len(fingerprint(vector[:0])) == 32
