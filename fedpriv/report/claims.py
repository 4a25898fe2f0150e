"""Claims about a table: orderings of its rows, each judged by a test that was stated beforehand.

A claim is one or more comparisons of two terms, `a > b`. A comparison looks at the differences
a − b of the seeds that both rows have: Student's t-test of their mean, two-sided at 5 %. A claim
holds if each of its comparisons is shown. That needs no correction for their number, since all of
them must be shown (an intersection-union test: Berger 1982). It does not hold if one of them is
shown the other way round, corrected for their number (Holm 1979). Otherwise it cannot be told, and
the claim says how many seeds could, if the differences are as large and vary as much as these. A
difference that is the same under every seed has no spread, and is held against coins in its place:
six seeds are shown.

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
from statistics import mean, stdev
from typing import Any

from scipy.stats import nct, norm, t

from fedpriv.report.wording import show_value
from fedpriv.threat.statistics import CONFIDENCE, LEVEL, POWER, corrected

MOST_SEEDS = 1000
"""Up to which it is sought how many seeds a claim needs."""

SAME = 6
"""Seeds of which it is shown that they do not come out alike by coins, 2 / 2^6 < 5 %."""

_TERM = re.compile(r"(?P<row>.+?)(?: @ (?P<column>\S+))?(?: (?P<sign>[+-]) (?P<by>[\d.e+-]+))?$")

NOT_MEASURED = "not measured"
"""Instead of a verdict, if a row that a comparison names was not run."""


@dataclass(frozen=True)
class Measured:
    """One row of a sweep under one seed.

    Attributes:
        row: its name.
        seed: of run and attack.
        run: folder of the run.
        headline: of the attack; "" without one.
        refused: whether the attack was not run at all.
        values: by path; None for what was not measured.
        intervals: by path of the column.
        x: place on the axis of the figure, where the sweep has such an axis.
        curve: name of the row's curve in that figure.
        commit: of the code that measured it.
        date: of the day.
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

    def error(self, measured: Sequence[Measured], seed: int) -> float | None:
        """Returns the standard error that a value comes with; 0 of a number, None if it has none.

        It is that of the wider side of its interval.
        """
        if self.row is None:
            return 0.0
        for one in measured:
            found = one.intervals.get(self.column)
            value = one.values.get(self.column)
            if (one.row, one.seed) == (self.row, seed) and found and value is not None:
                return max(value - found[0], found[1] - value) / float(norm.ppf(0.975))
        return None


@dataclass(frozen=True)
class Compared:
    """What the seeds say of a comparison.

    Attributes:
        above: mean of what is said to be larger.
        below: mean of the other.
        seeds: that both have.
        interval: of the difference, at 95 %; None where one seed comes without.
        p_value: that there is no difference, two-sided; None without an interval.
        needs: seeds that would tell, if the differences are as these; None if nobody knows.
    """

    above: float
    below: float
    seeds: int
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    needs: int | None = None


@dataclass(frozen=True)
class Comparison:
    """That one term is above another.

    Attributes:
        above: said to be larger.
        below: said to be smaller.
        written: ">" if `above` comes first in the text, else "<".
    """

    above: Term
    below: Term
    written: str = ">"

    def judged(self, measured: Sequence[Measured]) -> Compared | None:
        """Returns what the seeds that both terms have say; None if there is none."""
        high, low = self.above.values(measured), self.below.values(measured)
        seeds = sorted(high.keys() & low.keys())
        seeds = [one for one in seeds if math.isfinite(high[one]) and math.isfinite(low[one])]
        if not seeds:
            return None
        above, below = (mean(side[seed] for seed in seeds) for side in (high, low))
        apart = [high[seed] - low[seed] for seed in seeds]
        count, gap = len(apart), above - below
        if count == 1:
            errors = [term.error(measured, seeds[0]) for term in (self.above, self.below)]
            if None in errors:
                return Compared(above, below, 1)
            error, freedom = math.hypot(*(one for one in errors if one is not None)), math.inf
        else:
            error, freedom = stdev(apart) / math.sqrt(count), count - 1
        if not error:  # the same difference under every seed
            p_value = min(1.0, 2.0 ** (1 - count)) if gap else 1.0
            return Compared(above, below, count, (gap, gap), p_value, SAME if gap else None)
        reach = float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
        p_value = float(2 * t.sf(abs(gap) / error, freedom))
        needs = _seeds_for(abs(gap) / stdev(apart)) if count > 1 and gap else None
        return Compared(above, below, count, (gap - reach, gap + reach), p_value, needs)


def _seeds_for(size: float) -> int | None:
    """Returns the seeds that show a mean of so many standard deviations, in four of five cases."""

    def power(count: int) -> float:
        edge = t.ppf(1 - LEVEL / 2, count - 1)
        return float(nct.sf(edge, count - 1, size * math.sqrt(count)))

    counts = range(2, MOST_SEEDS)
    at = bisect.bisect_left(counts, POWER, key=power)
    return counts[at] if at < len(counts) else None


def comparisons(says: str) -> dict[str, Comparison]:
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
            found[f"{column}: {f' {sign} '.join(pair)}"] = Comparison(above, below, sign)
    return found


def verdicts(claims: Sequence[Claim], measured: Sequence[Measured]) -> Iterator[dict[str, Any]]:
    """Yields each claim with whether it holds, why, and its comparisons, as JSON has it.

    `holds` is true, false, or null where it cannot be told or was not measured. The `gap` of a
    comparison is by how much what should be larger is larger, null if it was not measured.
    """
    for claim in claims:
        every = comparisons(claim.says)
        found = {text: one.judged(measured) for text, one in every.items()}
        p_values = [
            1.0 if not one or one.p_value is None else one.p_value for one in found.values()
        ]
        rows, needs = [], list[int | None]()
        for (text, one), p_value in zip(found.items(), corrected(p_values), strict=True):
            holds = None
            if one and one.above > one.below and one.p_value is not None and one.p_value <= LEVEL:
                holds = True
            elif one and one.above < one.below and p_value <= LEVEL:
                holds = False
            if holds is None:
                needs.append(one.needs if one and (one.needs or 0) > one.seeds else None)
            told = _in_words(one, holds, every[text].written)
            gap = one.above - one.below if one else None
            rows.append({"text": text, "holds": holds, "verdict": told, "gap": gap})
        outcomes = [row["holds"] for row in rows]
        holds = False if False in outcomes else True if all(outcomes) else None
        known = [one for one in needs if one is not None]
        yield {
            "text": claim.text,
            "says": claim.says,
            "note": claim.note,
            "holds": holds,
            # None of those that cannot be told may be left out.
            "needs": max(known) if holds is None and len(known) == len(needs) else None,
            "comparisons": rows,
        }


def unexplained(claims: Sequence[Claim], before: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields what was changed about claims since their first result without a note.

    Args:
        claims: as they are now.
        before: with verdicts, as `verdicts` yields them.
    """
    then, now = [one.get("says", "") for one in before], [one.says for one in claims]
    gone = [one for one in then if one not in now]
    told = {one.was for one in claims if one.note}
    yield from (f"{one!r} has a result, and is no longer there" for one in gone if one not in told)
    yield from (
        f"{one.text!r} is not what it was when there was a first result"
        for one in claims
        if before and one.says not in then and not one.note
    )


def _in_words(one: Compared | None, holds: bool | None, written: str) -> str:
    """Returns what was found of a comparison, and how sure it is, in the order of its text."""
    if one is None:
        return NOT_MEASURED
    left, right = (one.above, one.below) if written == ">" else (one.below, one.above)
    sides = f"{show_value(left)} against {show_value(right)}"
    if one.interval is None:
        return f"cannot tell: {sides}, of one seed; it takes two or more"
    low, high = one.interval if written == ">" else (-one.interval[1], -one.interval[0])
    seeds = f"{one.seeds} seed{'s' * (one.seeds != 1)}"
    told = (
        f"{sides}, a difference of {show_value(left - right)} "
        f"[{show_value(low)}, {show_value(high)}] over {seeds}"
    )
    if holds is None:
        more = f"; {one.needs} would tell" if one.needs and one.needs > one.seeds else ""
        against = ", so far the other way round" if one.above < one.below else ""
        return f"cannot tell{against}: {told}{more}"
    return f"{'holds' if holds else 'DOES NOT HOLD'}: {told}"
