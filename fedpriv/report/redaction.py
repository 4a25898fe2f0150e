"""A run without its pages, names, texts and paths: what may be passed on of it.

What is kept is chosen, not what is left out: numbers, and texts that fedpriv itself has written.
From those, the names of providers and documents are taken out wherever they still occur. A table
of an attack stays only where its scorer says that it is `public`; its pictures, settings and
further numbers never do.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedpriv.report.folder import PICTURES, Finding, Partition, Run, Training
from fedpriv.report.wording import counted
from fedpriv.threat.results import Result

NAME, PATH = "[name left out]", "[path left out]"

KEPT = ("name", "started", "rounds", "seed", "versions")
"""Settings of the run that a redacted report knows."""

TABLE_LEFT_OUT = "left out, because its cells may hold names or texts of documents"

SHORTEST_NUMBER = 4
"""Digits from which on a name that is a number is searched for; a shorter one names nobody."""

_PATHS = re.compile(
    r"(?:\b[A-Za-z]:\\[^\s'\"]+)"  # of Windows
    r"|(?:(?<![\w/.~])(?:~|\.{1,2})?/[\w.~-][^\s'\",;)]*)"
    r"|(?:(?<![\w/])[\w.-]+(?:/[\w.-]+){2,})"
)


def redact(run: Run) -> Run:
    """Returns the run without pages, names, texts and paths."""
    clean = cleaner(run)
    config = {key: run.config[key] for key in KEPT if key in run.config}
    problems = []
    if run.problems:
        files = counted(len(run.problems), "problem")
        problems = [f"{files} with the run's files, which the full report tells"]
    return dataclasses.replace(
        run,
        config=_cleaned(config, clean),
        config_text="",
        rounds={at: _cleaned(row, clean) for at, row in run.rounds.items()},
        partition=_partition(run.partition, clean),
        failures=[_failure(row) for row in run.failures],
        prediction=None,
        ledger=_cleaned(run.ledger, clean),
        problems=problems,
        trainings=[
            Training(
                clean(one.name),
                {at: _cleaned(row, clean) for at, row in one.rounds.items()},
                one.planned,
                has_report=False,
            )
            for one in run.trainings
        ],
        findings=[Finding(clean(one.name), _result(one.result, clean)) for one in run.findings],
        planned=_cleaned(run.planned, clean),
    )


def cleaner(run: Run) -> Callable[[str], str]:
    """Returns a function that takes names, words of the shown page and paths out of a text."""
    names, words = {str(run.folder), str(run.folder.absolute()), str(Path.home())}, set[str]()
    if run.partition:
        clients = run.partition.clients
        names |= {provider for held in clients.values() for provider in held}
        names |= {*run.partition.test, *run.partition.documents}
        names |= {client for client in clients if not client.isdigit()}
    if page := run.prediction:
        names.add(page.document)
        words |= {word.text for word in page.words if {word.true, word.predicted} != {"O"}}
        words |= {text for one in page.answers or () for text in (one.answer, *one.accepted)}
    search = re.compile(rf"(?<!\w)(?:(?i:{_any(names)})|{_any(words)})(?!\w)")

    def clean(text: str) -> str:
        return _PATHS.sub(PATH, search.sub(NAME, text))

    return clean


def _any(names: set[str]) -> str:
    """Returns a pattern for names that can be searched for without striking out common words."""
    telling = [
        name
        for name in names
        if len(name) > 1 and (re.search(r"[^\W\d]", name) or len(name) >= SHORTEST_NUMBER)
    ]
    # The longest first: a name may begin with another. Without names, nothing matches.
    return "|".join(map(re.escape, sorted(telling, key=len, reverse=True))) or r"(?!)"


def _cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    """Returns a JSON value with every text and key cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {_cleaned(key, clean): _cleaned(inner, clean) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(inner, clean) for inner in value]
    return value


def _partition(partition: Partition | None, clean: Callable[[str], str]) -> Partition | None:
    """Returns who holds how much, with numbers in place of names."""
    if partition is None:
        return None
    trained = Counter[str]()
    for held in partition.clients.values():
        trained.update(held)
    order = sorted({*trained, *partition.test}, key=lambda name: (-trained[name], name))
    number = {provider: f"provider {place}" for place, provider in enumerate(order, 1)}
    return Partition(
        clean(partition.method),
        {
            client if client.isdigit() else f"client {place}": {
                number[provider]: documents for provider, documents in held.items()
            }
            for place, (client, held) in enumerate(partition.clients.items())
        },
        {number[provider]: documents for provider, documents in partition.test.items()},
    )


def _failure(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns when and how a client failed, with the type of the error alone."""
    kept = {key: row[key] for key in ("round", "client") if type(row.get(key)) is int}
    kind = row.get("kind")
    error = re.match(r"\w*(?:Error|Exception)\b", str(row.get("reason") or ""))
    reason = f"{error[0]}; the reason is left out" if error else "the reason is left out"
    return {**kept, "kind": kind if kind in ("failed", "missing") else "", "reason": reason}


def _result(result: Result, clean: Callable[[str], str]) -> Result:
    """Returns a result without pictures, texts, settings and further numbers."""
    tables = [table for table in result.tables if table.public]
    figures = [figure for figure in result.figures if figure.kind != PICTURES]
    gone = {
        "table": (len(result.tables) - len(tables), TABLE_LEFT_OUT),
        "group": (len(result.figures) - len(figures), "of pictures left out"),
    }
    notes = [f"{counted(n, noun)} {why}" for noun, (n, why) in gone.items() if n]
    whole = {
        field: _cleaned(getattr(result, field), clean)
        for field in ("headline", "assumptions", "left_out", "not_applicable", "kind", "primary")
    }
    return dataclasses.replace(
        result,
        **{**whole, "assumptions": tuple(whole["assumptions"])},
        details={
            key: value
            for key, value in result.details.items()
            if key in SCORES and isinstance(value, int | float)
        },
        tables=tuple(
            dataclasses.replace(
                table,
                headings=tuple(map(clean, table.headings)),
                rows=tuple(tuple(map(clean, row)) for row in table.rows),
                note=clean(table.note),
                title=clean(table.title),
            )
            for table in tables
        ),
        figures=tuple(
            dataclasses.replace(
                figure,
                title=clean(figure.title),
                data=_cleaned(figure.data, clean),
                section=clean(figure.section),
            )
            for figure in figures
        ),
        notes=(*map(clean, result.notes), *notes),
        settings={},
        numbers={clean(name): number for name, number in result.numbers.items()},
        threat_model={clean(name): given for name, given in result.threat_model.items()},
    )


SCORES = (
    *("exact_match", "ocr_ceiling", "psnr_roi", "template_psnr_roi", "token_recall"),
    "answer_exact",
)
"""Numbers of a result that the headline of the report needs."""
