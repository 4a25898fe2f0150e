"""One noisy release, the history of several, and checks of their parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from numbers import Integral, Real
from typing import TypeAlias


class NotAvailable(ValueError):
    """An accountant has no value here; the message is the reason."""


MOST_GROUPED = 100_000
"""Records of one protected unit: more take more memory than accounting is worth."""


@dataclass(frozen=True)
class ClientThenRecord:
    """One release of a noisy sum: a client is drawn, then each record in it.

    Every record's contribution has L2 norm at most the clip norm, neighbours differ by adding
    or removing one protected unit, and the adversary may know which clients took part: the
    records of a client enter together, so their joint draw hides nobody among the others.

    Args:
        client_rate: probability that the client of the protected unit is drawn, in [0, 1].
        record_rate: probability that a record enters, given its client was drawn, in [0, 1].
        noise_multiplier: standard deviation of the noise on the sum ÷ clip norm, >= 0.
        group_size: records of the protected unit (a document of 3 windows: 3); each enters
            independently with `record_rate`.
    """

    client_rate: float
    record_rate: float
    noise_multiplier: float
    group_size: int = 1

    def __post_init__(self) -> None:
        wrong = [
            problem
            for problem in (
                rate_problem("client_rate", self.client_rate),
                rate_problem("record_rate", self.record_rate),
                noise_problem("noise_multiplier", self.noise_multiplier),
                count_problem("group_size", self.group_size, 1, MOST_GROUPED),
            )
            if problem
        ]
        if wrong:
            raise ValueError("; ".join(wrong))
        # NumPy's numbers compute otherwise than Python's: an integer knows no power of -2.
        for name in ("client_rate", "record_rate", "noise_multiplier"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "group_size", int(self.group_size))

    @property
    def inclusion(self) -> float:
        """Probability that the protected unit enters the release at all."""
        return float(-self.client_rate * math.expm1(self.group_size * _log_miss(self.record_rate)))

    @property
    def parts(self) -> tuple[tuple[float, ClientThenRecord], ...]:
        """What may be released, with its probability, as for `OneOf`: this alone."""
        return ((1.0, self),)


@dataclass(frozen=True)
class OneOf:
    """One of several releases, drawn at random; the adversary sees which one it was.

    The draw must not depend on the data. The size of a Poisson cohort is such a draw where the
    noise that is left depends on that size.

    Args:
        parts: (probability, release) of each. The probabilities are in [0, 1] and add up to 1 at
            most; with the remaining probability nothing is released.
    """

    parts: tuple[tuple[float, ClientThenRecord], ...]

    def __post_init__(self) -> None:
        for weight, part in self.parts:
            problem = rate_problem("probability", weight)
            if problem:
                raise ValueError(f"parts: {problem}")
            if not isinstance(part, ClientThenRecord):
                raise ValueError(f"parts: {part!r}: expected a ClientThenRecord")
        total = math.fsum(weight for weight, _ in self.parts)
        if total > 1 + 1e-9:
            raise ValueError(f"parts: probabilities add up to {total}: expected 1 at most")
        object.__setattr__(self, "parts", tuple((float(w), part) for w, part in self.parts))

    @property
    def inclusion(self) -> float:
        """Probability that the protected unit enters the release at all."""
        return min(1.0, math.fsum(weight * part.inclusion for weight, part in self.parts))


Event: TypeAlias = ClientThenRecord | OneOf

History: TypeAlias = Sequence[tuple[Event, int]]
"""Events and how many times each was released, in any order."""


def each_part(event: Event, change: Callable[[ClientThenRecord], ClientThenRecord]) -> Event:
    """Returns the event with every release in it changed, such as to a unit of more records."""
    if isinstance(event, ClientThenRecord):
        return change(event)
    return OneOf(tuple((weight, change(part)) for weight, part in event.parts))


def merged(history: History) -> tuple[tuple[Event, int], ...]:
    """Returns each event once with its total count, sorted, without those that release nothing.

    Records that always enter together become one. So do the parts of a `OneOf` that differ only in
    their client rate, because an adversary who sees which part it was learns nothing from that.

    Raises:
        ValueError: an entry is not an event with a whole number of times >= 0.
    """
    counts: dict[Event, int] = {}
    for entry in history:
        if not (isinstance(entry, tuple) and len(entry) == 2):
            raise ValueError(f"history entry {entry!r}: expected (event, times)")
        event, times = entry
        if not isinstance(event, ClientThenRecord | OneOf):
            raise ValueError(f"history entry {entry!r}: expected a ClientThenRecord or OneOf first")
        problem = count_problem("times", times, least=0)
        if problem:
            raise ValueError(problem)
        if times and event.inclusion > 0:
            event = _simplest(event)
            counts[event] = counts.get(event, 0) + int(times)

    def order(counted: tuple[Event, int]) -> tuple[object, ...]:
        return tuple((weight, *astuple(part)) for weight, part in counted[0].parts)

    return tuple(sorted(counts.items(), key=order))


def ever_included(history: History) -> float:
    """Probability that the protected unit enters at least one release.

    It bounds the total variation, hence delta at epsilon 0, whatever the noise.
    """
    return -math.expm1(sum(times * _log_miss(event.inclusion) for event, times in history))


def checked_delta(delta: float) -> float:
    """Returns delta as a float.

    Raises:
        ValueError: it is not in (0, 1).
    """
    problem = delta_problem("delta", delta)
    if problem:
        raise ValueError(problem)
    return float(delta)


def rate_problem(name: str, value: object) -> str | None:
    """Returns why the value is not a probability, or None if it is one."""
    ok = _is_real(value) and 0 <= value <= 1  # type: ignore[operator]
    return None if ok else f"{name}={value!r}: expected a probability in [0, 1]"


def noise_problem(name: str, value: object) -> str | None:
    """Returns why the value is not a noise multiplier, or None if it is one."""
    ok = _is_real(value) and 0 <= value < math.inf  # type: ignore[operator]
    return None if ok else f"{name}={value!r}: expected a finite number >= 0"


def delta_problem(name: str, value: object) -> str | None:
    """Returns why the value is not a delta, or None if it is one."""
    ok = _is_real(value) and 0 < value < 1  # type: ignore[operator]
    return None if ok else f"{name}={value!r}: expected a number in (0, 1), such as 1e-5"


def count_problem(name: str, value: object, least: int, most: float = math.inf) -> str | None:
    """Returns why the value is not a count, or None if it is one."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if whole and least <= int(value) <= most:  # type: ignore[call-overload]
        return None
    expected = f">= {least}" if most == math.inf else f"from {least} to {most:,}"
    return f"{name}={value!r}: expected a whole number {expected}"


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _log_miss(rate: float) -> float:
    return math.log1p(-rate) if rate < 1 else -math.inf


def _as_one_record(event: ClientThenRecord) -> ClientThenRecord:
    """Returns records that always enter together as one record of their joint norm."""
    if event.record_rate < 1 or event.group_size == 1:
        return event
    return ClientThenRecord(event.client_rate, 1.0, event.noise_multiplier / event.group_size)


def _simplest(event: Event) -> Event:
    if isinstance(event, ClientThenRecord):
        return _as_one_record(event)
    rates: dict[ClientThenRecord, float] = {}
    for weight, part in event.parts:
        if weight * part.inclusion > 0:
            present = replace(_as_one_record(part), client_rate=1.0)
            rates[present] = rates.get(present, 0.0) + weight * part.client_rate
    parts = [(min(1.0, rate), present) for present, rate in rates.items()]
    if len(parts) == 1:
        ((rate, present),) = parts
        return replace(present, client_rate=rate)
    return OneOf(tuple(sorted(parts, key=lambda part: astuple(part[1]))))
