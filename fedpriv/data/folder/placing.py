"""Finds the values of fields among the words of a page.

A table says what the total is, not where it stands, and may write it otherwise than the page. A
value that is an amount or a date is compared as such: 1,234.50 is 1.234,5, and 3 March 2024 may be
03/03/24. Other values are compared by letters and digits, regardless of case, and may differ in a
few letters, as OCR makes them differ, but not in digits where these are most of the value.
"""

from __future__ import annotations

import bisect
import itertools
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from rapidfuzz import fuzz, process

from fedpriv.data.document import Word

CLOSE = 85.0
"""Least likeness of a run of words that is not equal, rapidfuzz's ratio of 0 to 100."""

SHORTEST_CLOSE = 5
"""Letters of the shortest value that may differ."""

INSIDE = 96.0
"""Rank of a value that is a part of a word, such as DATE:25/12/2018."""

WHOLE = 90.0
"""Rank of a whole number that may be an amount without its cents."""

_LONGEST_DATE = 4
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
    pages: Sequence[Sequence[Word]], fields: Mapping[str, str]
) -> dict[str, Place | None]:
    """Returns where each field stands; None where it is not found.

    A word belongs to one field. Of several places with the same text, the one beside or below the
    field's own name is taken. Without such a name, an amount is the last one, and anything else the
    first. Of two pages, the first.

    Args:
        pages: the words of each page of a file.
        fields: values by name, in the order in which they are looked for.
    """
    taken: list[set[int]] = [set() for _ in pages]
    sheets = [_Sheet(words) for words in pages]
    found: dict[str, Place | None] = {}
    for name, value in fields.items():
        find = _finder(value)
        best: tuple[tuple[float, bool, int, int], int, _Match] | None = None
        for number, sheet in enumerate(sheets):
            for start, stop, rank in find(sheet):
                if not taken[number].isdisjoint(range(start, stop)):
                    continue
                match = _Match(rank, sheet.is_near(start, stop, name), start, stop)
                last = start if amounts(value) else -start
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


def _finder(value: str) -> Finder:
    if numbers := amounts(value):
        return lambda sheet: _find_amount(sheet, numbers, value)
    if days := dates(value):
        return lambda sheet: _find_date(sheet, days) or _find_text(sheet, value)
    return lambda sheet: _find_text(sheet, value)


def plain(text: str) -> str:
    """Returns the letters and digits of a text, case folded, in their usual form (NFKC)."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(sign for sign in folded if sign.isalnum())


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


# ------------------------------------------------------------------------------------- amounts

_AMOUNT = re.compile(
    r"(?P<before>[^\d\-+.,]{0,8})(?P<sign>[-+]?)[^\d\-+.,]{0,4}(?P<digits>\d[\d.,'’\s]*)[^\d]{0,8}"
)
_CODE = re.compile(
    r"[$€£¥₹]|\b(usd|eur|gbp|chf|jpy|cny|inr|myr|rm|sgd|aud|cad|nzd|sek|nok|dkk|pln|czk|brl|idr|rp|rs)(?![^\W\d_])"
)
"""What makes a whole number an amount; with cents, anything short may stand before it."""
_CURRENCY = re.compile(r"[^\d\s.,'’+-]+")


def amounts(text: str) -> frozenset[Decimal]:
    """Returns what a text may mean as an amount of money; empty if it is none.

    An amount has cents, separated thousands or a currency. A plain whole number is not one: it may
    be the number of an invoice. "1.234" is 1234 or 1 and 234 thousandths.
    """
    # Bounded, because all signs between the digits may be separators.
    match = _AMOUNT.fullmatch(text.strip()) if len(text) < 60 else None
    if match is None:
        return frozenset()
    digits = re.sub(r"[\s'’]", "", match["digits"]).rstrip(".,")
    if digits.isdecimal() and not _CODE.search(text.casefold()):
        return frozenset()
    separators = [sign for sign in digits if sign in ".,"]
    if digits.isdecimal() and len(digits) > 12:
        return frozenset()
    readings = set()
    if len(set(separators)) == 2:
        *_, last = separators
        readings.add(digits.replace("," if last == "." else ".", "").replace(",", "."))
    elif len(separators) == 1:
        whole, _, rest = re.split(r"([.,])", digits)
        readings.add(f"{whole}.{rest}")
        if len(rest) == 3 and len(whole) < 4:
            readings.add(whole + rest)
    else:
        groups = re.split(r"[.,]", digits)
        if all(len(group) == 3 for group in groups[1:]):
            readings.add("".join(groups))
    sign = "-" if match["sign"] == "-" else ""
    found = set()
    for reading in readings:
        try:
            found.add(Decimal(sign + reading))
        except InvalidOperation:
            continue
    return frozenset(found)


def _find_amount(
    sheet: _Sheet, wanted: frozenset[Decimal], value: str
) -> list[tuple[int, int, float]]:
    found: list[tuple[int, int, float]] = []
    currency = plain("".join(_CURRENCY.findall(value)))
    cents = re.compile(r"\d")
    for start, text in enumerate(sheet.texts):
        if not cents.search(text):
            continue
        # Within one word, or with what OCR has cut off: "1 234,50", "12 .50".
        for stop in (start + 1, start + 2):
            joined = "".join(sheet.texts[start:stop])
            meant = amounts(joined)
            whole = frozenset() if meant else amounts(f"{joined}.00")
            if stop > len(sheet.texts) or not (meant | whole) & wanted:
                continue
            before = start - 1
            has_currency = bool(currency) and before >= 0 and sheet.normal[before] == currency
            # 4 may be an amount of 4.00, or a number of things.
            found.append((before if has_currency else start, stop, 100.0 if meant else WHOLE))
            break
    return found


# --------------------------------------------------------------------------------------- dates

_MONTHS = (
    "jan", "feb|fev|fév", "mar|mär|mrz", "apr|avr|abr", "may|mai|mag|mei", "jun|juin|giu",
    "jul|juil|lug", "aug|aou|aoû|ago", "sep|set", "oct|okt|ott", "nov", "dec|dez|déc|dic",
)  # fmt: skip
_MONTH = re.compile("|".join(f"(?P<m{n}>{names})" for n, names in enumerate(_MONTHS, 1)))
_NUMERIC = re.compile(r"(?<!\d)(\d{1,4})\s?[./\- ]\s?(\d{1,2})\s?[./\- ]\s?(\d{4}|\d{2})(?!\d)")
_COMPACT = re.compile(r"(?<!\d)(\d{4})(\d{2})(\d{2})(?!\d)")
_DAY_FIRST = re.compile(
    r"(?<!\d)(\d{1,2})(?:st|nd|rd|th|\.)?[\s\-/]*(?:de\s+|of\s+)?([^\W\d_]{3,12})\.?"
    r"[\s\-/,]*(?:de\s+)?(\d{4}|\d{2})(?!\d)"
)
_MONTH_FIRST = re.compile(
    r"([^\W\d_]{3,12})\.?[\s\-/]*(\d{1,2})(?:st|nd|rd|th)?,?[\s\-/]+(\d{4}|\d{2})(?!\d)"
)

Day = tuple[int, int, int]
"""Year, month, day."""


def dates(text: str) -> frozenset[Day]:
    """Returns the days that a text may mean; 1/2/2024 may be in January or in February."""
    folded = unicodedata.normalize("NFKC", text).casefold()[:200]
    found: set[Day] = set()
    for match in _NUMERIC.finditer(folded):
        first, second, third = (int(part) for part in match.groups())
        if len(match[1]) == 4:
            found |= _days((first, second, third))
        elif first < 100:
            found |= _days((third, second, first), (third, first, second))
            if len(match[1]) == len(match[3]) == 2:
                found |= _days((first, second, third))
    for match in _COMPACT.finditer(folded):
        year, month, day = (int(part) for part in match.groups())
        found |= _days((year, month, day))
    for match in _DAY_FIRST.finditer(folded):
        found |= _days((int(match[3]), _month(match[2]), int(match[1])))
    for match in _MONTH_FIRST.finditer(folded):
        found |= _days((int(match[3]), _month(match[1]), int(match[2])))
    return frozenset(found)


def _days(*days: Day) -> set[Day]:
    return {
        (year + 2000 if year < 70 else year + 1900 if year < 100 else year, month, day)
        for year, month, day in days
        if 1 <= month <= 12 and 1 <= day <= 31
    }


def _month(name: str) -> int:
    match = _MONTH.match(name)
    return int((match.lastgroup or "m0")[1:]) if match else 0


def _find_date(sheet: _Sheet, wanted: frozenset[Day]) -> list[tuple[int, int, float]]:
    """Returns the runs of words that mean the day, without those that hold such a run.

    Numbers before a date may read as a part of it: 0.22 24-11-17 holds 22 24-11.
    """
    found: list[tuple[int, int, float]] = []
    count = len(sheet.texts)
    nearest = count + 1  # the first end of the runs that start later
    for start in reversed(range(count)):
        for stop in range(start + 1, min(start + _LONGEST_DATE + 1, count + 1, nearest)):
            text = " ".join(sheet.texts[start:stop])
            if not any(map(str.isdigit, text)) or not (meant := dates(text)) & wanted:
                continue
            # A date that reads in one way only, or as the table has it, goes before others.
            found.append((start, stop, 100.0 if meant == wanted else INSIDE + 2))
            nearest = stop
            break
    return found[::-1]
