"""Finds the values of fields among the words of a page.

A table says what the total is, not where it stands, and may write it otherwise than the page. A
value that is an amount or a date is compared as such: 1,234.50 is 1.234,5, and 3 March 2024 may be
03/03/24. Other values are compared by letters and digits, regardless of case, and may differ in a
few letters, as OCR makes them differ, but not in digits where these are most of the value.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, process

from fedpriv.data.document import Word
from fedpriv.data.values import (
    Amounts,
    Dates,
    amounts,
    dates,
    dates_among,
    folded,
    numbers,
    words_of,
)

CLOSE = 85.0
"""Least likeness of a run of words that is not equal, rapidfuzz's ratio of 0 to 100."""

SHORTEST_CLOSE = 5
"""Letters of the shortest value that may differ."""

INSIDE = 96.0
"""Rank of a value that is a part of a word, such as DATE:25/12/2018."""

WHOLE = 90.0
"""Rank of a whole number that may be an amount without its cents."""

_MOST_CLOSE = 20

Place = tuple[int, int, int]
"""The page, counted from 0, and the first and the end of a run of its words."""


@dataclass(frozen=True, slots=True)
class _Match:
    rank: float
    near: bool
    start: int
    stop: int


def place_fields(
    pages: Sequence[Sequence[Word]], fields: Mapping[str, str], money: Collection[str] = ()
) -> dict[str, Place | None]:
    """Returns where each field stands; None where it is not found.

    A word belongs to one field. Of several places with the same text, the one beside or below the
    field's own name is taken. Without such a name, an amount is the last one, and anything else the
    first. Of two pages, the first.

    Args:
        pages: the words of each page of a file.
        fields: values by name, in the order in which they are looked for.
        money: names of fields whose whole numbers are amounts, as others of their column are.
    """
    taken: list[set[int]] = [set() for _ in pages]
    sheets = [_Sheet(words) for words in pages]
    found: dict[str, Place | None] = {}
    for name, value in fields.items():
        is_money = bool(numbers(value) if name in money else amounts(value))
        find = _finder(value, is_money)
        best: tuple[tuple[float, bool, int, int], int, _Match] | None = None
        for number, sheet in enumerate(sheets):
            for start, stop, rank in find(sheet):
                if not taken[number].isdisjoint(range(start, stop)):
                    continue
                match = _Match(rank, sheet.is_near(start, stop, name), start, stop)
                last = start if is_money else -start
                order = (match.rank, match.near, -number, last)
                if best is None or order > best[0]:
                    best = (order, number, match)
        if best is None:
            found[name] = None
            continue
        _, number, match = best
        taken[number].update(range(match.start, match.stop))
        found[name] = (number, match.start, match.stop)
    return found


class _Sheet:
    """The words of a page, ready to be searched."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = words
        self.texts = [word.text for word in words]
        self.normal = [plain(text) for text in self.texts]
        self.starts = list(itertools.accumulate(map(len, self.normal), initial=0))
        self.whole = "".join(self.normal)

    def word_at(self, letter: int) -> int:
        """Returns the word that holds a letter of `whole`."""
        return bisect.bisect_right(self.starts, letter) - 1

    @functools.cached_property
    def dates(self) -> list[tuple[int, int, Dates]]:
        """The first word of each date, the end of its words, and what it may mean."""
        return dates_among(self.texts)

    @functools.cached_property
    def numbers(self) -> list[tuple[int, int, bool, Amounts]]:
        """The same of numbers, and whether each is written as money.

        A number may be of several words, as in "1 234,50" or, where OCR has cut it, in "12 .50".
        """
        found: list[tuple[int, int, bool, Amounts]] = []
        texts = [folded(text) for text in self.texts]
        for start, text in enumerate(texts):
            if not _OPENS.fullmatch(text):
                continue
            for stop in range(start + 1, start + _LONGEST_NUMBER + 1):
                if meant := numbers(text):
                    found.append((start, stop, bool(amounts(text)), meant))
                further = texts[stop : stop + 1]
                if not further or not _CONTINUES.fullmatch(f"{text[-1:]} {further[0]}"):
                    break
                text = f"{text} {further[0]}"
        return found

    def is_near(self, start: int, stop: int, name: str) -> bool:
        """Says whether a part of the field's name stands left of the run, or just above it."""
        names = [part for part in re.findall(r"[^\W_]+", name.casefold()) if len(part) > 2]
        left, top, _, bottom = self.words[start].box
        height = bottom - top
        for place, text in enumerate(self.normal):
            if start <= place < stop or not text:
                continue
            if not any(fuzz.ratio(text, part) >= CLOSE for part in names):
                continue
            x0, y0, x1, y1 = self.words[place].box
            middle = (y0 + y1) / 2
            beside = top <= middle <= bottom and x0 < left
            above = top - 2 * height <= middle < top and x0 <= left + 3 * height and x1 >= left
            if beside or above:
                return True
        return False


Finder = Callable[[_Sheet], list[tuple[int, int, float]]]


def _finder(value: str, is_money: bool) -> Finder:
    wanted = numbers(value)
    if is_money:
        return lambda sheet: _find_amount(sheet, wanted, value, whole=True)
    if days := dates(value):
        return lambda sheet: _find_date(sheet, days, value) or _find_text(sheet, value)
    if wanted and not words_of(folded(value)):  # Excel and JSON write 113.00 as 113
        return lambda sheet: [
            *_find_text(sheet, value),
            *_find_amount(sheet, wanted, value, whole=False),
        ]
    return lambda sheet: _find_text(sheet, value)


def plain(text: str) -> str:
    """Returns the letters and digits of a text, as `fedpriv.data.values.folded` writes them."""
    return "".join(sign for sign in folded(text) if sign.isalnum())


def _find_text(sheet: _Sheet, value: str) -> list[tuple[int, int, float]]:
    needle = plain(value)
    if not needle:
        return []
    exact: list[tuple[int, int, float]] = []
    at = sheet.whole.find(needle)
    while at >= 0:
        end = at + len(needle)
        start, last = sheet.word_at(at), sheet.word_at(end - 1)
        aligned = sheet.starts[start] == at and sheet.starts[last + 1] == end
        # 123 does not stand in 91234.
        cut = any(
            edge and sheet.whole[one].isdigit() and sheet.whole[other].isdigit()
            for edge, one, other in (
                (sheet.starts[start] < at, at - 1, at),
                (end < sheet.starts[last + 1], end - 1, min(end, len(sheet.whole) - 1)),
            )
        )
        if aligned or (len(needle) > 2 and not cut):
            exact.append((start, last + 1, 100.0 if aligned else INSIDE))
        at = sheet.whole.find(needle, at + 1)
    if exact or len(needle) < SHORTEST_CLOSE:
        return exact
    return _find_close(sheet, needle)


def _find_close(sheet: _Sheet, needle: str) -> list[tuple[int, int, float]]:
    """Returns the runs of words that are like the needle, without those that hold such a run."""
    digits = [sign for sign in needle if sign.isdigit()]
    runs: list[tuple[int, int]] = []
    texts: list[str] = []
    for start, first in enumerate(sheet.normal):
        if not first:
            continue
        for stop in range(start + 1, len(sheet.normal) + 1):
            length = sheet.starts[stop] - sheet.starts[start]
            if length > 1.4 * len(needle):
                break
            if length >= 0.7 * len(needle) and sheet.normal[stop - 1]:
                runs.append((start, stop))
                texts.append(sheet.whole[sheet.starts[start] : sheet.starts[stop]])
    like = process.extract(needle, texts, scorer=fuzz.ratio, score_cutoff=CLOSE, limit=_MOST_CLOSE)
    return [
        (*runs[place], min(score, INSIDE - 1))
        for text, score, place in like
        if 2 * len(digits) < len(needle) or [sign for sign in text if sign.isdigit()] == digits
    ]


# --------------------------------------------------------------------------- amounts and dates

_CURRENCY = re.compile(r"[^\d\s.,'’+-]+")
_OPENS = re.compile(r".*\d.*|[-(]\D{0,5}|[cd]r")
"""The first word of a number."""
_CONTINUES = re.compile(
    r"(\D |\d (?=\D|\d{3}(?!\d)))"
    r"([^\w\s]|f|cfa|[cd]r|(?=.*[\d)])[^\w\s]?[-+(.,'٫\d]*\D{0,5})"
)
"""The last sign so far and the next word: thousands, where a digit comes first. F CFA is money."""
_LONGEST_NUMBER = 6


def _find_amount(
    sheet: _Sheet, wanted: Amounts, value: str, *, whole: bool
) -> list[tuple[int, int, float]]:
    """Returns the runs of words that mean an amount, plain whole numbers among them or not."""
    found: list[tuple[int, int, float]] = []
    currency = plain("".join(_CURRENCY.findall(value)))
    for start, stop, is_money, meant in sheet.numbers:
        if meant.isdisjoint(wanted) or not (is_money or whole):
            continue
        before = start - 1
        has_currency = bool(currency) and before >= 0 and sheet.normal[before] == currency
        # 4 may be an amount of 4.00, or a number of things.
        found.append((before if has_currency else start, stop, 100.0 if is_money else WHOLE))
    return found


def _find_date(sheet: _Sheet, wanted: Dates, value: str) -> list[tuple[int, int, float]]:
    """Returns the runs of words that may mean the day, rather those that are written as it is."""
    return [
        (
            start,
            stop,
            100.0 if "".join(sheet.normal[start:stop]) == plain(value) else 99.0 - (days != wanted),
        )
        for start, stop, days in sheet.dates
        if not days.isdisjoint(wanted)
    ]
