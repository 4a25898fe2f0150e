"""Masking: what the server can see, what it cannot, and what each side refuses.

The statistical tests use fixed secrets, so they give the same numbers in every run; each of them
is also shown something that it must reject.
"""

import base64
import doctest
import hashlib
import itertools
import math

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from host_vectors import as_tensor, encode
from scipy import stats

from fedpriv.federation.secagg import masks, protocol, shamir
from fedpriv.federation.secagg.protocol import (
    Client,
    ProtocolViolation,
    PublicKeys,
    Revealed,
    Session,
    TooFewSurvivors,
    forward,
    unmask,
)
from fedpriv.federation.secagg.ring import Ring, coordinate_bound

SIZE = 40_000
SURELY_NOT_UNIFORM = 1e-6


class Party:
    """Everybody who takes part in one session, up to the masked vectors."""

    def __init__(self, count=4, threshold=3, size=SIZE, value=0.0, round=1, attempt=0, salt=b""):
        self.session = Session(round, attempt, threshold)
        self.ring = Ring.fitting(1.0, count)
        secrets = [hashlib.sha256(b"%b%d" % (salt, u)).digest() for u in range(count)]
        self.clients = [Client(self.session, u, secret) for u, secret in enumerate(secrets)]
        self.roster = {client.number: client.advertise() for client in self.clients}
        self.boxes = forward({c.number: c.share(self.roster) for c in self.clients})
        self.peers = set(self.boxes)
        self.vector = np.full(size, value, np.float32)
        self.masked = {u: self.mask(u) for u in self.peers}

    def mask(self, u, vector=None):
        vector = self.vector if vector is None else vector
        return self.clients[u].mask(self.roster, self.peers, as_tensor(vector), self.ring)

    def reveal(self, u, survivors, earlier=None):
        return self.clients[u].reveal(self.roster, self.boxes[u], survivors, earlier)

    def total(self, survivors):
        return sum((self.masked[u] for u in survivors), np.zeros(self.vector.size, np.uint32))

    def unmask(self, survivors, answering=None):
        answers = [self.reveal(u, survivors) for u in answering or survivors]
        total = self.total(survivors)
        return unmask(self.session, self.roster, self.peers, survivors, total, answers)

    def own_mask(self, u):
        client = self.clients[u]
        key = protocol._own_key(self.session, client._seed, u)
        return masks.with_masks(np.zeros(self.vector.size, np.uint32), [key], [])


@pytest.fixture(scope="module")
def party():
    return Party()


def p_values(words):
    """χ² of the values of each of the four bytes, and KS of the words: five p-values."""
    columns = words.view(np.uint8).reshape(-1, 4).T
    tests = [stats.chisquare(np.bincount(column, minlength=256)).pvalue for column in columns]
    return [*tests, stats.kstest((words + 0.5) / 2**32, "uniform").pvalue]


def is_uniform(*vectors):
    """At level 10⁻⁴ over all p-values together (Bonferroni)."""
    found = [p for words in vectors for p in p_values(words)]
    return min(found) > 1e-4 / len(found)


def test_the_example_of_the_docstring_runs():
    failed, tried = doctest.testmod(protocol)
    assert tried > 0 == failed


# What the server sees.


def test_a_masked_vector_and_the_sum_of_any_of_them_is_uniform(party):
    subsets = [s for k in range(1, 5) for s in itertools.combinations(party.masked.values(), k)]
    assert is_uniform(*[sum(subset, np.uint32(0) * subset[0]) for subset in subsets])


def test_without_the_own_masks_all_but_one_of_the_vectors_are_uniform_and_all_are_not(party):
    """What the server has once everybody's seed is revealed: the pair masks alone."""
    bare = [party.masked[u] - party.own_mask(u) for u in party.peers]
    subsets = [s for k in range(1, 4) for s in itertools.combinations(bare, k)]
    sums = [sum(subset, np.uint32(0) * subset[0]) for subset in subsets]
    differences = [a - b for a, b in itertools.combinations(bare, 2)]
    assert is_uniform(*sums, *differences)
    assert not (bare[0] + bare[1] + bare[2] + bare[3]).any()


def test_masked_vectors_are_not_correlated(party):
    words = [(masked + 0.5) / 2**32 - 0.5 for masked in party.masked.values()]
    correlations = np.corrcoef(words)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(SIZE)
    half = [words[0], (words[0] + words[1]) / 2]
    assert np.corrcoef(half)[0, 1] > 5 / math.sqrt(SIZE)


@pytest.mark.parametrize("narrow", [0x0FFF_FFFF, 0x7F7F_7F7F, 0x7FFF_FFFF, 0xFFFF_FFFE])
def test_the_test_of_uniformity_rejects_masks_of_fewer_bits(party, narrow):
    assert min(p_values(party.masked[0] & np.uint32(narrow))) < SURELY_NOT_UNIFORM


def test_the_test_of_uniformity_rejects_what_is_not_masked():
    rng = np.random.default_rng(1)
    ring = Ring.fitting(1.0, 4)
    for vector in (np.zeros(SIZE), rng.uniform(-1, 1, SIZE), 0.1 * rng.standard_normal(SIZE)):
        assert min(p_values(encode(ring, vector))) < SURELY_NOT_UNIFORM


def test_the_test_of_uniformity_rejects_flowers_generator_over_its_keys_only():
    """Its words look uniform; it is the seeds that have 28 bits, so look across keys."""

    def seed(shared):
        key = base64.urlsafe_b64encode(shared)
        folded = np.bitwise_xor.reduce(np.frombuffer(key, "<u4"))
        return np.unpackbits(np.array([folded]).view(np.uint8))

    shared = [hashlib.sha256(b"pair %d" % pair).digest() for pair in range(400)]
    flower = np.array([seed(key) for key in shared]).mean(axis=0)
    assert ((flower == 0) | (flower == 1)).sum() == 4

    keys = _pair_keys(Party(count=29, size=1))
    ours = np.unpackbits(np.frombuffer(b"".join(keys), np.uint8)).reshape(len(keys), 256)
    assert len(keys) == 406
    assert np.abs(ours.mean(axis=0) - 0.5).max() < 5 * 0.5 / math.sqrt(len(keys))


def _pair_keys(party):
    return [
        protocol._pair_key(
            party.session, a._masking_key, party.roster[b.number], a.number, b.number
        )
        for a, b in itertools.combinations(party.clients, 2)
    ]


def test_both_ends_of_a_pair_have_one_key_and_no_two_pairs_share_one(party):
    keys = _pair_keys(party)
    swapped = [
        protocol._pair_key(
            party.session, b._masking_key, party.roster[a.number], b.number, a.number
        )
        for a, b in itertools.combinations(party.clients, 2)
    ]
    assert keys == swapped
    assert len(set(keys)) == 6


def test_the_masks_are_the_chacha20_streams_of_the_keys():
    size = 2 * masks.BLOCK + 5
    keys = [hashlib.sha256(b"%d" % k).digest() for k in range(3)]
    streams = [
        np.frombuffer(
            Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor().update(bytes(4 * size)),
            "<u4",
        ).astype(np.uint64)
        for key in keys
    ]
    before = np.arange(size, dtype=np.uint32)
    expected = (before + streams[0] + streams[1] + 2**32 - streams[2]) % 2**32
    assert np.array_equal(masks.with_masks(before, keys[:2], keys[2:]), expected)
    assert np.array_equal(before, np.arange(size))


def test_the_stream_is_that_of_the_standard():
    """RFC 8439, appendix A.1, test vector 1."""
    assert masks.keystream(bytes(32), 16).hex() == "76b8e0ada0f13d90405d6ae55386bd28"


@pytest.mark.parametrize("other", [{"round": 2}, {"attempt": 1}])
def test_rounds_and_attempts_have_unrelated_masks_even_from_one_secret(party, other):
    again = Party(**other)
    for u in party.peers:
        assert is_uniform(party.masked[u] - again.masked[u])
        assert party.roster[u] != again.roster[u]


def test_one_session_repeated_gives_the_same_masks(party):
    again = Party(value=0.5)
    same = encode(party.ring, again.vector)
    assert all(np.array_equal(again.masked[u] - party.masked[u], same) for u in party.peers)


# Dropouts.


def test_a_late_vector_stays_hidden():
    party = Party(value=0.25)
    late, survivors = 2, {0, 1, 3}
    answers = [party.reveal(u, survivors) for u in survivors]
    assert all(late not in answer.seeds for answer in answers)

    held = {protocol._point(answer.client): answer.keys[late] for answer in answers}
    key = shamir.combine(held)
    pair = {u: protocol._pair_key(party.session, key, party.roster[u], late, u) for u in survivors}
    plus, minus = [pair[3]], [pair[0], pair[1]]
    left = masks.with_masks(party.masked[late], plus=minus, minus=plus)
    assert is_uniform(left)

    encoded = encode(party.ring, party.vector)
    assert np.array_equal(left - party.own_mask(late), encoded), "the seed is all that was missing"
    assert np.array_equal(party.unmask(survivors), 3 * encoded)


def test_fewer_answers_than_the_threshold_unmask_nothing(party):
    with pytest.raises(
        TooFewSurvivors,
        match=r"round 1, attempt 0: 2 of 4 survivors sent their shares, the threshold is 3",
    ):
        party.unmask({0, 1, 2, 3}, answering={0, 1})
    with pytest.raises(TooFewSurvivors, match="2 clients survived, the threshold is 3"):
        unmask(party.session, party.roster, party.peers, {0, 1}, party.total({0, 1}), [])


def test_every_stage_stops_below_the_threshold(party):
    two = {u: party.roster[u] for u in (0, 1)}
    with pytest.raises(TooFewSurvivors, match="2 clients sent keys, the threshold is 3"):
        party.clients[0].share(two)
    with pytest.raises(TooFewSurvivors, match="2 clients shared their secrets"):
        party.clients[0].mask(party.roster, {0, 1}, as_tensor(party.vector), party.ring)
    with pytest.raises(TooFewSurvivors, match="2 clients survived"):
        party.reveal(0, {0, 1})


def test_one_answer_twice_does_not_count_twice(party):
    answer, other = party.reveal(0, party.peers), party.reveal(1, party.peers)
    total = party.total(party.peers)
    with pytest.raises(TooFewSurvivors, match="2 of 4"):
        unmask(
            party.session, party.roster, party.peers, party.peers, total, [answer, answer, other]
        )


# What a client refuses.


def test_a_client_reveals_one_kind_of_share_of_each_peer(party):
    answer = party.reveal(0, {0, 1, 3})
    assert set(answer.seeds) == {0, 1, 3}
    assert set(answer.keys) == {2}


@pytest.mark.parametrize(
    ("survivors", "message"),
    [
        ({0, 1, 2, 9}, r"survivors \[9\] are not among the peers \[0, 1, 2, 3\]"),
        ({1, 2, 3}, "client 0 is said to have dropped"),
    ],
)
def test_a_client_refuses_a_wrong_list_of_survivors(party, survivors, message):
    with pytest.raises(ProtocolViolation, match=message):
        party.reveal(0, survivors)


def test_a_client_refuses_a_second_list(party):
    with pytest.raises(ProtocolViolation, match=r"\[0, 1, 2\] and is asked again, for \[0, 1, 3\]"):
        party.reveal(0, {0, 1, 3}, earlier=[0, 1, 2])
    assert party.reveal(0, {0, 1, 3}, earlier=[3, 1, 0]) == party.reveal(0, {0, 1, 3})


def test_a_client_that_shared_nothing_is_no_peer(party):
    boxes = {u: box for u, box in party.boxes[0].items() if u != 3}
    with pytest.raises(ProtocolViolation, match=r"survivors \[3\]"):
        party.clients[0].reveal(party.roster, boxes, {0, 1, 3})


@pytest.mark.parametrize("place", [0, 40, -1])
def test_shares_that_were_tampered_with_are_refused(party, place):
    box = bytearray(party.boxes[0][2])
    box[place] ^= 1
    with pytest.raises(ProtocolViolation, match="client 0 got from client 2"):
        party.clients[0].reveal(party.roster, party.boxes[0] | {2: bytes(box)}, party.peers)


def test_shares_for_another_receiver_sender_or_round_are_refused(party):
    other_round, sent_back = Party(round=7).boxes[0][2], party.boxes[2][0]
    for box in (party.boxes[1][2], party.boxes[0][1], sent_back, other_round, b""):
        with pytest.raises(ProtocolViolation):
            party.clients[0].reveal(party.roster, party.boxes[0] | {2: box}, party.peers)


def test_a_client_refuses_a_roster_without_its_own_keys(party):
    roster = party.roster | {0: party.roster[1]}
    with pytest.raises(ProtocolViolation, match="does not hold client 0's own keys"):
        party.clients[0].share(roster)


def test_a_client_refuses_a_roster_with_a_key_twice(party):
    with pytest.raises(ProtocolViolation, match="a key occurs twice among the 8"):
        party.clients[0].share(party.roster | {3: party.roster[1]})


def test_a_client_refuses_a_key_that_gives_away_the_secret(party):
    roster = party.roster | {3: PublicKeys(bytes(32), bytes([1]) + bytes(31))}
    with pytest.raises(ProtocolViolation, match="is no usable public key"):
        party.clients[0].share(roster)


def test_a_client_masks_among_its_peers_only(party):
    client = party.clients[0]
    with pytest.raises(ProtocolViolation, match=r"client 0 is not among its peers \[1, 2, 3\]"):
        client.mask(party.roster, {1, 2, 3}, as_tensor(party.vector), party.ring)
    with pytest.raises(ProtocolViolation, match=r"peers \[7\] are not among the roster"):
        client.mask(party.roster, {0, 1, 2, 7}, as_tensor(party.vector), party.ring)
    with pytest.raises(ValueError, match="4 clients, but the ring holds sums of 3"):
        client.mask(party.roster, party.peers, as_tensor(party.vector), Ring.fitting(1.0, 3))


def test_nobody_takes_off_the_mask_of_another(party):
    own = party.clients[0].unmask_own(party.roster, party.peers, party.masked[0])
    assert not own.any()
    for words in (
        party.clients[1].unmask_own(party.roster, party.peers, party.masked[0]),
        party.clients[0].unmask_own(party.roster, {0, 1, 2}, party.masked[0]),
        Party(attempt=1)
        .clients[0]
        .unmask_own(Party(attempt=1).roster, party.peers, party.masked[0]),
    ):
        assert is_uniform(words)
    with pytest.raises(ProtocolViolation, match="does not hold client 0's own keys"):
        Party(attempt=1).clients[0].unmask_own(party.roster, party.peers, party.masked[0])


def test_boxes_and_shares_say_nothing_without_the_keys(party):
    other = Party(salt=b"other")
    ours = b"".join(box for boxes in party.boxes.values() for box in boxes.values())
    theirs = b"".join(box for boxes in other.boxes.values() for box in boxes.values())
    assert len(ours) == 12 * (2 * shamir.SHARE_BYTES + 16)
    assert not set(party.boxes[0].values()) & set(party.boxes[1].values())
    assert sum(a == b for a, b in zip(ours, theirs, strict=True)) < 20  # 984 / 256 expected


def test_a_client_does_not_print_its_secret():
    assert "secret" not in repr(Client(Session(1, 0, 2), 0, b"\x11" * 32))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Session(1, 0, 1), "the sum over one client is that client's vector"),
        (lambda: Session(-1, 0, 2), "not negative"),
        (lambda: Client(Session(1, 0, 2), -1, bytes(32)), "number"),
        (lambda: Client(Session(1, 0, 2), 0, bytes(16)), "has 32 bytes, got 16"),
        (lambda: PublicKeys(bytes(32), bytes(31)), r"\(32, 31\)"),
        (lambda: masks.keystream(bytes(16), 1), "32 bytes, got 16"),
        (lambda: masks.with_masks(np.zeros(3, np.int32), [], []), "uint32 vector, got int32"),
        (lambda: masks.with_masks(np.zeros((3, 1), np.uint32), [], []), r"\(3, 1\)"),
    ],
)
def test_what_cannot_work_is_said(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_vector_longer_than_a_stream_is_refused():
    endless = np.broadcast_to(np.uint32(0), (masks.LONGEST + 1,))
    with pytest.raises(ValueError, match=r"2\^36"):
        masks.with_masks(endless, [], [])


# What the server refuses.


def test_the_server_notices_answers_that_do_not_fit(party):
    survivors = {0, 1, 3}
    answers = [party.reveal(u, survivors) for u in survivors]
    total = party.total(survivors)

    def run(answers, survivors=survivors):
        return unmask(party.session, party.roster, party.peers, survivors, total, answers)

    with pytest.raises(ProtocolViolation, match=r"clients that answered \[2\] are not among"):
        run([*answers, Revealed(2, answers[0].seeds, answers[0].keys)])
    with pytest.raises(ProtocolViolation, match="client 3 revealed seeds of"):
        run([*answers[:2], party.reveal(3, party.peers)])
    with pytest.raises(ProtocolViolation, match=r"survivors \[8\]"):
        run(answers, {0, 1, 8})
    wrong = dict(answers[2].keys) | {2: answers[0].keys[2]}
    with pytest.raises(ValueError, match=r"another key than it advertised|not belong to one"):
        run([*answers[:2], Revealed(3, answers[2].seeds, wrong)])


def test_the_server_misses_no_box():
    with pytest.raises(ProtocolViolation, match=r"peers \[2\] are not among the receivers of clie"):
        forward({0: {1: b"", 2: b""}, 1: {0: b""}, 2: {0: b"", 1: b""}})


# Shamir.


def test_the_prime_is_prime_and_the_first_above_the_secrets():
    def maybe(number):  # Miller-Rabin
        odd, twos = number - 1, 0
        while odd % 2 == 0:
            odd, twos = odd // 2, twos + 1
        return all(
            pow(base, odd, number) == 1
            or any(pow(base, odd << k, number) == number - 1 for k in range(twos))
            for base in range(2, 60)
        )

    assert maybe(shamir.PRIME)
    assert not any(maybe(number) for number in range(2**256 + 1, shamir.PRIME, 2))


def test_fewer_shares_than_the_threshold_fit_every_secret():
    """For any other secret there is one polynomial that gives the same t − 1 shares."""
    secret, other = bytes(range(32)), hashlib.sha256(b"other").digest()
    shares = shamir.split(secret, 3, [1, 2, 3], hashlib.sha256(b"coins").digest())
    known = {0: int.from_bytes(other, "big")} | {
        point: int.from_bytes(shares[point], "big") for point in (1, 2)
    }
    # Newton's differences through (0, other), (1, y1), (2, y2), carried on to 3.
    at_three = (known[0] - 3 * known[1] + 3 * known[2]) % shamir.PRIME
    forged = {1: shares[1], 2: shares[2], 3: at_three.to_bytes(33, "big")}
    assert shamir.combine(forged) == other
    assert shamir.combine(shares) == secret


def test_each_share_below_the_threshold_is_uniform_whatever_the_secret():
    def values(threshold, secret):
        coins = [hashlib.sha256(b"%d" % k).digest() for k in range(4000)]
        shares = [shamir.split(secret, threshold, [1, 2], c) for c in coins]
        joined = [b"".join(s[p][-32:] for s in shares) for p in (1, 2)]
        return [np.frombuffer(words, ">u4").astype(np.uint32) for words in joined]

    for secret in (bytes(32), b"\xff" * 32):
        first, second = values(3, secret)
        assert is_uniform(first, second, first - second)
    assert min(p_values(values(1, bytes(32))[0])) < SURELY_NOT_UNIFORM
    line, twice = values(2, bytes(32))
    assert is_uniform(line)
    # With t = 2 two shares are one too many: they lie on a line through the secret, 0.
    assert set(twice[7::8] - 2 * line[7::8]) == {0, (-shamir.PRIME) % 2**32}


def opened(party, sender):
    """The shares that a client's peers hold of it, as numbers: (of its seed, of its key)."""
    receivers = [client for client in party.clients if client.number != sender]
    pairs = {
        protocol._point(c.number): c._open(party.roster, sender, party.boxes[c.number][sender])
        for c in receivers
    }
    return [{point: pair[kind] for point, pair in pairs.items()} for kind in (0, 1)]


def test_as_many_peers_as_the_threshold_hold_a_clients_secrets_and_one_fewer_do_not(party):
    client = party.clients[1]
    for held, secret in zip(
        opened(party, sender=1), (client._seed, client._masking_key), strict=True
    ):
        assert shamir.combine(held) == secret
        for two in itertools.combinations(held, party.session.threshold - 1):
            assert shamir.combine({point: held[point] for point in two}) != secret


def test_seed_and_key_are_shared_by_unrelated_polynomials(party):
    """Otherwise the difference of any peer's two shares is the difference of the secrets."""
    seeds, keys = opened(party, sender=1)
    apart = {
        (int.from_bytes(seeds[p], "big") - int.from_bytes(keys[p], "big")) % shamir.PRIME
        for p in seeds
    }
    assert len(apart) == 3


def test_shares_of_different_secrets_are_mostly_noticed_or_wrong():
    a = shamir.split(bytes(32), 2, [1, 2], b"a" * 32)
    b = shamir.split(bytes(32), 2, [1, 2], b"b" * 32)
    assert shamir.combine({1: a[1], 2: b[2]}) != bytes(32)
    top = (shamir.PRIME - 1).to_bytes(33, "big")
    with pytest.raises(ValueError, match="2 shares do not belong to one secret"):
        shamir.combine({1: top, 2: top})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((bytes(31), 2, [1], bytes(32)), "32 bytes, got 31"),
        ((bytes(32), 0, [1], bytes(32)), "threshold must be at least 1"),
        ((bytes(32), 2, [0], bytes(32)), "got 0"),
    ],
)
def test_what_cannot_be_shared_is_said(arguments, message):
    with pytest.raises(ValueError, match=message):
        shamir.split(*arguments)


# The ring.


def test_the_papers_modulus_wraps_where_ours_does_not():
    """Two clients of −1.5: App. F's p is 4, and their sum −3 comes back as +1."""
    u, clients = -1.5, 2
    p = 2 ** math.ceil(math.log2(abs(u) * clients))
    assert (p, (u * clients) % p) == (4, 1.0)

    ring = Ring.fitting(1.5, clients)
    encoded = encode(ring, np.array([u]))
    assert ring.decode(encoded + encoded) == -3.0
    assert 2 * clients * ring.limit + 1 <= 2**32


def test_a_step_is_the_finest_that_fits():
    assert Ring.fitting(1.0, 8) == Ring(2.0**-27, 2**27, 8)
    assert Ring.fitting(1.0, 7) == Ring(2.0**-28, 2**28, 7)
    assert Ring.fitting(3.0, 1) == Ring(2.0**-29, 3 * 2**29, 1)


def test_one_more_unit_at_the_edge_would_overflow():
    clients = 8
    edge = Ring(1.0, (2**31 - 1) // clients, clients)
    for most in (edge.limit * edge.step, -edge.limit * edge.step):
        encoded = encode(edge, np.array([most]))
        assert edge.decode(sum([encoded] * clients, np.zeros(1, np.uint32))) == most * clients
    with pytest.raises(ValueError, match=r"needs a modulus of 4294967297, and it is 2\^32"):
        Ring(1.0, 2**28, clients)
    beyond = np.full(1, 2**28, np.uint32)
    assert edge.decode(sum([beyond] * clients, np.zeros(1, np.uint32))) < 0, "it wraps"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_beyond_the_bound_is_clamped(dtype):
    for clients in (1, 3, 8):
        ring = Ring.fitting(1.0, clients)
        wild = np.array([1.5, -1.5, 1e30, -1e30, np.finfo(dtype).max], dtype)
        assert ring.decode(encode(ring, wild)) == pytest.approx([1, -1, 1, -1, 1], rel=2**-23)
    widest = Ring(1.0, 2**31 - 1, 1)
    decoded = widest.decode(encode(widest, np.array([2.0**31, -(2.0**31)], dtype)))
    assert decoded[0] == -decoded[1] > 2**31 - 2**8


def test_ties_go_to_even():
    ring = Ring(1.0, 100, 1)
    halves = np.array([-1.5, -0.5, 0.5, 1.5, 2.5])
    assert ring.decode(encode(ring, halves)).tolist() == [-2, 0, 0, 2, 2]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_no_encoding(value):
    vector = np.zeros(masks.BLOCK + 3, np.float32)
    vector[-1] = value
    with pytest.raises(ValueError, match="1 NaN or infinite values within 65539 coordinates"):
        encode(Ring.fitting(1.0, 2), vector)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ring(0.3, 5, 1), r"power of two in \[2\^-96, 2\^64\], got 0.3"),
        (lambda: Ring(0.0, 5, 1), "got 0.0"),
        (lambda: Ring(math.nan, 5, 1), "got nan"),
        (lambda: Ring(1.0, 0, 1), "at least 1"),
        (lambda: Ring.fitting(0.0, 1), r"bound must lie in .*got 0.0"),
        (lambda: Ring.fitting(math.inf, 1), "got inf"),
        (lambda: Ring.fitting(1.0, 0), "clients must lie in"),
        (lambda: Ring.fitting(1.0, 2**31), "clients must lie in"),
        (lambda: encode(Ring.fitting(1.0, 1), np.zeros(3, np.int64)), "got torch.int64"),
        (lambda: encode(Ring.fitting(1.0, 1), np.zeros((2, 2))), r"got shape \(2, 2\)"),
        (lambda: Ring.fitting(1.0, 1).decode(np.zeros(3, np.int32)), "uint32, got int32"),
        (lambda: Ring.fitting(1.0, 1).decode(np.zeros(3, np.uint32), np.int32), "got int32"),
        (lambda: coordinate_bound(math.nan, 1, 1, 1), "clip_norm must be finite"),
        (lambda: coordinate_bound(1, -1, 1, 1), "noise_std must be finite"),
        (lambda: coordinate_bound(1, 1, 0, 1), "got 0 and 1"),
        (lambda: coordinate_bound(1, 1, 1, 1, 0.0), r"probability must lie in \(0, 1\]"),
    ],
)
def test_what_the_ring_cannot_hold_is_said(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_bound_covers_the_clip_and_the_noises_tail():
    assert coordinate_bound(2.0, 0.0, 8, 100) == 2.0
    bound = coordinate_bound(1.0, 0.5, 8, 30_000_000)
    exceeds = 2 * 8 * 30_000_000 * stats.norm.sf((bound - 1.0) / 0.5)
    assert 2**-46 < exceeds <= 2**-40
    noise = np.random.default_rng(3).standard_normal((8, 10_000))
    assert np.abs(noise).max() < coordinate_bound(0.0, 1.0, 8, 10_000, probability=0.01)


def test_zero_coordinates_are_a_vector_too():
    party = Party(size=0)
    assert party.ring.decode(party.unmask({0, 1, 2})).shape == (0,)
