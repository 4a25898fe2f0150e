"""The ledger: what a run really released, and what that means for each adversary.

An append-only list of releases with the cohort that was drawn and the clients that answered, not
those that were planned. ε is computed from it for four views of who is looking:

- `paper`: what the algorithm's paper would state, at the rate client_rate · record_rate.
- `global`: whoever sees every global model, and may know which clients took part.
- `server_masked`: the honest-but-curious server under secure aggregation: sees sums only.
- `server_plain`: the same server without it: sees each client's message under its own noise alone.

A round that is run again after a crash, from the same model and with the same clients answering,
sends the same bits and is booked once. With other answers, or from another model, the same noise
would meet another sum: such an attempt does not count, and the next one draws new noise.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from fedpriv.parameters import Vectors
from fedpriv.privacy.event import ClientThenRecord, History
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.privacy.views import VIEWS


@dataclass(frozen=True)
class Attempt:
    """One try at a round, whether it counted or not.

    Attributes:
        round: from 1.
        attempt: from 0.
        clients: how many the federation has.
        cohort: numbers of the clients that were drawn.
        survivors: numbers of those whose messages arrived.
        released: the sum went into the global model.
        model: digest of the global model that was sent, see `digest`.
        finished: every client that was asked has answered, failed or been given up. If not, an
            error or a person ended the attempt, and it may be made again.
    """

    round: int
    attempt: int
    clients: int
    cohort: tuple[int, ...]
    survivors: tuple[int, ...]
    released: bool
    model: str = ""
    finished: bool = True

    def repeats(self, other: Attempt) -> bool:
        """Whether this is an unfinished attempt made again, with all the messages it had."""
        same = all(getattr(self, k) == getattr(other, k) for k in ("round", "attempt", "model"))
        return same and not other.finished and set(other.survivors) <= set(self.survivors)


@dataclass(frozen=True)
class Release:
    """What one attempt gave away.

    Attributes:
        attempt: who took part.
        client_rate: q_c, planned.
        record_rate: q_m, planned.
        planned: noise multiplier of the mechanism.
        noise_multiplier: of the sum that was released, from the shares that were in it.
        share: noise multiplier of one client's own message.
        steps: noisy steps behind one message (DP-SGD at the clients takes several).
        own_noise: every client's message carries all of its noise by itself, and the clients'
            records are accounted one client at a time.
        poisson: the clients were drawn each for itself, so that the size of the cohort tells
            something about who is in it.
    """

    attempt: Attempt
    client_rate: float
    record_rate: float
    planned: float
    noise_multiplier: float
    share: float
    steps: int = 1
    own_noise: bool = False
    poisson: bool = True

    @property
    def arrived(self) -> float:
        """Noise multiplier that the shares of who answered add up to; as planned for no cohort."""
        attempt = self.attempt
        return self.share * math.sqrt(len(attempt.survivors)) if attempt.cohort else self.planned

    @property
    def short(self) -> bool:
        """Whether shares of the noise are missing."""
        return self.arrived < self.planned * (1 - 1e-9)

    def to_json(self) -> dict[str, Any]:
        """Returns the release as one flat JSON object."""
        values = asdict(self)
        return {**values.pop("attempt"), **values}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Release:
        """Reads what `to_json` wrote."""
        own = dict(values)
        attempt = {name: own.pop(name) for name in Attempt.__dataclass_fields__}
        attempt |= {name: tuple(attempt[name]) for name in ("cohort", "survivors")}
        return cls(Attempt(**attempt), **own)


@dataclass(frozen=True)
class Group:
    """A larger thing than the protected unit, such as a document of several examples.

    Attributes:
        records: how many units the largest one has.
        clients: at how many clients its units are, at most.
    """

    records: int
    clients: int = 1


@dataclass
class Ledger:
    """Every release of a run, in order, and what is needed to read them.

    Args:
        mechanism: None where nothing is private: then every ε is infinite.
        masked: the server saw sums only.
        uncovered: what else left the clients, of which no ε here speaks.
        groups: larger things than the unit, by name: {"document": Group(3)} where one gives up to 3
            examples.
        releases: so far.
        example: what one training example is, in words.
    """

    mechanism: Mechanism | None = None
    masked: bool = False
    uncovered: tuple[str, ...] = ()
    groups: Mapping[str, Group] = field(default_factory=dict)
    releases: list[Release] = field(default_factory=list)
    example: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the ledger as a JSON object, without any ε."""
        mechanism = asdict(self.mechanism) if self.mechanism else None
        events = [release.to_json() for release in self.releases]
        return {
            "mechanism": mechanism,
            "masked": self.masked,
            "uncovered": list(self.uncovered),
            "groups": {unit: asdict(group) for unit, group in self.groups.items()},
            "example": self.example,
            "events": events,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Ledger:
        """Reads what `to_json` wrote; ignores what else is there."""
        mechanism = Mechanism(**values["mechanism"]) if values["mechanism"] else None
        releases = [Release.from_json(event) for event in values["events"]]
        uncovered = tuple(values["uncovered"])
        groups = {unit: Group(**group) for unit, group in values["groups"].items()}
        return cls(mechanism, values["masked"], uncovered, groups, releases, values["example"])

    def continued(self, now: Ledger, place: str) -> Ledger:
        """Returns this ledger for a run that goes on: nothing that was given away is forgotten.

        Args:
            now: an empty ledger of the run as it goes on.
            place: the run folder, for the message.

        Raises:
            ValueError: if the run was not made under the same mechanism and masking.
        """
        for what in ("mechanism", "masked"):
            if getattr(self, what) != getattr(now, what):
                raise ValueError(
                    f"{place} was run with {what}={getattr(self, what)}, and cannot go on with "
                    f"{getattr(now, what)}: one ledger, one mechanism"
                )
        uncovered = tuple(dict.fromkeys((*self.uncovered, *now.uncovered)))
        return dataclasses.replace(now, uncovered=uncovered, releases=self.releases)

    def book(self, release: Release) -> None:
        """Adds a release, unless it is the very one that was booked before a crash."""
        kept = [r for r in self.releases if not release.attempt.repeats(r.attempt)]
        self.releases = kept if release in kept else [*kept, release]

    def attempt_from(self, round: int, attempt: int, model: str) -> int:
        """Returns the first attempt, from `attempt` on, whose noise no other model has used.

        A resumed run repeats the attempts that it has no checkpoint of. Their noise is the same,
        so that they may only be repeated from the same model: two different sums under one noise
        give away their difference.
        """
        used = {
            r.attempt.attempt
            for r in self.releases
            if r.attempt.round == round and r.attempt.model != model
        }
        while attempt in used:
            attempt += 1
        return attempt

    def answered(self, round: int, attempt: int) -> set[int] | None:
        """Returns who answered that attempt before a crash; None if it did not come to an end."""
        for made in (release.attempt for release in self.releases):
            if (made.round, made.attempt) == (round, attempt) and made.finished:
                return set(made.survivors)
        return None

    def history(self, view: str, until: int | None = None) -> History:
        """Returns what `view` has seen up to a round, for the accountants.

        Raises:
            ValueError: if there is no such view.
        """
        if view not in VIEWS:
            raise ValueError(f"view={view!r}: expected one of {', '.join(VIEWS)}")
        seen = [r for r in self.releases if until is None or r.attempt.round <= until]
        own, shared = ([r for r in seen if r.own_noise is flag] for flag in (True, False))
        events = [event for release in shared for event in _events(release, view)]
        return [*Counter(events).items(), *_worst_client(own)]

    def participation(self) -> Counter[int]:
        """Returns how many rounds each client took part in whose sum was released."""
        shown = [r.attempt for r in self.releases if r.attempt.released]
        return Counter(client for attempt in shown for client in attempt.survivors)

    def history_of(self, client: int, view: str) -> History:
        """Returns what a view has seen of one client, given the rounds that it took part in.

        Nothing is averaged over the drawing of clients, which is over: client_rate is 1.
        """
        events: Counter[ClientThenRecord] = Counter()
        for release in self.releases:
            plain = view == "server_plain" or release.own_noise
            if client in release.attempt.survivors and (plain or release.attempt.released):
                noise = release.share if plain else release.noise_multiplier
                events[ClientThenRecord(1.0, release.record_rate, noise)] += release.steps
        return list(events.items())


def _events(release: Release, view: str) -> Iterable[ClientThenRecord]:
    """Yields what one release of a shared noise shows to a view."""
    attempt = release.attempt
    if view == "server_plain":
        # Given that |K| clients were drawn, each was with probability |K|/N; sizes are public.
        if attempt.survivors:
            rate = len(attempt.cohort) / attempt.clients
            yield ClientThenRecord(rate, release.record_rate, release.share)
    elif view == "paper":
        if attempt.released and (attempt.survivors or not attempt.cohort):
            rate = release.client_rate * release.record_rate
            yield ClientThenRecord(1.0, rate, release.planned)
    elif attempt.released and (attempt.survivors or not attempt.cohort):
        yield _sum(release)
    elif release.poisson and not attempt.released:
        # Nothing was released, but a cohort was drawn again for what it was: drawing until one
        # is large enough includes each client more often than client_rate. Booking every draw,
        # as if all sums had been shown, covers whatever the rule was.
        yield ClientThenRecord(release.client_rate, release.record_rate, release.planned)


def _sum(release: Release) -> ClientThenRecord:
    """Returns what a released sum shows.

    The planned rate goes with the planned noise. Where a Poisson cohort's size has made the noise
    another, the size is known, and with it that each client was drawn with probability |K|/N: more
    noise is not counted then, and less noise goes with the larger rate.
    """
    attempt, rate, noise = release.attempt, release.client_rate, release.noise_multiplier
    if release.poisson:
        if release.arrived > release.planned * (1 + 1e-9):
            noise *= release.planned / release.arrived
        elif release.short:
            rate = max(rate, len(attempt.cohort) / attempt.clients)
    return ClientThenRecord(rate, release.record_rate, noise)


def _worst_client(releases: list[Release]) -> History:
    """Returns the history of the client that sent most often, alone with its own noise.

    Who was drawn is known to the server and told by the global models, so nothing is amplified.
    """
    by_client: dict[int, Counter[ClientThenRecord]] = {}
    for release in releases:
        event = ClientThenRecord(1.0, release.record_rate, release.share)
        for client in release.attempt.survivors:
            by_client.setdefault(client, Counter())[event] += release.steps
    worst = max(by_client.values(), key=lambda counts: counts.total(), default=Counter())
    return list(worst.items())


def shared_release(mechanism: Mechanism, attempt: Attempt, shares: int) -> Release:
    """Returns the release of one attempt whose clients each added one of `shares` noise shares."""
    planned = mechanism.noise_multiplier
    # One square root of the ratio: exactly the planned noise where all shares arrived.
    arrived = len(attempt.survivors) / shares if attempt.cohort else 1.0
    return Release(
        attempt,
        mechanism.client_rate,
        mechanism.record_rate,
        planned=planned,
        noise_multiplier=planned * math.sqrt(arrived),
        share=planned / math.sqrt(shares),
        poisson=mechanism.client_sampling == "poisson",
    )


def digest(model: Vectors) -> str:
    """Returns 64 bits of a hash of a model's vectors, as hexadecimal digits."""
    hashed = hashlib.blake2b(digest_size=8)
    for name in sorted(model):
        hashed.update(np.ascontiguousarray(model[name]).data)
    return hashed.hexdigest()
