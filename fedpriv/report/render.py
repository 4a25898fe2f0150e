"""A result in words: the one way from a `Result` to a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from fedpriv.report.wording import aligned
from fedpriv.threat.results import Result


def lines(result: Result) -> Iterator[str]:
    """Yields what a terminal shows of a result."""
    if result.refused:
        yield result.headline
        return
    yield f"{result.status}: {result.headline}"
    title = ""
    for table in result.tables:
        rows = table.rows[: table.printed]
        if not rows:
            continue
        if table.title and table.title != title:
            title = table.title
            yield f"{title}:"
        yield from aligned([table.headings, *rows])
        if len(rows) < len(table.rows):
            yield f"and {len(table.rows) - len(rows)} more in result.json"
    yield from (f"assumed: {line}" for line in result.assumptions)
    yield from (f"not applicable: {part}: {why}" for part, why in result.not_applicable.items())
    yield from (f"left out: {count} for {why}" for why, count in result.left_out.items() if count)
    yield from (f"note: {line}" for line in result.notes)
