"""Reads a data set of the `datasets` library: from the hub, or from a folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedpriv.data import apart
from fedpriv.data.document import (
    MOST_DOCUMENTS,
    SKIP,
    DataError,
    DataErrors,
    Document,
    DocumentSet,
    OnError,
    Question,
)
from fedpriv.data.folder import pictures
from fedpriv.data.folder.progress import Count, on_all_cores, tell
from fedpriv.data.folder.reader import ALIKE, alike, first_lines, tell_alike, wording
from fedpriv.data.folder.table import usual_providers
from fedpriv.data.folder.words import read_ahead
from fedpriv.data.hub.boxes import CLEARLY, UNITS, Unit, fitting, inked, likely, mean_of, much_alike
from fedpriv.data.hub.columns import Columns, find, fits, tag_names
from fedpriv.data.hub.page import HubPage, Reading, picture_of, place_of
from fedpriv.data.hub.row import (
    OUTSIDE,
    boxes_of,
    has_lines,
    label_of,
    question_of,
    text_of_row,
)
from fedpriv.data.hub.table import HubTable, open_tables
from fedpriv.data.readers.annotation import encodable
from fedpriv.data.readers.cord import stated_size
from fedpriv.data.reading import shown
from fedpriv.runtime.cache import cache_folder, hash_of, private_folder, write_entry
from fedpriv.runtime.outside import PathText
from fedpriv.runtime.versions import cores, versions_of

FORMAT = 1
"""To be raised when rows are looked at otherwise, so that what was seen before is not taken."""

FOLDER = "rows"
"""Of the cache, with what was seen in rows."""

TOGETHER = 256
"""Rows whose look is kept in one entry of the cache."""

NAMED = {"share": "of 0 to 1", "thousandth": "of 0 to 1000", "pixel": "in pixels"}
LOOKED_AT = 20
"""Pages whose ink is looked at."""
BLANK = (1000, 1000)
"""Width and height of a white page whose size nothing tells."""


@dataclass(frozen=True)
class HubData:
    """Reads pages from a data set of the `datasets` library.

    Data sets: a folder that `save_to_disk` wrote; a folder of files that the library reads, such as
    Parquet or pictures with a `metadata.csv`; or the name of a data set on the hub. No code of a
    data set is run. Of a folder, nothing outside of it is opened.

    Columns: `fedpriv.data.hub.columns.Columns` says which hold what. What is not said is guessed by
    name and type, and told. FUNSD, CORD, SROIE and DocVQA need nothing said in the forms in which
    they usually lie on the hub: words, boxes and `ner_tags`; `ground_truth` with CORD's JSON; or an
    image with a question and answers.

    Boxes: as `boxes` says. They may have eight numbers, the corners of a quadrilateral.

    Words: those of the data set. If it has none, Tesseract reads the pages, on all cores; the cache
    keeps what it read, by the page's content.

    Entities: runs of words with the same label, see `fedpriv.data.hub.row.entities_of`.

    Questions: rows with the same image and a question are one page with several questions. If there
    is no column of questions and something tells the provider, one asks for it on every page.

    Provider: as `provider` says. Pages with the same image are parts of one document, so that none
    of them is held back from training while another one is trained on.

    Identifiers: the split and the row's identifier, or its number where no column has one.

    Attributes:
        path: the folder, or the name on the hub, such as "nielsr/funsd".
        name: the configuration to read, if the data set has several.
        revision: a branch, a tag or a commit of a data set on the hub. None takes the newest.
        splits: the splits to read, in this order; None takes all. With `HoldOut(by="split")`,
            "test" is held out.
        columns: which columns hold what.
        boxes: "share" of the page's sides, "thousandth" of them, or "pixel" of the image; "auto"
            takes what fits, see `fedpriv.data.hub.boxes`.
        provider: "auto" takes a column with a usual name, such as provider, company or vendor, and
            without one each page is a provider by itself. "page" always takes each page by itself.
            Anything else names a column, or the label of an entity whose words name the provider.
        client: the column that names the client that holds a page, as `ByClient` deals pages out.
            None names no clients.
        images: "required" reads the image of each page. "blank" takes white pages instead, for data
            sets without images; a model that looks at pixels learns nothing from them.
        words: "auto" as above. "ocr" has Tesseract read every page, "none" takes no words.
        language: the language of the text, for Tesseract, such as "eng" or "deu+eng".
        layout: Tesseract's page segmentation mode: 3 finds columns by itself, 4 expects one column,
            and 6 one block, as a receipt is.
        on_error: "raise" stops with one message on all rows that cannot be used. "skip" leaves them
            out, and counts them.
    """

    path: PathText
    name: str | None = None
    revision: str | None = None
    splits: tuple[str, ...] | None = None
    columns: Columns = field(default_factory=Columns)
    boxes: Literal["auto", "share", "thousandth", "pixel"] = "auto"
    provider: str = "auto"
    client: str | None = None
    images: Literal["required", "blank"] = "required"
    words: Literal["auto", "ocr", "none"] = "auto"
    language: str = "eng"
    layout: int = 3
    on_error: OnError = "raise"

    def __post_init__(self) -> None:
        choices = {
            "boxes": ("auto", *UNITS),
            "images": ("required", "blank"),
            "words": ("auto", "ocr", "none"),
            "layout": (1, 3, 4, 5, 6, 11, 12),
        }
        for name, allowed in choices.items():
            if (given := getattr(self, name)) not in allowed:
                expected = ", ".join(map(repr, allowed))
                raise ValueError(f"{name}={given!r}: expected one of {expected}")
        if not self.provider:
            raise ValueError("provider='': expected 'auto', 'page', a column or a label")
        if self.images == "blank" and self.words == "ocr":
            raise ValueError("words='ocr': white pages have no words; expected images='required'")

    def load(self) -> DocumentSet:
        """Looks at every row once; no page stays in memory.

        Raises:
            DataError: if there is nothing to read, or the columns are not such that pages could be
                made of them.
            DataErrors: with ``on_error="raise"``, one message on all rows that cannot be used; in
                both cases, if Tesseract is needed and not installed.
        """
        tables = self._tables()
        features = tables[0].features()
        reading, remarks = self._reading(tables[0], features)
        column = self._provider(features)
        if self.client is not None and self.client not in features:
            raise DataError(
                self.path,
                f"data.source.client: no column {self.client!r}; there are {', '.join(features)}",
            )
        seen: list[tuple[HubTable, int, _Seen]] = []
        problems: list[DataError] = []
        look = _Look(reading, column, self.provider, self.client, features)
        count = Count(sum(map(len, tables)), "rows looked at", first=8 * cores())
        for table in tables:
            for number, one in enumerate(_look_at(look, table, count)):
                if isinstance(one, DataError):
                    problems.append(one)
                else:
                    seen.append((table, number, one))
        if reading.columns.boxes and not reading.ocr and not reading.without_words:
            reading, told = self._with_unit(reading, [one for one in seen if one[2].boxes])
            remarks["boxes"] = (told,)
            problems += _misfits(reading, seen)
        documents, wrong = _documents(reading, seen, column)
        problems += wrong
        pages = [one.page for one in documents if isinstance(one.page, HubPage)]
        unread = read_ahead(self.path, pages, HubPage.entry, lambda page: page.text, HubPage.place)
        problems += unread.values()
        documents = [one for one in documents if one.page not in unread]
        if not documents or (problems and self.on_error == "raise"):
            raise DataErrors(self.path, problems, SKIP if documents else "")
        remarks |= _remarks(documents, self._told_by(column))
        units = [f"boxes are {line}" for line in remarks.get("boxes", ())]
        tell("\n  ".join([f"columns of {self.path}", *remarks["columns"], *units]))
        tell_alike(remarks.get(ALIKE, ()))
        labels = _labels(reading, seen)
        name = Path(self.path).name or self.path
        return DocumentSet(name, tuple(documents), labels, tuple(problems), remarks)

    def _tables(self) -> list[HubTable]:
        tables = open_tables(self.path, self.name, self.revision)
        there = [table.split for table in tables]
        if self.splits is not None:
            if missing := [split for split in self.splits if split not in there]:
                raise DataError(
                    self.path, f"data.source.splits: no rows of {shown(missing)}; there are {there}"
                )
            tables = [tables[there.index(split)] for split in dict.fromkeys(self.splits)]
        rows = sum(map(len, tables))
        if not rows:
            raise DataError(self.path, "no rows: the data set is empty")
        if rows > MOST_DOCUMENTS:
            raise DataError(self.path, f"{rows:,} rows: expected at most {MOST_DOCUMENTS:,}")
        return tables

    def _reading(
        self, table: HubTable, features: Mapping[str, Any]
    ) -> tuple[Reading, dict[str, tuple[str, ...]]]:
        """Finds the columns; returns how rows are read, and what was found, for the user."""
        given = self.columns
        if self.words != "auto":  # whatever the data set says of them
            given = replace(given, words="", annotation="")
        try:
            columns = find(given, features)
        except ValueError as error:
            raise DataError(self.path, str(error)) from error
        if columns.annotation and given.annotation is None:
            first = table.row(0, (columns.annotation,))[columns.annotation]
            if not has_lines(first):  # JSON of another kind
                columns = replace(columns, annotation="")
        names = ", ".join(features)
        if self.images == "required" and not columns.image:
            raise DataError(
                self.path,
                f"no column of images; there are {names}. Name it (data.source.columns.image=…), "
                "or take white pages (data.source.images=blank)",
            )
        if self.images == "blank" and not (columns.words or columns.annotation):
            raise DataError(self.path, f"white pages without words; there are {names}")
        if self.images == "required" and type(features[columns.image]).__name__ == "Value":
            try:
                picture_of(table, 0, columns.image)
            except ValueError as error:
                raise DataError(
                    self.path,
                    f"{columns.image} of {place_of(table, 0)}: {error}. Put the images into the "
                    "data set, or take white pages (data.source.images=blank)",
                ) from error
        spoken = columns.words or columns.annotation
        found = [
            f"{role}: {name}{'' if getattr(given, role) else ' (guessed)'}"
            for role, name in asdict(columns).items()
            if name
        ]
        used = set(asdict(columns).values()) | {self._provider(features), self.client}
        if unused := [name for name in features if name not in used]:
            found.append(f"not read: {', '.join(unused)}")
        unit: Unit = "pixel" if self.boxes == "auto" else self.boxes
        reading = Reading(
            self.path,
            columns,
            tag_names(features[columns.tags]) if columns.tags else (),
            unit,
            ocr=self.words == "ocr" or (self.words == "auto" and not spoken),
            without_words=self.words == "none",
            language=self.language,
            layout=self.layout,
            images=self.images,
        )
        return reading, {"columns": tuple(found)}

    def _provider(self, features: Mapping[str, Any]) -> str:
        """Returns the column that tells the provider; "" if none does."""
        if self.provider == "page":
            return ""
        if self.provider != "auto":
            return self.provider if self.provider in features else ""
        usual = [name for name in usual_providers(features) if name != self.client]
        return next((n for n in usual if fits("id", features[n]) or _classes(features[n])), "")

    def _told_by(self, column: str) -> str:
        if column:
            guessed = "" if column == self.provider else ", guessed by its name"
            return f"the column {column}{guessed}"
        if self.provider in ("auto", "page"):
            return (
                "nothing: each page is a provider by itself; data.source.provider names a column, "
                "or the label of an entity"
            )
        return f"the words of the entity {self.provider}"

    def _with_unit(
        self, reading: Reading, seen: Sequence[tuple[HubTable, int, _Seen]]
    ) -> tuple[Reading, str]:
        """Settles the unit of the boxes; returns also how that is told.

        Raises:
            DataError: if several fit, and nothing tells which it is.
        """
        pages = [one.units for _, _, one in seen]
        units, how = likely(pages), "told by what fits"
        if self.boxes != "auto":
            units, how = (self.boxes,), "as given"
        elif len(units) > 1 and pages:
            units, how = self._by_ink(reading, seen, units)
        misfits = sum(units[0] not in page for page in pages)
        count = f"{len(pages) - misfits:,} of {len(pages):,} pages fit"
        return replace(reading, unit=units[0]), f"{NAMED[units[0]]}, {how}; {count}"

    def _by_ink(
        self, reading: Reading, seen: Sequence[tuple[HubTable, int, _Seen]], units: tuple[Unit, ...]
    ) -> tuple[tuple[Unit, ...], str]:
        """Decides between several units that fit; returns the best first, and how that is told."""
        fit = [one for one in seen if all(unit in one[2].units for unit in units)]
        if much_alike(units, (one.size for _, _, one in fit)):
            return (
                units,
                f"which is much the same as {' or '.join(NAMED[one] for one in units[1:])}",
            )
        scores = []
        looked_at = fit[:: len(fit) // LOOKED_AT + 1] if reading.images == "required" else []
        for table, number, _ in looked_at:
            boxes = boxes_of(table.row(number, (str(reading.columns.boxes),)), reading.columns)
            path = Path(reading.path) / place_of(table, number)
            stored = picture_of(table, number, reading.columns.image)
            pixels = apart.call(pictures.draw, path, 0, content=stored)
            scores.append(inked(boxes, pixels, units))
        for how, found in (
            ("told by the ink under them", scores),
            ("told by how far the text reaches", [one.units for _, _, one in seen]),
        ):
            best, second, *_ = sorted(units, key=lambda unit: -mean_of(unit, found))
            if mean_of(best, found) > CLEARLY * mean_of(second, found):
                return (best,), f"{how} (of {len(found)} pages)"
        expected = " or ".join(f"{one} ({NAMED[one]})" for one in units)
        raise DataError(
            self.path,
            f"data.source.boxes: the boxes fit their pages in {len(units)} units, and nothing on "
            f"the pages tells which it is: say {expected}",
        )


def _classes(feature: Any) -> tuple[str, ...]:
    return tuple(getattr(feature, "names", None) or ())


# ------------------------------------------------------------------------------------ one row


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was seen in a row, as JSON can hold it.

    Attributes:
        name: its identifier.
        provider: who issued the page; "" if each page is a provider by itself.
        client: who holds the page; "" where no client is named.
        size: of the page in pixels.
        picture: a hash of the image as it is stored.
        content: a hash of its other values.
        boxes: how many boxes it has.
        units: that fit them, see `fitting`.
        labels: of its entities.
    """

    name: str
    provider: str
    client: str
    size: tuple[int, int]
    picture: str
    content: str
    boxes: int
    units: dict[Unit, float]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class _Look:
    """Looks at a row.

    Attributes:
        reading: how rows are read; its unit is not known yet.
        column: that tells the provider, or "".
        provider: the setting, which may be a label.
        client: the column that names the client; None without any.
        features: of the columns.
    """

    reading: Reading
    column: str
    provider: str
    client: str | None
    features: Mapping[str, Any]

    def __call__(self, table: HubTable, number: int) -> _Seen:
        read = self.reading
        names = [read.columns.id, self.column, self.client, *read.used()]
        row = table.row(number, tuple(dict.fromkeys(name for name in names if name)))
        values = {name: row[name] for name in read.used()}
        content = hash_of(values)
        if read.images == "blank":
            size, picture = BLANK, ""
            if read.columns.annotation:
                size = _size_of_receipt(row[read.columns.annotation])
        else:
            stored = picture_of(table, number, read.columns.image)
            picture = hashlib.sha256(stored).hexdigest()
            path = Path(read.path) / place_of(table, number)
            ((width, height),) = apart.call(pictures.page_sizes, path, 1, content=stored)
            size = width, height
        boxes, units = [], dict.fromkeys(UNITS, 0.0)
        if read.columns.boxes and read.columns.boxes in values:
            boxes = boxes_of(row, read.columns)
            units = fitting(boxes, size)
        text = None
        if values and not read.ocr and not read.without_words and units:
            text = text_of_row(row, read.columns, read.names, next(iter(units)), size)
        if read.columns.question:
            question_of(row, read.columns)
        provider = self._provider(row, text)
        client = self._named(row, self.client, "its client") if self.client else ""
        name = str(row[read.columns.id]) if read.columns.id else str(number)
        labels = {entity.label for entity in text.entities} if text else set()
        return _Seen(
            encodable(name), provider, client, size, picture, content, len(boxes), units,
            tuple(sorted(labels)),
        )  # fmt: skip

    def _provider(self, row: Mapping[str, Any], text: Any) -> str:
        if self.column:
            return self._named(row, self.column, "its provider")
        if self.provider in ("auto", "page"):
            return ""
        entities = text.entities if text else ()
        runs = (entity.words for entity in entities if entity.label == self.provider)
        if name := " ".join(text.words[word].text for word in next(runs, ())):
            return name
        raise ValueError(f"no {self.provider}, which is to be its provider")

    def _named(self, row: Mapping[str, Any], column: str, role: str) -> str:
        value, names = row[column], _classes(self.features[column])
        name = names[value] if names and isinstance(value, int) else value
        if text := "" if name is None else encodable(str(name)).strip():
            return text
        raise ValueError(f"no {column}, which is to be {role}")


def _size_of_receipt(text: Any) -> tuple[int, int]:
    try:
        return stated_size(json.loads(text)) or BLANK
    except (TypeError, RecursionError) as error:
        raise ValueError(f"expected a text of JSON, found {shown(text)}") from error


def _look_at(look: _Look, table: HubTable, count: Count) -> Iterator[_Seen | DataError]:
    """Yields what is seen in each row, or why it cannot be used; the cache remembers it."""
    read = look.reading
    settings = [FORMAT, table.stamp, table.root,
                astuple(read.columns), read.names, read.used(), read.images, look.column,
                look.provider, look.client, versions_of("pillow", "datasets")]  # fmt: skip

    def one(number: int) -> _Seen:
        try:
            return look(table, number)
        except DataError as error:
            raise DataError(read.path, f"{place_of(table, number)}: {error.why}") from error
        except ValueError as error:
            raise DataError(read.path, f"{place_of(table, number)}: {error}") from error

    for start in range(0, len(table), TOGETHER):
        numbers = range(start, min(start + TOGETHER, len(table)))
        name = hash_of([settings, start, len(numbers)])
        found = _kept(name, read.path)
        if found is None or len(found) != len(numbers):
            found = list(on_all_cores(one, numbers, count))
            rows = [one.why if isinstance(one, DataError) else asdict(one) for one in found]
            # Without a cache that can be written to, the next run looks again.
            with contextlib.suppress(OSError):
                write_entry(private_folder(FOLDER), name, json.dumps(rows).encode())
        yield from found


def _kept(name: str, path: str) -> list[_Seen | DataError] | None:
    try:
        rows = json.loads((cache_folder() / FOLDER / name).read_bytes())
        return [
            DataError(path, row)
            if isinstance(row, str)
            else _Seen(**{**row, "size": tuple(row["size"]), "labels": tuple(row["labels"])})
            for row in rows
        ]
    except (OSError, LookupError, TypeError, ValueError):  # not there, or damaged
        return None


# ---------------------------------------------------------------------------------- all rows


def _misfits(reading: Reading, seen: list[tuple[HubTable, int, _Seen]]) -> list[DataError]:
    """Takes out the rows whose boxes do not fit the unit; returns why."""
    problems: list[DataError] = []
    good: list[tuple[HubTable, int, _Seen]] = []
    for table, number, one in seen:
        if reading.unit in one.units:
            good.append((table, number, one))
            continue
        row = table.row(number, reading.used())
        try:
            text_of_row(row, reading.columns, reading.names, reading.unit, one.size)
            why = "its boxes do not fit the page"
        except ValueError as error:
            why = str(error)
        problems.append(DataError(reading.path, f"{place_of(table, number)}: {why}"))
    seen[:] = good
    return problems


def _documents(
    reading: Reading, seen: Sequence[tuple[HubTable, int, _Seen]], column: str
) -> tuple[list[Document], list[DataError]]:
    """Makes pages of rows; returns also what is wrong with several rows together."""
    groups: dict[Any, list[tuple[HubTable, int, _Seen]]] = {}
    for table, number, one in seen:
        whole = (table.split, one.picture) if reading.columns.question and one.picture else None
        groups.setdefault(whole or (table.split, "row", number), []).append((table, number, one))
    documents: list[Document] = []
    problems: list[DataError] = []
    names: dict[str, str] = {}
    first_with: dict[str, str] = {}
    for rows in groups.values():
        table, number, one = rows[0]
        place = place_of(table, number)
        identifier = f"{table.split}/{one.name}" if table.split else one.name
        if others := {other.provider for _, _, other in rows} - {one.provider}:
            both = f"{shown(one.provider)} and {shown(min(others))}"
            problems.append(DataError(reading.path, f"{place}: one page of two providers, {both}"))
            continue
        if others := {other.client for _, _, other in rows} - {one.client}:
            both = f"{shown(one.client)} and {shown(min(others))}"
            problems.append(DataError(reading.path, f"{place}: one page at two clients, {both}"))
            continue
        if identifier in names:
            why = f"{place}: its identifier {shown(one.name)} is that of {names[identifier]}, too"
            problems.append(DataError(reading.path, why))
            continue
        names[identifier] = place
        provider = one.provider or identifier
        asked = None
        if one.provider and not reading.columns.question:
            asked = Question("provider", wording("provider", identifier), (provider,))
        numbers = tuple(number for _, number, _ in rows)
        content = hash_of([other.content for _, _, other in rows])
        page = HubPage(reading, table, numbers, one.size, one.picture, content, asked)
        # The same image in another row is the same document.
        same = first_with.setdefault(one.picture, identifier) if one.picture else identifier
        part_of = same if same != identifier else ""
        where = {"split": table.split, "client": one.client, "part_of": part_of}
        documents.append(Document.drawn(identifier, provider, page, one.size, **where))
    return documents, problems


def _labels(reading: Reading, seen: Sequence[tuple[HubTable, int, _Seen]]) -> tuple[str, ...]:
    """Returns the labels in the order of the data set's names, or else sorted."""
    inside = [label_of(name)[1] for name in reading.names if name.lower() not in OUTSIDE]
    found = sorted({label for _, _, one in seen for label in one.labels})
    return tuple(dict.fromkeys([*inside, *found]))


def _remarks(documents: Sequence[Document], told_by: str) -> dict[str, tuple[str, ...]]:
    sizes = Counter(document.provider for document in documents)
    copies = [f"{one.id} has the image of {one.part_of}" for one in documents if one.part_of]
    remarks: dict[str, Sequence[str]] = {"providers are told by": [told_by]}
    if any(one.provider != one.id for one in documents):
        remarks[ALIKE] = alike(sizes)
    remarks["pages with the same image"] = first_lines(copies)
    return {topic: tuple(lines) for topic, lines in remarks.items() if lines}
