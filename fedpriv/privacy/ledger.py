"""The ledger: the releases that a run really made, as each adversary sees them.

An append-only list of attempts at rounds, with the cohort that was drawn and the clients that
answered. ε is computed from it in four views, one for each adversary:

- `paper`: what the algorithm's paper would state, at the rate client_rate · record_rate.
- `global`: an adversary who sees every global model, and may know which clients took part.
- `server_masked`: the honest-but-curious server under secure aggregation: sees sums only.
- `server_plain`: the same server without it: sees each client's message under its own noise alone.

**A round is drawn once, and every draw is booked as it was planned**, whether its sum was released
or not. Drawing again until a cohort suits would include suitable clients more often than their rate
says, and dropping a round that does not count is such a choice too. If only the other releases were
booked, at their planned rate, a client that stays away would raise the true ε above the ledger's.
With every draw booked, all that anybody sees is a function of the planned releases: a refused sum
is left out, the part of an absent client is left out, surplus noise is added. None of this needs to
be known beforehand, and none of it changes ε.

Only a round that is repeated after an interruption can release more than planned. With the same
model, data and settings it sends the same bits and is booked once. Otherwise it is a new attempt
with new noise (`fedpriv.privacy.message_key`), and it is booked beside the plan without any
amplification by client sampling, because the round may have been interrupted on account of the
clients that were drawn. An attempt replaces an interrupted one only if it has the same cohort.

**Where contributions reach b rounds** (`fedpriv.privacy.banded`), a unit meets one release in b
rounds. The units whose turn is the first round meet the most, ⌈T/b⌉, so the rounds 1, b + 1, … are
booked for all. A repeated round shows contributions of earlier turns again, whose coins have been
tossed. So it is booked beside the plan for every unit, and without any amplification.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from fedpriv.privacy.accounting.event import ClientThenRecord, Event, History
from fedpriv.privacy.mechanism import Mechanism
from fedpriv.privacy.noise import shares
from fedpriv.privacy.salt import Entropy
from fedpriv.privacy.views import VIEWS, Sampling, cohorts_of, with_shares_known
from fedpriv.runtime.refusals import Refused

Providers = Literal["all", "some", "none"]


class LedgerMissing(Refused):
    """The ledger of a private run is not there, not whole, or not this run's."""


@dataclass(frozen=True)
class Attempt:
    """One try at a round, whether it counted or not.

    Attributes:
        round: from 1.
        attempt: from 0.
        clients: how many the federation has.
        cohort: numbers of the clients that were drawn.
        survivors: numbers of the clients whose messages arrived. Until the attempt has finished, it
            is the whole cohort.
        released: the sum went into the global model.
        sent: digest of everything that determines the clients' messages, including the global
            model.
        finished: every client that was asked has answered, failed or been given up. If not, the run
            ended during the attempt, which may be repeated.
        perhaps: numbers of further clients whose messages may have arrived in an earlier try at the
            same attempt, which ended before they were used.
    """

    round: int
    attempt: int
    clients: int
    cohort: tuple[int, ...]
    survivors: tuple[int, ...]
    released: bool
    sent: str = ""
    finished: bool = True
    perhaps: tuple[int, ...] = ()

    @property
    def heard(self) -> set[int]:
        """Numbers of all clients whose messages may have arrived."""
        return {*self.survivors, *self.perhaps}

    @property
    def key(self) -> tuple[int, int, str]:
        """Identifies the messages: attempts with one key send the same ones, noise included."""
        return self.round, self.attempt, self.sent


@dataclass(frozen=True)
class Release:
    """The release that one attempt made.

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
        poisson: the clients were drawn each for itself, so that the size of the cohort, and with it
            every client's share of the noise, is random.
        threshold: share of the cohort whose answers carry all of the noise.
        bands: rounds that a contribution reaches, of which one is the unit's turn; see
            `fedpriv.privacy.banded`.
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
    threshold: float = 1.0
    bands: int = 1

    @property
    def short(self) -> bool:
        """Whether shares of the noise are missing in the sum."""
        return self.noise_multiplier < self.planned * (1 - 1e-9)

    @property
    def shown(self) -> bool:
        """Whether a sum was released. There is none if clients were asked and none answered."""
        return self.attempt.released and bool(self.attempt.survivors or not self.attempt.cohort)

    @property
    def turn(self) -> int:
        """Whose turn the round is, 0 … bands - 1."""
        return (self.attempt.round - 1) % self.bands

    @property
    def again_rate(self) -> float:
        """Probability that a unit is in a repeated round, given that its client is."""
        return self.record_rate if self.bands == 1 else 1.0

    @property
    def shares(self) -> int:
        """Number of shares that the noise was split into, t."""
        return 1 if self.own_noise else shares(self.threshold, len(self.attempt.cohort))

    def event(self, colluders: int = 0) -> Event:
        """Returns the release as it was planned, for a reader who knows so many shares of noise."""
        planned = ClientThenRecord(self.client_rate, self.record_rate, self.planned)
        if not colluders:
            return planned
        sampling: Sampling = "poisson" if self.poisson else "fixed"
        clients = self.attempt.clients
        cohorts = cohorts_of(sampling, self.client_rate, clients, self.threshold)
        return with_shares_known(planned, cohorts, colluders)

    def to_json(self) -> dict[str, Any]:
        """Returns the release as one flat JSON object."""
        values = asdict(self)
        return {**values.pop("attempt"), **values}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Release:
        """Reads what `to_json` wrote."""
        own = dict(values)
        attempt = {name: own.pop(name) for name in Attempt.__dataclass_fields__}
        attempt |= {name: tuple(attempt[name]) for name in ("cohort", "survivors", "perhaps")}
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
    """Every attempt of a run, in order, with the mechanism and the data that they concern.

    Args:
        mechanism: None where nothing is private, so that every ε is infinite.
        masked: the server saw sums only.
        uncovered: what else left the clients, of which no ε here speaks.
        groups: larger things than the unit, by name: {"document": Group(3)} where one gives up to 3
            examples.
        releases: so far.
        example: what one training example is, in words.
        data: digest of the training data. Runs on the same data add up.
        providers: how many of the documents name theirs. For any other, its own name stands, so
            that one file is protected in the place of a provider.
        entropy: where the salt of noise and masks comes from.
    """

    mechanism: Mechanism | None = None
    masked: bool = False
    uncovered: tuple[str, ...] = ()
    groups: Mapping[str, Group] = field(default_factory=dict)
    releases: list[Release] = field(default_factory=list)
    example: str = ""
    data: str = ""
    providers: Providers = "all"
    entropy: Entropy = "run"

    @property
    def counts(self) -> bool:
        """Whether attempts are booked: where noise or masks hide messages, each one only."""
        return self.mechanism is not None or self.masked

    def name_of(self, unit: str) -> str:
        """Returns what to call a unit: a file, where a provider is meant and not known."""
        named = {"all": "provider", "some": "provider or file", "none": "file"}
        return named[self.providers] if unit == "provider" else unit

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
            "data": self.data,
            "providers": self.providers,
            "entropy": self.entropy,
            "events": events,
        }

    @classmethod
    def from_json(cls, values: Any, place: str = "the ledger") -> Ledger:
        """Reads the output of `to_json`; ignores any other keys.

        Args:
            values: the JSON object.
            place: where it stands, for the message.

        Raises:
            LedgerMissing: (a ValueError) if it is none, or not whole.
        """
        try:
            mechanism = Mechanism(**values["mechanism"]) if values["mechanism"] else None
            releases = [Release.from_json(event) for event in values["events"]]
            return cls(
                mechanism,
                values["masked"],
                tuple(values["uncovered"]),
                {unit: Group(**group) for unit, group in values["groups"].items()},
                releases,
                values["example"],
                values["data"],
                values["providers"],
                values["entropy"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise LedgerMissing(
                f"{place} is no whole ledger ({type(error).__name__}: {error}): what this run has "
                "given away is not known. Take the file from a backup, or start a new run"
            ) from error

    def continued(self, now: Ledger, place: str) -> Ledger:
        """Returns this ledger for the continuation of its run, with all releases so far.

        Args:
            now: an empty ledger of the run as it goes on.
            place: the run folder, for the message.

        Raises:
            ValueError: if the run was not made under the same mechanism and masking.
        """
        for what in ("mechanism", "masked", "entropy"):
            if getattr(self, what) != getattr(now, what):
                before, after = (
                    asdict(known) if isinstance(known, Mechanism) else {what: known}
                    for known in (getattr(self, what), getattr(now, what))
                )
                names = [k for k in {**before, **after} if before.get(k) != after.get(k)]
                other = ", ".join(f"{k}={before.get(k)!r}, now {after.get(k)!r}" for k in names)
                raise ValueError(
                    f"{place} was run with {other}, and cannot go on so: one ledger, one mechanism"
                )
        uncovered = tuple(dict.fromkeys((*self.uncovered, *now.uncovered)))
        largest = dict(self.groups)
        for unit, group in now.groups.items():
            old = largest.get(unit, group)
            largest[unit] = Group(max(old.records, group.records), max(old.clients, group.clients))
        # Resumed on other data, it is a run on both: it adds up with every run on either.
        known = self.data.split(" and ")
        data = self.data if now.data in known else f"{self.data} and {now.data}"
        providers = now.providers if now.providers == self.providers else "some"
        return dataclasses.replace(
            now,
            uncovered=uncovered,
            groups=largest,
            releases=self.releases,
            data=data,
            providers=providers,
        )

    def book(self, release: Release) -> None:
        """Adds an attempt, or replaces the entry that was made when it began."""
        for place, earlier in enumerate(self.releases):
            if earlier.attempt.key == release.attempt.key:
                self.releases[place] = release
                return
        self.releases.append(release)

    def before(self, attempt: Attempt) -> Attempt | None:
        """Returns the entry of an earlier try at the same attempt, or None."""
        same = (r.attempt for r in self.releases if r.attempt.key == attempt.key)
        return next(same, None)

    def also_heard(self, attempt: Attempt, clients: Iterable[int]) -> None:
        """Notes all clients from whom a message may have arrived in any try at an attempt.

        The clients in the sum, who must answer in every repetition, stay the same: two sums of
        different clients under the same noise would give away the difference.
        """
        for release in self.releases:
            if release.attempt.key == attempt.key:
                more = tuple(sorted({*clients} - {*release.attempt.survivors}))
                known = dataclasses.replace(release.attempt, perhaps=more)
                self.book(dataclasses.replace(release, attempt=known))
                return

    def attempt_from(self, round: int, sent: str, attempt: int = 0, *, exact: bool = True) -> int:
        """Returns the number of the first attempt, from `attempt` on, without other messages.

        A resumed run repeats the attempts that no checkpoint covers. With the same model, data and
        settings they are the same attempts, otherwise new ones.

        Args:
            round: from 1.
            sent: digest of everything that determines the messages.
            attempt: from 0.
            exact: a repetition sends the same bits. If not, as on a GPU whose kernels may add in
                another order, no earlier attempt can be repeated.
        """
        made = (release.attempt for release in self.releases)
        used = {a.attempt for a in made if a.round == round and not (exact and a.sent == sent)}
        while attempt in used:
            attempt += 1
        return attempt

    def digest(self, count: int | None = None) -> str:
        """Returns a digest of the fixed part of the first `count` attempts, by default of all.

        A checkpoint holds it, so that a run cannot go on with a different ledger.
        """
        fixed = [
            [*r.attempt.key, r.client_rate, r.record_rate, r.planned, r.share, r.steps]
            for r in self.releases[:count]
        ]
        return hashlib.blake2b(json.dumps(fixed).encode(), digest_size=16).hexdigest()

    def history(self, view: str, until: int | None = None, colluders: int = 0) -> History:
        """Returns what `view` has seen up to a round, for the accountants.

        Args:
            view: `paper`, `global`, `server_masked` or `server_plain`.
            until: the last round; None for all.
            colluders: clients that are assumed to be in every cohort and to reveal their noise to
                the reader of the sum. Only `global` and `server_masked` see sums.

        Raises:
            ValueError: if there is no such view, or it sees no sums that clients could help with.
        """
        if view not in VIEWS:
            raise ValueError(f"view={view!r}: expected one of {', '.join(VIEWS)}")
        if colluders and view not in ("global", "server_masked"):
            raise ValueError(f"colluders={colluders}: view={view!r} sees no sum of the clients'")
        seen = [r for r in self.releases if until is None or r.attempt.round <= until]
        rounds: dict[int, list[Release]] = {}
        for release in seen:
            if not release.own_noise:
                rounds.setdefault(release.attempt.round, []).append(release)
        events = Counter(
            event
            for made in rounds.values()
            for place, event in enumerate(_events(made, view, colluders))
            if place or made[0].turn == 0
        )
        return [*events.items(), *_worst_client([r for r in seen if r.own_noise])]

    def participation(self, view: str = "global") -> Counter[int]:
        """Returns how often each client was seen: in sums, or by `server_plain` in messages."""
        made = [release.attempt for release in self.releases]
        if view == "server_plain":
            return Counter(client for attempt in made for client in attempt.heard)
        shown = [attempt for attempt in made if attempt.released]
        return Counter(client for attempt in shown for client in attempt.survivors)

    def history_of(self, client: int, view: str) -> History:
        """Returns what a view has seen of one client, given the rounds that it took part in.

        Nothing is averaged over the drawing of clients, which is over: client_rate is 1.
        """
        seen = list[tuple[Release, float]]()
        for release in self.releases:
            plain = view == "server_plain" or release.own_noise
            among = release.attempt.heard if plain else release.attempt.survivors
            if client in among and (plain or release.attempt.released):
                seen.append((release, release.share if plain else release.noise_multiplier))
        if any(release.bands > 1 for release, _ in seen):
            return list(_worst_turn(seen).items())
        events: Counter[ClientThenRecord] = Counter()
        for release, noise in seen:
            events[ClientThenRecord(1.0, release.record_rate, noise)] += release.steps
        return list(events.items())


def _worst_turn(seen: list[tuple[Release, float]]) -> Counter[ClientThenRecord]:
    """Returns the releases that the units of one turn were in, of the turn with the most of them.

    Args:
        seen: releases in which the client was, each with the noise that there was.
    """
    worst: Counter[ClientThenRecord] = Counter()
    for turn in range(seen[0][0].bands):
        # A contribution has the noise of each round that it reaches; the least is counted for all.
        least: dict[int, float] = {}
        events: Counter[ClientThenRecord] = Counter()
        rounds = set[int]()
        for release, noise in seen:
            contribution = (release.attempt.round - 1 - turn) // release.bands
            if release.attempt.round in rounds:
                events[ClientThenRecord(1.0, release.again_rate, noise)] += 1
            elif contribution >= 0:
                least[contribution] = min(noise, least.get(contribution, math.inf))
            rounds.add(release.attempt.round)
        rate = seen[0][0].record_rate
        events.update(ClientThenRecord(1.0, rate, noise) for noise in least.values())
        worst = max(worst, events, key=_precision)
    return worst


def _precision(events: Counter[ClientThenRecord]) -> float:
    """Returns Σ 1/σ², by which sets of releases of the same rate compare."""
    if not all(event.noise_multiplier for event in events):
        return math.inf
    return sum(times * event.noise_multiplier**-2 for event, times in events.items())


def _events(made: list[Release], view: str, colluders: int) -> Iterable[Event]:
    """Yields the events that one round of shared noise shows to a view.

    Args:
        made: the attempts at the round, for one common draw or for a draw each.
        view: `paper`, `global`, `server_masked` or `server_plain`.
        colluders: clients whose noise the reader of a sum knows; see `Ledger.history`.
    """
    first = made[0]
    if view == "server_plain":
        yield first.event(first.attempt.clients)
        for again in made[1:]:
            if again.attempt.cohort:
                yield ClientThenRecord(1.0, again.again_rate, again.share)
        return
    # Which of several sums are refused depends on the clients that were drawn, so every planned sum
    # is booked. An interrupted attempt has shown nothing to a reader of sums. But a cohort of one
    # is not masked, so the server has seen its message.
    alone = view == "server_masked"
    ended = [r for r in made if r.attempt.finished or (alone and len(r.attempt.cohort) == 1)]
    # The first attempt with the planned cohort. The draw is booked even if nothing came of it,
    # because another cohort may have been drawn on account of this one.
    drawn = next((r for r in ended if r.attempt.cohort == first.attempt.cohort), first)
    for release in [drawn, *(r for r in ended if r is not drawn)]:
        if view == "paper":
            rate = release.client_rate * release.record_rate
            yield ClientThenRecord(1.0, rate, release.planned)
        elif release.shown and release.short:
            # Only the variant "paper" lets noise be missing. The absent clients are known, and this
            # may tell that all others were drawn.
            left = max(1, len(release.attempt.survivors) - colluders)
            noise = release.share * math.sqrt(left) if colluders else release.noise_multiplier
            yield ClientThenRecord(1.0, release.record_rate, noise)
        elif release is not drawn:
            left = max(1, release.shares - colluders)
            noise = release.share * math.sqrt(left) if colluders else release.planned
            yield ClientThenRecord(1.0, release.again_rate, noise)
        else:
            # Surplus noise is not counted, because its amount depends on the clients drawn.
            yield release.event(colluders)


def _worst_client(releases: list[Release]) -> History:
    """Returns the history of the client that sent most often, alone with its own noise.

    The server knows the cohort, and the global models tell it, so nothing is amplified.
    """
    by_client: dict[int, Counter[ClientThenRecord]] = {}
    for release in releases:
        event = ClientThenRecord(1.0, release.record_rate, release.share)
        for client in release.attempt.heard:
            by_client.setdefault(client, Counter())[event] += release.steps
    worst = max(by_client.values(), key=lambda counts: counts.total(), default=Counter())
    return list(worst.items())


def shared_release(mechanism: Mechanism, attempt: Attempt, threshold: float = 1.0) -> Release:
    """Returns the release of one attempt whose clients each added a share of the noise.

    Args:
        mechanism: of the run.
        attempt: with the clients that were drawn and those that answered.
        threshold: share of the cohort whose answers carry all of the noise.
    """
    planned = mechanism.noise_multiplier
    split = shares(threshold, len(attempt.cohort))
    # One square root of the ratio: exactly the planned noise where all shares arrived.
    arrived = len(attempt.survivors) / split if attempt.cohort else 1.0
    return Release(
        attempt,
        mechanism.client_rate,
        mechanism.record_rate,
        planned=planned,
        noise_multiplier=planned * math.sqrt(arrived),
        share=planned / math.sqrt(split),
        poisson=mechanism.client_sampling == "poisson",
        threshold=threshold,
        bands=mechanism.bands,
    )
