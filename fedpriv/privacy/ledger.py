"""The ledger: what a run really released, and what that means for each adversary.

An append-only list of releases with the cohort that was drawn and the clients that answered, not
those that were planned. ε is computed from it for four views of who is looking:

- `paper`: what the algorithm's paper would state, at the rate client_rate · record_rate.
- `global`: whoever sees every global model, and may know which clients took part.
- `server_masked`: the honest-but-curious server under secure aggregation: sees sums only.
- `server_plain`: the same server without it: sees each client's message under its own noise alone.

A round that is run again after a crash, with the same clients answering, sends the same bits and is
booked once. With other clients answering it is another release, and booked as well.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

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
    """

    round: int
    attempt: int
    clients: int
    cohort: tuple[int, ...]
    survivors: tuple[int, ...]
    released: bool


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
    """

    attempt: Attempt
    client_rate: float
    record_rate: float
    planned: float
    noise_multiplier: float
    share: float
    steps: int = 1
    own_noise: bool = False

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


@dataclass
class Ledger:
    """Every release of a run, in order, and what is needed to read them.

    Args:
        mechanism: None where nothing is private: then every ε is infinite.
        masked: the server saw sums only.
        uncovered: what else left the clients, of which no ε here speaks.
        groups: units that larger things have: {"document": 3} where one gives up to 3 examples.
        releases: so far.
    """

    mechanism: Mechanism | None = None
    masked: bool = False
    uncovered: tuple[str, ...] = ()
    groups: Mapping[str, int] = field(default_factory=dict)
    releases: list[Release] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns the ledger as a JSON object, without any ε."""
        mechanism = asdict(self.mechanism) if self.mechanism else None
        events = [release.to_json() for release in self.releases]
        return {
            "mechanism": mechanism,
            "masked": self.masked,
            "uncovered": list(self.uncovered),
            "groups": dict(self.groups),
            "events": events,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Ledger:
        """Reads what `to_json` wrote; ignores what else is there."""
        mechanism = Mechanism(**values["mechanism"]) if values["mechanism"] else None
        releases = [Release.from_json(event) for event in values["events"]]
        uncovered = tuple(values["uncovered"])
        return cls(mechanism, values["masked"], uncovered, values["groups"], releases)

    def book(self, release: Release) -> None:
        """Adds a release, unless it is the very one that was booked before a crash."""
        if release not in self.releases:
            self.releases.append(release)

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


def _events(release: Release, view: str) -> Iterable[ClientThenRecord]:
    """Yields what one release of a shared noise shows to a view."""
    attempt, rates = release.attempt, (release.client_rate, release.record_rate)
    if view == "server_plain":
        # Given that |K| clients were drawn, each was with probability |K|/N; sizes are public.
        if attempt.survivors:
            rate = len(attempt.cohort) / attempt.clients
            yield ClientThenRecord(rate, release.record_rate, release.share)
    elif not attempt.released or (attempt.cohort and not attempt.survivors):
        return  # below the threshold nothing can be unmasked; and without answers nothing moved
    elif view == "paper":
        yield ClientThenRecord(1.0, math.prod(rates), release.planned)
    else:
        yield ClientThenRecord(*rates, release.noise_multiplier)


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
    )
