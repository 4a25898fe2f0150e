"""Masking: whoever drops out, and whenever, the sum of the others decodes exactly.

The expectation is the sum of Python integers, or of fractions; nothing of the package computes it.
"""

import contextlib
import hashlib
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from host_vectors import as_tensor, encode
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import norm

from fedpriv.federation.secagg import masks, shamir
from fedpriv.federation.secagg.protocol import Client, Session, TooFewSurvivors, forward, unmask
from fedpriv.federation.secagg.ring import Ring

STAGES = ("keys", "shares", "vector", "late", "answer", "stays")
"""Before sending what a client drops out; "late": its vector arrives, but not in time."""

numbers = st.integers(0, 2**64 - 1)
secrets = st.binary(min_size=32, max_size=32)


@st.composite
def cohorts(draw):
    """A threshold, and for each client of a cohort its number and where it drops out."""
    clients = draw(st.lists(numbers, min_size=2, max_size=6, unique=True))
    threshold = draw(st.integers(2, len(clients)))
    leaving = {client: draw(st.sampled_from(STAGES)) for client in clients}
    for client in draw(st.permutations(clients))[:threshold]:
        leaving[client] = "stays"
    return threshold, leaving


def reach(leaving, stage):
    """Returns those who send what belongs to the stage, in time."""
    left = {"keys": 1, "shares": 2, "vector": 4, "answer": 5}[stage]
    return [client for client, at in leaving.items() if STAGES.index(at) >= left]


def run(threshold, leaving, vectors, ring, session=None):
    """Plays all the parties; the server's sum takes in-time vectors only."""
    session = session or Session(3, 1, threshold)
    clients = {
        u: Client(session, u, hashlib.sha256(b"%d" % u).digest()) for u in reach(leaving, "keys")
    }
    roster = {u: client.advertise() for u, client in clients.items()}
    boxes = forward({u: clients[u].share(roster) for u in reach(leaving, "shares")})
    survivors = reach(leaving, "vector")
    masked = [clients[u].mask(roster, boxes.keys(), as_tensor(vectors[u]), ring) for u in survivors]
    total = np.sum(masked, axis=0, dtype=np.uint32)
    answering = reach(leaving, "answer")
    answers = [clients[u].reveal(roster, boxes[u], survivors) for u in answering]
    return survivors, unmask(session, roster, boxes.keys(), survivors, total, answers)


@settings(max_examples=80)
@given(cohorts(), st.integers(0, 40), st.data())
def test_the_integers_of_the_survivors_add_up_exactly(cohort, size, data):
    threshold, leaving = cohort
    ring = Ring(1.0, (2**31 - 1) // len(leaving), len(leaving))
    integer = st.integers(-ring.limit, ring.limit) | st.sampled_from([-ring.limit, ring.limit])
    rows = {u: data.draw(st.lists(integer, min_size=size, max_size=size)) for u in leaving}
    vectors = {u: np.array(row, np.float64) for u, row in rows.items()}
    survivors, total = run(threshold, leaving, vectors, ring)
    expected = [sum(rows[u][place] for u in survivors) for place in range(size)]
    assert ring.decode(total).tolist() == expected


@settings(max_examples=10)
@given(st.integers(-3, 3), cohorts())
def test_blocks_end_nowhere(offset, cohort):
    """Vectors about as long as a block, so that one ends, or begins, on the last coordinate."""
    threshold, leaving = cohort
    size = 2 * masks.BLOCK + offset
    ring = Ring(1.0, 2**20, 8)
    base = np.arange(size, dtype=np.float64)
    vectors = {u: np.where(base % 2, base, -base) for u in leaving}
    survivors, total = run(threshold, leaving, vectors, ring)
    assert np.array_equal(ring.decode(total), len(survivors) * vectors[survivors[0]])


@pytest.mark.parametrize("stage", STAGES[:-1])
def test_as_many_as_may_drop_out_at_once(stage):
    for count, threshold in [(5, 5), (5, 3), (5, 2), (3, 2)]:
        leaving = {u: "stays" if u < threshold else stage for u in range(count)}
        vectors = {u: np.array([float(10**u)]) for u in leaving}
        survivors, total = run(threshold, leaving, vectors, Ring(1.0, 10**5, 5))
        assert total.tolist() == [sum(10**u for u in survivors)]
        assert set(survivors) >= set(range(threshold))


@pytest.mark.parametrize("stage", STAGES[:-1])
def test_one_more_dropout_and_there_is_no_sum(stage):
    leaving = {0: "stays", 1: "stays", 2: stage, 3: stage}
    vectors = {u: np.ones(3) for u in leaving}
    with pytest.raises(TooFewSurvivors, match="the threshold is 3"):
        run(3, leaving, vectors, Ring.fitting(1.0, 4))


@settings(max_examples=60)
@given(cohorts(), st.floats(1e-3, 1e3), st.sampled_from([np.float32, np.float64]), st.data())
def test_the_decoded_sum_is_as_close_as_promised(cohort, bound, dtype, data):
    threshold, leaving = cohort
    ring = Ring.fitting(bound, len(leaving))
    within = float(np.nextafter(dtype(bound), dtype(0)))
    real = st.floats(-within, within, width=np.dtype(dtype).itemsize * 8)
    vectors = {u: data.draw(arrays.arrays(dtype, 5, elements=real)) for u in leaving}
    survivors, total = run(threshold, leaving, vectors, ring)
    for place, decoded in enumerate(ring.decode(total)):
        exact = sum(Fraction(float(vectors[u][place])) for u in survivors)
        assert abs(Fraction(float(decoded)) - exact) <= Fraction(ring.clients * ring.step / 2)


@given(st.floats(2.0**-64, 2.0**64), st.integers(1, 2**31 - 1))
@example(1.0, 8)
@example(2.0**-64, 1)
@example(2.0**64, 2**31 - 1)
def test_a_fitting_ring_holds_the_sum_and_half_its_step_would_not(bound, clients):
    ring = Ring.fitting(bound, clients)
    assert 2 * clients * ring.limit + 1 <= 2**32
    assert Fraction(ring.limit) * Fraction(ring.step) >= Fraction(bound)
    finer = math.ceil(Fraction(bound) / Fraction(ring.step) * 2)
    assert 2 * clients * finer + 1 > 2**32


def rounded_gaussian(mean, std, reach):
    """The distribution of round(x + z), z ~ N(0, std²), on -reach, …, reach steps of the ring."""
    grid = np.arange(-reach, reach + 1)
    return norm.cdf((grid + 0.5 - mean) / std) - norm.cdf((grid - 0.5 - mean) / std)


def delta_of(p, q, epsilon):
    """The exact δ(ε) between two distributions on one grid."""
    return float(np.maximum(p - np.exp(epsilon) * q, 0).sum())


@settings(max_examples=60)
@given(
    st.floats(4.0, 12.0),
    st.lists(st.floats(-3.0, 3.0), min_size=1, max_size=3),
    st.floats(0.0, 1.0),
    st.floats(0.0, 5.0),
    st.sampled_from([0.0, 0.5, 1.0, 3.0]),
)
@example(4.0, [0.0, 0.49], 0.49, 0.02, 0.5)  # a difference that rounding turns into a whole step
def test_rounding_noisy_vectors_before_they_are_added_up_costs_no_privacy(
    share, others, x, apart, epsilon
):
    """One unit moves a client's sum by `apart` steps: the masked sum tells at most what the sum of
    the unrounded vectors would, from a share of the noise of 4 steps on. The reference is the
    closed form of the Gaussian mechanism (Balle and Wang 2018, Theorem 8), the other side the exact
    distribution of the sum of rounded numbers.
    """
    reach = 200
    rest = np.array([1.0])
    for other in others:
        rest = np.convolve(rest, rounded_gaussian(other, share, reach))
    with_unit, without = (
        np.convolve(rest, rounded_gaussian(mean, share, reach)) for mean in (x + apart, x)
    )
    mu = apart / (share * np.sqrt(len(others) + 1))
    bound = (
        norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        if mu > 0
        else 0.0
    )
    for p, q in ((with_unit, without), (without, with_unit)):
        assert delta_of(p, q, epsilon) <= bound + 1e-12


def test_a_share_of_less_than_a_step_does_cost_privacy():
    """So the least of four steps is no idle condition: the check above can fail."""
    p, q = (rounded_gaussian(mean, 0.1, 50) for mean in (0.6, 0.4))
    mu = 0.2 / (0.1 * np.sqrt(2))
    twice = [np.convolve(d, rounded_gaussian(0.0, 0.1, 50)) for d in (p, q)]
    bound = norm.cdf(mu / 2) - norm.cdf(-mu / 2)
    assert delta_of(*twice, 0.0) > bound + 0.05


@given(st.floats(1e-3, 1e3), st.integers(1, 50), st.data())
def test_one_vector_comes_back_within_half_a_step(bound, clients, data):
    ring = Ring.fitting(bound, clients)
    values = data.draw(arrays.arrays(np.float64, 4, elements=st.floats(-bound, bound)))
    words = encode(ring, values)
    error = np.abs(ring.decode(words) - values)
    assert (error <= ring.step / 2).all()
    float32 = ring.decode(words, np.float32)
    assert float32.dtype == np.float32
    np.testing.assert_allclose(float32, ring.decode(words), rtol=2**-24)


@given(
    secrets,
    secrets,
    st.lists(st.integers(1, 2**64), min_size=1, max_size=7, unique=True),
    st.data(),
)
def test_any_threshold_of_shares_gives_the_secret(secret, coins, points, data):
    threshold = data.draw(st.integers(1, len(points)))
    shares = shamir.split(secret, threshold, points, coins)
    for some in itertools.combinations(points, threshold):
        assert shamir.combine({point: shares[point] for point in some}) == secret
    assert shamir.combine(shares) == secret
    few = {point: shares[point] for point in points[: threshold - 1]}
    if few:
        with contextlib.suppress(ValueError):
            assert shamir.combine(few) != secret


@given(arrays.arrays(np.uint32, st.integers(0, 50)), st.lists(secrets, max_size=4))
def test_what_is_added_can_be_taken_away(vector, keys):
    masked = masks.with_masks(vector, keys, [])
    assert np.array_equal(masks.with_masks(masked, [], keys), vector)


@settings(max_examples=40)
@given(cohorts(), st.floats(1e-3, 1e3), st.sampled_from([np.float32, np.float64]), st.data())
def test_a_client_gets_back_what_it_put_under_its_own_mask(cohort, bound, dtype, data):
    threshold, leaving = cohort
    session, ring = Session(3, 1, threshold), Ring.fitting(bound, len(leaving))
    parties = [Client(session, u, hashlib.sha256(b"%d" % u).digest()) for u in leaving]
    roster = {party.number: party.advertise() for party in parties}
    peers = reach(leaving, "shares")
    party = next(party for party in parties if party.number in peers)
    real = st.floats(-2e3, 2e3, width=np.dtype(dtype).itemsize * 8)  # beyond the bound too
    values = data.draw(arrays.arrays(dtype, st.integers(0, 20), elements=real))
    own = party.unmask_own(roster, peers, party.mask(roster, peers, as_tensor(values), ring))
    assert np.array_equal(own, encode(ring, values))
    # The vector's own type holds the ring's integers that can come of it.
    again = encode(ring, ring.decode(own, dtype))
    assert np.array_equal(again, own)
    assert np.array_equal(ring.decode(own, dtype), ring.decode(own))


@settings(max_examples=20)
@given(st.lists(numbers, min_size=2, max_size=6, unique=True), st.integers(1, 20))
def test_pair_masks_cancel_and_own_masks_do_not(clients, size):
    """The sum of all masked zeros is the sum of the own masks, which takes unmasking to remove."""
    leaving = dict.fromkeys(clients, "stays")
    zeros = {u: np.zeros(size) for u in clients}
    ring = Ring.fitting(1.0, len(clients))
    _, total = run(2, leaving, zeros, ring)
    assert not total.any()

    session = Session(3, 1, 2)
    parties = [Client(session, u, hashlib.sha256(b"%d" % u).digest()) for u in clients]
    roster = {party.number: party.advertise() for party in parties}
    masked = [p.mask(roster, clients, as_tensor(zeros[p.number]), ring) for p in parties]
    assert np.sum(masked, axis=0, dtype=np.uint32).any()
