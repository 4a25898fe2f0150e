"""What is meant by a text: an amount, or a day."""

from __future__ import annotations

import re
from datetime import date

_AMOUNT = re.compile(
    r"[^\W\d_]{0,4}[.]?[^\w\s]?\s?"  # a currency, or the sign of a list
    r"(?P<whole>\d{1,3}(?:[.,' ]\d{3}){1,4}|\d{1,15})(?:[.,](?P<part>\d{1,2}))?"
    r"\s?[^\d\s]{0,4}"
)

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME = rf"(?P<name>{'|'.join(_MONTHS)})[a-z]*"
_YEAR = r"(?P<year>\d{4}|\d\d)"
_DAYS = tuple(
    re.compile(rf"(?<!\d){pattern}(?!\d)", re.IGNORECASE)
    for pattern in (
        r"(?P<year>\d{4})(?P<s>[-/.])(?P<month>\d{1,2})(?P=s)(?P<day>\d{1,2})",
        rf"(?P<day>\d{{1,2}})(?P<s>[-/.])(?P<month>\d{{1,2}})(?P=s){_YEAR}",
        rf"(?P<month>\d{{1,2}})(?P<s>[-/.])(?P<day>\d{{1,2}})(?P=s){_YEAR}",
        rf"(?P<day>\d{{1,2}})(?:st|nd|rd|th)?[\s./-]*{_NAME}[\s.,/-]*{_YEAR}",
        rf"{_NAME}[\s.]*(?P<day>\d{{1,2}})(?:st|nd|rd|th)?[\s,]+{_YEAR}",
    )
)


def hundredths(text: str) -> int | None:
    """Returns an amount or number, in hundredths; None where the text is something else.

    Currencies, and signs such as those of a list, may stand before and after: a minus is not heard.
    A sign and three digits are thousands: "1.234" is 1234, and "1,234.5" is 1234.50.
    """
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        return None
    return int(re.sub(r"\D", "", found["whole"])) * 100 + int((found["part"] or "").ljust(2, "0"))


def days(text: str, *, whole: bool = False) -> set[date]:
    """Returns the days that a text may mean: of 3/4/2019, both 3 April and 4 March.

    Years of two digits are of this century.

    Args:
        text: with any number of dates.
        whole: whether the text must be nothing but a date.
    """
    found: set[date] = set()
    for pattern in _DAYS:
        matches = [pattern.fullmatch(text)] if whole else pattern.finditer(text)
        found.update(day for match in matches if match and (day := _day(match.groupdict())))
    return found


def _day(parts: dict[str, str]) -> date | None:
    month = parts.get("month") or _MONTHS.index(parts["name"].lower()) + 1
    year = int(parts["year"])
    try:
        return date(year if year > 99 else 2000 + year, int(month), int(parts["day"]))
    except ValueError:
        return None
