"""The mechanism of a federation, measured against its ledger: what `fedpriv audit` does.

The ledger computes ε from rates and noise that it is told of. Here ε is measured. Canaries on axes
of their own (`fedpriv.federation.audit.axes`), each in the training or not by a fair coin, go
through the federation's own strategy, client half, sampling, noise, masking, faults and grid. What
the server and the models show of each axis gives a lower bound on ε
(`fedpriv.privacy.lower_bounds`), and a bound above what the ledger says is a fault in the mechanism
or in the ledger.

Once a run is over, it is known which rounds a client took part in. Canaries of one client share
that fate, so the bounds are held against the ledger's ε given this participation.

An audit proves no upper bound. It says nothing of what the clients compute before they clip, apart
from `largest`: real gradients of canaries through the real client half, without noise; and from the
neighbours that a federation of documents has by its own data path
(`fedpriv.federation.audit.neighbours`).
"""

from __future__ import annotations

import copy
import functools
import math
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, cast

import numpy as np
from flwr.app import Message
from numpy.typing import NDArray
from torch import nn

from fedpriv.data.examples import PROVIDER
from fedpriv.federation.audit.axes import AXIS, Axes, HasAxes, Pairs
from fedpriv.federation.audit.neighbours import neighbours
from fedpriv.federation.client import Client
from fedpriv.federation.dataset import ArrayData, FederatedDataset
from fedpriv.federation.faults import Faults
from fedpriv.federation.grids.base import RoundGrid
from fedpriv.federation.grids.curious import CuriousGrid
from fedpriv.federation.keep import Prepared
from fedpriv.federation.loop import Federation
from fedpriv.federation.messages import UPDATE, RunningSum, add_sum, instruction_of, to_vectors
from fedpriv.federation.private_strategy import BATCH, PrivateStrategy
from fedpriv.federation.secagg.masking import Masking
from fedpriv.federation.secagg.messages import MASKED
from fedpriv.privacy.accounting import pld
from fedpriv.privacy.accounting.event import ClientThenRecord, Event
from fedpriv.privacy.banded import coefficients, turn
from fedpriv.privacy.individual import Spent
from fedpriv.privacy.ledger import Ledger, Release
from fedpriv.privacy.lower_bounds import (
    Scores,
    counted,
    log_likelihood_ratio,
    sigma_fit,
    threshold_for,
    too_little,
)
from fedpriv.privacy.one_run import CONFIDENCE, epsilon_lower
from fedpriv.privacy.views import rounded_up
from fedpriv.runtime import cache
from fedpriv.runtime.run_folder import LEDGER, RunFolder
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.vectors import on_host

MOST_AXES, LEAST_AXES = 1 << 19, 1 << 14
QUICK = 1 << 26
"""Coordinates of noise, over all clients and rounds, that a check at the end of a run draws."""

GUESSED = 0.01
"""The share of the canaries of which the one-run bound guesses that they are in, or out."""

REAL, MOST_REAL = 64, 4096
"""Canaries whose gradients are really computed and clipped: at each client, and in all at most."""

EXACT = 1e-3
"""Rounding of a clipped contribution's norm."""

ASSUMES = {
    "sigma_fit": "the mechanism is the ledger's but for the size of its noise, and what is seen of "
    "one canary does not depend on the others",
    "count": "what is seen of one canary does not depend on the others",
    "one_run": "each canary was in or out by a fair coin",
}

History = tuple[tuple[Event, int], ...]


@dataclass(frozen=True)
class ViewAudit:
    """One view's ε, as the ledger says and as the canaries show.

    Attributes:
        ledger: ε by the ledger for a client that took part so often.
        sigma_fit: lower bound by the noise that fits; see `ASSUMES` for what each bound assumes.
        count: lower bound by counting.
        one_run: lower bound by guesses of coins, from the first run alone.
        canaries: that the bounds are made of.
        releases: the noisy sums or messages that showed them.
        stated: ε that the run states for this view; None where clients are drawn, since it then
            averages over who was.
        blind: far fewer canaries were told apart than the ledger's noise lets through.
    """

    ledger: float
    sigma_fit: float
    count: float
    one_run: float
    canaries: int
    releases: int
    stated: float | None = None
    blind: bool = False

    @property
    def contradicted(self) -> bool:
        """Whether a lower bound is above what the ledger says."""
        promised = self.ledger if self.stated is None else min(self.ledger, self.stated)
        return max(self.sigma_fit, self.count, self.one_run) > promised


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes:
        views: by name of the ledger's view.
        unit: of privacy.
        delta: δ.
        confidence: of each bound.
        runs: of the mechanism.
        largest: norm of the contribution of a unit, of those that go through the real client half
            the one that is farthest from the clip norm, in units of that; 1 but for rounding.
        seconds: that it took.
        left_out: providers that were left out of the data, each by itself.
        moved: the most that this changed a sum of real examples, of what the ledger counts for it.
    """

    views: Mapping[str, ViewAudit]
    unit: str
    delta: float
    confidence: float
    runs: int
    largest: float
    seconds: float
    left_out: int = 0
    moved: float = 0.0

    @property
    def contradicted(self) -> bool:
        """Whether the mechanism gives away more than its ledger says."""
        return max(self.largest, self.moved) > 1 + EXACT or any(
            view.contradicted for view in self.views.values()
        )

    @property
    def blind(self) -> bool:
        """Whether the canaries were not seen as they must be, so that low bounds mean nothing."""
        return self.largest < 1 - EXACT or any(view.blind for view in self.views.values())

    def lines(self) -> list[str]:
        """Returns the result in a line for each view, the alarm first."""
        alarms = []
        if self.contradicted:
            alarms.append("ALARM: the mechanism gives away more than its ledger says")
        if self.blind:
            alarms.append(
                "ALARM: canaries were seen less than the ledger's noise lets through, so low "
                "bounds show nothing: a message, a mask or a sum is not what it should be"
            )
        told = [
            f"audit ({view}, {m.releases} release{'s' * (m.releases != 1)}, {m.canaries} "
            f"canaries): ledger {rounded_up(m.ledger)}; measured at least "
            f"{math.floor(m.sigma_fit * 100) / 100:.2f} (σ-fit, {self.confidence:.0%}), "
            f"{math.floor(m.count * 100) / 100:.2f} (counting), "
            f"{math.floor(m.one_run * 100) / 100:.2f} (one run)"
            for view, m in self.views.items()
        ]
        if abs(self.largest - 1) > EXACT:
            told.append(
                f"audit: one {self.unit} moved a client's sum by {self.largest:.4g} clip norms"
            )
        if self.left_out:
            told.append(
                f"audit: without one supplier, a sum of real examples moved by {self.moved:.4g} "
                f"times what the ledger counts for it at most ({self.left_out} tried)"
            )
        return [*alarms, *told]


def audit_problems(federation: Federation) -> list[str]:
    """Returns why the mechanism of a federation cannot be audited; empty if it can."""
    strategy = federation.strategy
    if not isinstance(strategy, PrivateStrategy):
        return [f"strategy: {type(strategy).__name__} has no mechanism of privacy to audit"]
    found = []
    if strategy.variant == "paper":
        found.append("strategy.variant=paper: no ε covers it; take variant=sound")
    if not strategy.mechanism.noise_multiplier:
        found.append("strategy.mechanism: without noise ε is infinite, and nothing is to be shown")
    if strategy.mechanism.unit == "client" and strategy.mechanism.record_rate < 1:
        found.append(
            "strategy.mechanism.record_rate: one coin for all of a client's canaries makes them "
            "depend on each other; take 1 for a mechanism that protects clients"
        )
    kind = type(federation.client)
    if not isinstance(federation.client, HasAxes):
        found.append(
            f"client: {kind.__name__} has no methods `on_axes` and `steepest`, by which "
            "canaries take part (fedpriv.federation.audit.axes.HasAxes)"
        )
    elif next(c for c in kind.__mro__ if {"train", "on_axes"} & vars(c).keys()) is not next(
        c for c in kind.__mro__ if "on_axes" in vars(c)
    ):
        found.append(
            f"client: {kind.__name__} has a `train` of its own and inherits `on_axes`, so that "
            "another algorithm would be measured; give it an `on_axes` of its own"
        )
    return found


def quick_axes(clients: int, rounds: int, steps: int = 1) -> int:
    """Returns how many canaries a check of some seconds takes."""
    wanted = QUICK // max(1, clients * rounds * steps**2)
    return max(LEAST_AXES, min(MOST_AXES, 1 << max(0, wanted.bit_length() - 1)))


def audit_mechanism(
    federation: Federation,
    rounds: int,
    *,
    axes: int | None = None,
    runs: int = 1,
    confidence: float = CONFIDENCE,
    left_out: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> Audit:
    """Measures ε of a federation's mechanism.

    Args:
        federation: whose mechanism it is.
        rounds: T, of each run.
        axes: canaries in a run, half of which are in; None takes as many as some seconds allow.
        runs: of the mechanism with new coins and new noise; the canaries of all are pooled.
        confidence: of each bound by itself.
        left_out: so many providers are left out of the data, each by itself, to compare the sums of
            real examples.
        tell: is told of each run.

    Raises:
        ValueError: if there is no mechanism to audit, with every reason; or if all rounds were
            refused, so that nothing was seen.
    """
    if problems := audit_problems(federation):
        raise ValueError("\n".join(problems))
    if rounds < 1 or runs < 1 or not 0 < confidence < 1:
        raise ValueError(f"{rounds=}, {runs=}, {confidence=}: expected 1 or more, and (0, 1)")
    began = time.monotonic()
    strategy = cast(PrivateStrategy, federation.strategy)
    axes = axes or quick_axes(federation.clients, rounds, _noised_steps(strategy))
    pooled: dict[str, dict[Booked, list[tuple[Scores, NDArray[np.bool_]]]]] = {}
    stated: dict[str, float | None] = {}
    for run in range(runs):
        ledger, found_in_run = canaries_seen(federation, rounds, axes, run)
        for view, booked, scores, inside in found_in_run:
            pooled.setdefault(view, defaultdict(list))[booked].append((scores, inside))
            if view not in stated:
                known_draw = strategy.mechanism.client_rate == 1
                promise = tuple(ledger.history(view)) if known_draw else ()
                stated[view] = pld.epsilon(promise, strategy.mechanism.delta) if promise else None
        tell(f"audit: run {run + 1} of {runs}, {axes} canaries")
    if not pooled:
        raise ValueError(
            f"in {runs} run{'s' * (runs != 1)} of {rounds} rounds nothing was released: no client "
            "was drawn, or too few answered; take more rounds or runs"
        )
    mechanism = strategy.mechanism
    views, known = dict[str, ViewAudit](), dict[tuple[int, ...], ViewAudit]()
    for view, alike in pooled.items():
        # The participation of most canaries; it depends on the draws of clients, not on the noise.
        booked, found = max(alike.items(), key=lambda item: sum(len(s) for s, _ in item[1]))
        same = tuple(id(scores) for scores, _ in found)  # two views may have seen the same
        if same not in known:
            known[same] = _measured(booked, found, stated[view], mechanism.delta, confidence)
            if mechanism.individual_epsilon:  # canaries that have given all are to be seen less
                known[same] = replace(known[same], blind=False)
        views[view] = known[same]
    apart = list[float]()
    for moved in neighbours(federation, _bare(federation, bands=True), left_out):
        apart.append(moved)
        tell(f"audit: {len(apart)} of {left_out} suppliers left out, each by itself")
    return Audit(
        views,
        mechanism.unit,
        mechanism.delta,
        confidence,
        runs,
        largest=_largest(federation),
        seconds=time.monotonic() - began,
        left_out=len(apart),
        moved=max(apart, default=0.0),
    )


def _measured(
    booked: Booked,
    found: list[tuple[Scores, NDArray[np.bool_]]],
    stated: float | None,
    delta: float,
    confidence: float,
) -> ViewAudit:
    """Returns the three bounds for canaries of which the same was seen."""
    history, seen = booked
    scores = np.concatenate([s for s, _ in found])
    inside = np.concatenate([i for _, i in found])
    threshold = threshold_for(history, len(scores), delta, confidence)
    first, coins = found[0]
    ranked = np.argsort(first, kind="stable")
    guessed = min(max(1, round(GUESSED * len(first))), len(first) // 2)
    right = np.sum(coins[ranked[len(first) - guessed :]]) + np.sum(~coins[ranked[:guessed]])
    return ViewAudit(
        ledger=pld.epsilon(history, delta),
        sigma_fit=sigma_fit(scores, inside, history, delta, confidence),
        count=counted(scores, inside, threshold, delta, confidence),
        one_run=epsilon_lower(len(first), 2 * guessed, int(right), delta, confidence),
        canaries=len(scores),
        releases=sum(times for _, times in history),
        stated=stated,
        blind=too_little(scores, inside, seen),
    )


Booked = tuple[History, History]
"""Of canaries whose participation was alike: what the ledger books for them, and what was seen of
them. The two are the same but with bands, where a round that was refused, or lies behind the last
one, shows less of a contribution than is booked."""

Found = tuple[str, Booked, Scores, NDArray[np.bool_]]
"""Of such canaries: view, what was booked and seen, scores, coins."""


def canaries_seen(
    federation: Federation, rounds: int, axes: int, run: int = 0
) -> tuple[Ledger, list[Found]]:
    """Runs the mechanism once; returns its ledger, and scores and coins of the canaries.

    Canary i is at client i mod K. Its score adds up over all releases that its client was in.

    Args:
        federation: whose mechanism it is; `audit_problems` has found nothing.
        rounds: T.
        axes: canaries, half of which are in.
        run: each run has coins and noise of its own.
    """
    strategy, clients = _untrained(federation), federation.clients
    inside = generator(federation.seed, f"coins of audit {run}").random(axes) < 0.5
    # Where each message carries all of its noise, masks change nothing that the ledger counts.
    masking = None if strategy.own_noise else federation.masking
    if masking is not None:  # a bound of the experiment's is for a vector of another size
        masking = replace(masking, bound=None)
    watch = _Watch(clients, axes, single=masking is None, summed=not strategy.own_noise)
    half = cast(HasAxes, federation.client).on_axes(axes)
    canaries = np.flatnonzero(inside)
    seed = federation.seed + run
    ledger = _run(
        federation,
        strategy,
        half,
        model=functools.partial(Axes, axes * _noised_steps(strategy)),
        canaries=canaries,
        owners=canaries,
        rounds=rounds,
        watch=watch,
        seed=seed,
        masking=masking,
        faults=federation.faults,
    )
    ways: dict[bool, tuple[str, ...]] = {True: ("server_plain",), False: ("global",)}
    if masking is not None:
        ways = {False: ("global", "server_masked")}
    elif strategy.own_noise:
        ways = {True: ("global", "server_plain")}
    clips = _divisor(strategy, clients) / strategy.mechanism.clip_norm
    bands = strategy.mechanism.bands
    # Units of the first turn meet the most releases, all that the ledger books.
    first = np.ones(axes, np.bool_)
    if bands > 1:
        first = np.array([turn(seed, unit, bands) == 0 for unit in range(axes)])
    rate = strategy.mechanism.record_rate
    found_in_run: list[Found] = []
    for plain, views in ways.items():
        scores, alike = np.zeros(axes), defaultdict[Booked, list[NDArray[np.int64]]](list)
        for client in range(clients):
            own, rows = slice(client, None, clients), list(_rows_of(client, plain, ledger, watch))
            for row, noise in rows:
                scores[own] += log_likelihood_ratio(clips * row, noise, rate)
            history = tuple(sorted(ledger.history_of(client, views[0]), key=repr))
            seen = history
            if bands > 1:
                told = Counter(ClientThenRecord(1.0, rate, round(noise, 6)) for _, noise in rows)
                seen = tuple(sorted(told.items(), key=repr))
            if history:
                alike[history, seen].append(np.arange(axes)[own][first[own]])
        for booked, places in alike.items():
            there = np.concatenate(places)
            found = scores[there].astype(np.float32), inside[there]
            found_in_run += [(view, booked, *found) for view in views]
    return ledger, found_in_run


def _rows_of(
    client: int, plain: bool, ledger: Ledger, watch: _Watch
) -> Iterator[tuple[NDArray[Any], float]]:
    """Yields what was seen of a client's canaries of the first turn, and its noise multiplier.

    What one contribution has reached goes together: a release, or those of b rounds. These are one
    row, which tells as much: the mean of each over what a contribution counts there.
    """
    rounds = groupby(ledger.releases, lambda one: (one.attempt.round - 1) // one.bands)
    for _, of_turn in rounds:
        releases, rows = list(of_turn), list[tuple[NDArray[Any], float, float]]()
        bands, own = releases[0].bands, slice(client, None, watch.clients)
        if bands > 1 and not any(r.turn == 0 and client in r.attempt.heard for r in releases):
            continue  # whoever misses its turn has nothing in the rounds after it
        for release in releases:
            if _shows(release, client, plain):
                at = release.attempt.round, release.attempt.attempt
                seen = watch.messages[*at, client] if plain else watch.sums[at][:, own]
                noise = release.share if plain else release.noise_multiplier
                weight = float(coefficients(bands)[release.turn])
                rows += [(step, noise, weight) for step in seen]
        if bands == 1:
            yield from ((row, noise) for row, noise, _ in rows)
        elif rows:
            precision = sum((weight / noise) ** 2 for _, noise, weight in rows)
            mean = np.sum([row * (weight / noise**2) for row, noise, weight in rows], axis=0)
            yield mean / precision, precision**-0.5


def _shows(release: Release, client: int, plain: bool) -> bool:
    """Whether a release has shown a client's canaries: in its own message, or in a sum."""
    if plain:
        return client in release.attempt.heard
    return release.shown and client in release.attempt.survivors


def _untrained(federation: Federation) -> PrivateStrategy:
    """Returns a copy of the strategy as it was before its first round.

    Its own may have trained already, and then has moments of the size of the model.
    """
    strategy = copy.deepcopy(cast(PrivateStrategy, federation.strategy))
    strategy.load_state(federation.first_state)
    return strategy


def _bare(federation: Federation, *, bands: bool = False) -> PrivateStrategy:
    """Returns such a copy without noise, in which everybody is drawn."""
    strategy = _untrained(federation)
    strategy.mechanism = replace(
        strategy.mechanism,
        noise_multiplier=0.0,
        client_rate=1.0,
        record_rate=1.0,
        asked_clients=0,
        bands=strategy.mechanism.bands if bands else 1,
        individual_epsilon=0.0,
        scale=0.0,
    )
    return strategy


def _noised_steps(strategy: PrivateStrategy) -> int:
    """Returns how many steps of one message have noise of their own."""
    return getattr(strategy, "steps", 1) if strategy.own_noise else 1


def _divisor(strategy: PrivateStrategy, clients: int) -> float:
    """Returns the public constant by which a client divides its noisy sum."""
    if strategy.own_noise:
        return float(strategy.settings(1, clients)[BATCH])
    return strategy.mechanism.normaliser


def _largest(federation: Federation) -> float:
    """Returns the norm of a unit's contribution to its client's sum, farthest from the clip norm.

    A few canaries at each client, all drawn, go through the real client half without noise, one at
    a time and many at once. Their losses have real gradients, a thousand times as long as the clip
    norm, over two tensors. Where providers are protected, two canaries are one provider's.
    """
    clients, bare = federation.clients, _bare(federation)
    mechanism = bare.mechanism
    count = min(REAL * clients, MOST_REAL)  # every client sends vectors of twice that size
    axes = np.arange(count)
    owners = {
        "example": axes,
        "provider": axes // (2 * clients) * clients + axes % clients,
        "client": axes % clients,
    }[mechanism.unit]
    clips = _divisor(bare, clients) / mechanism.clip_norm / _noised_steps(bare)
    norms = list[float]()
    for method in ("loop", "vmap"):
        watch = _Watch(clients, count, single=True, summed=False)
        _run(
            federation,
            copy.deepcopy(bare),
            cast(HasAxes, federation.client).steepest(mechanism.clip_norm, method),
            model=functools.partial(Pairs, count),
            canaries=axes,
            owners=owners,
            rounds=1,
            watch=watch,
            seed=federation.seed,
            masking=None,
            faults=None,
        )
        for (*_, client), sent in watch.messages.items():
            squares = np.bincount(owners[client::clients], (sent.astype(np.float64) ** 2).sum(0))
            norms += (clips * np.sqrt(squares[np.unique(owners[client::clients])])).tolist()
    if not norms:
        raise ValueError("no client answered when its clipping was to be looked at")
    return max(norms, key=lambda norm: abs(norm - 1))


def _run(
    federation: Federation,
    strategy: PrivateStrategy,
    half: Client,
    *,
    model: Callable[[], nn.Module],
    canaries: NDArray[np.int64],
    owners: NDArray[np.int64],
    rounds: int,
    watch: _Watch,
    seed: int,
    masking: Masking | None,
    faults: Faults | None,
) -> Ledger:
    """Runs a federation's mechanism on canaries; returns the ledger of that run.

    Args:
        federation: whose number of clients, grid and settings are taken.
        strategy: the server's half.
        half: the clients'.
        model: that the canaries' losses are of.
        canaries: the axes of those that are in; axis i is at client i mod K.
        owners: whose each of them is.
        rounds: T.
        watch: sees what the server sees.
        seed: of all draws.
        masking: secure aggregation.
        faults: that make clients fail.
    """
    clients = federation.clients
    rows = tuple(np.flatnonzero(canaries % clients == client) for client in range(clients))
    with tempfile.TemporaryDirectory(prefix=cache.AUDIT) as folder:
        result = _Unstated(
            model=model,
            data=ArrayData({AXIS: canaries, PROVIDER: owners}, rows),
            strategy=strategy,
            client=half,
            name="audit",
            seed=seed,
            runs=folder,
            ray=federation.ray,
            masking=masking,
            keep=[watch],
            faults=faults,
            entropy="seed",
            settings=replace(
                federation.settings,
                checkpoint_every=rounds,
                keep_checkpoints=1,
                max_refused=0,
                device="cpu",
                trackers=(),
                report=False,
            ),
        ).run(rounds)
        return Ledger.from_json(RunFolder.existing(result.run_dir).read_json(LEDGER))


class _Unstated(Federation):
    """A federation whose ledger states no ε: an audit works out the few that it needs."""

    def stated(self, ledger: Ledger, spent: Mapping[str, Spent]) -> dict[str, Any]:
        """Returns the ledger alone."""
        return ledger.to_json()


class _Watch:
    """What a server sees of each axis: a keeper of the run, and the watcher that it hands back.

    Args:
        clients: K; axis i is of client i mod K.
        axes: m.
        single: the server sees single messages.
        summed: it sees sums.

    Attributes:
        messages: by round, attempt and client: (steps, axes of this client).
        sums: by round and attempt: (1, axes).
    """

    def __init__(self, clients: int, axes: int, *, single: bool, summed: bool) -> None:
        self.clients, self.axes, self.single, self.summed = clients, axes, single, summed
        self.messages: dict[tuple[int, int, int], NDArray[Any]] = {}
        self.sums: dict[tuple[int, int], NDArray[Any]] = {}

    def problems(self, bound: FederatedDataset, seed: int) -> list[str]:
        """Returns nothing: canaries are always there."""
        return []

    def before(self, run: Prepared) -> _Watch:
        """Returns this, which watches the run."""
        return self

    def after(self, run: Prepared) -> None:
        """Writes nothing."""

    def around(self, grid: RoundGrid) -> RoundGrid:
        """Returns the grid, open to the server's eyes where nothing is masked."""
        return CuriousGrid(grid, self._sent, self._received) if self.single else grid

    def _sent(self, message: Message) -> bool:
        asked = instruction_of(message)
        self._now = (asked.round, asked.attempt) if asked else (0, 0)
        return asked is not None

    def _received(self, client: int, reply: Message) -> None:
        sent = to_vectors(reply.content.array_records[UPDATE])["float"]
        own = on_host(sent).reshape(-1, self.axes)[:, client :: self.clients]
        self.messages[*self._now, client] = own.copy()

    def summing(self, round: int, attempt: int, replies: Iterable[Message]) -> Iterator[Message]:
        """Passes on what the strategy sums up, adding it up too."""
        total = RunningSum()
        for reply in replies:
            if self.summed:
                add_sum(total, reply)
            yield reply
        if total.clients and MASKED not in total.vectors:
            self.aggregated(round, attempt, total)

    def aggregated(self, round: int, attempt: int, total: RunningSum) -> None:
        """Keeps a sum."""
        self.sums[round, attempt] = on_host(total.vectors["float"]).reshape(1, -1)
