"""Reads a folder of your own: pictures and PDFs, with a table of labels or without."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from fedpriv.data import values
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
from fedpriv.data.folder import page_file, placing
from fedpriv.data.folder.page import FolderPage
from fedpriv.data.folder.page_file import FileIndex, Listing, PageFile, list_files, remembered
from fedpriv.data.folder.placing import Place
from fedpriv.data.folder.progress import Count, on_all_cores, tell
from fedpriv.data.folder.side_files import read_side_file
from fedpriv.data.folder.table import (
    PROVIDER,
    RESERVED,
    FileLabels,
    LabelTable,
    find_table,
    read_table,
    usual_providers,
)
from fedpriv.data.folder.words import TOLD, Reading, read_ahead
from fedpriv.data.generated.questions import QUESTION_TEMPLATES, RECEIPT_QUESTIONS
from fedpriv.data.hub.boxes import Unit, fitting, inked, mean_of
from fedpriv.data.reading import shown
from fedpriv.data.spelling import like_spellings
from fedpriv.runtime.cache import cache_folder, files_digest, hash_of, private_folder, write_entry
from fedpriv.runtime.outside import PathSetting
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.versions import cores

ALIKE = "providers that look alike"
"""A topic of the remarks."""

NOT_READ = "files that are not read"
"""Another topic: neither pages, nor their words, nor the table."""

LOOKED_AT = 5
"""Files whose ink is looked at, to be sure of the unit of their boxes."""

PLACED = "placed"
"""Folder of the cache with the places of fields."""


@dataclass(frozen=True)
class Folder:
    """Reads pages from a folder and its subfolders.

    Pages: PNG, JPEG, TIFF of many pages, WebP and PDF. Hidden files are left out, and so is what a
    link outside of the folder leads to. Pages are drawn when somebody looks at them.

    Words: those of a side file beside the page, of the same name with another ending, if there is
    one (`fedpriv.data.folder.side_files`). Otherwise those of the PDF's text layer; otherwise
    Tesseract reads them, on all cores. They are kept in the cache by the page's content, so a
    reading that was stopped goes on where it was.

    Labels: of ``labels.csv`` or ``labels.jsonl`` in the folder (`fedpriv.data.folder.table`). The
    value of a field is looked for on the pages of its file and becomes an entity
    (`fedpriv.data.folder.placing`) and a question. The table must name every file. Without a table
    there are no entities.

    Questions: those of the table. Without any, one on each field, on the page where it stands, and
    one on the provider on every page. Its answer need not stand there.

    Provider: as `provider` says. All pages of a file have the same.

    Identifiers: the file's path in the folder; of its second page, the path and "/2", and so on.
    All pages are parts of the file.

    Attributes:
        root: the folder.
        labels: the name of the table in the folder; None takes labels.csv or labels.jsonl, if there
            is one.
        provider: "auto" takes the table's column `provider`, and without one a column with a usual
            name (`fedpriv.data.folder.table.PROVIDERS`), such as company or vendor. Without any,
            it takes the subfolder of `root` that a file lies in, where a file in `root` itself is a
            provider by itself. Where such a column and the subfolders tell files apart otherwise,
            and the subfolders are no clients, it is refused. "folder" takes the subfolder, and
            "file" each file by itself. Anything else names a column of the table.
        client: what names the client that holds a file: "folder", the subfolder of `root` that the
            file lies in, or a column of the table. Documents are then dealt out by
            `fedpriv.data.partition.ByClient`. None names no clients.
        fields: the columns of the table that are fields; None takes all that are not file,
            provider, split, question or answer, and not what `client` names.
        words: "auto" as above. "ocr" has Tesseract read every page. "none" takes no words, for
            models and attacks that look at pixels alone.
        language: the language of the text, one of those that `tesseract --list-langs` prints, or
            several with "+".
        layout: Tesseract's page segmentation mode: 3 finds columns by itself, 4 expects one column,
            and 6 one block, as a receipt is.
        dpi: the resolution in which pages of PDFs are drawn, in pixels an inch, 36 to 600.
        on_error: "raise" stops with one message on all files that cannot be used. "skip" leaves
            them out, and counts them.
    """

    root: PathSetting
    labels: str | None = None
    provider: str = "auto"
    client: str | None = None
    fields: tuple[str, ...] | None = None
    words: Literal["auto", "ocr", "none"] = "auto"
    language: str = "eng"
    layout: int = 3
    dpi: int = 200
    on_error: OnError = "raise"

    def __post_init__(self) -> None:
        if not 36 <= self.dpi <= 600:
            raise ValueError(f"dpi={self.dpi}: expected 36 to 600 pixels an inch")
        if self.words not in ("auto", "ocr", "none"):
            raise ValueError(f"words={self.words!r}: expected 'auto', 'ocr' or 'none'")
        if self.layout not in (1, 3, 4, 5, 6, 11, 12):
            raise ValueError(f"layout={self.layout}: expected 1, 3, 4, 5, 6, 11 or 12")
        if not self.provider:
            raise ValueError("provider='': expected 'auto', 'folder', 'file' or a column")

    def load(self) -> DocumentSet:
        """Reads the table and the words of every page; no page stays in memory.

        Raises:
            DataError: if there is nothing to read, or the table as a whole cannot be used.
            DataErrors: with ``on_error="raise"``, one message on all files that cannot be used; in
                both cases, if Tesseract is needed and not installed.
        """
        root = Path(self.root)
        listing = list_files(root)
        path = find_table(root, self.labels)
        table = read_table(path, listing.named) if path else None
        fields = self._fields(table)
        problems = [*listing.problems, *(table.problems if table else ())]
        files, broken = self._look(listing)
        column = self._column(files, table)
        owners, unowned = self._providers(files, table, column)
        clients, astray = self._clients(files, table)
        files = [file for file in files if file.name in owners and file.name in clients]
        reading = Reading(str(root.absolute()), self.dpi, self.words, self.language, self.layout)
        unread = read_ahead(
            root,
            [(file, number) for file in files for number in range(len(file.sizes))],
            lambda page: reading.entry(*page),
            lambda page: reading.read(*page),
            lambda page: page_name(*page),
        )
        # One message for a file, of its first page that cannot be read.
        errors = {file.name: error for (file, _), error in reversed(unread.items())}
        problems += [*broken, *unowned, *astray, *reversed(errors.values())]
        files = [file for file in files if file.name not in errors]
        if not files or (problems and self.on_error == "raise"):
            raise DataErrors(root, problems, SKIP if files else "")
        _check_unit(reading, files)
        rows = table.files if table else {}
        places = _place(reading, files, rows, fields)
        held = {file.name: (owners[file.name], clients[file.name]) for file in files}
        documents = tuple(
            itertools.chain.from_iterable(
                _pages(reading, file, held[file.name], rows.get(file.name), places[file.name])
                for file in files
            )
        )
        sizes = Counter(owners[file.name] for file in files)
        remarks = _remarks(listing, rows, places, sizes, self._told_by(table, column))
        if self.client:
            at = Counter(clients[file.name] for file in files)
            remarks["files of each client"] = tuple(f"{name}: {at[name]:,}" for name in sorted(at))
        tell_alike(remarks.get(ALIKE, ()))
        if listing.others:
            tell("\n  ".join([f"{NOT_READ} in {root}:", *first_lines(list(listing.others))]))
        return DocumentSet(root.name or str(root), documents, fields, tuple(problems), remarks)

    def _fields(self, table: LabelTable | None) -> tuple[str, ...]:
        """Returns the names of the fields.

        Raises:
            DataError: if a setting names a column that is not there.
        """
        columns = table.columns if table else ()
        own = (self.provider,) if self.provider not in ("auto", "folder", "file") else ()
        column = (self.client,) if self.client not in (None, "folder") else ()
        wanted = {"fields": self.fields or (), "provider": own, "client": column}
        for setting, names in wanted.items():
            for name in names:
                if name not in columns or (setting != "provider" and name in RESERVED):
                    where = f"{table.path.name} has {', '.join(columns)}" if table else "no table"
                    why = f"data.source.{setting}: there is no such column {shown(name)}; {where}"
                    raise DataError(table.path if table else Path(self.root), why)
        if table is None:
            return ()
        fields = tuple(name for name in table.fields if name != self.client)
        return fields if self.fields is None else tuple(dict.fromkeys(self.fields))

    def _look(self, listing: Listing) -> tuple[list[PageFile], list[DataError]]:
        """Opens every file once, or remembers what was in it."""
        index = FileIndex(Path(self.root), self.dpi, remembered())
        names = list(listing.pages.items())
        count = Count(len(names), "files opened", first=2 * cores())
        files: list[PageFile] = []
        broken: list[DataError] = []
        look = on_all_cores(lambda pair: index.look(*pair), names, count)
        for found in look:
            if isinstance(found, DataError):
                broken.append(found)
            else:
                files.append(found)
        if (pages := sum(len(file.sizes) for file in files)) > MOST_DOCUMENTS:
            raise DataError(self.root, f"{pages:,} pages: expected at most {MOST_DOCUMENTS:,}")
        return files, broken

    def _column(self, files: Sequence[PageFile], table: LabelTable | None) -> str:
        """Returns what tells the provider: a column, "folder" or "file".

        Raises:
            DataError: if a column and the subfolders do, and differ.
        """
        if self.provider != "auto":
            return self.provider
        usual = usual_providers(table.columns if table else ())
        column = next((name for name in usual if name != self.client), "folder")
        if table is None or column in (PROVIDER, "folder") or self.client == "folder":
            return column
        named = {file.name: table.files[file.name] for file in files if file.name in table.files}
        subfolders = {name.partition("/")[0] for name in named if "/" in name}
        pairs = {(n.partition("/")[0], row.fields.get(column, "")) for n, row in named.items()}
        folders, names = {at for at, _ in pairs}, {name for _, name in pairs if name}
        if len(subfolders) > 1 and not len(pairs) == len(folders) == len(names):
            raise DataError(
                Path(self.root),
                f"who issued a document may be told by the column {column} of {table.path.name} or "
                f"by the subfolder, and they differ: say data.source.provider={column} or "
                "data.source.provider=folder; data.source.client=folder if the subfolders are your "
                "branches",
            )
        return column

    def _told_by(self, table: LabelTable | None, column: str) -> str:
        if column == "folder":
            return "the subfolder of a file; a file in no subfolder is a provider by itself"
        if column == "file":
            return "nothing: each file is a provider by itself"
        guessed = "" if column in (PROVIDER, self.provider) else ", guessed by its name"
        return f"the column {column} of {table.path.name if table else 'no table'}{guessed}"

    def _providers(
        self, files: Sequence[PageFile], table: LabelTable | None, column: str
    ) -> tuple[dict[str, str], list[DataError]]:
        """Returns the provider of each file, told by a column, and an error for each without."""
        owners: dict[str, str] = {}
        problems: list[DataError] = []
        for file in files:
            if table is not None and file.name not in table.files:
                why = f"{table.path.name} does not name it"
                problems.append(DataError(Path(self.root) / file.name, why))
                continue
            first, *more = PurePosixPath(file.name).parts
            if column in ("folder", "file"):
                owners[file.name] = first if more and column == "folder" else file.name
                continue
            row = table.files[file.name] if table else FileLabels(0)
            name = row.provider if column == "provider" else row.fields.get(column, "")
            if name:
                owners[file.name] = name
            elif table:
                why = f"the column {column} is empty for {file.name}: every file needs a provider"
                if column not in (PROVIDER, self.provider):  # guessed
                    why += "; data.source.provider=file takes each file by itself"
                problems.append(DataError(table.path, why, row.line))
        return owners, problems

    def _clients(
        self, files: Sequence[PageFile], table: LabelTable | None
    ) -> tuple[dict[str, str], list[DataError]]:
        """Returns the client of each file, empty without any, and an error for each file astray."""
        clients: dict[str, str] = {}
        problems: list[DataError] = []
        for file in files:
            row = table.files.get(file.name) if table else None
            first, *more = PurePosixPath(file.name).parts
            if self.client is None or (self.client == "folder" and more):
                clients[file.name] = first if self.client else ""
            elif self.client == "folder":
                why = "it lies in no subfolder, and the subfolder is the client"
                problems.append(DataError(Path(self.root) / file.name, why))
            elif table and row:  # a file without a row is a problem already
                if name := row.fields.get(self.client, ""):
                    clients[file.name] = name
                    continue
                why = (
                    f"the column {self.client} is empty for {file.name}: every file needs a client"
                )
                problems.append(DataError(table.path, why, row.line))
        return clients, problems


def _check_unit(reading: Reading, files: Sequence[PageFile]) -> None:
    """Checks that boxes of our JSON that shall be pixels are no shares or thousandths of the page.

    Raises:
        DataError: if they lie on the ink as one of these, and miss it as pixels.
    """
    root, scores = Path(reading.root), list[dict[Unit, float]]()
    sided = [file for file in files if file.side] if reading.words == "auto" else []
    for file in sided[:: len(sided) // LOOKED_AT + 1]:
        for number, page in enumerate(read_side_file(root, file.side)):
            boxes = [box for _, box, _ in page.words]
            if page.size is None and len(fitting(boxes, file.sizes[number])) > 1 and boxes:
                pixels = page_file.draw(root, file, number, reading.dpi)
                scores.append(inked(boxes, pixels, fitting(boxes, file.sizes[number])))
    others: dict[Unit, int] = {"share": 1, "thousandth": 1000}
    for unit, whole in others.items():
        if scores and mean_of(unit, scores) > 2 * max(mean_of("pixel", scores), 0.01):
            raise DataError(
                root / sided[0].side,
                f"as pixels its boxes miss what is on the page, and as {unit}s of its sides they "
                f'meet it: say "size": [{whole}, {whole}] in each file',
            )


@dataclass(frozen=True, slots=True)
class _Placed:
    """Where a value stands, and how the page spells it."""

    place: Place
    spelling: str


Placed = Mapping[str, _Placed | None]
"""By field; None where it was not found."""


def _place(
    reading: Reading,
    files: Sequence[PageFile],
    rows: Mapping[str, FileLabels],
    fields: Sequence[str],
) -> dict[str, Placed]:
    """Finds the fields of each file on its pages, or remembers where they were."""
    code = files_digest([Path(placing.__file__), Path(values.__file__), values.NAMES])
    money = [name for name in fields if _is_of_money(rows.values(), name)]

    def find(file: PageFile) -> Placed:
        row = rows.get(file.name, FileLabels(0))
        wanted = {name: row.fields[name] for name in fields if name in row.fields}
        if not wanted:
            return {}
        entries = [reading.entry(file, number) for number in range(len(file.sizes))]
        name = hash_of([code, entries, list(wanted.items()), money])
        if (kept := _kept_places(name, wanted)) is not None:
            return kept
        pages = [reading.read(file, number)[0] for number in range(len(file.sizes))]
        found: dict[str, _Placed | None] = {}
        for field, place in placing.place_fields(pages, wanted, money).items():
            found[field] = None
            if place is not None:
                number, start, stop = place
                spelling = " ".join(word.text for word in pages[number][start:stop])
                found[field] = _Placed(place, spelling)
        flat = {f: p and [*p.place, p.spelling] for f, p in found.items()}
        # Without a cache that can be written to, the next run looks for them again.
        with contextlib.suppress(OSError):
            write_entry(private_folder(PLACED), name, json.dumps(flat).encode())
        return found

    count = Count(len(files), "files searched for their fields", first=2 * cores())
    places: dict[str, Placed] = {}
    for file, found in zip(files, on_all_cores(find, files, count), strict=True):
        if isinstance(found, DataError):
            raise found
        places[file.name] = found
    return places


def _is_of_money(rows: Iterable[FileLabels], name: str) -> bool:
    """Says whether a column has numbers alone, and amounts among them."""
    cells = [row.fields[name] for row in rows if name in row.fields]
    return any(map(values.amounts, cells)) and all(map(values.numbers, cells))


def _kept_places(name: str, fields: Iterable[str]) -> Placed | None:
    try:
        flat = json.loads((cache_folder() / PLACED / name).read_bytes())
        found: dict[str, _Placed | None] = {}
        for field in fields:
            found[field] = None
            if flat[field] is not None:
                number, start, stop, spelling = flat[field]
                found[field] = _Placed((int(number), int(start), int(stop)), str(spelling))
    except (OSError, LookupError, TypeError, ValueError):  # not there, or damaged
        return None
    return found


def _pages(
    reading: Reading,
    file: PageFile,
    held: tuple[str, str],
    row: FileLabels | None,
    placed: Placed,
) -> list[Document]:
    """Returns the pages of a file as documents; `held` names their provider and their client."""
    provider, client = held
    row = row or FileLabels(0)
    entities: dict[int, list[tuple[str, int, int]]] = defaultdict(list)
    questions: dict[int, list[Question]] = defaultdict(list)
    for field, found in placed.items():
        value = row.fields[field]
        answers = (value,) if found is None else tuple(dict.fromkeys((value, found.spelling)))
        page, start, stop = found.place if found else (0, 0, 0)
        questions[page].append(Question(field, wording(field, file.name), answers))
        if found:
            entities[page].append((field, start, stop))
    if not row.questions and "provider" not in placed:
        asked = Question("provider", wording("provider", file.name), (provider,))
        for number in range(len(file.sizes)):
            questions[number].append(asked)
    for text, answers in row.questions.items():
        page = _page_of_answer(reading, file, answers[0])
        questions[page].append(Question("", text, answers))
    several = len(file.sizes) > 1
    return [
        Document.drawn(
            file.name if number == 0 else f"{file.name}/{number + 1}",
            provider,
            FolderPage(reading, file, number, tuple(entities[number]), tuple(questions[number])),
            size,
            split=row.split,
            part_of=file.name if several else "",
            client=client,
        )
        for number, size in enumerate(file.sizes)
    ]


def wording(field: str, name: str) -> str:
    """Returns a question on a field, the same in every run."""
    plain = field.replace("_", " ").strip()
    phrasings = RECEIPT_QUESTIONS.get(field) or QUESTION_TEMPLATES.get(field)
    if phrasings is None:
        return f"What is the {plain}?"
    rng = generator(0, f"wording of the question on {field} of {name}")
    return str(rng.choice(phrasings))


def _page_of_answer(reading: Reading, file: PageFile, answer: str) -> int:
    """Returns the first page that an answer stands on; the first page of all without any."""
    if len(file.sizes) == 1:
        return 0
    pages = [reading.read(file, number)[0] for number in range(len(file.sizes))]
    place = placing.place_fields(pages, {"": answer})[""]
    return place[0] if place else 0


def page_name(file: PageFile, number: int) -> str:
    """Returns a page as messages name it."""
    return file.name if len(file.sizes) == 1 else f"{file.name}, page {number + 1}"


def _remarks(
    listing: Listing,
    rows: Mapping[str, FileLabels],
    places: Mapping[str, Placed],
    sizes: Mapping[str, int],
    told_by: str,
) -> dict[str, tuple[str, ...]]:
    """Returns what there is to know beside the documents; see `DocumentSet.remarks`."""
    missing = [
        f"{name}: {field} {shown(rows[name].fields[field])}"
        for name, placed in places.items()
        for field, found in placed.items()
        if found is None
    ]
    asked = Counter(field for placed in places.values() for field in placed)
    absent = Counter(f for placed in places.values() for f, found in placed.items() if not found)
    shares = [f"{field}: {absent[field]:,} of {asked[field]:,} files" for field in absent]
    remarks = {
        "providers are told by": [told_by],
        ALIKE: alike(sizes),
        "fields not found on their page": [*shares, *first_lines(missing)],
        NOT_READ: first_lines(list(listing.others)),
    }
    return {topic: tuple(lines) for topic, lines in remarks.items() if lines}


def alike(sizes: Mapping[str, int]) -> list[str]:
    """Returns a line on each two providers that look like two spellings of one.

    Args:
        sizes: pages or files of each provider.
    """
    pairs = like_spellings(sizes)
    return first_lines([f"{shown(a)} ({sizes[a]}) and {shown(b)} ({sizes[b]})" for a, b in pairs])


def tell_alike(lines: Sequence[str]) -> None:
    """Shows what `alike` returned before anything is trained."""
    if lines:
        tell("\n  ".join([f"{ALIKE}; if they are one, name them alike:", *lines]))


def first_lines(lines: list[str]) -> list[str]:
    """Returns the first `TOLD` lines, and how many more there are."""
    more = len(lines) - TOLD
    return [*lines[:TOLD], f"and {more:,} more"] if more > 0 else lines
