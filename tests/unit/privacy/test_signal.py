"""Signal against noise: the ratio of norms, and when it is warned of."""

import dataclasses
import math

import numpy as np
import pytest

from fedpriv.privacy.accounting.gdp import gaussian_epsilon
from fedpriv.privacy.mechanism import client_gaussian, example_gaussian, provider_gaussian
from fedpriv.privacy.signal import DROWNED, Signal, signal_lines


def test_the_ratio_is_that_of_the_norms_that_come_out():
    """A sum of units that point the same way, and the noise that is drawn for it."""
    signal = Signal(6, 0.5, 2.0, 10_000, 4)
    noise = np.random.default_rng(0).normal(0, 2.0 * 0.5, (4, 10_000))
    aligned = 6 * 0.5
    assert signal.per_round == pytest.approx(aligned / np.linalg.norm(noise[0]), rel=0.03)
    all_rounds = 4 * aligned / np.linalg.norm(noise.sum(axis=0))
    assert signal.over_run == pytest.approx(all_rounds, rel=0.03)


def test_a_warning_stands_where_the_model_drowns_and_nowhere_else():
    lost = Signal(1, 1.0, 1.0, round(1 / DROWNED**2) + 1, 1)
    assert lost.drowned
    assert "WARNING: the noise will drown the model" in lost.lines()[-1]
    for kept in (dataclasses.replace(lost, units=2), dataclasses.replace(lost, releases=4)):
        assert not kept.drowned
        assert "WARNING" not in "".join(kept.lines())
    assert Signal(1, 1.0, 0.0, 10, 1).lines() == []


def units_of(lines):
    return float(lines[0].split("sums about ")[1].split(" units")[0])


def test_units_of_a_round_are_the_mechanisms():
    noise = {"noise_multiplier": 1.0}
    examples = example_gaussian(
        clip_norm=0.1, examples=400, record_rate=0.2, client_rate=0.5, **noise
    )
    providers = provider_gaussian(clip_norm=1, providers=3, client_rate=0.5, **noise)
    whole = client_gaussian(clip_norm=1, client_rate=0.5, **noise)
    assert units_of(signal_lines(examples, 100, clients=8, rounds=1)) == 40  # C q_k |D|
    assert units_of(signal_lines(providers, 100, clients=8, rounds=1)) == 12  # C K M
    assert units_of(signal_lines(whole, 100, clients=8, rounds=1)) == 4  # C K
    # Each of four clients' batch is its own, and the server takes the mean of the four.
    own = signal_lines(examples, 100, clients=8, rounds=3, steps=5)
    assert units_of(own) == 10
    assert "over the 60 of the run" in own[1]


def test_answers_beyond_the_threshold_add_noise():
    mechanism = client_gaussian(clip_norm=1, noise_multiplier=1.0)
    norms = [
        float(signal_lines(mechanism, 10**6, 4, 1, threshold)[0].split("norm ")[2].split()[0])
        for threshold in (1.0, 0.25)
    ]
    assert norms == [1000, 2000]
    assert signal_lines(dataclasses.replace(mechanism, noise_multiplier=0.0), 10, 4, 1) == []


def test_bands_that_some_never_have_a_turn_in_are_warned_of():
    made = provider_gaussian(clip_norm=1, providers=3, noise_multiplier=1.0, bands=8)
    assert "about 4 of 8 units have none in 4 rounds" in signal_lines(made, 10, 4, rounds=4)[-1]
    assert not any("turn" in line for line in signal_lines(made, 10, 4, rounds=8))


def test_what_a_limit_lets_each_give_is_said():
    made = provider_gaussian(
        clip_norm=1, providers=3, noise_multiplier=1.0, individual_epsilon=2.0, delta=1e-5
    )
    line = signal_lines(made, 10, 4, rounds=4)[-1]
    assert line.startswith("individual_epsilon=2: a provider may give 0.5 clip norms in one round")
    assert gaussian_epsilon(0.5, 1e-5) == pytest.approx(2.0, abs=0.03)  # of one such release


def test_the_case_that_was_seen_to_drown_is_warned_of():
    """FL-PROVIDER-DP on a tiny VT5 at epsilon 8; and the published ones, which learn, are not."""
    tiny = provider_gaussian(clip_norm=1, providers=3, noise_multiplier=1.377, client_rate=0.33)
    assert "WARNING" in signal_lines(tiny, 402_688, clients=6, rounds=10)[-1]
    published = provider_gaussian(
        clip_norm=5, providers=400, noise_multiplier=0.771, client_rate=0.2
    )
    funsd = example_gaussian(clip_norm=0.1, examples=389, noise_multiplier=1.5, record_rate=1 / 7)
    assert len(signal_lines(published, 226_000_000, clients=10, rounds=10)) == 2
    assert len(signal_lines(funsd, 125_000_000, clients=2, rounds=350)) == 2
    assert math.isclose(Signal(800, 5, 0.771, 226_000_000, 10).over_run, 0.218, rel_tol=1e-2)
