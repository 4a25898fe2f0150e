"""The Gaussian mechanism of a federation: one value that strategy, clients and ledger all read.

A strategy hands it to its clients inside the instruction, and the ledger accounts for it. A clip
norm or a rate can be set nowhere else, so the two halves cannot disagree.

Everything in it is public and fixed before training. A rate, a batch size or a number of providers
that is computed from private data at run time leaks, and no accountant would notice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from fedpriv.privacy.accounting.event import ClientThenRecord, History
from fedpriv.privacy.sampling import ClientSampling, FixedSize, Poisson
from fedpriv.privacy.views import VIEWS, Sampling, view_events

Unit = Literal["example", "provider", "client"]

MOST_NOISE = 1e7
"""The largest noise multiplier that accountants still compute with."""

MOST_ROUNDS = 1_000_000
"""Rounds of a run, and noisy steps that a budget is found for."""


@dataclass(frozen=True)
class Mechanism:
    """A sum of clipped contributions plus Gaussian noise, in every round anew.

    Adjacency is add/remove of one unit. Made by `example_gaussian`, `provider_gaussian` or
    `client_gaussian`.

    Attributes:
        unit: the unit of privacy, whose contribution is clipped.
        clip_norm: L2 norm to which one unit's contribution is clipped; C of PFL-DocVQA, S of
            PrIeD-KIE.
        noise_multiplier: σ, the noise's standard deviation on the SUM over the cohort / clip_norm.
        client_rate: probability that a client takes part in a round.
        record_rate: probability that a unit takes part, given that its client does (Poisson).
        normaliser: the public constant that the noisy sum is divided by: M, or the expected batch.
        client_sampling: "poisson", each client for itself; or "fixed", a whole number of clients.
        delta: δ at which the ledger states ε.
        asked_epsilon: ε that the noise was found for; 0 where the noise itself was given.
        asked_view: the view in which that ε was to hold.
        asked_clients: size of the federation that it was found for; 0 where it does not matter.
        asked_colluders: clients assumed to collude with the masked server.
        bands: rounds that a contribution reaches; see `fedpriv.privacy.banded`. With b, a unit has
            its turn in one round of b, in which it takes part with `record_rate`.
        individual_epsilon: the most that any one unit may spend, by what it really gives; then it
            gives no more. 0 for no such filter. See `fedpriv.privacy.individual`.
        scale: steps of the ring of masks for 1, where noise is discrete and sums are of whole
            numbers (`fedpriv.privacy.discrete`); 0 for continuous noise. Masking sets it.
    """

    unit: Unit
    clip_norm: float
    noise_multiplier: float
    client_rate: float
    record_rate: float
    normaliser: float
    client_sampling: Sampling = "poisson"
    delta: float = 1e-5
    asked_epsilon: float = 0.0
    asked_view: str = ""
    asked_clients: int = 0
    asked_colluders: int = 0
    bands: int = field(default=1, metadata={"new": True})
    individual_epsilon: float = field(default=0.0, metadata={"new": True})
    scale: float = field(default=0.0, metadata={"new": True})

    def __post_init__(self) -> None:
        checks = {
            "clip_norm": (0 < self.clip_norm < math.inf, "a positive, finite number"),
            "normaliser": (0 < self.normaliser < math.inf, "a positive, finite number"),
            "noise_multiplier": (0 <= self.noise_multiplier <= MOST_NOISE, f"0 to {MOST_NOISE:g}"),
            "client_rate": (0 < self.client_rate <= 1, "a probability in (0, 1]"),
            "record_rate": (0 < self.record_rate <= 1, "a probability in (0, 1]"),
            "delta": (0 < self.delta < 1, "a probability in (0, 1)"),
            "client_sampling": (
                self.client_sampling in ("poisson", "fixed"),
                "'poisson' or 'fixed'",
            ),
            "bands": (
                isinstance(self.bands, int)
                and self.bands >= 1
                and (self.bands == 1 or self.unit == "provider"),
                "1 or more, and 1 where the unit is no provider",
            ),
            "scale": (0 <= self.scale < math.inf, "0 or more"),
            "individual_epsilon": (0 <= self.individual_epsilon < math.inf, "0 or more"),
        }
        wrong = [
            f"{name}={getattr(self, name)!r}: expected {wanted}"
            for name, (good, wanted) in checks.items()
            if not good
        ]
        if wrong:
            raise ValueError("; ".join(wrong))

    @property
    def remembers(self) -> bool:
        """Whether what a client sends depends on what it remembers of earlier rounds."""
        return self.bands > 1 or self.individual_epsilon > 0

    @property
    def noise_std(self) -> float:
        """σC: the standard deviation of the noise on the sum, before it is divided."""
        return self.noise_multiplier * self.clip_norm

    def sampling(self) -> ClientSampling:
        """Returns the sampling of the clients."""
        if self.client_sampling == "poisson":
            return Poisson(self.client_rate)
        return FixedSize(fraction=self.client_rate)

    def problem(self, clients: int) -> str | None:
        """Returns why this mechanism cannot run on so many clients, or None if it can."""
        if self.bands > 1 and self.client_rate < 1:
            return (
                f"bands={self.bands} with client_rate={self.client_rate:g}: who is not drawn "
                "cannot send what it owes for earlier rounds; take client_rate=1"
            )
        if self.asked_clients not in (0, clients):
            return (
                f"the noise was found for {self.asked_clients} clients, and the federation has "
                f"{clients}: set privacy.clients={clients} (with privacy.cohort, client_rate x "
                f"{clients} of them)"
            )
        wanted = self.client_rate * clients
        if self.client_sampling == "fixed" and (wanted < 1 or abs(wanted - round(wanted)) > 1e-6):
            return (
                f"client_rate={self.client_rate} of {clients} clients is {wanted:g}, and "
                "client_sampling='fixed' needs a whole number: take a multiple of "
                f"1/{clients}, or client_sampling='poisson'"
            )
        return None

    def to_settings(self) -> dict[str, Any]:
        """Returns the mechanism as scalars for an instruction."""
        return {f"{_PREFIX}{name}": value for name, value in asdict(self).items()}

    @classmethod
    def settings_names(cls) -> tuple[str, ...]:
        """Returns the names in the output of `to_settings`."""
        return tuple(f"{_PREFIX}{field.name}" for field in fields(cls))

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> Mechanism:
        """Reads the output of `to_settings`."""
        own = {k.removeprefix(_PREFIX): v for k, v in settings.items() if k.startswith(_PREFIX)}
        return cls(**own)


_PREFIX = "mechanism-"
SCALE = f"{_PREFIX}scale"
"""Name of `Mechanism.scale` among the settings of an instruction."""


@dataclass(frozen=True)
class Budget:
    """The largest ε that a run may spend; the noise multiplier is found for it.

    A run that follows the plan never exceeds it, whichever clients are drawn or stay away.

    Args:
        epsilon: the largest ε that the run may spend, at the δ of the mechanism.
        rounds: the number of rounds after which the budget must still hold (T).
        view: the observer against whom the budget must hold: "global" is anybody who sees the
            global models, "server_masked" the server if updates are masked, "server_plain" the
            server if it sees each update. "paper" computes ε as the papers do, which is no
            guarantee if clients are sampled.
        cohort: the number of clients in each round, if all rounds have the same number. It may be
            given in place of `clients`.
        steps: the number of noisy steps that a client takes in a round, if each client protects its
            data by itself (FedAvg-DP). Sampling of clients then amplifies nothing, and ε is the
            same in all views. None stands for noise that the clients of a round share.
        accountant: the method that computes ε: "pld", "rdp" (used by PrIeD-KIE), "prv_opacus" (used
            by PFL-DocVQA), "prv" or "gdp".
        clients: the number of clients in the federation. With it, or with `cohort`, it is known how
            many clients share the noise, which matters for the view "server_plain", and for
            "server_masked" with colluders.
        threshold: the share of a round's clients whose answers carry all of the noise; the same as
            the threshold of the strategy.
        colluders: the number of clients that are assumed to tell the server their share of the
            noise; only the view "server_masked" takes it.
    """

    epsilon: float
    rounds: int
    view: str = "global"
    cohort: int | None = None
    steps: int | None = None
    accountant: str = "pld"
    clients: int | None = None
    threshold: float = 1.0
    colluders: int = 0

    def __post_init__(self) -> None:
        if not (self.epsilon > 0 and math.isfinite(self.epsilon)):
            raise ValueError(f"epsilon={self.epsilon}: expected a positive number")
        for name, least in (("rounds", 1), ("steps", 1), ("cohort", 1), ("clients", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name}={value}: expected at least {least}")
        if self.rounds * (self.steps or 1) > MOST_ROUNDS:
            steps = f" and steps={self.steps}" if self.steps else ""
            raise ValueError(f"rounds={self.rounds}{steps}: expected at most {MOST_ROUNDS} in all")
        if self.view not in VIEWS:
            raise ValueError(f"view={self.view!r}: expected one of {', '.join(VIEWS)}")
        if self.cohort is not None and self.clients is not None:
            raise ValueError(
                f"cohort={self.cohort} and clients={self.clients}: give one of them; the cohort is "
                "client_rate x clients"
            )
        if self.colluders < 0 or (self.colluders and self.view != "server_masked"):
            raise ValueError(
                f"colluders={self.colluders} with view={self.view!r}: expected 0, or "
                "view='server_masked', whose sum they help to unmask"
            )
        if self.sees_shares and self.cohort is None and self.clients is None:
            raise ValueError(
                f"view={self.view!r} needs to know how many clients share the noise in a round: "
                "set privacy.clients to the clients of the federation"
            )

    @property
    def sees_shares(self) -> bool:
        """Whether ε depends on how many clients share the noise."""
        return self.steps is None and (self.view == "server_plain" or self.colluders > 0)

    def noise_multiplier(
        self,
        client_rate: float,
        record_rate: float,
        delta: float,
        client_sampling: Sampling = "poisson",
        bands: int = 1,
    ) -> float:
        """Returns the noise multiplier that holds the budget, at most .01 of ε under it.

        Raises:
            ValueError: if there is none, or an argument is out of range.
        """
        from fedpriv.privacy.accounting import accountants

        clients = self.federation(client_rate, client_sampling)

        def history(noise_multiplier: float) -> History:
            if self.steps is not None:
                own = ClientThenRecord(1.0, record_rate, noise_multiplier)
                return [(own, self.rounds * self.steps)]
            views = view_events(
                client_rate,
                record_rate,
                noise_multiplier,
                clients=clients,
                sampling=client_sampling,
                threshold=self.threshold,
                colluders=self.colluders,
            )
            event = views[self.view].event
            return [(event, -(-self.rounds // bands))] if event else []

        return accountants.noise_multiplier(history, self.epsilon, delta, self.accountant)

    def federation(self, client_rate: float, client_sampling: Sampling) -> int | None:
        """Returns the number of clients of the federation, or None where it is not known.

        Raises:
            ValueError: the cohort's size would vary, or no number of clients fits it.
        """
        if self.cohort is None:
            return self.clients
        if client_sampling == "poisson" and client_rate < 1:
            raise ValueError(
                f"cohort={self.cohort}: under client_sampling='poisson' its size varies, and the "
                "larger it is, the less noise is in each message. Give clients, the clients of "
                "the federation (privacy.clients), or take client_sampling='fixed'"
            )
        clients = self.cohort / client_rate
        if abs(clients - round(clients)) > 1e-6 * clients:
            raise ValueError(
                f"cohort={self.cohort} is no share client_rate={client_rate} of any number of "
                "clients: give clients, the clients of the federation (privacy.clients)"
            )
        return round(clients)


def example_gaussian(
    *,
    clip_norm: float,
    examples: float,
    noise_multiplier: float | None = None,
    budget: Budget | None = None,
    record_rate: float = 1.0,
    client_rate: float = 1.0,
    client_sampling: Sampling = "fixed",
    delta: float = 1e-5,
) -> Mechanism:
    """Protects one training example: for documents, one window of up to L tokens.

    Args:
        clip_norm: the L2 norm to which the gradient of each example is clipped (S in PrIeD-KIE).
        examples: the number of training examples of all clients together (D in PrIeD-KIE). It is a
            public constant, and a guess will do. The noisy sum is divided by the expected batch,
            client_rate · record_rate · examples (Eq. 4).
        noise_multiplier: σ, the standard deviation of the noise divided by `clip_norm`. The noise
            is on the sum over the clients of a round or, in FedAvg-DP, on every step of every
            client. None finds a value that just holds `budget`.
        budget: the ε that the noise is found for if `noise_multiplier` is None; otherwise it is not
            used.
        record_rate: the probability with which a client that was drawn draws each of its examples
            (q_k in PrIeD-KIE), in (0, 1].
        client_rate: the probability with which a client takes part in a round, in (0, 1] (C in
            PrIeD-KIE).
        client_sampling: how the clients of a round are drawn: "poisson" draws each client
            independently with probability `client_rate`, "fixed" draws exactly that share of them.
            PrIeD-KIE draws a fixed number.
        delta: the δ at which ε is stated, in (0, 1).
    """
    _positive("examples", examples)
    return _gaussian(
        "example",
        noise_multiplier,
        budget,
        clip_norm=clip_norm,
        client_rate=client_rate,
        record_rate=record_rate,
        normaliser=client_rate * record_rate * examples,
        client_sampling=client_sampling,
        delta=delta,
    )


def provider_gaussian(
    *,
    clip_norm: float,
    providers: float,
    noise_multiplier: float | None = None,
    budget: Budget | None = None,
    provider_rate: float = 1.0,
    client_rate: float = 1.0,
    client_sampling: Sampling = "poisson",
    delta: float = 1e-5,
    bands: int = 1,
    individual_epsilon: float | None = None,
) -> Mechanism:
    """Protects all documents of one provider (a company that issued them) at once.

    Args:
        clip_norm: the L2 norm to which the update from one provider's documents is clipped (C in
            PFL-DocVQA).
        providers: the public constant by which a client's sum over its providers is divided (M).
            PFL-DocVQA takes the smallest number of providers that any client has.
        noise_multiplier: σ, the standard deviation of the noise on the sum over the clients of a
            round, divided by `clip_norm`. None finds a value that just holds `budget`.
        budget: the ε that the noise is found for if `noise_multiplier` is None; otherwise it is not
            used.
        provider_rate: the probability with which a client that was drawn draws each of its
            providers, in (0, 1].
        client_rate: the probability with which a client takes part in a round, in (0, 1] (q_c in
            PFL-DocVQA).
        client_sampling: how the clients of a round are drawn: "poisson" draws each client
            independently with probability `client_rate`, "fixed" draws exactly that share of them.
            PFL-DocVQA draws each client independently.
        delta: the δ at which ε is stated, in (0, 1).
        bands: the number of rounds that a contribution reaches (b), for the strategy
            `provider_bandmf`: each provider has its turn in one round of b, and is drawn there with
            b times `provider_rate`, at most 1. Up to that, batches are as large as without bands.
        individual_epsilon: the ε after which a provider gives no more in this run, computed from
            how long its contributions really were and when it was drawn. None sets no such limit.
    """
    _positive("providers", providers)
    if bands < 1:
        raise ValueError(f"bands={bands}: expected a whole number of 1 or more")
    if individual_epsilon is not None and not 0 < individual_epsilon < math.inf:
        raise ValueError(
            f"individual_epsilon={individual_epsilon}: expected a positive, finite number, or null "
            "for no limit"
        )
    return _gaussian(
        "provider",
        noise_multiplier,
        budget,
        clip_norm=clip_norm,
        client_rate=client_rate,
        record_rate=min(1.0, bands * provider_rate),
        normaliser=providers,
        client_sampling=client_sampling,
        delta=delta,
        bands=bands,
        individual_epsilon=individual_epsilon or 0.0,
    )


def client_gaussian(
    *,
    clip_norm: float,
    noise_multiplier: float | None = None,
    budget: Budget | None = None,
    client_rate: float = 1.0,
    client_sampling: Sampling = "poisson",
    delta: float = 1e-5,
) -> Mechanism:
    """Protects all that one client holds: DP-FedAvg (McMahan et al. 2018).

    It is `provider_gaussian` where every client is its own, only provider.

    Args:
        clip_norm: the L2 norm to which the update of one client is clipped.
        noise_multiplier: σ, the standard deviation of the noise on the sum over the clients of a
            round, divided by `clip_norm`. None finds a value that just holds `budget`.
        budget: the ε that the noise is found for if `noise_multiplier` is None; otherwise it is not
            used.
        client_rate: the probability with which a client takes part in a round, in (0, 1].
        client_sampling: how the clients of a round are drawn: "poisson" draws each client
            independently with probability `client_rate`, "fixed" draws exactly that share of them.
        delta: the δ at which ε is stated, in (0, 1).
    """
    return _gaussian(
        "client",
        noise_multiplier,
        budget,
        clip_norm=clip_norm,
        client_rate=client_rate,
        record_rate=1.0,
        normaliser=1.0,
        client_sampling=client_sampling,
        delta=delta,
    )


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value!r}: expected a positive, finite number")


def _gaussian(
    unit: Unit, noise_multiplier: float | None, budget: Budget | None, **planned: Any
) -> Mechanism:
    """Returns a mechanism with this noise, or with the noise that holds the budget."""
    asked: dict[str, Any] = {"noise_multiplier": noise_multiplier}
    if noise_multiplier is None:
        if budget is None:
            raise ValueError("noise_multiplier=None and budget=None: give one of them")
        rate, sampling = planned["client_rate"], planned["client_sampling"]
        asked = {
            "noise_multiplier": budget.noise_multiplier(
                rate, planned["record_rate"], planned["delta"], sampling, planned.get("bands", 1)
            ),
            "asked_epsilon": budget.epsilon,
            "asked_view": budget.view,
            "asked_clients": (budget.federation(rate, sampling) or 0) if budget.sees_shares else 0,
            "asked_colluders": budget.colluders,
        }
    return Mechanism(unit=unit, **planned, **asked)
