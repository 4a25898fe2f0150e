"""Labels of a folder's files: one CSV or JSONL table in the folder.

Columns: `file`, its path in the folder. `provider` and `split` if they are known. `question` and
`answer` for questions, several rows a file. Every other column is a field, such as the total.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rapidfuzz import fuzz, process

from fedpriv.data.document import DataError, check_file
from fedpriv.data.folder.page_file import TABLES
from fedpriv.data.paths import inside
from fedpriv.data.readers.annotation import encodable
from fedpriv.data.reading import parse_json, shown
from fedpriv.runtime.file_names import name_problem

FILE, PROVIDER, SPLIT, QUESTION, ANSWER = "file", "provider", "split", "question", "answer"

RESERVED = (FILE, PROVIDER, SPLIT, QUESTION, ANSWER)
"""Columns that are not fields."""

PROVIDERS = (
    PROVIDER, "company", "vendor", "issuer", "supplier", "seller", "merchant", "organization",
    "organisation", "ucsf_document_id",
)  # fmt: skip
"""Names of columns that usually tell the provider, the most usual first."""

MOST_BYTES, MOST_COLUMNS = 500_000_000, 1_000
"""Largest table that is read."""

LIKE = 85.0
"""Least likeness of a file's name that is suggested for a missing one, rapidfuzz's ratio."""

HINTS = 20
"""Missing files for which a like name is looked for, which takes a look at all files each."""


@dataclass
class FileLabels:
    """What the table says of a file.

    Attributes:
        line: of its first row.
        provider: empty if the table has no such column.
        split: likewise.
        fields: values by column, without empty ones.
        questions: question → accepted answers.
    """

    line: int
    provider: str = ""
    split: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    questions: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class LabelTable:
    """A table that was read.

    Attributes:
        path: of it.
        columns: in its order.
        files: what it says of each file.
        problems: one for each row that cannot be used.
    """

    path: Path
    columns: tuple[str, ...]
    files: Mapping[str, FileLabels]
    problems: tuple[DataError, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The columns that are fields."""
        return tuple(column for column in self.columns if column not in RESERVED)


Row = tuple[int, dict[str, Any]]
"""A line's number from 1, and its cells by column."""


def usual_providers(columns: Iterable[str]) -> Iterator[str]:
    """Yields the columns whose names usually tell the provider, in any case, best first."""
    lower = {name.lower(): name for name in reversed(list(columns))}
    return (lower[name] for name in PROVIDERS if name in lower)


def find_table(root: Path, name: str | None) -> Path | None:
    """Returns the path of the table: of that name, or the first of `TABLES` that is there.

    Raises:
        DataError: if there are two, or the named one is not there or outside of the folder.
    """
    if name is not None:
        path = inside(root, name)
        check_file(path, "the table of labels is missing")
        return path
    there = [other for other in TABLES if (root / other).exists()]
    if len(there) > 1:
        raise DataError(root, f"{' and '.join(there)} are both there: set data.source.labels")
    return inside(root, there[0]) if there else None


def read_table(path: Path, files: Iterable[str]) -> LabelTable:
    """Reads a table.

    Args:
        path: of it.
        files: the files that there are.

    Raises:
        DataError: if nothing of it can be used: of another encoding, no JSON, without a column
            `file`. A row that cannot be used is among the `problems` of the result.
    """
    check_file(path, "the table of labels is missing")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise DataError(path, f"{size:,} bytes: expected at most {MOST_BYTES:,}")
    return parse_table(path, path.read_bytes(), files)


def parse_table(path: Path, content: bytes, files: Iterable[str]) -> LabelTable:
    """Reads the content of a table; see `read_table`."""
    text = _decode(path, content)
    problems: list[DataError] = []
    is_json = path.suffix.lower() in (".jsonl", ".ndjson", ".json")
    columns, rows = _json_rows(path, text) if is_json else _csv_rows(path, text)
    _check_columns(path, columns)
    known, found = frozenset(files), dict[str, FileLabels]()
    missing = 0
    for line, cells in rows:
        try:
            if isinstance(cells, DataError):
                raise cells
            name = _cell(cells, FILE)
            if name not in known:
                missing += 1
                raise ValueError(_missing(name, known if missing <= HINTS else ()))
            _add_row(found, name, line, cells)
        except DataError as error:
            problems.append(error)
        except ValueError as error:
            problems.append(DataError(path, str(error), line))
    if not found and not problems:
        raise DataError(path, "a table without rows: expected one for each file")
    return LabelTable(path, columns, found, tuple(problems))


def _decode(path: Path, content: bytes) -> str:
    """Decodes UTF-8, or UTF-16 with its mark, as spreadsheets write them."""
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    encoding = "utf-16" if content.startswith(marks) else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        wrong = content[error.start : error.start + 1]
        why = f"not UTF-8: it holds the byte {wrong.hex() or 'none'}; save it as CSV in UTF-8"
        raise DataError(path, why, line) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise DataError(path, "holds a NUL character: it is not a table of text", line)
    return text


def _csv_rows(path: Path, text: str) -> tuple[tuple[str, ...], Iterator[Any]]:
    first = text.split("\n", 1)[0]
    # German and French spreadsheets separate by semicolons.
    separator = max((",", ";", "\t"), key=first.count) if first else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise DataError(path, f"not a table: {error}", 1) from error
    columns = tuple(cell.strip() for cell in header)
    columns = tuple(name.lower() if name.lower() in RESERVED else name for name in columns)

    def rows() -> Iterator[tuple[int, Any]]:
        while True:
            line = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                yield line, DataError(path, f"not a row of a table: {error}", line)
                return  # what follows an open quote is lost
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(columns):
                why = f"{len(cells)} cells, but the table has {len(columns)} columns"
                yield line, DataError(path, why, line)
                continue
            yield line, dict(zip(columns, cells, strict=True))

    return columns, rows()


def _json_rows(path: Path, text: str) -> tuple[tuple[str, ...], Iterator[Any]]:
    rows: list[tuple[int, Any]] = []
    columns: dict[str, None] = {}
    for line, content in enumerate(text.split("\n"), start=1):
        if not content.strip():
            continue
        try:
            value = parse_json(path, content, line)
            if not isinstance(value, dict):
                raise DataError(path, f"expected an object, found {shown(value)}", line)
        except DataError as error:
            rows.append((line, error))
            continue
        columns.update(dict.fromkeys(value))
        rows.append((line, value))
    return tuple(columns), iter(rows)


def _check_columns(path: Path, columns: tuple[str, ...]) -> None:
    if len(columns) > MOST_COLUMNS:
        raise DataError(path, f"{len(columns):,} columns: expected at most {MOST_COLUMNS:,}")
    named = ", ".join(shown(column) for column in columns) or "none"
    if FILE not in columns:
        raise DataError(
            path, f"expected a column 'file' with paths in the folder; found {named}", 1
        )
    for column in columns:
        try:
            encodable(column)
        except ValueError as error:
            raise DataError(path, f"a column: {error}", 1) from error
    if "" in columns:
        raise DataError(path, f"a column has no name; found {named}", 1)
    if twice := sorted({column for column in columns if columns.count(column) > 1}):
        raise DataError(path, f"the column {shown(twice[0])} stands there twice", 1)
    if (QUESTION in columns) != (ANSWER in columns):
        raise DataError(path, f"'question' and 'answer' go together; found {named}", 1)


def _cell(cells: Mapping[str, Any], column: str) -> str:
    """Returns a cell as text; numbers of JSON become text, and null is empty."""
    value = cells.get(column)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{column}: expected a text, found {shown(value)}")
    return encodable(str(value)).strip()


def _missing(name: str, known: Iterable[str]) -> str:
    if not name:
        return "the file is not named"
    if why := name_problem(name):
        return f"the file name {shown(name)} {why}; expected a path in this folder"
    like = process.extractOne(name, list(known), scorer=fuzz.ratio, score_cutoff=LIKE)
    hint = f"; did you mean {shown(like[0])}?" if like else ""
    return f"there is no page {shown(name)} in this folder{hint}"


def _add_row(found: dict[str, FileLabels], name: str, line: int, cells: Mapping[str, Any]) -> None:
    """Adds a row; a file has several only where they are questions."""
    asked = QUESTION in cells and _cell(cells, QUESTION)
    row = FileLabels(line, _cell(cells, PROVIDER), _cell(cells, SPLIT))
    row.fields = {
        column: text
        for column in cells
        if column not in RESERVED and (text := _cell(cells, column))
    }
    if QUESTION in cells and not asked and cells.get(ANSWER):
        raise ValueError("an answer without a question")
    answers: tuple[str, ...] = ()
    if asked:
        given = cells.get(ANSWER)
        several = given if isinstance(given, list) else [given]
        answers = tuple(text for one in several if (text := _cell({ANSWER: one}, ANSWER)))
        if not answers:
            raise ValueError(f"the question {shown(asked)} has no answer")
    before = found.get(name)
    if before is None:
        found[name] = row
    elif not asked:
        raise ValueError(f"{name} stands in line {before.line} already")
    else:
        for what in ("provider", "split"):
            one, other = getattr(before, what), getattr(row, what)
            if one != other:
                raise ValueError(
                    f"{name} has the {what} {shown(other)} here and {shown(one)} in line "
                    f"{before.line}"
                )
        for column, text in row.fields.items():
            if before.fields.setdefault(column, text) != text:
                raise ValueError(
                    f"{name} has the {column} {shown(text)} here and "
                    f"{shown(before.fields[column])} in line {before.line}"
                )
    if asked:
        questions = found[name].questions
        if any(answer in questions.get(asked, ()) for answer in answers):
            raise ValueError(f"the question {shown(asked)} with this answer stands there twice")
        questions[asked] = (*questions.get(asked, ()), *answers)
