"""The papers whose tables can be run again, and those tables, by the files of their sweeps.

Nothing else is imported, so that `fedpriv reproduce` and the shell's completion answer at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fedpriv.config import catalogue
from fedpriv.runtime.refusals import Mistakes, near


@dataclass(frozen=True)
class Paper:
    """A paper whose tables can be reproduced.

    Attributes:
        folder: of its sweeps, below experiments/papers.
        told: authors, year and title.
    """

    folder: str
    told: str


PAPERS = {
    "pfl-docvqa": Paper("pfl_docvqa", "Tito et al. 2024, Privacy-Aware Document Visual QA"),
    "pried-kie": Paper("pried_kie", "Saifullah et al. 2023, Private Key Information Extraction"),
    "gi-dqa": Paper("gi_dqa", "Ben Hemo et al. 2025, Gradient Inversion of Document QA"),
    "cdmi": Paper("cdmi", "Dentan et al. 2024, Reconstructing Training Data from Document Models"),
    "extraction": Paper("extraction", "Pinto et al. 2024, Extracting Training Data from Doc VQA"),
}


def tables(paper: str) -> dict[str, str]:
    """Returns the sweeps of a paper by the name of their table, such as table5, in their order.

    Raises:
        Mistakes: if there is no such paper.
    """
    if paper not in PAPERS:
        told = f"there is no paper {paper!r}{near(paper, PAPERS)} (expected {', '.join(PAPERS)})"
        raise Mistakes(paper, [told])
    folder = f"papers/{PAPERS[paper].folder}/"
    found = {
        name.removeprefix(folder).replace("_", ""): name
        for name in catalogue.sweeps()
        if name.startswith(folder)
    }
    return {name: found[name] for name in sorted(found, key=in_order)}


def sweep_of(paper: str, table: str) -> str:
    """Returns the sweep of a table; underscores in its name make no difference.

    Raises:
        Mistakes: if there is no such paper or table.
    """
    known, name = tables(paper), table.replace("_", "").lower()
    if name not in known:
        told = f"there is no table {table!r}{near(name, known)}"
        raise Mistakes(paper, [f"{told} (expected {', '.join(known) or 'none yet'})"])
    return known[name]


def in_order(name: str) -> tuple[int, int, str]:
    """Returns a key that sorts table2 before table10, tables before figures, and studies last."""
    found = re.match(r"(table|figure)s?(\d+)", name)
    kind = ("table", "figure").index(found[1]) if found else 2
    return kind, int(found[2]) if found else 0, name


def of_the_paper(name: str) -> bool:
    """Returns whether a table is one of the paper's, and not a study of ours."""
    return in_order(name)[0] < 2
