"""Whatever happens in a few rounds with bands, the ledger books at least what a provider gave away.

Each round is run once or twice, with everybody there, without the provider's client, or without
another one. What the sums of all rounds tell of a provider that is drawn at every turn is a
Gaussian whose precision is known exactly: every row has its shift and its noise.
"""

import itertools

import pytest

from fedpriv.privacy.banded import coefficients
from fedpriv.privacy.ledger import Attempt, Group, Ledger, shared_release
from fedpriv.privacy.mechanism import provider_gaussian
from fedpriv.privacy.statement import grouped

CLIENTS, THRESHOLD, SHARES = 3, 0.6, 2
THERE = {"all": (0, 1, 2), "not hers": (1, 2), "not another": (0, 1)}
ROUNDS = [(name, times) for name in THERE for times in (1, 2)]


def mechanism(bands):
    return provider_gaussian(
        clip_norm=1.0, providers=1, noise_multiplier=1.0, provider_rate=1 / bands, bands=bands
    )


def ledger(bands, rounds):
    made = Ledger(mechanism(bands), masked=True)
    for number, (name, times) in enumerate(rounds, 1):
        for attempt in range(times):
            one = Attempt(
                number, attempt, CLIENTS, (0, 1, 2), THERE[name], released=True, sent=str(attempt)
            )
            made.book(shared_release(mechanism(bands), one, THRESHOLD))
    return made


def given_away(bands, rounds, turns):
    """Σ (shift / noise)² of providers of client 0, which has remembered all that it computed.

    Args:
        bands: b.
        rounds: who was there in each, and how often it was run.
        turns: of the providers, whose contributions all point one way.
    """
    weights, told = coefficients(bands), 0.0
    for number, (name, times) in enumerate(rounds, 1):
        if 0 not in THERE[name]:
            continue
        variance = len(THERE[name]) / SHARES
        ages = [(number - 1 - turn) % bands for turn in turns]
        told += sum(weights[age] for age in ages if number - age >= 1) ** 2 / variance
        if times == 2:  # a repeated round tells of itself alone
            told += sum(weights[0] for age in ages if age == 0) ** 2 / variance
    return told


def booked(history):
    return sum(times * event.noise_multiplier**-2 for event, times in history)


@pytest.mark.parametrize(
    ("bands", "count"), [(2, 4), (3, 4), pytest.param(3, 5, marks=pytest.mark.slow)]
)
def test_no_history_of_rounds_gives_away_more_than_is_booked(bands, count):
    tightest = 0.0
    for rounds in itertools.product(ROUNDS, repeat=count):
        made = ledger(bands, rounds)
        most = max(given_away(bands, rounds, (turn,)) for turn in range(bands))
        for view in ("global", "server_masked"):
            assert most <= booked(made.history(view)) * (1 + 1e-9)
        assert most <= booked(made.history_of(0, "global")) * (1 + 1e-9)
        if all(times == 1 for _, times in rounds):
            tightest = max(tightest, most / booked(made.history("global")))
    # The bound is reached, where turns are complete and exactly the planned noise is there.
    assert tightest == pytest.approx(1.0, abs=0.35)


@pytest.mark.parametrize(("bands", "size"), [(2, 2), (2, 3), (3, 2), (3, 3)])
def test_no_history_gives_away_more_of_several_providers_than_is_booked_for_a_group(bands, size):
    tightest = 0.0
    for rounds in itertools.product(ROUNDS, repeat=4):
        made = ledger(bands, rounds)
        most = max(
            given_away(bands, rounds, turns)
            for turns in itertools.combinations_with_replacement(range(bands), size)
        )
        for view in ("global", "server_masked"):
            history, _ = grouped(made, view, Group(size))
            assert most <= booked(history) * (1 + 1e-9)
            tightest = max(tightest, most / booked(history))
    assert tightest > 0.65
