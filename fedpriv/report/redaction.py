"""A run without its pages, names, texts and paths: what may be passed on of it.

What is kept is chosen, not what is left out:

* numbers, dates and versions;
* texts that fedpriv itself has written: those of a result that says it is `public`;
* tables that are declared `public` by their scorer;
* names, as of a run or of a row of a sweep, if fedpriv's own experiment files have all their words.

Names of providers and documents, and paths, are taken out of what is kept, wherever they occur.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpriv.report.folder import PICTURES, UNREADABLE, Finding, Partition, Row, Run, Training
from fedpriv.report.wording import counted
from fedpriv.threat import access, results
from fedpriv.threat.results import Number, Result, Table

NAME, PATH, TEXT = "[name left out]", "[path left out]", "[text left out]"

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
"""The files whose words a name may have."""

TABLE_LEFT_OUT = "left out, because its cells may hold names or texts of documents"

NOT_OURS = (
    "what the attack says in words is left out: only texts of fedpriv's own attacks and scorers "
    "are known to quote nothing, and this one is not known to be of them"
)

SHORTEST_NUMBER = 4
"""Digits from which on a name that is a number is searched for; a shorter one names nobody."""

STATUSES = (
    *(results.DONE, results.NOTHING_CLAIMED, results.NOT_GRANTED, results.NOT_APPLICABLE),
    UNREADABLE,
)
OURS = frozenset({"anls", "exact", "f", "file", "or", "rankings", "secret", "seen", "unseen"})
"""Words of fedpriv's metrics, results and units that its experiment files do not have."""

STRUCTURE = frozenset(
    {"round", "clients", "seconds", "accepted", "attempts", "bytes_down", "bytes_up", "cut_off"}
)
"""Keys of a line of ``metrics.jsonl`` that are no names of metrics."""

_PATHS = re.compile(
    r"(?:'[^'\n]*[/\\][^'\n]*')|(?:\"[^\"\n]*[/\\][^\"\n]*\")"  # quoted, with blanks in it
    r"|(?:\b[A-Za-z][\w+.-]*://\S+)"  # addresses
    r"|(?:\b[A-Za-z]:[\\/][^\s'\"]+)|(?:\\\\[^\s'\"]+)"  # of Windows
    r"|(?:(?<![\w/.~])(?:~|\.{1,2})?/[\w.~-][^\s'\",;)]*)"
    r"|(?:(?<![\w/])[\w.-]+(?:/[\w.-]+){2,})"
)
_NUMERIC = re.compile(r"[\W\d_]*(?:(?:dB|s|h|min|ms|e[+-]?\d+|of|to|None)\b[\W\d_]*)*")
"""A cell that holds numbers and units."""


def redact(run: Run) -> Run:
    """Returns the run without pages, names, texts and paths."""
    clean, names_known = cleaner(run), run.partition is not None
    types = _types(run)
    problems = []
    if run.problems:
        files = counted(len(run.problems), "problem")
        problems = [f"{files} with the run's files, which the full report tells"]
    return Run(
        run.folder,
        config=_settings(run.config, clean),
        config_text="",
        rounds={at: _metrics(row, run, types, clean) for at, row in run.rounds.items()},
        partition=_partition(run.partition, clean),
        failures=[_failure(row) for row in run.failures],
        prediction=None,
        ledger=_cleaned(_without_units(run.ledger), clean),
        problems=problems,
        trainings=[
            Training(
                public_name(one.name, f"training {number}", clean),
                {at: _metrics(row, run, types, clean) for at, row in one.rounds.items()},
                one.planned,
                has_report=False,
            )
            for number, one in enumerate(run.trainings, 1)
        ],
        findings=[
            Finding(
                public_name(one.name, f"attack {number}", clean),
                _result(one.result, clean, names_known),
            )
            for number, one in enumerate(run.findings, 1)
        ],
        planned=_cleaned(run.planned, lambda name: public_name(name, NAME, clean)),
    )


def _without_units(ledger: Row | None) -> Row | None:
    """Returns a ledger without what single units have spent, which is as private as their data."""
    if not ledger or not isinstance(views := ledger.get("views"), Mapping):
        return ledger
    kept = {
        name: {key: value for key, value in view.items() if key != "individual"}
        for name, view in views.items()
        if isinstance(view, Mapping)
    }
    return {**ledger, "views": kept, "spent": {}}


def cleaner(run: Run) -> Callable[[str], str]:
    """Returns a function that takes names, words of the shown page and paths out of a text."""
    names, words = {str(run.folder), str(run.folder.absolute()), str(Path.home())}, set[str]()
    if run.partition:
        names |= names_of(run.partition)
    names |= {kind for kind in _types(run) if public_name(kind, "") != kind}
    if page := run.prediction:
        names.add(page.document)
        words |= {word.text for word in page.words if word.true != "O"}
        # A poor model tags any word, such as "on" and "number", which the report's texts need.
        tagged = {word.text for word in page.words if word.predicted != "O"}
        words |= {word for word in tagged if word.lower() not in vocabulary()}
        words |= {text for one in page.answers or () for text in (one.answer, *one.accepted)}
    return without(names, words)


def _types(run: Run) -> list[str]:
    """Returns the types of fields that metrics are of: they may be columns of the user's table."""
    rows = [*run.rounds.values(), *(row for one in run.trainings for row in one.rounds.values())]
    return sorted({key.partition("/")[2] for row in rows for key in row if "/" in key})


def names_of(partition: Partition) -> set[str]:
    """Returns the names of providers, documents and clients."""
    clients = partition.clients
    return {
        *(provider for held in clients.values() for provider in held),
        *(client for client in clients if not client.isdigit()),
        *partition.test,
        *partition.documents,
    }


def without(names: Iterable[str], words: Iterable[str] = ()) -> Callable[[str], str]:
    """Returns a function that takes names, words in their very case, and paths out of a text."""
    search = re.compile(rf"(?<![^\W_])(?:(?i:{_any(names)})|{_any(words)})(?![^\W_])")

    def clean(text: str) -> str:
        return _PATHS.sub(PATH, search.sub(NAME, text))

    return clean


def _any(names: Iterable[str]) -> str:
    """Returns a pattern for names that can be searched for without striking out common words.

    Between the words of a name there may be other blanks and signs, as in `vega_builders_aps`.
    """
    telling = [
        name
        for name in set(names)
        if len(name) > 1 and (re.search(r"[^\W\d]", name) or len(name) >= SHORTEST_NUMBER)
    ]
    patterns = []
    # The longest first: a name may begin with another.
    for name in sorted(telling, key=len, reverse=True):
        parts = re.findall(r"[^\W_]+", name)
        loose = r"[\W_]+".join(map(re.escape, parts)) if len(parts) > 1 else ""
        patterns += [re.escape(name), *([loose] if loose else [])]
    # Without names, nothing matches.
    return "|".join(patterns) or r"(?!)"


@functools.cache
def vocabulary() -> frozenset[str]:
    """Returns fedpriv's own words, and those of its experiment files outside of their comments.

    Nor those in the lines that say of which paper a table is, which name persons.
    """
    found: set[str] = set()
    for path in EXPERIMENTS.rglob("*.yaml"):
        text = re.sub(r"(?:^|(?<=\s))#.*", "", path.read_text("utf-8"))
        text = re.sub(r"^paper:.*", "", text, flags=re.MULTILINE)
        found.update(map(str.lower, re.findall(r"[^\W\d_]+", f"{text} {path.stem}")))
    return OURS | found


def public_name(
    name: str, otherwise: str = NAME, clean: Callable[[str], str] = lambda name: name
) -> str:
    """Returns a name that people chose, if fedpriv's own experiments have each of its words.

    Args:
        name: of a run, an attack, a row.
        otherwise: what stands in place of any other.
        clean: takes out names of providers and documents; a name that it changes is none to keep.
    """
    words = {word.lower() for word in re.findall(r"[^\W\d_]+", name)}
    return name if words <= vocabulary() and clean(name) == name else otherwise


def renamed(names: Iterable[str], noun: str, clean: Callable[[str], str]) -> dict[str, str]:
    """Returns what stands in place of each name: itself where it is public, or else a number."""
    known = enumerate(dict.fromkeys(names), 1)
    return {name: public_name(name, f"{noun} {number}", clean) for number, name in known}


def stamp(value: object) -> str:
    """Returns a date, a version or a commit as text, and "" for what may be anything else."""
    text = str(value)
    rest = re.sub(r"fedpriv|with changes|dev|rc", "", text)
    return text if re.fullmatch(r"[\da-f\s:.TZ+-]*", rest) else ""


def _settings(config: Mapping[str, Any], clean: Callable[[str], str]) -> dict[str, Any]:
    """Returns the settings that a redacted report knows."""
    kept: dict[str, Any] = {"name": public_name(str(config.get("name", "")) or NAME, NAME, clean)}
    kept |= {key: config[key] for key in ("rounds", "seed") if type(config.get(key)) is int}
    if started := stamp(config.get("started")):
        kept["started"] = started
    versions = config.get("versions")
    kept["versions"] = {
        name: version
        for name, version in (versions.items() if isinstance(versions, Mapping) else ())
        if re.fullmatch(r"\w+", str(name)) and re.fullmatch(r"\d+\.[\w.+]*", str(version))
    }
    return kept


def _metrics(
    row: Mapping[str, Any], run: Run, types: Sequence[str], clean: Callable[[str], str]
) -> dict[str, Any]:
    """Returns the numbers of a round; by type only where it is known that no type is a name."""

    def shown(key: str) -> str:
        measure, slash, kind = key.partition("/")
        known = clean(kind) == kind
        public = public_name(measure, f"metric {[*row].index(key) + 1}", clean)
        return public + slash + (kind if known else f"field {types.index(kind) + 1}")

    return {
        key if key in STRUCTURE else shown(key): value
        for key, value in row.items()
        if key in STRUCTURE or run.partition is not None or "/" not in key
    }


def _cleaned(value: Any, clean: Callable[[str], str], *, keys: bool = False) -> Any:
    """Returns a JSON value with every text cleaned; with its keys, where they are not fedpriv's."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {
            clean(key) if keys else key: _cleaned(inner, clean, keys=keys)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_cleaned(inner, clean, keys=keys) for inner in value]
    return value


def _partition(partition: Partition | None, clean: Callable[[str], str]) -> Partition | None:
    """Returns who holds how much, with numbers in place of names."""
    if partition is None:
        return None
    trained = Counter[str]()
    for held in partition.clients.values():
        trained.update(held)
    order = sorted({*trained, *partition.test}, key=lambda name: (-trained[name], name))
    number = {provider: f"supplier {place}" for place, provider in enumerate(order, 1)}
    method = re.sub(r"'[^']*'|\"[^\"]*\"", "…", partition.method)
    return Partition(
        public_name(method, "a partition that is left out here", clean),
        {
            client if client.isdigit() else f"client {place}": {
                number[provider]: documents for provider, documents in held.items()
            }
            for place, (client, held) in enumerate(partition.clients.items())
        },
        {number[provider]: documents for provider, documents in partition.test.items()},
    )


def _failure(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns when and how a client failed, with the type of the error alone if it is Python's."""
    kept = {key: row[key] for key in ("round", "client") if type(row.get(key)) is int}
    kind = row.get("kind")
    error = re.match(r"\w*(?:Error|Exception)\b", str(row.get("reason") or ""))
    python = error is not None and hasattr(builtins, error[0])
    reason = f"{error[0]}; the reason is left out" if error and python else "the reason is left out"
    return {**kept, "kind": kind if kind in ("failed", "missing") else "", "reason": reason}


def _result(result: Result, clean: Callable[[str], str], names_known: bool) -> Result:
    """Returns a result without pictures, settings and further numbers, in our words or in none.

    Where the names of providers are not known, they cannot be taken out, and all words are.
    """
    ours = result.public and names_known
    tables = [table for table in result.tables if table.public]
    figures = [one for one in result.figures if ours and one.kind != PICTURES]
    pictures = sum(one.kind == PICTURES for one in result.figures)
    gone = {
        "table": (len(result.tables) - len(tables), TABLE_LEFT_OUT),
        "group": (pictures, "of pictures left out"),
        "figure": (len(result.figures) - pictures - len(figures), "left out"),
    }
    notes = [f"{counted(n, noun)} {why}" for noun, (n, why) in gone.items() if n]
    known = Result(
        kind=public_name(result.kind, ""),
        headline="",
        details={
            key: value
            for key, value in result.details.items()
            if key in SCORES and isinstance(value, int | float)
        },
        # Types of access of the user's own bear names that the user chose.
        threat_model={
            name if name in access.__all__ else f"access {number}": given
            for number, (name, given) in enumerate(result.threat_model.items(), 1)
        },
        status=result.status if result.status in STATUSES else "ended early",
        verdict=result.verdict if result.verdict in results.VERDICTS else results.CANNOT_TELL,
        certain=result.certain,
    )
    if ours:
        return _in_our_words(known, result, tables, figures, notes, clean)
    return _in_numbers(known, result, tables, notes, clean)


def _in_our_words(
    known: Result,
    result: Result,
    tables: Sequence[Table],
    figures: Sequence[results.Figure],
    notes: Sequence[str],
    clean: Callable[[str], str],
) -> Result:
    """Adds the texts of a result that fedpriv has written, without names and paths."""
    return dataclasses.replace(
        known,
        headline=clean(result.headline),
        clause=clean(result.clause),
        assumptions=tuple(map(clean, result.assumptions)),
        left_out={clean(why): count for why, count in result.left_out.items()},
        not_applicable={clean(part): clean(why) for part, why in result.not_applicable.items()},
        tables=tuple(_table(table, clean, clean) for table in tables),
        figures=tuple(
            results.Figure(
                clean(one.kind),
                clean(one.title),
                _cleaned(one.data, clean, keys=True),
                clean(one.section),
            )
            for one in figures
        ),
        notes=(*map(clean, result.notes), *notes),
        primary=clean(result.primary),
        numbers={clean(name): counting(one, clean) for name, one in result.numbers.items()},
        public=True,
    )


def _in_numbers(
    known: Result,
    result: Result,
    tables: Sequence[Table],
    notes: Sequence[str],
    clean: Callable[[str], str],
) -> Result:
    """Adds the numbers of a result whose texts others may have written."""

    def text(said: str) -> str:
        return said if _NUMERIC.fullmatch(said) else public_name(said, TEXT, clean)

    headline = "no number is known"
    if primary := result.numbers.get(result.primary):
        control = "" if primary.control is None else f", against {primary.control:.3g}"
        headline = f"its main number is {primary.value:.3g}{control}"
    names = renamed(result.numbers, "number", clean)
    return dataclasses.replace(
        known,
        headline=headline,
        left_out={"reasons that are left out here": sum(result.left_out.values())},
        tables=tuple(_table(one, clean if result.public else text, text) for one in tables),
        notes=(NOT_OURS, *notes),
        primary=names.get(result.primary, ""),
        numbers={names[name]: counting(one, clean) for name, one in result.numbers.items()},
    )


def counting(one: Number, clean: Callable[[str], str]) -> Number:
    """Returns a number whose unit is called by one of fedpriv's own words."""
    return dataclasses.replace(one, unit=public_name(one.unit, "unit", clean))


def _table(table: Table, text: Callable[[str], str], cell: Callable[[str], str]) -> Table:
    return Table(
        headings=tuple(map(text, table.headings)),
        rows=tuple(tuple(map(cell, row)) for row in table.rows),
        title=text(table.title),
        note=text(table.note),
        printed=table.printed,
        public=True,
    )


SCORES = ("exact_match", "ocr_ceiling", "psnr_roi", "template_psnr_roi")
"""Numbers of a result that a redacted report lists."""
