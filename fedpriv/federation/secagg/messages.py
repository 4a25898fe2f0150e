"""The protocol's messages as Flower records: public keys, encrypted shares, revealed shares."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord
from numpy.typing import NDArray

from fedpriv.federation.secagg.protocol import PublicKeys, Revealed, Roster
from fedpriv.federation.secagg.ring import Ring
from fedpriv.runtime.vectors import as_tensor, on_host

SECAGG = "secagg"
"""The record's name, in queries and in the training message that asks for a masked vector."""

ADVERTISE, SHARE, REVEAL = "advertise", "share", "reveal"
"""The actions of the queries; the training message is the stage between the last two."""

MASKED = "masked"
"""The masked vector's name in an update."""


@dataclass(frozen=True)
class Ask:
    """The server's message in any stage, which fills in what it needs.

    Attributes:
        threshold: t of the session.
        roster: everybody's public keys.
        peers: the clients that completed the sharing.
        boxes: sender → encrypted shares for the receiver of this message.
        survivors: the clients whose masked vectors are in the sum.
        ring: how vectors are encoded.
    """

    threshold: int
    roster: Roster | None = None
    peers: Collection[int] = ()
    boxes: Mapping[int, bytes] | None = None
    survivors: Collection[int] = ()
    ring: Ring | None = None

    def to_record(self) -> ConfigRecord:
        """Returns the message as a record."""
        roster, boxes, ring = self.roster or {}, self.boxes or {}, self.ring
        values: dict[str, Any] = {
            "threshold": self.threshold,
            "clients": list(roster),
            "encryption": [keys.encryption for keys in roster.values()],
            "masking": [keys.masking for keys in roster.values()],
            "peers": sorted(self.peers),
            "senders": list(boxes),
            "boxes": list(boxes.values()),
            "survivors": sorted(self.survivors),
        }
        if ring:
            values |= {"step": ring.step, "limit": ring.limit, "ring-clients": ring.clients}
            values["bits"] = ring.bits
        return ConfigRecord(values)

    @classmethod
    def from_record(cls, record: ConfigRecord) -> Ask:
        """Reads the output of `to_record`."""
        v: dict[str, Any] = dict(record)
        keys = zip(v["clients"], v["encryption"], v["masking"], strict=True)
        ring = None
        if "step" in v:
            ring = Ring(v["step"], v["limit"], v["ring-clients"], v["bits"])
        return cls(
            threshold=v["threshold"],
            roster={client: PublicKeys(c, s) for client, c, s in keys},
            peers=v["peers"],
            boxes=dict(zip(v["senders"], v["boxes"], strict=True)),
            survivors=v["survivors"],
            ring=ring,
        )


def keys_record(keys: PublicKeys) -> ConfigRecord:
    """Returns a client's answer to `ADVERTISE`."""
    return ConfigRecord({"encryption": keys.encryption, "masking": keys.masking})


def keys_of(record: ConfigRecord) -> PublicKeys:
    """Reads what `keys_record` wrote."""
    return PublicKeys(_bytes(record["encryption"]), _bytes(record["masking"]))


def boxes_record(boxes: Mapping[int, bytes]) -> ConfigRecord:
    """Returns a client's answer to `SHARE`: receiver → box."""
    return ConfigRecord({"receivers": list(boxes), "boxes": list(boxes.values())})


def boxes_of(record: ConfigRecord) -> dict[int, bytes]:
    """Reads what `boxes_record` wrote."""
    values: dict[str, Any] = dict(record)
    return dict(zip(values["receivers"], values["boxes"], strict=True))


def revealed_record(revealed: Revealed) -> ConfigRecord:
    """Returns a client's answer to `REVEAL`."""
    return ConfigRecord(
        {
            "client": revealed.client,
            "alive": list(revealed.seeds),
            "seeds": list(revealed.seeds.values()),
            "dropped": list(revealed.keys),
            "keys": list(revealed.keys.values()),
        }
    )


def revealed_of(record: ConfigRecord) -> Revealed:
    """Reads what `revealed_record` wrote."""
    v: dict[str, Any] = dict(record)
    seeds = dict(zip(v["alive"], v["seeds"], strict=True))
    return Revealed(v["client"], seeds, dict(zip(v["dropped"], v["keys"], strict=True)))


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes, got {type(value).__name__}")
    return value


def words_of(signed: torch.Tensor | None) -> NDArray[Any]:
    """Returns masked words as unsigned numbers. torch adds signed ones, with the same bits."""
    if signed is None:
        return np.empty(0, np.uint32)
    array = on_host(signed)
    return array.view(np.uint32 if array.itemsize == 4 else np.uint16)


def signed_of(words: NDArray[Any]) -> torch.Tensor:
    """Returns masked words as a vector."""
    return as_tensor(words.view(np.int32 if words.itemsize == 4 else np.int16))
