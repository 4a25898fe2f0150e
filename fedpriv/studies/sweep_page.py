"""A sweep as a table, a figure and a list of claims, each computed from what its rows measured."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from pydantic import TypeAdapter, ValidationError

from fedpriv.report.figures import Chart
from fedpriv.report.figures.canvas import style, svg
from fedpriv.report.folder import partition_of
from fedpriv.report.redaction import names_of, public_name, renamed, stamp, without
from fedpriv.report.render import page
from fedpriv.report.wording import (
    aligned,
    as_markdown,
    counted,
    plain,
    show_bytes,
    show_seconds,
    show_value,
)
from fedpriv.runtime import run_files
from fedpriv.runtime.run_folder import REPORT, RESULTS, RunFolder
from fedpriv.studies.claims import NOT_MEASURED, Claim, Measured, verdicts, whose
from fedpriv.studies.estimate import Over, over, within
from fedpriv.studies.table import Line, figure
from fedpriv.threat.results import Table

REDACTED = "report-redacted.html"
TRAINED = "trained"
"""The folder of the runs that the tables of a paper share, beside those of the tables."""

FRAME = ("row", "column", "label", "mean", "low", "high", "paper")
"""Columns of `data_frame`."""

OUTCOMES = {True: "holds", False: "DOES NOT HOLD", None: "cannot tell"}
"""Of a claim."""

OWNERS = {"paper": "The paper's", "ours": "ours"}
"""Who makes a claim, in words."""


@dataclass(frozen=True)
class Column:
    """A number that the rows of a table have.

    Attributes:
        path: where it stands, such as `psnr_roi` or `ledger.views.global.pld`; `this - that` is a
            difference.
        label: the heading.
        interval: path of an interval that each measurement comes with; None where it has none.
    """

    path: str
    label: str
    interval: str | None = None


@dataclass(frozen=True)
class Recorded:
    """What a sweep has measured, as its results.json has it.

    Attributes:
        title: of the sweep.
        columns: of the table; the figure has a panel for each of the first ones.
        axis: name of the figure's horizontal axis; "" where the rows have none.
        rows: what was measured of all rows and seeds.
        claims: with verdicts, as `verdicts` yields them.
        made: the `command` and the `machine`.
        finished: whether all rows are there.
        paper: whose table it is, and which; "" for none.
        published: the paper's numbers, by row and column, which stand beside ours.
        legend: what the columns are, in sentences.
        seconds: of all its trainings and attacks, one after the other, whichever table made them; 0
            where nobody has looked.
        memory: bytes that one of them took at most; 0 where nobody has looked.
    """

    title: str
    columns: Sequence[Column]
    axis: str
    rows: Sequence[Measured]
    claims: Sequence[Mapping[str, Any]]
    made: Mapping[str, str]
    finished: bool = True
    paper: str = ""
    published: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    legend: str = ""
    seconds: float = 0.0
    memory: int = 0

    @classmethod
    def of(cls, content: Any) -> Recorded:
        """Reads what results.json holds.

        Claims of before there was a test are judged by it.

        Raises:
            pydantic.ValidationError: if it is not that of a sweep.
        """
        found = TypeAdapter(cls).validate_python(content)
        if all("comparisons" in one for one in found.claims):
            return found
        said = [Claim(one["claim"], one["claim"]) for one in found.claims]
        return replace(found, claims=list(verdicts(said, found.rows)))


def interval(column: Column, measured: Sequence[Measured]) -> Over | None:
    """Returns a column of one row: over its seeds, or a single one's own interval."""
    values = [v for one in measured if (v := one.values.get(column.path)) is not None]
    if len(values) == 1 and (found := measured[0].intervals.get(column.path)):
        return within(values[0], *found)
    return over(values, column.path) if values else None


def rows_of(measured: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Returns what was measured of each row, in the order of the rows."""
    found: dict[str, list[Measured]] = {}
    for one in measured:
        found.setdefault(one.row, []).append(one)
    return found


def cells(
    columns: Sequence[Column],
    measured: Sequence[Measured],
    published: Mapping[str, Mapping[str, float]] | None = None,
) -> list[list[str]]:
    """Returns the table with its headings; a refused attack has its headline in the last cell.

    Beside ours stands what the paper has, where it is given.
    """
    table = [["", *(column.label for column in columns), ""]]
    for name, seeds in rows_of(measured).items():
        theirs = (published or {}).get(name, {})
        refused = "; ".join(dict.fromkeys(one.headline for one in seeds if one.refused))
        row = [name]
        for column in columns:
            ours = interval(column, seeds)
            row.append("—" if ours is None else str(ours))
            if column.path in theirs:
                row[-1] += f" (paper: {show_value(theirs[column.path])})"
        table.append([*row, refused])
    return [[plain(cell, 90) for cell in row] for row in table]


def data_frame(sweep: Recorded) -> pd.DataFrame:
    """Returns each row and column with its mean, the ends of its interval, and the paper's."""
    records = []
    for name, seeds in rows_of(sweep.rows).items():
        theirs = sweep.published.get(name, {})
        for column in sweep.columns:
            about = {"row": name, "column": column.path, "label": column.label}
            one = interval(column, seeds)
            ours = {"mean": one.mean, "low": one.low, "high": one.high} if one else {}
            records.append({**about, **ours, "paper": theirs.get(column.path)})
    return pd.DataFrame(records, columns=[*FRAME])


def origin(sweep: Recorded) -> str:
    """Returns where the numbers of a sweep come from, as one sentence.

    A sweep that went on later may have several days and commits.
    """
    days, commits = (
        " and ".join(dict.fromkeys(getattr(one, name) for one in sweep.rows))
        for name in ("date", "commit")
    )
    made = sweep.made
    told = f"Measured by `{made['command']}` on {days}, at {commits}, {made['machine']}."
    if sweep.seconds:
        took = f"{show_seconds(sweep.seconds)}, one after the other"
        took += f", and {show_bytes(sweep.memory)} of memory" if sweep.memory else ""
        told += f" Its trainings and attacks took {took}."
    return told


def markdown(sweep: Recorded) -> str:
    """Returns a sweep as Markdown: the table, where it comes from, and the claims.

    Columns and claims of which nothing was measured are left out.
    """
    columns = [column for column in sweep.columns if interval(column, sweep.rows)]
    table = cells(columns, sweep.rows, sweep.published)
    if not any(row[-1] for row in table):  # nothing was refused
        table = [row[:-1] for row in table]
    whose = theirs(sweep.paper, sweep.published)
    told = " ".join(filter(None, (sweep.legend, _brackets(sweep.rows), whose, origin(sweep))))
    return "\n".join([*as_markdown(table), "", told, "", *judged(sweep.claims)]) + "\n"


def judged(claims: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yields the claims with what was found, and how many were not measured, as Markdown."""
    known = [one for one in claims if was_measured(one)]
    for one in known:
        yield from told(one)
    if missing := len(claims) - len(known):
        yield f"- Not measured: {counted(missing, 'further claim' if known else 'claim')}"


def theirs(paper: str, published: Mapping[str, Any]) -> str:
    """Returns whose numbers stand in brackets after ours, as a sentence; "" if there are none."""
    return f"Numbers of the paper are of {paper}." if published and paper else ""


def lines(
    columns: Sequence[Column],
    measured: Sequence[Measured],
    claims: Sequence[Claim],
    paper: str,
    published: Mapping[str, Mapping[str, float]],
) -> Iterator[str]:
    """Yields what the terminal shows: the table, whose numbers stand beside ours, the claims."""
    yield from aligned(cells(columns, measured, published))
    yield " ".join(filter(None, (_brackets(measured), theirs(paper, published))))
    yield from judged([*verdicts(claims, measured)])


def was_measured(claim: Mapping[str, Any]) -> bool:
    """Returns whether any comparison of a claim was."""
    return any(one["verdict"] != NOT_MEASURED for one in claim["comparisons"])


def outcome(claim: Mapping[str, Any]) -> str:
    """Returns whether a claim holds."""
    return OUTCOMES[claim["holds"]] if was_measured(claim) else NOT_MEASURED


def outcome_so_far(claim: Mapping[str, Any]) -> str:
    """Returns whether a claim holds; if it cannot be told, how it looks and what would tell."""
    told = outcome(claim)
    if claim["holds"] is not None or not was_measured(claim):
        return told
    gaps = [one.get("gap") for one in claim["comparisons"] if one["holds"] is None]
    if against := sum(gap is not None and gap < 0 for gap in gaps):
        told += ", so far the other way round"
        told += f" in {against} of {len(gaps)}" if len(gaps) > 1 else ""
    if None in gaps:
        told += "; measured in part"
    return told + (f"; {counted(claim['needs'], 'seed')} would tell" if claim.get("needs") else "")


def counts(claims: Sequence[Mapping[str, Any]]) -> str:
    """Returns how many claims hold, do not hold, cannot be told, or were not measured."""
    if not claims:
        return "no claim"
    found = Counter(map(outcome, claims))
    hold, fail, unsure, missing = (found[one] for one in (*OUTCOMES.values(), NOT_MEASURED))
    if len(claims) == 1:
        said = ("holds", "does not hold", "cannot be told", "was not measured")
        return f"the claim {said[(hold, fail, unsure, missing).index(1)]}"
    if hold == len(claims):
        return f"all {hold} claims hold"
    told = [f"{hold} of {len(claims)} claims hold{'s' * (hold == 1)}"]
    if fail:
        told.append(f"{fail} do{'es' * (fail == 1)} not")
    if unsure:
        told.append(f"{unsure} cannot be told")
    if missing:
        told.append(f"{missing} {'was' if missing == 1 else 'were'} not measured")
    return ", ".join(told)


def by_owner(claims: Sequence[Mapping[str, Any]]) -> str:
    """Returns `counts` of the paper's claims and of ours, where claims say whose they are."""
    found = {owner: [one for one in claims if whose(one["text"]) == owner] for owner in OWNERS}
    if not any(found.values()):
        return counts(claims)
    found["ours"] += [one for one in claims if not whose(one["text"])]
    told = (f"{OWNERS[owner]}: {counts(some)}" for owner, some in found.items() if some)
    return "; ".join(told)


def told(claim: Mapping[str, Any]) -> list[str]:
    """Returns a claim and what was found of its comparisons, as lines of Markdown."""
    parts, said_of = claim["comparisons"], noted(claim)
    if len(parts) == 1:
        (one,) = parts
        compared = f" ({one['text']})" if one["text"] != claim["text"] else ""
        return [f"- {said_of}: {one['verdict']}{compared}"]
    return [
        f"- {said_of}: {outcome_so_far(claim)}",
        *(f"  - {one['text']}: {one['verdict']}" for one in parts),
    ]


def noted(claim: Mapping[str, Any]) -> str:
    """Returns a claim in words, and why it is another than before the first result."""
    note = claim.get("note")
    return f"{claim['text']} (note: {note})" if note else claim["text"]


def _brackets(measured: Sequence[Measured]) -> str:
    """Returns the seeds, and what stands in brackets."""
    seeds = sorted({one.seed for one in measured})
    if len(seeds) == 1:
        own = "; in brackets: its own 95 % interval" * any(one.intervals for one in measured)
        return f"Seed {seeds[0]}{own}."
    return f"Seeds {', '.join(map(str, seeds))}; in brackets: 95 % intervals of the means."


def _drawn(sweep: Recorded, columns: Sequence[Column], title: str = "") -> Figure:
    rows = rows_of(sweep.rows)
    lines = [Line(name, seeds[0].x, seeds[0].curve) for name, seeds in rows.items()]
    panels = [(c.label, [interval(c, seeds) for seeds in rows.values()]) for c in columns]
    return figure(lines, panels, sweep.axis, title)


def draw(sweep: Recorded, folder: Path) -> None:
    """Writes figure.svg and figure.png into a folder."""
    drawn = _drawn(sweep, sweep.columns, sweep.title)
    for kind in ("svg", "png"):
        drawn.savefig(folder / f"figure.{kind}", dpi=150)


def as_svg(sweep: Recorded) -> Markup:
    """Returns the figure as an ``<svg>`` element, without columns in which nothing was measured."""
    shown = [column for column in sweep.columns if interval(column, sweep.rows)]
    _, *rows = (row[:-1] for row in cells(sweep.columns, sweep.rows))
    told = "; ".join(f"{row[0]}: {', '.join(row[1:])}" for row in rows)
    with style():
        return svg(_drawn(sweep, shown), f"{sweep.title}. {told}.")


def html(sweep: Recorded, *, redacted: bool = False) -> str:
    """Returns a sweep as one page: whether its claims hold, the figure, the table.

    Args:
        sweep: that was measured.
        redacted: whether it is a redacted one; the page says so.
    """
    measured, axis = sweep.rows, sweep.axis
    # The last column says why an attack was refused.
    keep = None if any(one.refused for one in measured) else -1
    table = cells(sweep.columns, measured, sweep.published)
    (first, *head), *rows = (row[:keep] for row in table)
    if keep is None:
        head[-1] = "why not"
    answer = f"{counted(len(rows), 'row')} measured, and no claim made about them"
    answer = counts(sweep.claims) if sweep.claims else answer
    chart = None
    if any(interval(column, measured) for column in sweep.columns):
        see = (
            f"Each curve is the mean over the seeds, with its interval, over {axis}."
            if axis
            else "Each line is a row of the table: a dot at the mean, a bar for the interval."
        )
        chart = Chart("What was measured", as_svg(sweep), see=see)
    return page(
        "sweep.html.j2",
        title=sweep.title,
        answer=f"{plain(sweep.title)}: {answer}.",
        seeds=_brackets(measured),
        origin=origin(sweep),
        theirs=theirs(sweep.paper, sweep.published),
        legend=sweep.legend,
        chart=chart,
        claims=[
            {**one, "text": noted(one), "outcome": outcome_so_far(one)} for one in sweep.claims
        ],
        table=Table((first or "row", *head), tuple(map(tuple, rows))),
        finished=sweep.finished,
        redacted=redacted,
    )


def write_page(folder: Path, *, redacted: bool = False) -> Path:
    """Writes ``report.html`` of a sweep that was run, from its results.json; returns its path.

    Args:
        folder: of the sweep.
        redacted: write ``report-redacted.html``, which keeps numbers and names that are known to
            be harmless; see `redact`.

    Raises:
        ValueError: the folder holds no results.json of a sweep.
    """
    content = RunFolder(folder, problems=[]).read_json(RESULTS)
    try:
        sweep = Recorded.of(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or RESULTS
        raise ValueError(
            f"{folder} is not the folder of a sweep: {where}: {first['msg']}"
        ) from error
    if redacted:
        runs = sorted({one.run for one in sweep.rows})
        partitions = [partition_of(RunFolder(_place(folder, run), problems=[])) for run in runs]
        sweep = redact(sweep, without({n for one in partitions if one for n in names_of(one)}))
    name = REDACTED if redacted else REPORT
    text = html(sweep, redacted=redacted)
    RunFolder(folder).write(name, text.encode("utf-8", "replace"))
    return folder / name


def _place(folder: Path, run: str) -> Path:
    """Returns where a run lies: in the sweep's folder, or among those that a paper's tables share.

    Raises:
        Damaged: if it lies elsewhere.
    """
    if run.startswith(f"../../{TRAINED}/"):
        return run_files.folder_inside(folder.resolve().parents[1], run.removeprefix("../../"))
    return run_files.folder_inside(folder, run)


def redact(sweep: Recorded, clean: Callable[[str], str]) -> Recorded:
    """Returns a sweep with numbers in place of what people have called its rows and columns.

    A name stays where `fedpriv.report.redaction.public_name` keeps it.

    Args:
        sweep: to be redacted.
        clean: takes the names of the runs' providers and documents out of a text.
    """
    rows = renamed([one.row for one in sweep.rows], "row", clean)
    curves = renamed([one.curve for one in sweep.rows], "curve", clean)
    labels = renamed([column.label for column in sweep.columns], "column", clean)
    # The longest first: a name may begin with another.
    longest = sorted(rows, key=len, reverse=True)
    name_of_row = re.compile("|".join(map(re.escape, longest)) or r"(?!)")
    claims = []

    def of_rows(text: str, instead: str) -> str:
        around = name_of_row.sub("", text)
        kept = public_name(around, "", clean) == around
        return name_of_row.sub(lambda match: rows[match[0]], text) if kept else instead

    for number, one in enumerate(sweep.claims, 1):
        parts = [
            {**part, "text": of_rows(part["text"], f"comparison {at}")}
            for at, part in enumerate(one["comparisons"], 1)
        ]
        text = of_rows(one["text"], f"claim {number}")
        untold = dict.fromkeys(("says", "was", "note"), "")
        claims.append({**one, **untold, "text": text, "comparisons": parts})
    return replace(
        sweep,
        title=public_name(sweep.title, "A sweep", clean),
        columns=[replace(column, label=labels[column.label]) for column in sweep.columns],
        axis=public_name(sweep.axis, "x", clean),
        legend="",
        paper="",
        published={},
        rows=[
            replace(
                one,
                row=rows[one.row],
                run="",
                curve=curves[one.curve],
                headline="the reason is left out" if one.refused else "",
                commit=stamp(one.commit),
                date=stamp(one.date),
                findings="",
            )
            for one in sweep.rows
        ],
        claims=claims,
        made={"command": "fedpriv sweep […]", "machine": "on a machine that is left out here"},
    )
