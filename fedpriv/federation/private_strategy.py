"""The common part of the differentially private strategies: a round of noisy sums.

In FL-PROVIDER-DP and FeAm-DP each of |K| clients adds a share of the noise, and only their sum
carries all of it. So it matters which clients answer: each missing share is missing noise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid

from fedpriv.federation.messages import (
    Instruction,
    RunningSum,
    node_ids,
    sum_of,
    to_array_record,
    to_vectors,
)
from fedpriv.federation.round_statistics import TooFewClients
from fedpriv.federation.strategy import ATTEMPT, KEY, MODEL, SEED, Strategy
from fedpriv.privacy.ledger import Attempt, Release, shared_release
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.privacy.noise import add_gaussian, shares
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.vectors import Vectors

SHARES, STEPS, BATCH, VARIANT = "shares", "steps", "batch", "variant"
"""Settings of an instruction: the number of shares of the noise, a client's steps, …"""

TOLD = (*Mechanism.settings_names(), SHARES, VARIANT)
"""Settings that every private strategy sends."""


Variant = Literal["sound", "paper"]


@dataclass
class PrivateStrategy(Strategy):
    """The round of an algorithm whose clients send noisy sums; subclasses define `moved`.

    In the variant "sound", the noise is split into t = ⌈threshold · |K|⌉ shares. Any t answers
    carry all of it. With fewer, the round does not count, and no other cohort is drawn for it (the
    ledger says why). In the variant "paper" the noise is split into |K| shares, and all answers are
    used, however many are missing. The ledger books the noise that arrived.

    Attributes:
        units: the units of privacy that the algorithm can protect.
        metrics: what the clients of the paper's variant report.
        weight: the metric that weights their updates.
        own_noise: every message carries all of its noise, and is not bounded by the clip norm.
        solves: it takes sums that tell of several rounds apart (`Mechanism.bands`).

    Args:
        mechanism: the clip norm, the sampling and the noise.
        variant: what happens if clients fail to answer: "sound" counts a round only if the answers
            carry all of the noise, "paper" uses whatever arrives, even if noise is missing.
        threshold: the share of a round's clients whose answers must carry all of the noise, in (0,
            1]. Below 1 clients may drop out, and the price is noise: if all answer, it is √(|K|/t)
            times as much as the mechanism says.
    """

    units: ClassVar[tuple[str, ...]]
    metrics: ClassVar[tuple[str, ...]] = ()
    weight: ClassVar[str] = ""
    own_noise: ClassVar[bool] = False
    solves: ClassVar[bool] = False

    mechanism: Mechanism
    variant: Variant = "sound"
    threshold: float = 1.0

    def __post_init__(self) -> None:
        if self.variant not in ("sound", "paper"):
            raise ValueError(f"variant={self.variant!r}: expected 'sound' or 'paper'")
        if not 0 < self.threshold <= 1:
            raise ValueError(f"threshold={self.threshold}: expected a value in (0, 1]")
        if self.mechanism.bands > 1 and not self.solves:
            raise ValueError(
                f"mechanism: bands={self.mechanism.bands}: {type(self).__name__} takes each sum "
                "for that of its round alone; take strategy=provider_bandmf"
            )
        if self.variant == "paper" and self.mechanism.individual_epsilon:
            raise ValueError(
                "mechanism: individual_epsilon counts on all of the noise; take variant='sound'"
            )
        if self.variant == "paper" and self.threshold != 1:
            raise ValueError(
                f"threshold={self.threshold}: variant='paper' has none; take variant='sound'"
            )
        if self.mechanism.unit not in self.units:
            takes = " or ".join(f"{unit}_gaussian" for unit in self.units)
            raise ValueError(
                f"mechanism: {type(self).__name__} clips one {' or '.join(self.units)}, the "
                f"mechanism protects one {self.mechanism.unit}: take {takes}"
            )

    def problems(self, clients: int) -> list[str]:
        """Returns the reasons why the mechanism cannot run on so many clients."""
        problem = self.mechanism.problem(clients)
        return [f"mechanism: {problem}"] if problem else []

    def shares(self, cohort: int) -> int:
        """Returns the number of shares of a round's noise: t, at least 1."""
        return shares(self.threshold, cohort)

    def cohort(self, server_round: int, config: ConfigRecord, clients: int) -> list[int]:
        """Returns K, which is the same for every attempt at a round."""
        seed, key = int(str(config[SEED])), str(config.get(KEY, ""))
        rng = generator(seed, f"client sampling, run {key}", server_round)
        return self.mechanism.sampling().draw(clients, rng)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draws K and sends each of its clients the model, the mechanism and the shares."""
        seed, key = int(str(config[SEED])), str(config.get(KEY, ""))
        clients = len(node_ids(grid))
        cohort = self.cohort(server_round, config, clients)
        self._global, self._cohort = arrays, len(cohort)
        self._needed = self.shares(len(cohort)) if cohort and self.variant == "sound" else 0
        instruction = Instruction(
            round=server_round,
            attempt=int(str(config[ATTEMPT])),
            model=str(config.get(MODEL, "")),
            weight=self.weight if self.variant == "paper" else "",
            metrics=self.metrics if self.variant == "paper" else (),
            settings=self.settings(len(cohort), clients),
        )
        purpose = instruction.purpose("noise of an empty round", key)
        self._own_noise = generator(seed, purpose, server_round)
        return self.broadcast(cohort, arrays, instruction, grid)

    def settings(self, cohort: int, clients: int) -> dict[str, Any]:
        """Returns the settings of a round's instruction."""
        return {**self.mechanism.to_settings(), SHARES: self.shares(cohort), VARIANT: self.variant}

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Adds up the replies, checks that the noise is complete, and moves the model."""
        total = sum_of(replies)
        if len(total.clients) < self._needed:
            raise TooFewClients(
                f"{len(total.clients)} of {self._cohort} clients answered, and the noise is split "
                f"into {self._needed} shares: without them the sum is less private than promised. "
                f"To tolerate dropouts, set strategy.threshold below {self.threshold:g}"
            )
        start = to_vectors(self._global)
        if self._cohort and not total.clients:  # variant "paper", and nobody answered
            return self._global, MetricRecord()
        if not total.vectors:  # no client was drawn: the server adds the noise, so nobody can tell
            noise = torch.zeros_like(start["float"])
            std = self.mechanism.noise_std / self.mechanism.normaliser
            total.vectors = {"float": add_gaussian(noise, std, self._own_noise)}
        return to_array_record(self.moved(start, total)), MetricRecord()

    def moved(self, start: Vectors, total: RunningSum) -> Vectors:
        """Returns the new global vectors, given the old ones and the noisy sum."""
        raise NotImplementedError

    def booked(self, attempt: Attempt) -> Release:
        """Returns the release of one attempt, with the noise that was really in the sum."""
        return shared_release(self.mechanism, attempt, self.threshold)
