"""Federations so small that all that can happen to them can be listed, and who sees what of it.

A model of the protocol and the exact privacy of what it shows, for tests of the ledger. Nothing of
fedpriv is imported: what the ledger says is compared with this, not with itself.

Clients are bits: a cohort is a number, client 0 holds the unit that is protected. Noise is in units
of the mechanism's own. A round consists of makings: one, and one more for each time that the run
was ended and resumed within it. What can be the same or another when a round is made again:

- version "a": as the first time;
- version "b": the same run from another model, so the same cohort and other messages;
- versions "c" and "d": other data or settings, so another cohort and other messages.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, ndtr

UNFINISHED = REFUSED = -1
ENDS = ("done", "late", "early")
"""A making may end the round, or be cut off once the messages have arrived: those of the last
attempt that it makes, or those of its first."""


def size(mask: int) -> int:
    return mask.bit_count()


def members(mask: int) -> tuple[int, ...]:
    return tuple(client for client in range(mask.bit_length()) if mask >> client & 1)


@dataclass(frozen=True)
class Plan:
    """What is fixed before training.

    Attributes:
        clients: N.
        drawn: so many clients in each round; None draws each with `rate`.
        threshold: of the cohort whose answers carry all of the noise.
        kind: "shared" noise; "short", shared noise of which parts may be missing; or each message's
            "own" noise.
    """

    clients: int
    drawn: int | None = None
    rate: float = 1.0
    threshold: float = 1.0
    masked: bool = False
    least: int = 1
    kind: str = "shared"

    def cohorts(self) -> list[tuple[float, int]]:
        """Returns the cohorts and how probable each of them is."""
        every = range(1 << self.clients)
        if self.drawn is not None:
            fitting = [cohort for cohort in every if size(cohort) == self.drawn]
            return [(1 / len(fitting), cohort) for cohort in fitting]
        chances = [
            self.rate ** size(k) * (1 - self.rate) ** (self.clients - size(k)) for k in every
        ]
        return [(chance, cohort) for chance, cohort in zip(chances, every, strict=True) if chance]

    def shares(self, cohort: int) -> int:
        """Returns into how many parts the noise is split; 1 where every message has all of it."""
        exact = Fraction(str(self.threshold)) * size(cohort)
        return 1 if self.kind == "own" else max(1, math.ceil(exact))

    def means(self) -> Hashable:
        """Returns what is the same for two plans under which the same happens."""
        sizes = [(1 << k) - 1 for _, cohort in self.cohorts() for k in [size(cohort)]]
        rules = {(k, self.shares(k), self.needed(k), self.agreeing(k)) for k in sizes}
        return self.clients, self.drawn, self.rate, self.masked, self.kind, frozenset(rules)

    def needed(self, cohort: int) -> int:
        """Returns how many must answer for the sum to be used."""
        if not cohort:
            return 0 if self.least <= 1 else self.least
        shares = self.shares(cohort) if self.kind == "shared" else 1
        return max(shares, self.least)

    def agreeing(self, cohort: int) -> int:
        """Returns how many must take part in the exchange of keys; 0 where there is none."""
        if not self.masked or size(cohort) < 2:
            return 0
        shares = self.shares(cohort) if self.kind == "shared" else 0
        return max(2, shares, math.ceil(Fraction("0.67") * size(cohort)))


class Try(NamedTuple):
    """One attempt: which clients' messages have been sent in it, under one noise.

    Attributes:
        number: of the attempt; with `version` it keys the noise.
        heard: whose messages have arrived, ever.
        answered: who was there when it came to its end; UNFINISHED if it did not.
        summed: whose sum was released; REFUSED where none was.
        known: whose messages may have arrived, for all that the run can know.
    """

    number: int
    version: str
    cohort: int
    heard: int
    answered: int
    summed: int
    known: int


Tries = tuple[Try, ...]


@functools.cache
def made(plan: Plan, tries: Tries, version: str, cohort: int, present: int, end: str) -> Tries:
    """Returns a round's attempts after one more making.

    Args:
        plan: of the run.
        tries: the attempts so far.
        version: what is sent, see above.
        cohort: that was drawn for this version.
        present: the clients of the cohort that answer.
        end: of the making, one of `ENDS`.
    """
    here, number, first = present, 0, True
    while True:
        while any(t.number == number and t.version != version for t in tries):
            number += 1
        old = next((t for t in tries if t[:2] == (number, version)), None)
        others = tuple(t for t in tries if t is not old)
        new = old or Try(number, version, cohort, 0, UNFINISHED, REFUSED, 0)
        closed = new.answered != UNFINISHED
        if size(here) < plan.agreeing(cohort):
            # Masks cannot be agreed on, so nothing is sent, and the round is given up.
            new = new if closed else new._replace(answered=0)
            return _in_order(tries, others, new)
        new = new._replace(heard=new.heard | here)
        if (end == "late" and not (closed and new.answered != here)) or (end == "early" and first):
            return _in_order(tries, others, new._replace(known=cohort))
        new = new._replace(known=new.known | here)
        tries, first = _in_order(tries, others, new), False
        if closed and new.answered != here:
            number += 1
            continue
        enough = size(here) >= plan.needed(cohort)
        new = new._replace(answered=here, summed=here if enough else REFUSED)
        return _in_order(tries, others, new)


def _in_order(tries: Tries, others: Tries, new: Try) -> Tries:
    """Returns the attempts with one of them renewed, in the order in which they were begun."""
    place = next((i for i, t in enumerate(tries) if t[:2] == new[:2]), len(tries))
    return (*others[:place], new, *others[place:])


def renamed(tries: Tries, clients: int) -> Tries:
    """Returns the attempts with the clients other than 0 numbered by what they did in them."""
    masks = [mask for t in tries for mask in t[2:]]
    did = [tuple(mask >> client & 1 for mask in masks) for client in range(clients)]
    by_client = [did[0], *sorted(did[1:])]
    new = iter(
        mask if mask < 0 else sum(bits[place] << k for k, bits in enumerate(by_client))
        for place, mask in enumerate(masks)
    )
    return tuple(Try(t.number, t.version, *(next(new) for _ in t[2:])) for t in tries)


def shown(plan: Plan, tries: Tries, view: str) -> tuple[float, ...]:
    """Returns 1 / variance of the noise on each thing of client 0 that a view has seen."""
    seen = []
    for t in tries:
        shares = plan.shares(t.cohort)
        alone = plan.masked and size(t.cohort) == 1  # is not masked
        if plan.kind == "own" or view == "server_plain" or (view == "server_masked" and alone):
            if t.heard & 1:
                seen.append(float(shares))
        elif t.summed != REFUSED and t.summed & 1:
            seen.append(shares / size(t.summed))
    return tuple(sorted(seen))


# Scenarios that are fixed beforehand


def scenarios(clients: int, makings: int) -> list[tuple[tuple[str, int, str], ...]]:
    """Returns (version, absent clients, end) of each making, in every way that differs.

    Ways that differ in the names of clients other than 0 are one.
    """
    found = []
    others = list(itertools.combinations_with_replacement(range(1 << makings), clients - 1))
    versions = [v for v in itertools.product("abcd", repeat=makings) if _sensible(v)]
    ends = [(*e, "done") for e in itertools.product(ENDS, repeat=makings - 1)]
    for own, rest in itertools.product(range(1 << makings), others):
        when = (own, *rest)
        absent = [sum((when[c] >> i & 1) << c for c in range(clients)) for i in range(makings)]
        found += [
            tuple(zip(v, absent, e, strict=True)) for v, e in itertools.product(versions, ends)
        ]
    return found


def _sensible(versions: tuple[str, ...]) -> bool:
    """Whether new versions come in order, from "a" on; "b" has a cohort that "c" has not."""
    seen = list(dict.fromkeys(versions))
    return versions[0] == "a" and ("d" not in seen or "c" in seen[: seen.index("d")])


def paths(plan: Plan, scenario: tuple[tuple[str, int, str], ...]):
    """Yields (probability, attempts) of one round, for every cohort that may be drawn in it."""
    keys = list(dict.fromkeys("a" if v == "b" else v for v, _, _ in scenario))
    for drawn in itertools.product(plan.cohorts(), repeat=len(keys)):
        cohort = {key: k for key, (_, k) in zip(keys, drawn, strict=True)}
        tries: Tries = ()
        for version, absent, end in scenario:
            now = cohort["a" if version == "b" else version]
            tries = made(plan, tries, version, now, now & ~absent, end)
        yield math.prod(chance for chance, _ in drawn), tries


# Exact privacy


def gaussian_delta(precision: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
    """Returns δ(ε) of N(µ, 1) against N(0, 1): Balle and Wang 2018, Theorem 8.

    Args:
        precision: µ², such as the sum of what `shown` returns, by the noise's variance.
        epsilon: ε >= 0.
    """
    mu = np.sqrt(np.maximum(precision, 1e-300))
    gone = np.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    return np.where(precision > 0, np.maximum(0.0, ndtr(mu / 2 - epsilon / mu) - gone), 0.0)


class Losses:
    """The privacy loss of Poisson-sampled Gaussians, rounded down: no δ from it is too large.

    Args:
        rate: with which the record enters each release.
        step: of the grid of losses.
        highest: loss; above it, all losses count as this one.
    """

    def __init__(self, rate: float, step: float = 2e-3, highest: float = 40.0) -> None:
        self.rate, self.step, self.count = rate, step, round(highest / step)
        self._composed: dict[tuple[float, ...], list[np.ndarray]] = {}

    def deltas(self, precisions: tuple[float, ...], noise: float, epsilon: float) -> np.ndarray:
        """Returns δ(ε) when the record is removed, and when it is added.

        Args:
            precisions: what `shown` returned, of all rounds.
            noise: the mechanism's noise multiplier.
            epsilon: at which.
        """
        if not precisions:
            return np.zeros(2)
        at = self.step * np.arange(-self.count * len(precisions), self.count * len(precisions) + 1)
        gain = np.where(at > epsilon, -np.expm1(np.minimum(0, epsilon - at)), 0.0)
        return np.array([float(gain @ mass) for mass in self._masses(precisions, noise)])

    def _masses(self, precisions: tuple[float, ...], noise: float) -> list[np.ndarray]:
        if precisions not in self._composed:
            *rest, last = precisions
            one = self._single(noise / math.sqrt(last))
            if rest:
                before = self._masses(tuple(rest), noise)
                one = [_convolved(x, y) for x, y in zip(before, one, strict=True)]
            self._composed[precisions] = one
        return self._composed[precisions]

    def _single(self, std: float) -> list[np.ndarray]:
        edges = self.step * np.arange(-self.count, self.count + 1)
        q = self.rate
        # P and Q are the mixture and the noise alone. Removing: the loss log P/Q under P, which
        # rises with x; adding: log Q/P under Q, which falls.
        x = _where_loss_is(edges, q, std)
        above = (1 - q) * ndtr(-x / std) + q * ndtr((1 - x) / std)
        remove = above - np.append(above[1:], 0.0)
        x = _where_loss_is(-edges, q, std)
        above = ndtr(x / std)
        add = above - np.append(above[1:], 0.0)
        return [remove, add]


def _where_loss_is(loss: np.ndarray, q: float, std: float) -> np.ndarray:
    """Returns the x at which log(1 - q + q·exp((2x - 1) / 2s²)) is `loss`; -∞ where none is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        x = std**2 * np.log((np.exp(loss) - 1 + q) / q) + 0.5
    return np.where(np.isnan(x), -np.inf, x)


def _convolved(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns the convolution, no element of which is too large but for 1e-15 of rounding."""
    size = len(x) + len(y) - 1
    length = 1 << (size - 1).bit_length()
    spectrum = np.fft.rfft(x, length) * np.fft.rfft(y, length)
    return np.maximum(np.fft.irfft(spectrum, length)[:size] - 1e-16, 0.0)


# Rounds that are fixed beforehand, and rounds of an adversary who sees the cohort

Outcome = tuple[float | tuple[float, ...], Hashable]
"""What a round has shown of client 0, and what was booked for it."""


def lottery(rounds: Iterable[tuple[float, Outcome]]) -> frozenset[tuple[Outcome, float]]:
    """Returns the probability of each outcome of a round."""
    chances: dict[Outcome, float] = {}
    for chance, outcome in rounds:
        chances[outcome] = chances.get(outcome, 0.0) + chance
    return frozenset((outcome, round(chance, 12)) for outcome, chance in chances.items())


def largest(lotteries: Iterable[frozenset], rounds: int, value: Callable) -> float:
    """Returns the largest expected value of so many rounds, over all choices of their lotteries.

    Args:
        lotteries: that a round may be.
        rounds: 1, 2 or 3.
        value: of one outcome for each round, in any order.
    """
    outcomes = list(dict.fromkeys(o for lot in lotteries for o, _ in lot))
    place = {outcome: i for i, outcome in enumerate(outcomes)}
    chance = np.zeros((len(lotteries), len(outcomes)))
    for row, lot in zip(chance, lotteries, strict=True):
        for outcome, p in lot:
            row[place[outcome]] = p
    values = np.zeros((len(outcomes),) * rounds)
    for chosen in itertools.combinations_with_replacement(range(len(outcomes)), rounds):
        here = value([outcomes[i] for i in chosen])
        for order in itertools.permutations(chosen):
            values[order] = here
    if rounds == 1:
        return float((chance @ values).max())
    first = np.tensordot(chance, values, 1) if rounds == 3 else [values]
    return max(float((chance @ rest @ chance.T).max()) for rest in first)


Node = frozenset
"""What an adversary may choose from: outcomes, and draws of (probability, node)."""


def game(plan: Plan, makings: int, outcome: Callable[[Tries], Outcome]) -> list[tuple[float, Node]]:
    """Returns one round in which absences and kills may depend on the cohorts that were drawn."""

    def choices(tries: Tries, drawn: dict[str, int], version: str, left: int) -> Node:
        cohort, found = drawn["a" if version == "b" else version], set()
        for present in (part for part in range(cohort + 1) if part & cohort == part):
            for end in ENDS if left else ("done",):
                after = made(plan, tries, version, cohort, present, end)
                if end == "done":
                    found.add(outcome(after))
                if left:
                    found |= choices(after, drawn, "a", left - 1)
                    found |= choices(after, drawn, "b", left - 1)
                    found.add(draw(after, drawn, left - 1))
        return frozenset(found)

    def draw(tries: Tries, drawn: dict[str, int], left: int) -> frozenset:
        version = "acd"[len(drawn)]
        nodes: dict[Node, float] = {}
        for chance, cohort in plan.cohorts():
            node = choices(tries, {**drawn, version: cohort}, version, left)
            nodes[node] = nodes.get(node, 0.0) + chance
        return frozenset(("draw", round(p, 12), node) for node, p in nodes.items())

    return [(p, node) for _, p, node in draw((), {}, makings - 1)]


def best_play(start: list[tuple[float, Node]], rounds: int, value: Callable) -> float:
    """Returns the largest expected value of so many games; -∞ where it cannot be played at all."""
    written = functools.cache(repr)  # the same few outcomes are put in order a million times

    @functools.cache
    def play(node: Node, past: tuple[Outcome, ...]) -> float:
        return max(after(option, past) for option in node)

    def after(option: Hashable, past: tuple[Outcome, ...]) -> float:
        if isinstance(option, frozenset):
            return sum(chance * play(node, past) for _, chance, node in option)
        return onwards(tuple(sorted((*past, option), key=written)))

    @functools.cache
    def onwards(past: tuple[Outcome, ...]) -> float:
        if len(past) == rounds:
            return float(value(list(past)))
        return sum(chance * play(node, past) for chance, node in start)

    return onwards(())
