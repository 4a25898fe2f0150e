"""A paper that was reproduced: its tables, and which of its claims hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from fedpriv.report.figures import Chart
from fedpriv.report.figures.canvas import colour, legible, style, svg
from fedpriv.report.render import page
from fedpriv.report.wording import as_markdown, plain, show_bytes, show_seconds
from fedpriv.studies.sweep_page import (
    Recorded,
    by_owner,
    counts,
    origin,
    outcome_so_far,
    was_measured,
)

MARKS = {True: ("✓", "c2"), False: ("✗", "c1"), None: ("?", "line")}
"""Of a claim that holds, does not, or cannot be told, and the shade of its bar."""


@dataclass(frozen=True)
class Reproduced:
    """The tables of a paper that have been measured.

    Attributes:
        paper: authors, year and title.
        tables: by name, such as table5.
    """

    paper: str
    tables: Mapping[str, Recorded]

    @property
    def claims(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Every claim with the name of its table."""
        return [(name, claim) for name, one in self.tables.items() for claim in one.claims]

    def answer(self) -> str:
        """Returns how many claims of the paper hold, do not, and cannot be told; and of ours."""
        if not self.tables:
            return "No table has been run yet"
        return by_owner([claim for _, claim in self.claims])

    def markdown(self) -> str:
        """Returns the paper's claims as Markdown: how many hold, then each with its outcome."""
        if not self.tables:
            return f"{self.answer()}.\n"
        tables, claims, notes = (
            [("", "claims", "time, memory")],
            [("claim", "table", "")],
            self._notes(),
        )
        for name, one in self.tables.items():
            tables.append((f"`{name}`: {plain(one.title, 200)}", counts(one.claims), _cost(one)))
        for name, claim in self.claims:
            claims.append((_numbered(claim, notes), f"`{name}`", outcome_so_far(claim)))
        lines = [f"**{self.answer()}.**", "", *as_markdown(tables), "", *as_markdown(claims)]
        lines += ["", *(f"- Note {number}: {note}." for note, number in notes.items())]
        return "\n".join(lines) + "\n"

    def _notes(self) -> dict[str, int]:
        """Returns the notes of all claims, numbered: many claims share one."""
        notes = dict.fromkeys(claim.get("note") for _, claim in self.claims)
        return {note: number for number, note in enumerate(filter(None, notes), 1)}

    def html(self) -> str:
        """Returns the page of the paper."""
        notes = self._notes()
        return page(
            "reproduced.html.j2",
            title=self.paper,
            answer=self.answer(),
            chart=self.chart(),
            tables=[
                (name, plain(one.title, 200), counts(one.claims), _cost(one), origin(one))
                for name, one in self.tables.items()
            ],
            claims=[
                (name, _numbered(claim, notes), outcome_so_far(claim), _deciding(claim))
                for name, claim in self.claims
            ],
            notes=[f"Note {number}: {note}." for note, number in notes.items()],
        )

    def chart(self) -> Chart | None:
        """Returns a bar for each table that makes claims: how many hold, do not, cannot be told."""
        measured = {name: [*filter(was_measured, one.claims)] for name, one in self.tables.items()}
        shown = {name: claims for name, claims in measured.items() if claims}
        if not shown:
            return None
        with style():
            figure = Figure(figsize=(7.0, 0.3 + 0.26 * len(shown)), layout="constrained")
            axes = figure.subplots()
            for place, claims in enumerate(shown.values()):
                left = 0
                for outcome, (mark, shade) in MARKS.items():
                    count = sum(one["holds"] is outcome for one in claims)
                    axes.barh(place, count, left=left, height=0.7, color=colour(shade))
                    for at in range(count):
                        axes.text(left + at + 0.5, place, mark, ha="center", va="center")
                    left += count
            axes.set_yticks(range(len(shown)), map(legible, shown))
            axes.set_ylim(len(shown) - 0.5, -0.5)
            axes.set_xticks([])
            axes.grid(visible=False)
            axes.spines[:].set_visible(False)
            told = "; ".join(f"{name}: {counts(claims)}" for name, claims in shown.items())
            drawn = svg(figure, f"Claims by table. {told}.")
        see = "Each mark is a claim: a tick for one that holds, a cross for one that does not."
        return Chart("Claims by table", drawn, see=see)

    def as_json(self) -> dict[str, Any]:
        """Returns the claims by table, as paper.json has them."""
        return {
            "paper": self.paper,
            "answer": self.answer(),
            "tables": {
                name: {
                    "title": one.title,
                    "seconds": one.seconds,
                    "memory": one.memory,
                    "claims": list(one.claims),
                }
                for name, one in self.tables.items()
            },
        }


def _numbered(claim: Mapping[str, Any], notes: Mapping[str, int]) -> str:
    """Returns a claim in words, and the number of its note."""
    note = claim.get("note")
    return f"{claim['text']} (note {notes[note]})" if note else str(claim["text"])


def _deciding(claim: Mapping[str, Any]) -> str:
    """Returns the first comparison that an outcome rests on, and how many others it has."""
    parts = claim["comparisons"]
    first, *others = [one for one in parts if one["holds"] is claim["holds"]]
    if len(parts) == 1:
        return str(first["verdict"])
    more = f" (and {len(others)} more)" if others else ""
    return f"{first['text']}: {first['verdict']}{more}"


def _cost(one: Recorded) -> str:
    parts = (
        show_seconds(one.seconds) if one.seconds else "",
        show_bytes(one.memory) if one.memory else "",
    )
    return ", ".join(filter(None, parts)) or "—"
