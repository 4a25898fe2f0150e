"""Numbers and texts as a reader of the report or of a terminal wants to see them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

MOST_LISTED = 8
"""Rounds or metrics that one sentence names."""

BYTE_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
TIME_UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def plural(noun: str, number: int) -> str:
    """Returns "client" for 1, else "clients"; of "canary", "canaries"."""
    if number == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"


def counted(number: int, noun: str) -> str:
    """Returns "1 client" or "1,200 clients"."""
    return f"{number:,} {plural(noun, number)}"


def show_rounds(rounds: Iterable[int]) -> str:
    """Returns "round 3" or "rounds 3, 5, 9", at most eight of them.

    >>> show_rounds([3, 5])
    'rounds 3, 5'
    """
    listed = sorted(set(rounds))
    named = ", ".join(map(str, listed[:MOST_LISTED]))
    more = len(listed) - MOST_LISTED
    return f"{plural('round', len(listed))} {named}{f' and {more} more' if more > 0 else ''}"


def show_value(value: float) -> str:
    """Returns a metric's value, three digits."""
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else f"{value}".replace("inf", "∞")
    return f"{value:.3f}" if value == 0 or 0.001 <= abs(value) < 1000 else f"{value:.3g}"


def show_seconds(seconds: float) -> str:
    """Returns a duration.

    >>> show_seconds(0.042), show_seconds(3.2), show_seconds(75), show_seconds(7_500)
    ('42 ms', '3.2 s', '1 min 15 s', '2 h 5 min')
    """
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60:,} h {minutes % 60} min"


def show_bytes(number: float) -> str:
    """Returns an amount of data, in powers of 1000.

    >>> show_bytes(123), show_bytes(4_560_000)
    ('123 bytes', '4.56 MB')
    >>> show_bytes(999_600)
    '1 MB'
    """
    # What rounds up to a thousand is one of the next unit.
    size, unit = unit_of(number / 0.9995, BYTE_UNITS)
    return f"{number / size:.3g} {unit}" if size > 1 else f"{number:.0f} {unit}"


def unit_of(largest: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """Returns the largest unit, with its size, that `largest` reaches; else the smallest."""
    return next((unit for unit in units if largest >= unit[0]), units[-1])


def plain(text: str, longest: int = 500) -> str:
    """Returns a text without what would steer a terminal, and cut where it is too long.

    >>> plain("a" + chr(27) + "[2J"), plain("abcdef", 4)
    ('a [2J', 'abc…')
    """
    shown = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return "".join(letter if letter.isprintable() else " " for letter in shown)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields rows as lines with columns of one width; nothing but a heading is nothing.

    >>> list(aligned([("", "n"), ("all", "12")]))
    ['     n', 'all  12']
    """
    if len(rows) < 2:
        return
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def as_markdown(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns rows, of which the first has the headings, as the lines of a Markdown table."""
    head, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)]


def as_csv(table: pd.DataFrame, *, index: bool = True) -> bytes:
    """Returns a table as CSV in which no cell is a formula.

    A spreadsheet computes a text that begins with one of ``=+-@``, a tab or a line's end, and may
    send what stands beside it away. An apostrophe before it lets it be shown.
    """

    def shown(cell: object) -> object:
        computed = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
        return f"'{cell}" if computed else cell

    safe = table.map(shown).rename(index=shown, columns=shown)
    return str(safe.to_csv(index=index)).encode()
