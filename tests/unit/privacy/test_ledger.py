"""The ledger, from attempts written out by hand: who saw what, with how much noise."""

import json
import math
from dataclasses import replace

import pytest

from fedpriv.privacy.accounting.event import ClientThenRecord as Event
from fedpriv.privacy.ledger import Attempt, Group, Ledger, Release, shared_release
from fedpriv.privacy.mechanism import client_gaussian, example_gaussian, provider_gaussian
from fedpriv.privacy.statement import statement
from fedpriv.privacy.views import VIEWS
from fedpriv.strategies.feam_dp import FeAmDP
from fedpriv.strategies.fedavg_dp import FedAvgDP
from fedpriv.strategies.fl_provider_dp import FLProviderDP

SIGMA = 0.771484375
PROVIDERS = provider_gaussian(
    clip_norm=5, providers=375, noise_multiplier=SIGMA, client_rate=0.2, provider_rate=0.5
)
FIXED = replace(PROVIDERS, client_sampling="fixed")
EXAMPLES = example_gaussian(
    clip_norm=0.1, examples=400, noise_multiplier=2.0, client_rate=0.5, record_rate=0.25
)


def attempt(cohort, survivors=None, *, round=1, number=0, released=True, clients=10):
    survivors = cohort if survivors is None else survivors
    return Attempt(round, number, clients, tuple(cohort), tuple(survivors), released)


def ledger(*releases, mechanism=PROVIDERS, **settings):
    made = Ledger(mechanism, **settings)
    for release in releases:
        made.book(release)
    return made


def booked(strategy, *attempts, **settings):
    return ledger(*map(strategy.booked, attempts), mechanism=strategy.mechanism, **settings)


def histories(made, **until):
    return {view: dict(made.history(view, **until)) for view in VIEWS}


def test_one_full_round_as_the_four_observers_see_it():
    made = booked(FLProviderDP(FIXED), attempt([2, 3]))
    assert histories(made) == {
        "paper": {Event(1.0, 0.1, SIGMA): 1},  # q_c · q_m
        "global": {Event(0.2, 0.5, SIGMA): 1},
        "server_masked": {Event(0.2, 0.5, SIGMA): 1},
        # Two of ten are drawn, each hides behind half of the variance.
        "server_plain": {Event(0.2, 0.5, SIGMA / math.sqrt(2)): 1},
    }


def test_poisson_cohorts_are_booked_as_they_are_drawn_whatever_comes_up():
    """The server sees how many were drawn. How likely each number is, was known before."""
    cohorts = ([1, 2], [], [3], [0, 4, 9], list(range(10)))
    attempts = [attempt(cohort, round=r) for r, cohort in enumerate(cohorts, 1)]
    seen = histories(booked(FLProviderDP(PROVIDERS), *attempts))
    assert seen["global"] == seen["server_masked"] == {Event(0.2, 0.5, SIGMA): 5}
    ((mixture, times),) = seen["server_plain"].items()
    assert times == 5
    drawn = [math.comb(10, k) * 0.2**k * 0.8 ** (10 - k) for k in range(1, 11)]
    assert len(mixture.parts) == 10
    for k, (probability, part) in enumerate(mixture.parts, 1):
        assert probability == pytest.approx(drawn[k - 1], rel=1e-9)
        assert part.client_rate == pytest.approx(k / 10)
        assert part.noise_multiplier == pytest.approx(SIGMA / math.sqrt(k))


@pytest.mark.parametrize("until", [0, 1, 2, 3])
def test_a_history_ends_where_it_is_told_to(until):
    attempts = [attempt([1, 2], round=r) for r in (1, 2, 3)]
    seen = histories(booked(FLProviderDP(PROVIDERS), *attempts), until=until)
    assert [sum(events.values()) for events in seen.values()] == [until] * 4


def test_a_view_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="view='mine': expected one of paper, global, server_m"):
        Ledger(PROVIDERS).history("mine")


# Dropouts


@pytest.mark.parametrize(
    ("threshold", "cohort", "shares"),
    [(1.0, 4, 4), (0.5, 4, 2), (0.6, 5, 3), (0.61, 5, 4), (0.2, 4, 1), (0.7, 10, 7), (0.1, 30, 3)],
)
def test_noise_is_split_into_as_many_shares_as_must_answer(threshold, cohort, shares):
    strategy = FLProviderDP(PROVIDERS, threshold=threshold)
    assert strategy.shares(cohort) == shares
    release = strategy.booked(attempt(range(cohort), clients=30))
    assert release.share == pytest.approx(SIGMA / math.sqrt(shares))


@pytest.mark.parametrize("threshold", [1.0, 0.75, 0.5])
@pytest.mark.parametrize("strategy", [FLProviderDP, FeAmDP])
def test_from_the_threshold_on_no_dropout_takes_noise_below_the_plan(strategy, threshold):
    mechanism = PROVIDERS if strategy is FLProviderDP else EXAMPLES
    made = strategy(mechanism, threshold=threshold)
    for count in range(made.shares(8), 9):
        release = made.booked(attempt(range(8), range(count)))
        assert release.noise_multiplier >= release.planned == mechanism.noise_multiplier


def test_what_the_papers_variant_lost_is_booked_and_said():
    strategy = FLProviderDP(PROVIDERS, variant="paper")
    made = booked(strategy, attempt([1, 2]), attempt([1, 2], [2], round=2))
    low = SIGMA * math.sqrt(0.5)
    # Who stayed away may be known, and with it that all others were drawn.
    assert histories(made)["global"] == {Event(0.2, 0.5, SIGMA): 1, Event(1.0, 0.5, low): 1}
    # The paper's view stays what the paper says, and is called what it is.
    assert histories(made)["paper"] == {Event(1.0, 0.1, SIGMA): 2}
    told = statement(made)["views"]
    for view in ("paper", "global", "server_masked"):
        assert not told[view]["guarantee"]
        assert "noise was missing in round 2: not all clients answered" in told[view]["doubts"]
    whole = statement(booked(strategy, attempt([1, 2]), attempt([1, 2], round=2)))["views"]
    assert not any("missing" in doubt for doubt in whole["paper"]["doubts"])
    assert told["global"]["pld"] > whole["global"]["pld"]


@pytest.mark.parametrize("mechanism", [FIXED, PROVIDERS], ids=["fixed", "poisson"])
def test_a_round_that_did_not_count_is_booked_like_any_other(mechanism):
    """Whether it counts depends on who was drawn. So the plan is booked, whatever comes of it."""
    strategy = FLProviderDP(mechanism, threshold=0.5)
    counted = booked(strategy, attempt([1, 2]), attempt([3, 4], round=2))
    for survivors in ([1, 3], [1], []):
        refused = attempt([1, 2], survivors, released=False)
        made = booked(strategy, refused, attempt([3, 4], [3], round=2))
        assert histories(made) == histories(counted)


def test_a_round_that_is_made_again_with_other_messages_is_not_hidden_by_the_draw():
    """Whoever interrupts a run may do so for who was drawn: the second time, nothing is amplified.

    Where the second time has the first one's cohort, it takes its place before who sees sums only:
    a sum that was not released, as the first one here, was seen by nobody but the plain server.
    """
    strategy = FLProviderDP(FIXED)
    cut_off = replace(attempt([1, 2], released=False), sent="a", finished=False)
    again = replace(attempt([1, 2], number=1), sent="b")
    made = histories(booked(strategy, cut_off, again))
    once, share = Event(0.2, 0.5, SIGMA), SIGMA / math.sqrt(2)
    assert made["global"] == made["server_masked"] == {once: 1}
    assert made["server_plain"] == {Event(0.2, 0.5, share): 1, Event(1.0, 0.5, share): 1}
    released = replace(cut_off, released=True, finished=True)
    made = histories(booked(strategy, released, again))
    assert made["global"] == {once: 1, Event(1.0, 0.5, SIGMA): 1}
    assert made["paper"] == {Event(1.0, 0.1, SIGMA): 2}
    other = replace(again, cohort=(4, 5), survivors=(4, 5))
    for one in (cut_off, replace(cut_off, finished=True), released):
        made = histories(booked(strategy, one, other))
        assert made["global"] == {once: 1, Event(1.0, 0.5, SIGMA): 1}


def test_a_cohort_of_one_is_not_masked_and_its_message_is_booked_whatever_became_of_it():
    strategy = FLProviderDP(PROVIDERS)
    cut_off = replace(attempt([1], released=False), sent="a", finished=False)
    again = replace(attempt([2, 3], number=1), sent="b")
    last = replace(attempt([4], number=2, released=False), sent="c", finished=False)
    made = histories(booked(strategy, cut_off, again, last))
    once, known = Event(0.2, 0.5, SIGMA), Event(1.0, 0.5, SIGMA)
    assert made["global"] == {once: 1, known: 1}
    assert made["server_masked"] == {once: 1, known: 2}


# Repeated rounds


def test_an_attempt_is_booked_when_it_begins_and_again_when_it_has_come_to_its_end():
    strategy = FLProviderDP(PROVIDERS, threshold=0.5)
    begun = replace(attempt([1, 2, 3, 4], released=False), finished=False)
    made = booked(strategy, begun)
    assert not made.before(begun).finished
    before = made.digest()
    made.book(strategy.booked(attempt([1, 2, 3, 4], [1, 2, 3])))
    (release,) = made.releases
    assert release.attempt.survivors == (1, 2, 3)
    assert made.before(begun).finished
    assert made.before(begun).survivors == (1, 2, 3)
    assert made.digest() == before  # what a checkpoint notes is known when the attempt begins
    again = Ledger.from_json(json.loads(json.dumps(made.to_json())))
    again.book(strategy.booked(attempt([1, 2, 3, 4], [1, 2, 3])))
    assert again == made
    again.book(strategy.booked(attempt([1, 2, 3, 4], [1, 2, 3], number=1)))
    again.book(strategy.booked(attempt([1, 2, 3, 4], [1, 2, 3], round=2)))
    assert len(again.releases) == 3
    assert again.digest(1) == before != again.digest()


def test_other_messages_take_another_attempt_and_the_same_ones_the_same():
    strategy = FLProviderDP(PROVIDERS)
    made = booked(strategy, replace(attempt([1]), sent="a"))
    assert made.attempt_from(1, "a") == 0
    assert made.attempt_from(1, "b") == 1
    assert made.attempt_from(2, "b") == 0
    made.book(strategy.booked(replace(attempt([1], number=1), sent="b")))
    assert made.attempt_from(1, "c") == 2
    assert made.attempt_from(1, "a", 1) == 2
    # On a GPU the same messages may come out in other bits.
    assert made.attempt_from(1, "a", exact=False) == 2
    assert made.attempt_from(2, "a", exact=False) == 0


def test_who_answers_only_the_second_time_has_been_heard_and_is_in_no_sum():
    """If it counted as an answer of the first time, a third time could release a second sum."""
    strategy = FedAvgDP(EXAMPLES, steps=3)
    first = attempt([0, 1, 2], [0, 1])
    made = booked(strategy, first, attempt([2], round=2))
    made.also_heard(first, [0, 1, 2])
    assert made.before(first).survivors == (0, 1)
    assert made.before(first).heard == {0, 1, 2}
    assert made.participation() == {0: 1, 1: 1, 2: 1}
    assert histories(made)["server_plain"] == {Event(1.0, 0.25, 2.0): 6}  # client 2, two rounds


@pytest.mark.parametrize(
    "broken",
    [
        {},
        [1],
        None,
        {"mechanism": None},
        {"mechanism": {"unit": "example"}, "masked": False},
        {"mechanism": None, "masked": False, "events": [{}], "uncovered": [], "groups": {}},
    ],
)
def test_what_is_no_ledger_is_named(broken):
    with pytest.raises(ValueError, match=r"RUN/ledger.json is no whole ledger .* not known"):
        Ledger.from_json(broken, "RUN/ledger.json")


@pytest.mark.parametrize(
    "strategy",
    [
        FLProviderDP(PROVIDERS, threshold=0.5),
        FeAmDP(EXAMPLES, variant="paper"),
        FedAvgDP(EXAMPLES, steps=3),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_a_ledger_survives_json_bit_by_bit(strategy):
    attempts = [attempt([0, 7, 9], [0, 9]), attempt([], round=2), attempt([1], round=3)]
    made = booked(
        strategy, *attempts, masked=True, uncovered=("a", "b"), groups={"document": Group(3)}
    )
    back = Ledger.from_json(json.loads(json.dumps(made.to_json())))
    assert back == made
    assert [back.history(view) for view in VIEWS] == [made.history(view) for view in VIEWS]
    event = made.to_json()["events"][0]
    assert event["cohort"] == (0, 7, 9)
    assert event["survivors"] == (0, 9)
    assert Release.from_json(event) == made.releases[0]


def test_a_ledger_of_nothing_private_survives_json_too():
    assert Ledger.from_json(json.loads(json.dumps(Ledger().to_json()))) == Ledger()
    views = statement(Ledger())["views"]
    assert {view["pld"] for view in views.values()} == {"inf"}
    assert not any(view["guarantee"] for view in views.values())


# FedAvg-DP: every client for itself


def test_fedavg_dp_counts_the_steps_of_the_client_that_sent_most():
    strategy = FedAvgDP(EXAMPLES, steps=3)
    attempts = [
        attempt([0, 1], round=1),
        attempt([1, 2], [2], round=2),
        attempt([2, 3], round=3),
        attempt([2, 4], [2, 4], round=4, released=False),
    ]
    made = booked(strategy, *attempts)
    # Client 2 sent three messages of three steps; the one that did not count was sent all the same.
    assert histories(made) == {view: {Event(1.0, 0.25, 2.0): 9} for view in VIEWS}
    assert histories(made, until=2) == {view: {Event(1.0, 0.25, 2.0): 3} for view in VIEWS}


def test_fedavg_dp_loses_nothing_by_dropouts_and_releases_nothing_without_clients():
    strategy = FedAvgDP(EXAMPLES)
    release = strategy.booked(attempt([1, 2, 3], [3]))
    assert release.noise_multiplier == release.share == release.planned == 2.0
    assert histories(booked(strategy, attempt([]))) == {view: {} for view in VIEWS}


# ε


def published():
    """PFL-DocVQA, Table 12, ε = 8: ten rounds of two of ten clients, all providers."""
    mechanism = provider_gaussian(
        clip_norm=5,
        providers=375,
        noise_multiplier=SIGMA,
        client_rate=0.2,
        client_sampling="fixed",
    )
    cohorts = [[r % 10, (3 * r + 1) % 10] for r in range(1, 11)]
    assert all(len(set(cohort)) == 2 for cohort in cohorts)
    attempts = [attempt(sorted(cohort), round=r) for r, cohort in enumerate(cohorts, 1)]
    return booked(FLProviderDP(mechanism), *attempts)


def test_the_published_run_is_not_what_it_says():
    told = statement(published())
    assert (told["unit"], told["delta"]) == ("provider", 1e-5)
    pld = {view: told["views"][view]["pld"] for view in VIEWS}
    assert pld["paper"] == pytest.approx(7.984, abs=0.005)
    assert pld["global"] == pytest.approx(14.46, abs=0.01)
    assert pld["server_masked"] == pld["global"]
    assert pld["server_plain"] == pytest.approx(23.68, abs=0.02)
    assert [told["views"][view]["guarantee"] for view in VIEWS] == [False, True, True, True]
    assert told["by_round"][-1]["round"] == 10
    assert told["by_round"][-1]["global"] == pytest.approx(16.28, abs=0.02)  # by RDP


def test_without_client_sampling_the_papers_view_is_right():
    mechanism = provider_gaussian(clip_norm=5, providers=375, noise_multiplier=2.0)
    told = statement(booked(FLProviderDP(mechanism), attempt(range(10))))["views"]
    assert told["paper"]["guarantee"]
    assert told["paper"]["pld"] == told["global"]["pld"]
    # One Gaussian of μ = 1/2 at δ = 1e-5.
    assert told["global"]["pld"] == pytest.approx(1.9938, abs=0.003)


def test_what_no_epsilon_covers_makes_no_view_a_guarantee():
    strategy = FeAmDP(EXAMPLES, variant="paper")
    made = booked(strategy, attempt(range(5)), uncovered=tuple(strategy.uncovered()))
    told = statement(made)["views"]
    assert not any(told[view]["guarantee"] for view in VIEWS)
    assert any("n_k" in doubt for doubt in told["global"]["doubts"])
    assert FeAmDP(EXAMPLES).uncovered() == FLProviderDP(PROVIDERS).uncovered() == []


def test_which_server_there_was_is_said():
    for masked in (True, False):
        told = statement(booked(FLProviderDP(PROVIDERS), attempt([1]), masked=masked))["views"]
        assert told["server_masked"]["applies"] is masked
        assert told["server_plain"]["applies"] is not masked


def test_without_noise_there_is_no_bound():
    loud = client_gaussian(clip_norm=1.0, noise_multiplier=0)
    told = statement(booked(FLProviderDP(loud), attempt(range(10))))["views"]
    assert {told[view]["pld"] for view in VIEWS} == {"inf"}


def test_a_document_of_several_windows_is_less_private_than_a_window():
    made = booked(FeAmDP(EXAMPLES), attempt(range(5)), groups={"document": Group(3)})
    told = statement(made)
    larger = told["larger_units"]["document"]
    assert larger["records"] == 3
    for view in VIEWS:
        assert larger["epsilon"][view] > told["views"][view]["pld"]


def test_the_release_of_a_full_cohort_is_exactly_the_plan():
    for cohort in range(1, 30):
        release = shared_release(PROVIDERS, attempt(range(cohort), clients=30))
        assert release.noise_multiplier == SIGMA
