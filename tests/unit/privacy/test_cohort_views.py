"""What a server sees of cohorts whose size varies, and what colluding clients add to it.

With record_rate 1, the exact δ(ε) of a few rounds is a finite sum: over the sizes of the cohorts
and over whether the protected client was in them, of Balle and Wang's closed form for Gaussians.
"""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from fedpriv.privacy.accounting.accountants import ACCOUNTANTS, epsilon, estimates
from fedpriv.privacy.accounting.event import (
    ClientThenRecord,
    NotAvailable,
    OneOf,
    each_part,
    ever_included,
    merged,
)
from fedpriv.privacy.views import (
    cohorts_of,
    view_events,
    with_shares_known,
)


def server_masked_event(
    sampling, client_rate, record_rate, sigma, clients, threshold=1.0, group_size=1, colluders=0
):
    event = ClientThenRecord(client_rate, record_rate, sigma, group_size)
    cohorts = cohorts_of(sampling, client_rate, clients, threshold)
    return with_shares_known(event, cohorts, colluders)


def server_plain_event(sampling, client_rate, record_rate, sigma, clients, *more, **settings):
    planned = (sampling, client_rate, record_rate, sigma, clients, *more)
    return server_masked_event(*planned, **settings, colluders=clients)


def gaussian_delta(eps, mu):
    if mu == 0:
        return 0.0
    return norm.sf(eps / mu - mu / 2) - math.exp(eps + norm.logsf(eps / mu + mu / 2))


def exact_delta(eps, rounds, outcomes):
    """δ(ε) of `rounds` rounds, each with one of `outcomes`: (probability, noise or None if absent).

    Who sees all outcomes sees, for each way that the rounds went, one Gaussian shifted by
    μ² = Σ 1/σ² over the rounds in which the client was there.
    """
    total = 0.0
    for way in itertools.product(outcomes, repeat=rounds):
        mu = math.sqrt(sum(noise**-2 for _, noise in way if noise is not None))
        total += math.prod(chance for chance, _ in way) * gaussian_delta(eps, mu)
    return total


def outcomes_of(rate, clients, noise_left):
    """The sizes 1 … N of a Poisson cohort, with and without the protected client in it."""
    for size in range(1, clients + 1):
        chance = binom.pmf(size, clients, rate)
        yield chance * size / clients, noise_left(size)
        yield chance * (1 - size / clients), None
    yield (1 - rate) ** clients, None


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("threshold", [1.0, 0.5])
@pytest.mark.parametrize(("clients", "rate", "sigma"), [(1, 0.3, 1.0), (4, 0.5, 1.3), (5, 0.2, 3)])
def test_poisson_cohorts_seen_one_message_at_a_time(rounds, threshold, clients, rate, sigma):
    event = server_plain_event("poisson", rate, 1.0, sigma, clients, threshold)
    shares = {size: math.ceil(threshold * size) for size in range(1, clients + 1)}
    outcomes = list(outcomes_of(rate, clients, lambda size: sigma / math.sqrt(shares[size])))
    assert sum(chance for chance, _ in outcomes) == pytest.approx(1)
    delta = 1e-4
    found = epsilon([(event, rounds)], delta)
    assert exact_delta(found, rounds, outcomes) <= delta * (1 + 1e-6)
    assert exact_delta(found - 2e-3 * max(1, found), rounds, outcomes) > delta


@pytest.mark.parametrize("colluders", [1, 2, 3, 4])
@pytest.mark.parametrize("threshold", [1.0, 0.6])
def test_colluders_take_their_noise_from_the_masked_sum(colluders, threshold):
    event = server_masked_event("poisson", 0.5, 1.0, 2.0, 4, threshold, colluders=colluders)

    def left(size):
        t = math.ceil(threshold * size)
        return 2.0 * math.sqrt(max(1, t - colluders) / t)

    outcomes = list(outcomes_of(0.5, 4, left))
    found = epsilon([(event, 2)], 1e-4)
    assert exact_delta(found, 2, outcomes) <= 1e-4 * (1 + 1e-6)
    assert exact_delta(found - 2e-3 * max(1, found), 2, outcomes) > 1e-4


def test_one_record_in_a_cohort_of_random_size_has_a_closed_form():
    """δ of a mixture is the mixture of δ; that of a sampled Gaussian is Mironov's, in one round."""
    rate, q, sigma, clients = 0.4, 0.3, 1.1, 6

    def sampled(eps, noise):
        y = noise**2 * math.log((math.expm1(eps) + q) / q) + 0.5
        with_record = (1 - q) * norm.sf(y / noise) + q * norm.sf((y - 1) / noise)
        return with_record - math.exp(eps + norm.logsf(y / noise))

    def delta_at(eps):
        sizes = range(1, clients + 1)
        return sum(
            binom.pmf(k, clients, rate) * k / clients * sampled(eps, sigma / math.sqrt(k))
            for k in sizes
        )

    event = server_plain_event("poisson", rate, q, sigma, clients)
    found = epsilon([(event, 1)], 1e-5)
    assert delta_at(found) <= 1e-5 * (1 + 1e-6)
    assert delta_at(found - 2e-3 * max(1, found)) > 1e-5


def test_all_accountants_agree_about_a_cohort_of_random_size():
    for clients, rate, q, sigma, rounds in ((10, 0.2, 1.0, 0.771484375, 10), (8, 0.5, 0.25, 3, 50)):
        event = server_plain_event("poisson", rate, q, sigma, clients)
        found = estimates([(event, rounds)], 1e-5)
        pld, rdp, prv = (found[name].epsilon for name in ("pld", "rdp", "prv"))
        assert pld <= prv <= pld * 1.001 + 0.011
        assert found["prv"].reason == ""
        assert pld < rdp < 1.2 * pld
        assert found["gdp"].epsilon is None
        with pytest.raises(NotAvailable, match="Opacus has no client stage"):
            epsilon([(event, rounds)], 1e-5, "prv_opacus")


def test_the_published_run_against_a_server_without_masks():
    """FL-PROVIDER-DP of Tito et al. 2024, Table 12: 2 of 10 clients on average, and always 2."""
    poisson, fixed = (
        epsilon([(server_plain_event(how, 0.2, 1.0, 0.771484375, 10), 10)], 1e-5)
        for how in ("poisson", "fixed")
    )
    assert (poisson, fixed) == pytest.approx((33.98, 23.68), abs=0.01)


def test_no_colluders_is_the_sum_and_all_colluders_is_one_message():
    for how, rate, clients in (("poisson", 0.3, 7), ("fixed", 0.5, 8)):
        arguments = (how, rate, 0.5, 1.5, clients, 0.7)
        assert server_masked_event(*arguments) == ClientThenRecord(rate, 0.5, 1.5)
        plain = server_plain_event(*arguments)
        assert server_masked_event(*arguments, colluders=clients - 1) == plain
        told = [
            epsilon([(server_masked_event(*arguments, colluders=c), 5)], 1e-5)
            for c in range(clients)
        ]
        assert told == sorted(told)
        assert told[0] < told[1] < told[-1]


@pytest.mark.parametrize(("colluders", "expected"), [(0, 10.98), (3, 16.2), (7, 80.4), (8, 80.4)])
def test_feam_dp_with_colluders(colluders, expected):
    """PrIeD-KIE's FUNSD with 16 clients, half of them in a round: 8 shares, one always stays."""
    event = server_masked_event("fixed", 0.5, 2 / 7, 1.50146484375, 16, colluders=colluders)
    assert epsilon([(event, 350)], 1 / 389) == pytest.approx(expected, rel=3e-3)


def test_a_cohort_of_everybody_is_the_same_for_both_samplings():
    for threshold in (1.0, 0.5):
        poisson, fixed = (
            server_plain_event(how, 1.0, 0.3, 2.0, 6, threshold) for how in ("poisson", "fixed")
        )
        assert merged([(poisson, 3)]) == merged([(fixed, 3)])
    assert server_plain_event("fixed", 1.0, 0.3, 2.0, 6, 0.5) == ClientThenRecord(
        1.0, 0.3, 2 / math.sqrt(3)
    )


@pytest.mark.parametrize("colluders", [1, 7, 90, 200, 999])
def test_what_is_left_of_the_noise_in_large_federations_is_rounded_the_safe_way(colluders):
    rate, clients = 0.1, 1000
    event = server_masked_event("poisson", rate, 1.0, 1.0, clients, colluders=colluders)
    assert len(event.parts) < 200
    chances = [chance for chance, _ in event.parts]
    assert sum(chances) == pytest.approx(1, abs=1e-12)
    assert sum(p * part.client_rate for p, part in event.parts) == pytest.approx(rate, abs=1e-12)
    left = {size: (size - min(colluders, size - 1)) / size for size in range(1, clients + 1)}
    exact = {size: binom.pmf(size, clients, rate) for size in left}
    for bound in np.linspace(0.001, 1, 100):  # never less often below a bound than it is
        told = sum(chance for chance, part in event.parts if part.noise_multiplier**2 <= bound)
        assert told >= sum(p for size, p in exact.items() if left[size] <= bound) - 1e-9
        finer = sum(p for size, p in exact.items() if left[size] <= bound * 1.03)
        assert told <= finer + 1e-9


@pytest.mark.parametrize("clients", [64, 65, 129, 257, 1025])
def test_one_message_of_many_is_never_hidden_by_more_than_its_share(clients):
    """With every client in every round, Poisson cohorts are fixed: 129 had 32 shares once."""
    truth = epsilon([(ClientThenRecord(1.0, 1.0, 20 / math.sqrt(clients)), 5)], 1e-5)
    plain = epsilon([(server_plain_event("poisson", 1.0, 1.0, 20.0, clients), 5)], 1e-5)
    assert truth <= plain <= 1.03 * truth
    all_others = server_masked_event("poisson", 1.0, 1.0, 20.0, clients, colluders=clients - 1)
    assert epsilon([(all_others, 5)], 1e-5) == plain


def test_the_views_of_large_federations_are_near_those_of_fixed_cohorts():
    rate, clients = 0.1, 1000
    fixed = epsilon([(server_plain_event("fixed", rate, 1.0, 20.0, clients), 10)], 1e-5, "rdp")
    poisson = epsilon([(server_plain_event("poisson", rate, 1.0, 20.0, clients), 10)], 1e-5, "rdp")
    assert fixed < poisson < 1.1 * fixed


def test_a_unit_of_several_records_in_a_cohort_of_random_size():
    one = server_plain_event("poisson", 0.5, 0.1, 2.0, 4)
    three = server_plain_event("poisson", 0.5, 0.1, 2.0, 4, group_size=3)
    assert three == each_part(one, lambda p: ClientThenRecord(*rates(p), group_size=3))
    found = estimates([(three, 10)], 1e-5)
    assert found["pld"].epsilon > 1.5 * epsilon([(one, 10)], 1e-5)
    assert [found[name].epsilon for name in ("rdp", "prv", "gdp")] == [None] * 3
    assert three.inclusion == pytest.approx(0.5 * (1 - 0.9**3))


def rates(part):
    return part.client_rate, part.record_rate, part.noise_multiplier


LOUD, QUIET = ClientThenRecord(0.5, 1.0, 4.0), ClientThenRecord(0.3, 1.0, 1.0)


def test_histories_with_one_of_several():
    both = OneOf(((0.4, LOUD), (0.6, QUIET)))
    assert both.inclusion == pytest.approx(0.38)
    assert ever_included([(both, 2)]) == pytest.approx(1 - 0.62**2)
    # It costs less than always the worse one, and more than the better one where that is drawn.
    for accountant in ("pld", "rdp", "prv"):
        mixed = epsilon([(both, 10)], 1e-5, accountant)
        assert mixed < epsilon([(ClientThenRecord(0.38, 1.0, 1.0), 10)], 1e-5, accountant)
        assert mixed > epsilon([(ClientThenRecord(0.2, 1.0, 4.0), 10)], 1e-5, accountant)
    for accountant in ACCOUNTANTS:
        assert epsilon([(OneOf(()), 10)], 1e-5, accountant) == 0
        assert epsilon([(OneOf(((0.0, QUIET),)), 10)], 1e-5, accountant) == 0
        bare = OneOf(((0.01, ClientThenRecord(0.1, 0.1, 0.0)), (0.99, LOUD)))
        assert epsilon([(bare, 1)], 1e-5, accountant) == math.inf
    together = [(both, 3), (LOUD, 2)]
    assert epsilon(together, 1e-5) > max(epsilon([entry], 1e-5) for entry in together)


def test_one_of_the_same_is_that_one():
    assert merged([(OneOf(((1.0, LOUD),)), 2), (LOUD, 3)]) == ((LOUD, 5),)
    rarer = ClientThenRecord(0.1, 1.0, 4.0)
    ((event, times),) = merged([(OneOf(((0.5, LOUD), (0.5, rarer))), 2)])
    assert (event.client_rate, event.noise_multiplier, times) == (pytest.approx(0.3), 4.0, 2)
    left, right = (OneOf(parts) for parts in itertools.permutations(((0.4, LOUD), (0.6, QUIET))))
    assert merged([(left, 1), (right, 1)]) == merged([(left, 2)])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (((0.7, LOUD), (0.7, QUIET)), "add up to 1.4: expected 1 at most"),
        (((-0.1, LOUD),), "probability=-0.1: expected a probability"),
        (((math.nan, LOUD),), "probability=nan"),
        (((0.5, (0.5, 1.0, 4.0)),), "expected a ClientThenRecord"),
        (((0.5, OneOf(((0.5, LOUD),))),), "expected a ClientThenRecord"),
    ],
)
def test_parts_that_make_no_sense_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        OneOf(parts)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": 0}, "clients=0: expected a whole number >= 1"),
        ({"clients": 2.0}, "clients=2.0: expected a whole number"),
        ({"client_rate": 1.5}, "client_rate=1.5: expected a probability"),
        ({"threshold": 0}, r"threshold=0: expected a value in \(0, 1\]"),
        ({"sampling": "coin"}, "sampling='coin': poisson or fixed"),
        (
            {"sampling": "fixed", "clients": 7},
            "client_rate=0.5 of clients=7 is 3.5, and .*'poisson'",
        ),
    ],
)
def test_cohorts_that_make_no_sense_are_refused(change, message):
    arguments = {"sampling": "poisson", "client_rate": 0.5, "clients": 4, "threshold": 1.0}
    with pytest.raises(ValueError, match=message):
        cohorts_of(**arguments | change)
    with pytest.raises(ValueError, match="colluders=-1: expected a whole number >= 0"):
        server_masked_event("poisson", 0.5, 0.5, 1.0, 4, colluders=-1)


def test_views_of_a_federation():
    fixed = view_events(0.5, 0.25, 2.0, clients=8, sampling="fixed", threshold=0.75, colluders=1)
    assert fixed["global"].event == ClientThenRecord(0.5, 0.25, 2.0)
    assert fixed["server_plain"].event == ClientThenRecord(0.5, 0.25, 2 / math.sqrt(3))
    assert fixed["server_masked"].event == ClientThenRecord(0.5, 0.25, 2 / math.sqrt(3 / 2))
    assert "1 client tells it its noise" in fixed["server_masked"].note
    poisson = view_events(0.5, 0.25, 2.0, clients=8)
    assert poisson["server_plain"].event == server_plain_event("poisson", 0.5, 0.25, 2.0, 8)
    assert poisson["server_masked"].event == poisson["global"].event
    unknown = view_events(0.5, 0.25, 2.0, colluders=2)["server_masked"]
    assert (unknown.event, unknown.guarantee) == (None, False)
    assert "no cohort given" in unknown.reason
    with pytest.raises(ValueError, match="cohort=4 and clients=8: one of the two"):
        view_events(0.5, 0.25, 2.0, 4, clients=8)
