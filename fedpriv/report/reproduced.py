"""A paper that was reproduced: its tables, and which of its claims hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedpriv.report.render import page
from fedpriv.report.sweep import Recorded, noted, origin
from fedpriv.report.wording import counted, plain, show_bytes, show_seconds

OUTCOMES = {True: "holds", False: "does not hold", None: "cannot tell"}


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
        """Returns how many claims hold, do not, and cannot be told."""
        if not self.tables:
            return "No table has been run yet"
        return _counts([claim for _, claim in self.claims])

    def markdown(self) -> str:
        """Returns the paper's claims as Markdown: how many hold, then each with its outcome."""
        if not self.tables:
            return f"{self.answer()}.\n"
        lines = [f"**{self.answer()}.**", "", "| | claims | time, memory |", "|---|---|---|"]
        for name, one in self.tables.items():
            title = plain(one.title, 200).replace("|", "\\|")
            lines.append(f"| `{name}`: {title} | {_counts(one.claims)} | {_cost(one)} |")
        lines += ["", "| claim | table | |", "|---|---|---|"]
        for name, claim in self.claims:
            text = noted(claim).replace("|", "\\|")
            lines.append(f"| {text} | `{name}` | {_outcome(claim)} |")
        return "\n".join(lines) + "\n"

    def html(self) -> str:
        """Returns the page of the paper."""
        return page(
            "reproduced.html.j2",
            title=self.paper,
            answer=self.answer(),
            tables=[
                (name, plain(one.title, 200), _counts(one.claims), _cost(one), origin(one))
                for name, one in self.tables.items()
            ],
            claims=[
                (
                    name,
                    noted(claim),
                    _outcome(claim),
                    [part["verdict"] for part in claim["comparisons"]],
                )
                for name, claim in self.claims
            ],
        )

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


def by_number(name: str) -> list[tuple[int, str]]:
    """Returns a key that sorts table2 before table10."""
    return [(int(part or -1), text) for text, part in re.findall(r"(\D*)(\d*)", name)]


def _counts(claims: Sequence[Mapping[str, Any]]) -> str:
    if not claims:
        return "no claim"
    hold, fail = (sum(one["holds"] is is_so for one in claims) for is_so in (True, False))
    return (
        f"{hold} of {counted(len(claims), 'claim')} hold{'s' * (hold == 1)}, "
        f"{fail} do{'es' * (fail == 1)} not, {len(claims) - hold - fail} cannot be told"
    )


def _outcome(claim: Mapping[str, Any]) -> str:
    """Returns whether a claim holds, and what it would take to tell."""
    told = OUTCOMES[claim["holds"]]
    return f"{told}; {counted(claim['needs'], 'seed')} would" if claim.get("needs") else told


def _cost(one: Recorded) -> str:
    parts = (
        show_seconds(one.seconds) if one.seconds else "",
        show_bytes(one.memory) if one.memory else "",
    )
    return ", ".join(filter(None, parts)) or "—"
