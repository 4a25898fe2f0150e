"""Clients that fail on purpose, as a setting: absent, dropping out, crashing, too slow.

Who fails is drawn from (seed, round, client) alone: the same on every grid, on any number of
workers, after a crash and a resume, and never dependent on anybody's data. The server's side
decides (`striking`), and the decision travels with the message to wherever
the client is served, so that a client that is made to fail costs the round what a real failure
costs: the others' answers are added up in the same order. failures.jsonl names each.

A fault holds for a whole round. In a masked round, an absent client answers no stage.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedpriv.federation.grids._flwr import readdressed
from fedpriv.federation.messages import FAULT, round_of
from fedpriv.federation.secagg.messages import ADVERTISE, REVEAL, SHARE
from fedpriv.federation.settings import Settings
from fedpriv.runtime.seeds import generator

TRAIN = "train"
STAGES = (ADVERTISE, SHARE, TRAIN, REVEAL)
"""What a client is asked in a masked round, in order; without masking it is asked to train only."""


class Crash(RuntimeError):
    """What a client raises that is to crash."""


@dataclass(frozen=True)
class Fault:
    """What becomes of one client at one message.

    Attributes:
        kind: "missing" (it never answers), "raises", "dies" (its worker's process ends) or "waits"
            (it answers after `seconds`).
        reason: for failures.jsonl.
        seconds: of a client that waits.
    """

    kind: Literal["missing", "raises", "dies", "waits"]
    reason: str = ""
    seconds: float = 0.0

    def into(self, message: Message) -> RecordDict:
        """Returns the content of a message, with this fault in it."""
        return RecordDict({**message.content, FAULT: ConfigRecord(asdict(self))})

    @classmethod
    def of(cls, message: Message) -> Fault | None:
        """Returns the fault in a message; None where the client is to answer."""
        record: Any = message.content.config_records.get(FAULT)
        return cls(**record) if record is not None else None

    @property
    def missing(self) -> bool:
        """Whether the client never answers, as if the message had not reached it."""
        return self.kind == "missing"

    def strike(self) -> None:
        """Lets a client raise, die or wait.

        Raises:
            Crash: if it is to raise.
        """
        if self.kind == "raises":
            raise Crash("failed on purpose, as the setting `faults` says")
        if self.kind == "dies":
            os._exit(1)
        time.sleep(self.seconds)


class Faults(Protocol):
    """Who fails, when and how."""

    def fault(self, seed: int, round: int, client: int, stage: str) -> Fault | None:
        """Returns what becomes of a client at one of `STAGES`, None if it answers."""

    def problems(self, clients: int, settings: Settings, *, masked: bool) -> list[str]:
        """Returns what these faults name that the federation does not have."""


@dataclass(frozen=True)
class Absent:
    """Clients that never answer anything, as if they were switched off.

    Args:
        clients: the numbers of the absent clients, counted from 0.
    """

    clients: tuple[int, ...]

    def fault(self, seed: int, round: int, client: int, stage: str) -> Fault | None:
        """Absent clients are missing in every round and stage."""
        return Fault("missing", "Absent") if client in self.clients else None

    def problems(self, clients: int, settings: Settings, *, masked: bool) -> list[str]:
        """Says which clients there are not."""
        return _unknown("clients", self.clients, clients)


@dataclass(frozen=True)
class _Chance:
    """Who fails in a round, by chance or by name.

    Args:
        probability: the probability with which each client fails in a round that asks it,
            independently of everything else. None takes 0.1 if `at` is empty, and 0 otherwise.
        at: the clients that fail for certain, by round, which are counted from 1: `{3: [0, 2]}`
            makes clients 0 and 2 fail in round 3.
    """

    probability: float | None = None
    at: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.probability is not None and not 0 <= self.probability <= 1:
            raise ValueError(f"probability={self.probability}: expected a value in [0, 1]")
        if any(round < 1 for round in self.at):
            raise ValueError(f"at={dict(self.at)}: expected rounds from 1, such as {{3: [0, 2]}}")

    def problems(self, clients: int, settings: Settings, *, masked: bool) -> list[str]:
        """Says which clients there are not."""
        return _unknown("at", [c for named in self.at.values() for c in named], clients)

    def _fails(self, seed: int, round: int, client: int) -> bool:
        default = 0.0 if self.at else 0.1
        probability = default if self.probability is None else self.probability
        by_chance = generator(seed, "faults", round, client).random() < probability
        return bool(by_chance) or client in self.at.get(round, ())


@dataclass(frozen=True)
class Dropout(_Chance):
    """Clients that drop out of a round, and are back in the next.

    Args:
        probability: the probability with which each client drops out of a round that asks it,
            independently of everything else. None takes 0.1 if `at` is empty, and 0 otherwise.
        at: the clients that drop out for certain, by round, which are counted from 1: `{3: [0, 2]}`
            makes clients 0 and 2 drop out of round 3.
        stage: the first stage of a round that a client which drops out does not answer:
            "advertise", "share", "train" or "reveal". Rounds without masking have the stage "train"
            only.
    """

    stage: Literal["advertise", "share", "train", "reveal"] = "train"

    def fault(self, seed: int, round: int, client: int, stage: str) -> Fault | None:
        """Who drops out is missing from its stage on."""
        gone = STAGES.index(stage) >= STAGES.index(self.stage)
        return Fault("missing", "Dropout") if gone and self._fails(seed, round, client) else None

    def problems(self, clients: int, settings: Settings, *, masked: bool) -> list[str]:
        """Also says so if there is no such stage."""
        found = super().problems(clients, settings, masked=masked)
        if self.stage != TRAIN and not masked:
            found.append(f"stage={self.stage}: only masked rounds have it; set masking=on")
        return found


@dataclass(frozen=True)
class Crashing(_Chance):
    """Clients that raise an error while they train, or take their worker's process down.

    Args:
        probability: the probability with which each client crashes in a round that asks it,
            independently of everything else. None takes 0.1 if `at` is empty, and 0 otherwise.
        at: the clients that crash for certain, by round, which are counted from 1: `{3: [0, 2]}`
            makes clients 0 and 2 crash in round 3.
        kill: whether a crash ends the process of the worker, rather than raising an error in it.
            This needs `federation.workers` of 1 or more.
    """

    kill: bool = False

    def fault(self, seed: int, round: int, client: int, stage: str) -> Fault | None:
        """Who crashes does so in training."""
        if stage != TRAIN or not self._fails(seed, round, client):
            return None
        return Fault("dies" if self.kill else "raises")

    def problems(self, clients: int, settings: Settings, *, masked: bool) -> list[str]:
        """Also says so if a client would end the whole run."""
        found = super().problems(clients, settings, masked=masked)
        if self.kill and settings.workers == 0:
            found.append("kill=true ends this process: set federation.workers=1 or more")
        return found


@dataclass(frozen=True)
class Slow:
    """Clients that take their time to train; whoever takes longer than the deadline is missing.

    The delays are simulated: nobody waits for them, so that runs stay quick and the same clients
    are late on a fast and on a slow machine. With `deadline=None` they are waited for, and the
    federation's `client_timeout` and `round_deadline` decide by the clock.

    Args:
        seconds: the median of a client's delay in a round, in seconds.
        by_client: other medians for some clients, in seconds by the client's number: `{3: 60.0}`.
        spread: the standard deviation of the delay's logarithm; 0 delays a client equally in every
            round.
        deadline: the delay in seconds after which an answer counts as missing. None really waits
            for the clients, so that `federation.client_timeout` and `federation.round_deadline`
            decide.
    """

    seconds: float = 5.0
    by_client: Mapping[int, float] = field(default_factory=dict)
    spread: float = 1.0
    deadline: float | None = 10.0

    def __post_init__(self) -> None:
        numbers = {"seconds": self.seconds, "spread": self.spread}
        numbers |= {f"by_client[{client}]": value for client, value in self.by_client.items()}
        for name, value in numbers.items():
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name}={value}: expected a finite number, 0 or more")
        if self.deadline is not None and not self.deadline > 0:
            raise ValueError(f"deadline={self.deadline}: expected seconds above 0")

    def fault(self, seed: int, round: int, client: int, stage: str) -> Fault | None:
        """Who is late is missing at the training stage, or waits in it."""
        if stage != TRAIN:
            return None
        stretch = math.exp(self.spread * generator(seed, "faults", round, client).normal())
        delay = self.by_client.get(client, self.seconds) * stretch
        if self.deadline is None:
            return Fault("waits", seconds=delay)
        return Fault("missing", f"Slow ({delay:.3g} s)") if delay > self.deadline else None

    def problems(self, clients: int, settings: Settings, *, masked: bool) -> list[str]:
        """Says which clients there are not, and where nobody could stop waiting."""
        found = _unknown("by_client", list(self.by_client), clients)
        if self.deadline is None and settings.workers == 0:
            found.append(
                "deadline=null waits for slow clients one after the other in this process: set "
                "federation.workers=1 or more, or a deadline"
            )
        return found


def striking(faults: Faults | None, seed: int, grid: Grid) -> Callable[[Message], Message]:
    """Returns what puts a client's fault into a message to it.

    As the fault travels in the message, cohorts are cut into the same chunks as without it.
    """
    client_of = {node: client for client, node in enumerate(grid.get_node_ids())}

    def struck(message: Message) -> Message:
        if faults is None:
            return message
        kind, _, action = message.metadata.message_type.partition(".")
        stage = TRAIN if kind == TRAIN else action
        client = client_of[message.metadata.dst_node_id]
        fault = faults.fault(seed, round_of(message), client, stage)
        return readdressed(fault.into(message), message) if fault else message

    return struck


def _unknown(name: str, named: list[int] | tuple[int, ...], clients: int) -> list[str]:
    unknown = sorted({client for client in named if not 0 <= client < clients})
    if not unknown:
        return []
    return [f"{name}: there is no client {', '.join(map(str, unknown))}, only 0 to {clients - 1}"]
