"""Claims about a table: orderings of its rows, each judged by a test that was stated beforehand.

A claim is one or more comparisons of two terms, `a > b`. A comparison looks at the differences
a − b of the seeds under which both rows were run: Student's t-test of their mean, two-sided at 5 %.
A claim holds if each of its comparisons is shown. That needs no correction for their number, since
all of them must be shown (an intersection-union test: Berger 1982). It does not hold if one of them
is shown the other way round, corrected for their number (Holm 1979). Otherwise it cannot be told,
and the claim says how many seeds would decide it four times of five, if the differences are as
large and vary as much as these. A difference that is the same under every seed has no spread, and
is held against coins in its place: six seeds are shown. Where a seed has no number, or none that is
finite, such as of a training that diverged, nothing is told of the others.

With one seed, a comparison takes the intervals that the numbers come with, such as those over an
attack's documents, if both have one.
"""

from __future__ import annotations

import bisect
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import nct, t

from fedpriv.report.wording import show_value
from fedpriv.studies.estimate import Over, over, within
from fedpriv.threat.statistics import LEVEL, POWER, corrected

MOST_SEEDS = 1000
"""Up to which it is sought how many seeds a claim needs."""

TINY = 1e-9
"""Of the numbers that are compared: what is less than that is rounding."""

_TERM = re.compile(r"(?P<row>.+?)(?: @ (?P<column>\S+))?(?: (?P<sign>[+-]) (?P<by>[\d.e+-]+))?$")

NOT_MEASURED = "not measured"
"""Instead of a verdict, if a row that a comparison names was not run."""


@dataclass(frozen=True)
class Measured:
    """One row of a sweep under one seed.

    Attributes:
        row: its name.
        seed: of run and attack.
        run: folder of the run, from that of the sweep.
        headline: of the attack; "" without one.
        refused: whether the attack was not run at all.
        values: by path; None for what was not measured.
        intervals: by path of the column.
        x: place on the axis of the figure, where the sweep has such an axis.
        curve: name of the row's curve in that figure.
        commit: of the code that measured it.
        date: of the day.
        findings: the attack's folder in that of the run; "" without an attack.
    """

    row: str
    seed: int
    run: str
    headline: str
    refused: bool
    values: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]
    x: float | None = None
    curve: str = ""
    commit: str = ""
    date: str = ""
    findings: str = ""


@dataclass(frozen=True)
class Claim:
    """What is said of a table before it is measured.

    Attributes:
        text: in words.
        says: as an ordering, which `comparisons` takes apart.
        was: what it said when there was a first result; "" if it is new since then, or the same.
        note: why it was changed or added after the first result; "" for one that was there before.
    """

    text: str
    says: str
    was: str = ""
    note: str = ""


@dataclass(frozen=True)
class Term:
    """One side of a comparison: a column of a row, or a number, and what is added to it."""

    row: str | None
    column: str
    plus: float = 0.0

    @classmethod
    def parse(cls, text: str, column: str) -> Term:
        """Reads `12.5`, `row`, `row - 1` or `row @ other_column + 0.5`."""
        try:
            return cls(None, column, float(text))
        except ValueError:
            match = re.match(_TERM, text.strip())
        if match is None:
            raise ValueError(f"{text!r} names no row")
        by = float(f"{match['sign']}{match['by']}") if match["by"] else 0.0
        return cls(match["row"], match["column"] or column, by)

    def values(self, measured: Sequence[Measured]) -> dict[int, float]:
        """Returns the term's value by seed; empty where it was not measured."""
        if self.row is None:
            return dict.fromkeys({one.seed for one in measured}, self.plus)
        return {
            one.seed: value + self.plus
            for one in measured
            if one.row == self.row and (value := one.values.get(self.column)) is not None
        }

    def of_one(self, measured: Sequence[Measured], seed: int, value: float) -> Over | None:
        """Returns a value with the interval that it comes with, if any; a number is its own."""
        if self.row is None:
            return over([value])
        (one,) = (one for one in measured if (one.row, one.seed) == (self.row, seed))
        found = one.intervals.get(self.column)
        return within(value, found[0] + self.plus, found[1] + self.plus) if found else None


@dataclass(frozen=True)
class Difference:
    """What the seeds say of a comparison.

    Attributes:
        above: mean of what is said to be larger.
        below: mean of the other.
        seeds: under which both were run.
        missing: of these, the seeds without a finite number of both.
        interval: of the difference, at 95 %; None if a number is missing, or one seed has none.
        p_value: that there is no difference, two-sided; None without an interval.
        needs: seeds that would tell, if the differences are as these; None if nobody knows.
    """

    above: float
    below: float
    seeds: int
    missing: int = 0
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    needs: int | None = None


@dataclass(frozen=True)
class Ordering:
    """That one term is above another.

    Attributes:
        above: said to be larger.
        below: said to be smaller.
        written: ">" if `above` comes first in the text, else "<".
    """

    above: Term
    below: Term
    written: str = ">"

    def judged(self, measured: Sequence[Measured], among: int = 1) -> Difference | None:
        """Returns what the seeds say under which both terms were run; None without any number.

        Args:
            measured: all rows.
            among: how many comparisons the claim has.
        """
        run = [
            {m.seed for m in measured if term.row in (None, m.row)}
            for term in (self.above, self.below)
        ]
        seeds = sorted(run[0] & run[1])
        high, low = self.above.values(measured), self.below.values(measured)
        both = [(high.get(seed, math.nan), low.get(seed, math.nan)) for seed in seeds]
        pairs = np.array([pair for pair in both if all(map(math.isfinite, pair))])
        if not len(pairs):
            return None
        count, (above, below) = len(seeds), pairs.mean(0).tolist()
        if missing := count - len(pairs):
            return Difference(above, below, count, missing)
        gap = above - below
        if count == 1:
            first = self.above.of_one(measured, seeds[0], above)
            second = self.below.of_one(measured, seeds[0], below)
            if first is None or second is None:
                return Difference(above, below, 1)
            found = first.minus(second)
            return Difference(above, below, 1, 0, (found.low, found.high), found.p_value)
        found = over((pairs[:, 0] - pairs[:, 1]).tolist())
        spread = found.below * math.sqrt(count)
        # What is said may be shown at 5 %; its contrary is one of so many that might be.
        level, power = (LEVEL if gap > 0 else LEVEL / among), POWER ** (1 / among)
        if spread <= TINY * np.abs(pairs).max():
            if abs(gap) <= TINY * np.abs(pairs).max():
                return Difference(above, below, count, 0, (gap, gap), 1.0)
            coins = math.ceil(1 - math.log2(level))
            return Difference(above, below, count, 0, (gap, gap), 2.0 ** (1 - count), coins)
        needs = _seeds_for(abs(gap) / spread, level, power) if gap else None
        return Difference(above, below, count, 0, (found.low, found.high), found.p_value, needs)


def _seeds_for(size: float, level: float, power: float) -> int | None:
    """Returns the seeds that show a mean of so many standard deviations as often as `power`."""

    def reached(count: int) -> float:
        edge = t.ppf(1 - level / 2, count - 1)
        return float(nct.sf(edge, count - 1, size * math.sqrt(count)))

    counts = range(2, MOST_SEEDS)
    at = bisect.bisect_left(counts, power, key=reached)
    return counts[at] if at < len(counts) else None


def comparisons(says: str) -> dict[str, Ordering]:
    """Returns the comparisons that an ordering consists of, each with its text.

    `psnr | exact: a > b > c | d` says, by either column, that a is above b, and b above c and d.

    Raises:
        ValueError: if it is no ordering.
    """
    columns, colon, order = says.partition(": ")
    parts = re.split(r" ([<>]) ", order)
    if not colon or len(parts) < 3:
        raise ValueError(f"{says!r}: expected `column: row > other row`")
    found = {}
    for column, place in itertools.product(columns.split(" | "), range(0, len(parts) - 1, 2)):
        left, sign, right = parts[place : place + 3]
        for pair in itertools.product(left.split(" | "), right.split(" | ")):
            terms = [Term.parse(text, column) for text in pair]
            above, below = terms if sign == ">" else terms[::-1]
            found[f"{column}: {f' {sign} '.join(pair)}"] = Ordering(above, below, sign)
    return found


def columns(claims: Sequence[Claim]) -> list[str]:
    """Returns the columns of rows that claims compare, each once."""
    compared = (one for claim in claims for one in comparisons(claim.says).values())
    terms = (term for one in compared for term in (one.above, one.below))
    return list(dict.fromkeys(term.column for term in terms if term.row is not None))


def verdicts(claims: Sequence[Claim], measured: Sequence[Measured]) -> Iterator[dict[str, Any]]:
    """Yields each claim with whether it holds, why, and its comparisons, as JSON has it.

    `holds` is true, false, or null where it cannot be told or was not measured. The `gap` of a
    comparison is by how much what should be larger is larger, null if it was not measured.
    """
    for claim in claims:
        every = comparisons(claim.says)
        found = {text: one.judged(measured, len(every)) for text, one in every.items()}
        p_values = [
            1.0 if not one or one.p_value is None else one.p_value for one in found.values()
        ]
        rows, needs, against = [], list[int | None](), list[int | None]()
        for (text, one), p_value in zip(found.items(), corrected(p_values), strict=True):
            holds = None
            if one and one.above > one.below and one.p_value is not None and one.p_value <= LEVEL:
                holds = True
            elif one and one.above < one.below and p_value <= LEVEL:
                holds = False
            more = one.needs if one and (one.needs or 0) > one.seeds else None
            if holds is None:
                (against if one and one.above < one.below else needs).append(more)
            told = _in_words(one, holds, every[text], more)
            gap = one.above - one.below if one else None
            rows.append({"text": text, "holds": holds, "verdict": told, "gap": gap})
        outcomes = [row["holds"] for row in rows]
        holds = False if False in outcomes else True if all(outcomes) else None
        # One that is the other way round decides alone; else none may be left out.
        known = [one for one in against or needs if one is not None]
        enough = known and (against or len(known) == len(needs))
        yield {
            "text": claim.text,
            "says": claim.says,
            "was": claim.was,
            "note": claim.note,
            "holds": holds,
            "needs": (min if against else max)(known) if holds is None and enough else None,
            "comparisons": rows,
        }


def whose(text: str) -> str:
    """Returns who makes a claim, by the brackets behind its text: "paper", "ours", or ""."""
    return "paper" if "(the paper" in text else "ours" if "(ours" in text else ""


def unexplained(claims: Sequence[Claim], before: Mapping[str, Any]) -> Iterator[str]:
    """Yields what was changed about claims since an earlier result, without a note that says why.

    Args:
        claims: as they are now.
        before: the earlier results.json; without rows, nothing was measured yet.
    """
    if not before.get("rows"):
        return
    then = {one.get("says", ""): one for one in before.get("claims", ())}
    now = {one.says: one for one in claims}
    kept = {one.was for one in claims if one.note}
    for says, one in then.items():
        if says not in now and says not in kept:
            yield (
                f"{says!r} has a result and is gone: the claim in its place needs "
                f"`was: {says!r}` and a `note:` that says why"
            )
        elif says in now and one.get("note") and not now[says].note:
            yield f"{says!r} had a note, {one['note']!r}: keep it"
    for one in claims:
        if one.says not in then and not one.note:
            yield f"{one.text!r} is new or changed since the first result: say why in its note"
        elif one.says in then and not one.note:
            was = str(then[one.says]["text"])
            if (whose(was) == "paper") != (whose(one.text) == "paper"):
                yield f"{one.text!r} was {was!r}: say why in its note"


def _in_words(one: Difference | None, holds: bool | None, of: Ordering, more: int | None) -> str:
    """Returns what was found of a comparison, and how sure it is, in the order of its text."""
    if one is None:
        return NOT_MEASURED
    seeds = f"{one.seeds} seed{'s' * (one.seeds != 1)}"
    left, right = (one.above, one.below) if of.written == ">" else (one.below, one.above)
    margin = any(term.row and term.plus for term in (of.above, of.below))
    sides = f"{show_value(left)} against {show_value(right)}" + ", margin included" * margin
    if one.missing:
        lack = f"{one.missing} lack{'s' * (one.missing == 1)} a number"
        return f"cannot tell: {sides}, but of {seeds} {lack}"
    if one.interval is None:
        return f"cannot tell: {sides}, of one seed; it takes two or more"
    low, high = one.interval if of.written == ">" else (-one.interval[1], -one.interval[0])
    told = (
        f"{sides}, a difference of {show_value(left - right)} "
        f"[{show_value(low)}, {show_value(high)}] over {seeds}"
    )
    if holds is None:
        needed = f"; {more} would tell" if more else ""
        against = ", so far the other way round" if one.above < one.below else ""
        return f"cannot tell{against}: {told}{needed}"
    return f"{'holds' if holds else 'DOES NOT HOLD'}: {told}"
