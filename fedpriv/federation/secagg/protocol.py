"""Secure aggregation with double masking and dropouts, in four stages.

Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
Fig. 4 without its round 3 (consistency check) and without its key infrastructure. Every client u
of a cohort hides its vector x_u under a mask of its own and one for each pair:

    y_u = encode(x_u) + PRG(b_u) + Σ_{v > u} PRG(s_uv) − Σ_{v < u} PRG(s_uv)   modulo 2³²

The pair masks cancel in the sum. b_u, and the key behind all s_uv, are Shamir-shared among the
peers; at the end they reveal *either* b_u (u survived) *or* the key (u dropped), never both, so
that a vector that comes in late stays hidden. PRG is ChaCha20, its key from X25519 and HKDF.

| stage        | a client sends                | the server then                                 |
|--------------|-------------------------------|-------------------------------------------------|
| 0 advertise  | two public keys               | sends the roster of all keys to all             |
| 1 share      | encrypted shares, one a peer  | forwards to each what the others sent it        |
| 2 mask       | y_u                           | adds up what arrives, names the survivors       |
| 3 reveal     | one share of each peer        | rebuilds and removes the masks left in the sum  |

A client may drop out before any message. t of the cohort must stay to the end; below that
`TooFewSurvivors` is raised and nothing can be unmasked.

>>> import torch
>>> session = Session(round=1, attempt=0, threshold=2)
>>> ring = Ring.fitting(bound=4.0, clients=3)
>>> clients = {u: Client(session, u, secret=bytes([u]) * 32) for u in (0, 1, 2)}
>>> roster = {u: client.advertise() for u, client in clients.items()}
>>> boxes = forward({u: client.share(roster) for u, client in clients.items()})
>>> peers = set(boxes)
>>> x = torch.tensor([1.5, -2.0])
>>> masked = {u: clients[u].mask(roster, peers, x, ring) for u in (0, 2)}  # 1 drops out
>>> total = masked[0] + masked[2]
>>> answers = [clients[u].reveal(roster, boxes[u], survivors={0, 2}) for u in (0, 2)]
>>> ring.decode(unmask(session, roster, peers, {0, 2}, total, answers))
array([ 3., -4.])

Threat model
    *Holds* against an honest-but-curious server that works together with up to t − 1 clients: of
    the others it learns their sum and nothing else. A sum over few is little protection: with c
    colluding clients the rest of it has only (survivors − c) vectors. Take t above half of the
    cohort, so that no two disjoint groups can both unmask.
    *Does not hold* against a server that lies: there is no infrastructure that vouches for keys,
    so it could play everybody's peers (man in the middle); and the round in which clients
    compare their survivor lists is left out, so it could tell one half that u survived and the
    other that u dropped. A client refuses a second, different list only if it is told of the
    first (`earlier`), since it keeps no state. Nor does anything here stop a client from
    sending a wrong vector or a wrong share of its seed: the sum is then wrong, unnoticed.
    *Simulation*: all clients' secrets lie in one machine's memory, derived from the run's seed.
    This shows what masking does and costs; it protects nobody from whoever owns the machine.

A client's whole randomness is one 32-byte secret, so that it can recompute its keys in every
stage. A secret and a (round, attempt) must mask one vector only: two vectors under the same masks
give away their difference. A repeated round needs a new attempt number, or the very same vector.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from fedpriv.federation.secagg import shamir
from fedpriv.federation.secagg.masks import with_masks
from fedpriv.federation.secagg.ring import Ring

if TYPE_CHECKING:
    from torch import Tensor

KEY_BYTES = 32

_NONCE = bytes(12)  # a box's key is derived for one box and used once


class TooFewSurvivors(RuntimeError):
    """Fewer clients than the threshold are left: the sum cannot be unmasked, by anybody."""


class ProtocolViolation(ValueError):
    """A message that an honest server or client does not send; the receiver stops here."""


@dataclass(frozen=True)
class Session:
    """What all parties of one attempt at a round agree on; all of it is public.

    Attributes:
        round: from 0.
        attempt: from 0; each repetition of a round has another one.
        threshold: t ≥ 2, how many clients must stay to the end. The same t that scales each
            client's share of the noise.
    """

    round: int
    attempt: int
    threshold: int

    def __post_init__(self) -> None:
        if self.round < 0 or self.attempt < 0:
            raise ValueError(f"round and attempt are not negative, got {self}")
        if self.threshold < 2:
            raise ValueError(
                f"threshold must be at least 2, got {self.threshold}: the sum over one client "
                "is that client's vector"
            )

    def context(self, purpose: str, *clients: int) -> bytes:
        """Returns bytes that no other purpose, session or clients share."""
        numbers = (self.round, self.attempt, self.threshold, *clients)
        return b"fedpriv secagg 1 %b\0" % purpose.encode() + struct.pack(
            f">{len(numbers)}Q", *numbers
        )


@dataclass(frozen=True)
class PublicKeys:
    """What a client advertises: 32 bytes each.

    Attributes:
        encryption: c, for the boxes in which shares travel.
        masking: s, for the masks of pairs.
    """

    encryption: bytes
    masking: bytes

    def __post_init__(self) -> None:
        if len(self.encryption) != KEY_BYTES or len(self.masking) != KEY_BYTES:
            sizes = len(self.encryption), len(self.masking)
            raise ProtocolViolation(f"public keys have {KEY_BYTES} bytes each, got {sizes}")


@dataclass(frozen=True)
class Revealed:
    """A survivor's answer in the last stage: one share of every peer, of the one kind or the other.

    Attributes:
        client: who answers.
        seeds: survivor → share of its private seed b.
        keys: dropped client → share of its private masking key.
    """

    client: int
    seeds: Mapping[int, bytes]
    keys: Mapping[int, bytes]


Roster = Mapping[int, PublicKeys]


@dataclass(frozen=True)
class Client:
    """A client's half. It holds no state: each stage recomputes the keys from the secret.

    Attributes:
        session: the attempt that this is.
        number: the client's number, in [0, 2⁶⁴), known to all.
        secret: 32 bytes that only this client knows.
    """

    session: Session
    number: int
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.number < 1 << 64:
            raise ValueError(f"a client's number lies in [0, 2^64), got {self.number}")
        if len(self.secret) != KEY_BYTES:
            raise ValueError(f"a client's secret has {KEY_BYTES} bytes, got {len(self.secret)}")

    def advertise(self) -> PublicKeys:
        """Stage 0. Returns the public halves of the two key pairs."""
        return PublicKeys(_public(self._encryption_key), _public(self._masking_key))

    def share(self, roster: Roster) -> dict[int, bytes]:
        """Stage 1. Returns, for each other client of the roster, its encrypted pair of shares.

        Args:
            roster: everybody's public keys, this client's among them.

        Raises:
            TooFewSurvivors: if the roster has fewer clients than the threshold.
            ProtocolViolation: if two clients have the same keys, or this one's are not its own.
        """
        self._check_roster(roster)
        others = [peer for peer in roster if peer != self.number]
        seeds = self._split(self._seed, others, "seed")
        keys = self._split(self._masking_key, others, "key")
        return {
            peer: self._box(roster, self.number, peer).encrypt(
                _NONCE, seeds[peer] + keys[peer], self._label(self.number, peer)
            )
            for peer in others
        }

    def mask(
        self, roster: Roster, peers: Collection[int], values: Tensor, ring: Ring
    ) -> NDArray[np.uint32]:
        """Stage 2. Returns the masked vector, shape (size,): uniform to whoever lacks the keys.

        It is encoded where it lies, and its words are masked on the host.

        Args:
            roster: as in stage 1.
            peers: those of the roster who completed stage 1, this client among them.
            values: shape (size,), float32 or float64.
            ring: public; its bound says from where on coordinates are clamped.

        Raises:
            TooFewSurvivors: if there are fewer peers than the threshold.
            ProtocolViolation: if the peers are not of the roster, or this client is not of them.
            ValueError: if the ring is too small for so many clients, or cannot encode the vector.
        """
        plus, minus = self._mask_keys(roster, peers)
        if len(peers) > ring.clients:
            raise ValueError(f"{len(peers)} clients, but the ring holds sums of {ring.clients}")
        return with_masks(ring.encode(values), plus, minus)

    def unmask_own(
        self, roster: Roster, peers: Collection[int], masked: NDArray[np.uint32]
    ) -> NDArray[np.uint32]:
        """Returns encode(x_u), shape (size,), from this client's own masked vector.

        No stage of the protocol: a client that works with the server can tell it that much.

        Args:
            roster: as in stage 1.
            peers: those among whom the vector was masked.
            masked: shape (size,), what `mask` returned. Not changed.

        Raises:
            TooFewSurvivors: if there are fewer peers than the threshold.
            ProtocolViolation: if the peers are not of the roster, or this client is not of them.
            ValueError: if the vector is not a uint32 vector.
        """
        plus, minus = self._mask_keys(roster, peers)
        return with_masks(masked, plus=minus, minus=plus)

    def reveal(
        self,
        roster: Roster,
        boxes: Mapping[int, bytes],
        survivors: Collection[int],
        earlier: Collection[int] | None = None,
    ) -> Revealed:
        """Stage 3. Returns a share of each survivor's seed and of each dropped client's key.

        Args:
            roster: as in stage 1.
            boxes: sender → the box that it sent this client in stage 1; the senders and this
                client are the peers.
            survivors: those whose masked vectors are in the sum, this client among them.
            earlier: the survivors that this client has already answered for in this session,
                None if it has not; whoever keeps the client's state between messages knows.

        Raises:
            TooFewSurvivors: if there are fewer survivors than the threshold.
            ProtocolViolation: if the survivors are not of the peers, this client is not of them,
                they are others than before, or a box was tampered with.
        """
        self._check_roster(roster)
        peers = {*boxes, self.number}
        self._check_peers(roster, peers)
        _check_within(survivors, peers, "survivors", "peers")
        _check_enough(self.session, len(set(survivors)), "clients survived")
        if self.number not in survivors:
            raise ProtocolViolation(f"client {self.number} is said to have dropped: no answer")
        if earlier is not None and set(earlier) != set(survivors):
            raise ProtocolViolation(
                f"client {self.number} has answered for the survivors {sorted(earlier)} and is "
                f"asked again, for {sorted(survivors)}: two lists could unmask a single client"
            )
        alive = set(survivors)
        shares = {peer: self._open(roster, peer, boxes[peer]) for peer in boxes}
        own = self._split(self._seed, [self.number], "seed")
        seeds = {peer: seed for peer, (seed, _) in shares.items() if peer in alive}
        keys = {peer: key for peer, (_, key) in shares.items() if peer not in alive}
        return Revealed(self.number, seeds | own, keys)

    def _mask_keys(self, roster: Roster, peers: Collection[int]) -> tuple[list[bytes], list[bytes]]:
        """Returns the keys of the masks that this client adds, and of those that it takes away."""
        self._check_roster(roster)
        self._check_peers(roster, peers)
        keys = {
            peer: _pair_key(self.session, self._masking_key, roster[peer], self.number, peer)
            for peer in peers
            if peer != self.number
        }
        plus = [key for peer, key in keys.items() if self.number < peer]
        minus = [key for peer, key in keys.items() if self.number > peer]
        own = _own_key(self.session, self._seed, self.number)
        return [own, *plus], minus

    @property
    def _encryption_key(self) -> bytes:
        return self._derive("encryption key")

    @property
    def _masking_key(self) -> bytes:
        return self._derive("masking key")

    @property
    def _seed(self) -> bytes:
        return self._derive("own seed")

    def _derive(self, purpose: str) -> bytes:
        return _hkdf(self.secret, self.session.context(purpose, self.number))

    def _split(self, secret: bytes, receivers: Iterable[int], which: str) -> dict[int, bytes]:
        """Shares a secret; a receiver's share does not depend on who else receives one."""
        coins = self._derive(f"polynomial of the {which}")
        points = [_point(receiver) for receiver in receivers]
        shares = shamir.split(secret, self.session.threshold, points, coins)
        return {receiver: shares[_point(receiver)] for receiver in receivers}

    def _box(self, roster: Roster, sender: int, receiver: int) -> ChaCha20Poly1305:
        peer = receiver if sender == self.number else sender
        agreed = _agree(self._encryption_key, roster[peer].encryption)
        return ChaCha20Poly1305(_hkdf(agreed, self._label(sender, receiver)))

    def _label(self, sender: int, receiver: int) -> bytes:
        return self.session.context("shares", sender, receiver)

    def _open(self, roster: Roster, sender: int, box: bytes) -> tuple[bytes, bytes]:
        try:
            shares = self._box(roster, sender, self.number).decrypt(
                _NONCE, box, self._label(sender, self.number)
            )
        except InvalidTag as error:
            raise ProtocolViolation(
                f"the shares that client {self.number} got from client {sender} are not those "
                f"that it sent in round {self.session.round}, attempt {self.session.attempt}"
            ) from error
        return shares[: shamir.SHARE_BYTES], shares[shamir.SHARE_BYTES :]

    def _check_roster(self, roster: Roster) -> None:
        _check_enough(self.session, len(roster), "clients sent keys")
        if roster.get(self.number) != self.advertise():
            raise ProtocolViolation(f"the roster does not hold client {self.number}'s own keys")
        keys = [key for pair in roster.values() for key in (pair.encryption, pair.masking)]
        if len(set(keys)) < len(keys):
            raise ProtocolViolation(f"a key occurs twice among the {len(keys)} of the roster")

    def _check_peers(self, roster: Roster, peers: Collection[int]) -> None:
        _check_within(peers, roster, "peers", "roster")
        if self.number not in peers:
            raise ProtocolViolation(f"client {self.number} is not among its peers {sorted(peers)}")
        _check_enough(self.session, len(set(peers)), "clients shared their secrets")


def forward(sent: Mapping[int, Mapping[int, bytes]]) -> dict[int, dict[int, bytes]]:
    """Between stages 1 and 2, at the server: sorts the boxes by receiver.

    Args:
        sent: sender → (receiver → box), from those who completed stage 1: the peers.

    Returns:
        receiver → (sender → box), among the peers only; its keys are the peers.

    Raises:
        ProtocolViolation: if a peer has no box for another.
    """
    for sender, boxes in sent.items():
        _check_within(sent.keys() - {sender}, boxes, "peers", f"receivers of client {sender}")
    return {
        receiver: {sender: boxes[receiver] for sender, boxes in sent.items() if sender != receiver}
        for receiver in sent
    }


def unmask(
    session: Session,
    roster: Roster,
    peers: Collection[int],
    survivors: Collection[int],
    total: NDArray[np.uint32],
    answers: Sequence[Revealed],
) -> NDArray[np.uint32]:
    """After stage 3, at the server: returns Σ encode(x_u) over the survivors, modulo 2³².

    It costs one mask for each survivor, and one for each pair of a survivor and a dropped client.

    Args:
        session: the attempt that this is.
        roster: as in stage 1.
        peers: those who completed stage 1.
        survivors: those whose masked vectors are in the total, no more and no fewer.
        total: shape (size,), uint32, Σ of their masked vectors with wrap-around. Not changed.
        answers: of at least t survivors.

    Raises:
        TooFewSurvivors: if fewer than t survivors are left, or have answered.
        ProtocolViolation: if the answers or the lists do not fit together.
        ValueError: if the total is not a uint32 vector.
    """
    _check_within(peers, roster, "peers", "roster")
    _check_within(survivors, peers, "survivors", "peers")
    _check_enough(session, len(set(survivors)), "clients survived")
    alive, dropped = set(survivors), set(peers) - set(survivors)
    by_client = {answer.client: answer for answer in answers}
    _check_within(by_client, alive, "clients that answered", "survivors")
    _check_enough(session, len(by_client), f"of {len(alive)} survivors sent their shares")
    for answer in by_client.values():
        if set(answer.seeds) != alive or set(answer.keys) != dropped:
            raise ProtocolViolation(
                f"client {answer.client} revealed seeds of {sorted(answer.seeds)} and keys of "
                f"{sorted(answer.keys)}; {sorted(alive)} survived, {sorted(dropped)} did not"
            )
    used = [by_client[client] for client in sorted(by_client)[: session.threshold]]
    weights = shamir.weights_at_zero([_point(answer.client) for answer in used])
    seeds = {u: {_point(a.client): a.seeds[u] for a in used} for u in alive}
    keys = {d: {_point(a.client): a.keys[d] for a in used} for d in dropped}
    own = [_own_key(session, shamir.combine(held, weights), u) for u, held in seeds.items()]
    left_added: list[bytes] = []
    left_taken: list[bytes] = []
    for client, held in keys.items():
        key = shamir.combine(held, weights)
        if _public(key) != roster[client].masking:
            raise ProtocolViolation(
                f"the shares of client {client}'s masking key give another key than it advertised"
            )
        for u in alive:
            pair = _pair_key(session, key, roster[u], client, u)
            (left_added if u < client else left_taken).append(pair)
    return with_masks(total, plus=left_taken, minus=[*own, *left_added])


def _check_enough(session: Session, count: int, what: str) -> None:
    if count < session.threshold:
        raise TooFewSurvivors(
            f"round {session.round}, attempt {session.attempt}: {count} {what}, the threshold is "
            f"{session.threshold}: nothing can be unmasked"
        )


def _check_within(some: Collection[int], all_: Collection[int], what: str, where: str) -> None:
    strangers = sorted(set(some) - set(all_))
    if strangers:
        raise ProtocolViolation(f"{what} {strangers} are not among the {where} {sorted(all_)}")


def _point(client: int) -> int:
    """Returns where a client's shares are taken; the secret itself is at 0."""
    return client + 1


def _own_key(session: Session, seed: bytes, client: int) -> bytes:
    return _hkdf(seed, session.context("own mask", client))


def _pair_key(
    session: Session, private: bytes, peer_keys: PublicKeys, own: int, peer: int
) -> bytes:
    agreed = _agree(private, peer_keys.masking)
    return _hkdf(agreed, session.context("pair mask", min(own, peer), max(own, peer)))


def _agree(private: bytes, public: bytes) -> bytes:
    key = X25519PrivateKey.from_private_bytes(private)
    try:
        return key.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise ProtocolViolation(f"{public.hex()} is no usable public key: {error}") from error


def _public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def _hkdf(secret: bytes, context: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=context).derive(secret)
