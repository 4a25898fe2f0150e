"""Reads amounts of money and dates, in whatever language a page is written.

A text may mean several values: 03/04/2019 is in April or in March, and 12,345 is twelve or twelve
thousand. So what is read is a set. Two texts agree if their sets share a value, and a set of more
than one is never narrowed down by a guess.

Digits are those of any script, and the calendar is Gregorian. Names of months and currencies are
those of Unicode CLDR. `tests/golden/cldr.py` takes them from babel, which needs over a second to
load them from all its locales, and writes them beside this file, where that takes milliseconds.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

NAMES = Path(__file__).with_name("cldr.json")
"""Names of months and currencies."""

Dates = frozenset[date]
Amounts = frozenset[Decimal]

_ALIKE = str.maketrans("−’‘ʼ´٬،⹁∕⁄·", "-''''',,//.")
_WORD = re.compile(r"[^\s\d!-/:-@\[-`{-~]+")
_ACCENTS = re.compile("[\u0300-\u036f\u064b-\u0655]")


def folded(text: str) -> str:
    """Writes a text in lower case, with ASCII digits, one kind of dash, apostrophe and blank.

    Signs that nobody sees are dropped. Otherwise the form is Unicode's NFKC.
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", "".join(map(_sign, text))).casefold()


@functools.cache
def _sign(sign: str) -> str:
    match unicodedata.category(sign):
        case "Nd":
            return str(unicodedata.decimal(sign))
        case "Cf":
            return ""
        case "Pd":
            return "-"
        case "Zs":
            return " "
    return sign.translate(_ALIKE)


@functools.lru_cache(maxsize=4096)
def words_of(text: str) -> tuple[str, ...]:
    """Returns the words of a `folded` text; without accents, which OCR may lose."""
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", text)).replace("ı", "i")
    return tuple(_WORD.findall(unicodedata.normalize("NFC", bare)))


@dataclass(frozen=True)
class _Names:
    """What CLDR calls months and currencies, as `words_of` has it.

    Attributes:
        months: numbers by name. Listopad is October in Croatian and November in Polish.
        fillers: words that stand between the parts of a date, such as "de".
        currencies: codes and symbols of letters.
    """

    months: Mapping[str, frozenset[int]]
    fillers: frozenset[str]
    currencies: frozenset[str]


@functools.cache
def _names() -> _Names:
    tables = json.loads(NAMES.read_bytes())
    months: dict[str, frozenset[int]] = {}
    for month, names in enumerate(tables["months"], 1):
        for name in names:
            months[name] = months.get(name, frozenset()) | {month}
    return _Names(months, frozenset(tables["fillers"]), frozenset(tables["currencies"]))


# ------------------------------------------------------------------------------------- amounts

_NUMBER = re.compile(
    r"(?P<before>\D{0,9}?)(?P<digits>(?<!\w)[.,٫]\d+|\d(?:[\d.,'٫ ]*\d)?)(?P<after>\D{0,9})"
)
_LOOSE = re.compile(r"(?<=\d) (?=[.,'٫] ?\d)|((?<=\d[.,'٫])|(?<=\d [.,'٫])) (?=\d)")
_MIDDLE = re.compile(r"(?<=\d) ?([^\d\s.,'()/:+\-]{1,4}) ?(?=\d\d(?!\d))")


def amounts(text: str) -> Amounts:
    """Returns what a text may mean as an amount of money; empty if it is none.

    An amount has cents, separated thousands or a currency. A plain whole number is not one, as it
    may be the number of an invoice, and neither is 12.50 %. "1.234" is 1234 or 1 and 234
    thousandths. 5€99 is 5.99, and 50,- is 50. (45.00), 45.00- and -45.00 are negative, and 45.00 CR
    is so on some papers.
    """
    values, is_money = _read_number(text)
    return values if is_money else frozenset()


def numbers(text: str) -> Amounts:
    """Returns what a text may mean as a number: what `amounts` reads, and plain whole numbers."""
    return _read_number(text)[0]


def has_cents(text: str) -> bool:
    """Says whether a text may be an amount that is written with two decimals."""
    return any(value.as_tuple().exponent == -2 for value in amounts(text))


@functools.lru_cache(maxsize=1 << 14)
def _read_number(text: str) -> tuple[Amounts, bool]:
    """Returns the values of a text, and whether it is written as money."""
    # Bounded, because all signs between the digits may be separators.
    line = _LOOSE.sub("", folded(text).strip()) if len(text) < 60 else ""
    match = _NUMBER.fullmatch(line) or _NUMBER.fullmatch(
        _MIDDLE.sub(lambda found: "." if _is_currency(found[1]) else found[0], line)
    )
    if match is None or sum(map(str.isdigit, line)) > 15:
        return frozenset(), False
    before, digits, after = match["before"], match["digits"], match["after"].lstrip()
    currency = _is_currency(before) or _is_currency(after)
    no_cents = after[:2] in (".-", ",-", ":-")
    is_money = currency or no_cents or not digits.replace(" ", "").isdigit()
    is_money &= "%" not in after
    in_brackets, behind = "(" in before and ")" in after, "-" in after and not no_cents
    negative = in_brackets or behind or "-" in before
    # A dash behind a word may be none of the number's, one behind ¥1,234 may stand for its end, and
    # (3) may be the third of a list.
    vague = (
        (bool(words_of(before)) and not currency)
        or (behind and not re.search(r"[.,٫]\d\d?$", digits))
        or (in_brackets and not is_money)
    )
    # What is credited is negative on an invoice, and not on a statement.
    credited = not {"cr", "dr"}.isdisjoint(words_of(before) + words_of(after))
    signs = (1, -1) if credited or (negative and vague) else (-1,) if negative else (1,)
    values = (Decimal(value) for value in _readings(digits))
    return frozenset(sign * value for value in values for sign in signs), is_money


@functools.lru_cache(maxsize=4096)
def _is_currency(text: str) -> bool:
    words = words_of(text)
    return any(unicodedata.category(sign) == "Sc" for sign in text) or not (
        _names().currencies.isdisjoint([*words, "".join(words)])
    )


def _readings(digits: str) -> Iterator[str]:
    """Yields what digits with separators may mean, with a decimal point."""
    *groups, last = re.split("[.,'٫ ]", digits)
    *inner, sign = re.findall("[.,'٫ ]", digits) or [""]
    if {*inner} <= {sign} and sign != "٫" and _are_thousands([*groups, last]):
        yield "".join([*groups, last])
    # Two decimals may stand behind an apostrophe, as in Spain, or behind what OCR took for one more
    # separator of thousands: 1.234.50.
    decimals = len(last) == 2 if sign == "'" or sign in inner else sign in {".", ",", "٫"}
    if decimals and sign != " " and len({*inner}) < 2 and _are_thousands(groups):
        yield f"{''.join(groups)}.{last}"


def _are_thousands(groups: Sequence[str]) -> bool:
    """Says whether groups of digits are a whole number, in thousands or, as in India, in lakhs."""
    first, *rest = map(len, groups)
    if not rest:
        return True
    in_threes = first < 4 and {*rest} == {3}
    in_lakhs = first < 3 and rest[-1] == 3 and {*rest[:-1]} <= {2}
    return groups[0][:1] != "0" and (in_threes or in_lakhs)


# --------------------------------------------------------------------------------------- dates

_TOKEN = re.compile(rf"\d+|{_WORD.pattern}")
_LONGEST_NAME = 4
_YEARS = range(1900, 2100)
_UNITS = {*re.findall(r"\w+", "年 月 日 년 월 일 thang thg nam ngay m men d оны р сар сарын")}
"""Words between the parts of a date whose month is a number."""
_JOINTS = {("/", "/"), ("-", "-"), (".", "."), ("/", "-")}
"""Signs between the parts of such a date; blanks only as in 25 12 2018 and 3/5 2024."""


class _Token(NamedTuple):
    """A number, the name of a month or another word; `end` is the first place behind it."""

    start: int
    end: int
    digits: str = ""
    months: frozenset[int] = frozenset()


def dates(text: str, *, whole: bool = False) -> Dates:
    """Returns the days that a text may mean; 1/2/2024 may be in January or in February.

    Years are of the 20th or 21st century, and one of two digits may be of either.

    Args:
        text: with any number of dates.
        whole: whether the text must be nothing but a date.
    """
    line = folded(text)
    found: set[date] = set()
    for start, end, days in _find_dates(line):
        if not whole or not list(_tokens(f"{line[:start]} {line[end:]}")):
            found |= days
    return frozenset(found)


def dates_among(texts: Sequence[str]) -> list[tuple[int, int, Dates]]:
    """Finds the dates among words.

    Returns:
        The first word of each date, the one behind its last, and the days that it may mean.
    """
    words = [folded(text) for text in texts]
    starts = list(itertools.accumulate((len(word) + 1 for word in words), initial=0))
    return [
        (bisect.bisect_right(starts, start) - 1, bisect.bisect_left(starts, end), days)
        for start, end, days in _find_dates(" ".join(words))
        if days
    ]


def _find_dates(text: str) -> Iterator[tuple[int, int, Dates]]:
    """Yields start, end and days of the dates in a `folded` text; they may overlap."""
    tokens = list(_tokens(text))
    for one in tokens:
        if len(one.digits) == 8:
            year, month, day = one.digits[:4], one.digits[4:6], one.digits[6:]
            yield one.start, one.end, _days(_years(year), [int(month)], day)
    for three in zip(tokens, tokens[1:], tokens[2:], strict=False):
        numbers = sum(bool(one.digits) for one in three)
        if numbers == 3:
            yield three[0].start, three[2].end, _numeric(text, *three)
        elif numbers == 2:
            yield three[0].start, three[2].end, _named(text, *three)


def _tokens(text: str) -> Iterator[_Token]:
    """Yields what a text is made of, but for the words that stand between the parts of a date."""
    names = _names()
    words = [
        (m.start(), m.end(), m[0] if m[0].isascii() else "".join(words_of(m[0])))
        for m in _TOKEN.finditer(text)
    ]
    at = 0
    while at < len(words):
        start, end, word = words[at]
        length = 1
        if word.isdecimal():
            yield _Token(start, end, digits=word)
        else:
            runs = [words[at : at + n] for n in range(_LONGEST_NAME, 0, -1)]
            named = [run for run in runs if " ".join(word for *_, word in run) in names.months]
            if named:
                length = len(named[0])
                months = names.months[" ".join(word for *_, word in named[0])]
                yield _Token(start, named[0][-1][1], months=months)
            elif word not in names.fillers and word not in _UNITS:
                yield _Token(start, end)
        at += length


def _named(text: str, one: _Token, two: _Token, three: _Token) -> Dates:
    """Returns what two numbers and the name of a month mean, in any order."""
    # 12.03 Mar 2019 and 3 Mar 12.50 hold a price.
    cut = len(three.digits) == 2 and re.match(r"[.,:/-]\d", text[three.end : three.end + 2])
    years = [] if cut else _years(three.digits)
    if two.months:
        if re.search(r"\d[.,:]$", text[max(0, one.start - 2) : one.start]):
            years = []
        by_year = _days(_years(one.digits, long=True), two.months, three.digits)
        return by_year | _days(years, two.months, one.digits)
    if one.months:
        if len(three.digits) == 2 and text[two.end : three.start] in (".", ","):
            years = []
        return _days(years, one.months, two.digits)
    # "2024. gada 3. maijs", but not "2024 3 May".
    joined = words_of(text[one.end : two.start])
    return _days(_years(one.digits, long=True) if joined else [], three.months, two.digits)


def _numeric(text: str, one: _Token, two: _Token, three: _Token) -> Dates:
    """Returns what three numbers mean, by the signs or the words between them."""
    first, month, last = one.digits, two.digits, three.digits
    gaps = text[one.end : two.start], text[two.end : three.start]
    if len(month) > 2 or max(map(len, gaps)) > 12:
        return frozenset()
    units = words_of(gaps[0])
    if units and _UNITS.issuperset(units + words_of(gaps[1])):
        by_year = _days(_years(first), [int(month)], last)
        return by_year or _days(_years(last, long=True), [int(month)], first)
    joints = gaps[0].strip(), gaps[1].strip()
    by_blanks = (joints == ("", "") and len(first) == len(month) == 2) or joints == ("/", "")
    if joints not in _JOINTS and not (by_blanks and len(last) == 4):
        return frozenset()
    # More of the same before or behind makes it a number to be called, or of an article.
    before, after = text[max(0, one.start - 4) : one.start], text[three.end : three.end + 4]
    long = bool(
        re.search(rf"\d{re.escape(gaps[0])}$", before)
        or re.match(rf"{re.escape(gaps[1])}\d", after)
    )
    days = _days(_years(last, long=long), [int(month)], first)
    if len(first) < 3:
        days |= _days(_years(last, long=long), [int(first)], month)
    # 24/5/3 and 24. 5. 3. are of 2024, but 24.5.3 is the number of a version.
    if len(last) == 2 or len(first) == 4 or gaps[0] in ("/", ". "):
        days |= _days(_years(first, long=long), [int(month)], last)
    return days


def _years(digits: str, *, long: bool = False) -> list[int]:
    """Returns the years that digits may mean; `long` takes none of two digits."""
    if len(digits) == 4 and int(digits) in _YEARS:
        return [int(digits)]
    return [1900 + int(digits), 2000 + int(digits)] if len(digits) == 2 and not long else []


def _days(years: Iterable[int], months: Iterable[int], day: str) -> Dates:
    found = set()
    for year, month in itertools.product(years, months) if len(day) < 3 else ():
        with contextlib.suppress(ValueError):  # there is no 31 February
            found.add(date(year, month, int(day)))
    return frozenset(found)
