"""A result in words: the one way from a `Result` to a terminal, and to HTML.

A result may come out of a file of somebody else's: its texts are escaped in HTML and cannot steer a
terminal, what is too much is cut and told, and a figure that cannot be drawn is told too.
"""

from __future__ import annotations

import base64
import functools
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedpriv.privacy.views import face
from fedpriv.report import figures
from fedpriv.report.figures import Chart
from fedpriv.report.folder import PICTURES, Finding
from fedpriv.report.glossary import term, used
from fedpriv.report.wording import aligned, counted, plain
from fedpriv.threat.results import DONE, LEAK, REFUSED, Figure, Result, Table

LONGEST_CELL = 60
"""Characters of a table's cell in a terminal."""

MOST_FIGURES, MOST_TABLES, MOST_NUMBERS = 24, 60, 300
"""Of one attack that the report shows."""

TINY = 160
"""Pixels of width below which a picture is enlarged without smoothing."""

HERO = {
    ("original", True): "the client's page, and what the attack took out of the client's update.",
    (
        "template",
        True,
    ): "the form that the attack starts from, and what it took out of the client's "
    "update to fill it in.",
    ("original", False): "the client's page, and how far the attack came.",
    ("template", False): "the form that the attack starts from, and how far it came.",
}
"""What is to be seen beside a reconstruction, by the other picture and whether it is a leak."""

Panel = tuple[str, str, bool]
"""Caption, data URI, and whether the picture is tiny."""

Summary = tuple[str, str]
"""Kind of result and title of a table of one row."""


@dataclass
class Section:
    """Tables and figures that stand together.

    Attributes:
        title: "" for those of no section.
        tables: first.
        charts: side by side.
        wide: charts as wide as the page.
        pictures: titles, and under each captions, pictures as data URIs, and whether one is tiny.
        notes: what could not be shown.
    """

    title: str
    tables: list[Table] = field(default_factory=list)
    charts: list[Chart] = field(default_factory=list)
    wide: list[Chart] = field(default_factory=list)
    pictures: list[tuple[str, list[Panel]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def lines(result: Result) -> Iterator[str]:
    """Yields what a terminal shows of a result."""
    yield plain(result.headline if result.refused else f"{said(result)}: {result.headline}")
    if asked := threat_model(result):
        yield plain(asked)
    if result.details and not result.tables:
        yield plain(", ".join(f"{name} {text}" for name, text in flat(result.details)))
    title = ""
    for table in result.tables:
        rows = table.rows[: table.printed]
        if not rows:
            continue
        if table.title and table.title != title:
            title = table.title
            yield plain(f"{title}:")
        shown = [table.headings, *rows]
        yield from aligned([[plain(cell, LONGEST_CELL) for cell in row] for row in shown])
        if len(rows) < len(table.rows):
            yield f"and {len(table.rows) - len(rows):,} more in result.json"
    for line in (
        *(f"assumed: {one}" for one in result.assumptions),
        *(f"not applicable: {parts}: {why}" for why, parts in refusals(result)),
        *(f"left out: {count:,} for {why}" for why, count in result.left_out.items() if count),
        *(f"note: {one}" for one in result.notes),
    ):
        yield plain(line)


def said(result: Result) -> str:
    """Returns the verdict in words; where there is none, how far the attack came."""
    if result.refused:
        return REFUSED.replace("_", " ")
    judged = result.status == DONE and result.numbers
    return result.verdict.replace("_", " ") if judged else result.status


def threat_model(result: Result) -> str:
    """Returns what the attack asks for, and what of it was granted, by the types of its access."""
    asked = ", ".join(result.threat_model)
    if result.refused or not asked:
        return f"asks for: {asked}" if asked else ""
    granted = ", ".join(name for name, given in result.threat_model.items() if given)
    missing = ", ".join(name for name, given in result.threat_model.items() if not given)
    return f"may use: {granted or 'nothing'}" + (f"; not granted: {missing}" if missing else "")


def refusals(result: Result) -> list[tuple[str, str]]:
    """Returns each reason why parts of the attack could not be run, and those parts."""
    found: dict[str, list[str]] = {}
    for part, why in result.not_applicable.items():
        found.setdefault(why, []).append(part)
    return [(why, ", ".join(parts)) for why, parts in found.items()]


def flat(numbers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns numbers, which may be nested, by dotted name, as text; at most `MOST_NUMBERS`."""
    found: list[tuple[str, str]] = []
    todo = list(numbers.items())[::-1]
    while todo and len(found) < MOST_NUMBERS:
        name, value = todo.pop()
        if isinstance(value, Mapping):
            todo += [(f"{name}.{inner}", held) for inner, held in list(value.items())[::-1]]
        elif isinstance(value, float):
            found.append((name, f"{value:.4g}"))
        elif isinstance(value, str | int):
            found.append((name, plain(str(value), LONGEST_CELL)))
    return found


def result_html(
    result: Result,
    pictures: Mapping[str, str] | None = None,
    compared: Collection[Summary] = (),
) -> Markup:
    """Returns a result as HTML, without a heading, for a page with the report's style sheet.

    Its headings link to the report's glossary.

    Args:
        result: of an attack.
        pictures: those that its figures name, as data URIs by file name.
        compared: tables that stand elsewhere, beside those of other attacks.
    """
    module: Any = templates().get_template("parts.html.j2").module
    shown = {
        "result": result,
        "threat_model": threat_model(result),
        "sections": sections(result, pictures or {}, compared),
        "verdict": said(result),
        "acted_on": numbers_table(result),
        "refusals": refusals(result),
        "numbers": flat(result.details),
    }
    return Markup(module.attack(shown))  # noqa: S704 - the template escapes


def numbers_table(result: Result) -> Table | None:
    """Returns the numbers that a person can act on, the primary one first."""
    names = sorted(result.numbers, key=lambda name: name != result.primary)[:MOST_NUMBERS]
    if not names:
        return None
    rows = []
    for name in names:
        one = result.numbers[name]
        cells = (one.value, one.control, one.detectable)
        value, control, least = ("—" if x is None else f"{x:.3g}" for x in cells)
        between = "—" if one.interval is None else "{:.3g} to {:.3g}".format(*one.interval)
        p = "—" if one.p_value is None else f"{one.p_value:.2g}"
        rows.append((name, value, between, counted(one.n, face(one.unit)), control, p, least))
    return Table(
        ("number", "value", "95 % interval", "of", "control", "p", "could have shown"),
        tuple(rows),
        note=(
            "The verdict rests on what was recovered to the last pixel or token, which no chance "
            "does; the first row says how much that is."
            if result.certain
            else "The verdict rests on the first row."
        )
        + " The p-values of the others are corrected for their number.",
        public=True,
    )


def sections(
    result: Result, pictures: Mapping[str, str], compared: Collection[Summary] = ()
) -> list[Section]:
    """Returns tables and figures by section, in the order in which the sections first occur.

    The arguments are those of `result_html`.
    """
    found: dict[str, Section] = {}
    elsewhere = [table for key, table in summaries(result).items() if key in compared]
    for table in result.tables[:MOST_TABLES]:
        if table not in elsewhere:
            found.setdefault(table.title, Section(table.title)).tables.append(table)
    for figure in result.figures[:MOST_FIGURES]:
        section = found.setdefault(figure.section, Section(figure.section))
        try:
            if figure.kind == PICTURES:
                if shown := panels(figure, pictures):
                    section.pictures.append((figure.title, shown))
                if more := len(figure.data["panels"]) - len(shown):
                    section.notes.append(f"{figure.title}: {counted(more, 'picture')} not shown")
            else:
                chart = figures.draw(figure)
                wide = figure.kind == "scores" or figure.data.get("wide")
                if lone := _points(figure):
                    section.tables.append(lone)
                else:
                    (section.wide if wide else section.charts).append(chart)
        except (LookupError, TypeError, ValueError) as error:
            section.notes.append(f"{figure.title} is not drawn: {error!s:.200}")
    cut = {"table": len(result.tables) - MOST_TABLES, "figure": len(result.figures) - MOST_FIGURES}
    for noun, more in cut.items():
        if more > 0:
            last = found.setdefault("", Section(""))
            last.notes.append(f"{counted(more, f'further {noun}')} not shown")
    return list(found.values())


def panels(figure: Figure, pictures: Mapping[str, str]) -> list[Panel]:
    """Returns the pictures of a figure that are there.

    Raises:
        LookupError, TypeError, ValueError: if the figure's data are not of that kind.
    """
    return [
        (str(caption), uri, _is_tiny(uri))
        for caption, file in figure.data["panels"]
        if (uri := pictures.get(file))
    ]


def _is_tiny(uri: str) -> bool:
    """Says whether a PNG, as a data URI, is too small to be enlarged smoothly."""
    kind, _, data = uri.partition(";base64,")
    width: int = struct.unpack(">I", base64.b64decode(data[:32])[16:20])[0]
    return kind == "data:image/png" and width < TINY


def _points(figure: Figure) -> Table | None:
    """Returns lines of at most a point each as a table; None for a figure that is to be drawn.

    Args:
        figure: of a shape that can be drawn.
    """
    if figure.kind != "lines" or max(map(len, figure.data["curves"].values())) > 1:
        return None
    x = str(figure.data.get("x", "round"))
    points = [(n, *one) for n, curve in figure.data["curves"].items() for one in curve.items()]
    rows = tuple((n, str(at), "—" if v is None else f"{float(v):.4g}") for n, at, v in points)
    return Table((figure.title, x, "value"), rows, note="One point each, so no curve is drawn.")


def hero(findings: Sequence[Finding]) -> dict[str, Any] | None:
    """Returns the picture that the report opens with: what was stolen, else the main figure.

    Where there is a leak, it is one of a leak. Pictures of pages come before charts.
    """
    leaks = [one for one in findings if one.result.verdict == LEAK]
    for kind in (PICTURES, "roc", "counts", "exposure", "shares"):
        for one in leaks or findings:
            for figure in one.result.figures[:MOST_FIGURES]:
                if figure.kind != kind:
                    continue
                try:
                    if kind != PICTURES:
                        return {"panels": [], "chart": figures.draw(figure)}
                    if shown := panels(figure, one.pictures):
                        names = {caption for caption, *_ in shown}
                        pair = ("original" if "original" in names else "template", "reconstruction")
                        see = ""
                        if names.issuperset(pair):
                            shown = [panel for panel in shown if panel[0] in pair]
                            see = HERO[pair[0], bool(leaks)]
                        title = f"{one.name}, {figure.title}"
                        return {"title": title, "panels": shown, "see": see}
                except (LookupError, TypeError, ValueError):
                    continue  # the section of the attack says why
    return None


def summaries(result: Result) -> dict[Summary, Table]:
    """Returns the tables of one row, which may be compared with those of other attacks."""
    found: dict[Summary, Table] = {}
    for table in result.tables[:MOST_TABLES]:
        if table.title and len(table.rows) == 1:
            found.setdefault((result.kind, table.title), table)
    return found


def comparisons(findings: Sequence[Finding]) -> dict[Summary, Table]:
    """Returns tables with a row for each attack, of one-row tables that attacks of a kind share."""
    groups: dict[Summary, dict[str, Table]] = {}
    for one in findings:
        for key, table in summaries(one.result).items():
            groups.setdefault(key, {})[one.name] = table
    shown = {}
    for key, tables in groups.items():
        if len(tables) > 1:
            columns = tuple(dict.fromkeys(name for one in tables.values() for name in one.headings))
            rows = []
            for name, table in tables.items():
                cells = dict(zip(table.headings, table.rows[0], strict=True))
                rows.append((name, *(cells.get(column, "—") for column in columns)))
            note = " ".join(dict.fromkeys(one.note for one in tables.values() if one.note))
            shown[key] = Table(("attack", *columns), tuple(rows), key[1], note)
    return shown


@functools.cache
def templates() -> Environment:
    """Returns the report's templates; all texts are escaped."""
    environment = Environment(
        loader=PackageLoader("fedpriv.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = plain
    environment.filters["face"] = face
    environment.filters["term"] = term
    return environment


def page(template: str, **values: Any) -> str:
    """Returns a page, which ends with an explanation of the terms that it links to."""
    html = templates().get_template(template).render(**values)
    words = templates().get_template("glossary.html.j2").render(terms=used(html))
    return html.replace("<!--glossary-->", words)
