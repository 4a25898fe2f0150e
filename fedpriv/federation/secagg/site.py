"""A client's answers to the stages of secure aggregation, and the masking of its update."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from flwr.app import ConfigRecord, Message, RecordDict
from numpy.typing import NDArray

from fedpriv.federation.messages import PARAMETERS, instruction_of, to_vectors
from fedpriv.federation.secagg import messages
from fedpriv.federation.secagg.discrete import discrete_sum
from fedpriv.federation.secagg.messages import ADVERTISE, MASKED, REVEAL, SECAGG, SHARE, Ask
from fedpriv.federation.secagg.protocol import Client, Roster, Session
from fedpriv.federation.secagg.ring import Ring
from fedpriv.privacy.mechanism import SCALE, Mechanism
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.vectors import Vectors, as_tensor, on_host

QUERIES = (ADVERTISE, SHARE, REVEAL)


def answer_query(action: str, message: Message, client: int, seed: int, key: str) -> Message:
    """Returns the client's answer to one of `QUERIES`."""
    ask, party = _asked(message, client, seed, key)
    roster = ask.roster or {}
    if action == ADVERTISE:
        record = messages.keys_record(party.advertise())
    elif action == SHARE:
        record = messages.boxes_record(party.share(roster))
    else:
        revealed = party.reveal(roster, ask.boxes or {}, ask.survivors)
        record = messages.revealed_record(revealed)
    return Message(RecordDict({SECAGG: record}), reply_to=message)


def masked(
    update: Vectors, message: Message, client: int, seed: int, key: str
) -> tuple[Vectors, float]:
    """Returns the update as a message asks for it that holds a `SECAGG` record: masked.

    Returns:
        What is sent; and the share of the coordinates that the ring's bound has cut off.

    Raises:
        ValueError: if the update has more than floats: only those can be masked.
    """
    if set(update) != {"float"}:
        raise ValueError(f"only floats can be masked, the update has {sorted(update)}")
    party, roster, peers, ring = _asked_to_mask(message, client, seed, key)
    asked = instruction_of(message)
    whole = asked is not None and bool(asked.settings.get(SCALE))
    if whole != (ring.bits < 32):
        raise ValueError(
            f"asked for words of {ring.bits} bits, and the noise is "
            f"{'of whole numbers' if whole else 'continuous'}: the two belong to two federations"
        )
    words = party.mask(roster, peers, update["float"], ring)
    cut = ring.cut(update["float"]) / max(words.size, 1)
    return {MASKED: messages.signed_of(words if ring.bits == 32 else words.astype(np.uint16))}, cut


def own_update(
    words: NDArray[np.uint32], message: Message, client: int, seed: int, key: str
) -> Vectors:
    """Returns the update behind a client's own masked words: what a colluder tells the server.

    It is what went into the ring, rounded and clamped. The update's own type, which is that of the
    parameters sent, holds it exactly.

    Args:
        words: as the client sent them.
        message: that asked for them.
        client: its number.
        seed: of the run.
        key: of the run's randomness.
    """
    party, roster, peers, ring = _asked_to_mask(message, client, seed, key)
    sent = to_vectors(message.content.array_records[PARAMETERS])["float"]
    own = party.unmask_own(roster, peers, words.astype(np.uint32))
    asked = instruction_of(message)
    if ring.bits < 32 and asked is not None:
        numbers = own.astype(np.uint16).view(np.int16).astype(np.float64)
        mechanism = Mechanism.from_settings(asked.settings)
        found = discrete_sum(numbers, mechanism, seed, asked.round)
        return {"float": as_tensor(found).to(sent)}
    return {"float": as_tensor(ring.decode(own, on_host(sent[:0]).dtype))}


def _asked_to_mask(
    message: Message, client: int, seed: int, key: str
) -> tuple[Client, Roster, Collection[int], Ring]:
    ask, party = _asked(message, client, seed, key)
    if ask.ring is None or ask.roster is None:
        raise ValueError("the message asks for a masked update and names no ring or no roster")
    return party, ask.roster, ask.peers, ask.ring


def _asked(message: Message, client: int, seed: int, key: str) -> tuple[Ask, Client]:
    record: ConfigRecord = message.content.config_records[SECAGG]
    ask, instruction = Ask.from_record(record), instruction_of(message)
    if instruction is None:
        raise ValueError("the message carries no fedpriv instruction")
    session = Session(instruction.round, instruction.attempt, ask.threshold)
    # The same 32 bytes in every stage of one attempt. They mask one vector only, as the noise hides
    # one, so the run's key goes into them, too.
    purpose = instruction.purpose("secure aggregation", key)
    secret = generator(seed, purpose, instruction.round, client).bytes(32)
    return ask, Client(session, client, secret)
