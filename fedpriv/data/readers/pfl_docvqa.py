"""PFL-DocVQA: questions on invoices of many providers, dealt out to clients by provider.

Tito et al., "Privacy-Aware Document Visual Question Answering", ICDAR 2024, arXiv:2312.10108.

The release's records are pickles, and reading a pickle can run any program: this reader never
does. ``fedpriv data convert FOLDER`` writes the Parquet files that it reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fedpriv.data.document import (
    DataError,
    Document,
    DocumentSet,
    OnError,
    Question,
    Word,
    box_on_page,
    check_file,
    found_in,
)
from fedpriv.data.page_files import image_size
from fedpriv.data.partition import Deal
from fedpriv.data.paths import inside
from fedpriv.data.reading import read_json, shown
from fedpriv.runtime.outside import PathSetting

CLIENTS, CENTRAL = "data_points.json", "centralized_data_points.json"

_BY_DOCUMENT = ("red_doc2provider.json", "provider2docs.json")


@dataclass(frozen=True)
class PflDocvqa:
    """Reads PFL-DocVQA from the folder of its release, after ``fedpriv data convert``.

    Layout: ``imdb/`` (or the folder itself) with the ``.parquet`` files of the conversion and the
    release's JSON, and ``images/<image_name>.jpg``.

    The questions about one page are read together, with the words of the first of its records that
    has any; records that disagree about the words are broken. Tokens that are blank are left out.
    Each word is its own segment. Questions have no key. The page has no entities.

    Provider: by the record, by ``data_points.json`` (``centralized_data_points.json`` for a set
    that is not dealt out), by ``red_doc2provider.json`` or by ``provider2docs.json``; two that
    disagree are an error. White space in a name becomes single spaces; two names of one file that
    are equal then are an error. A held-out page of no known provider counts as a provider of its
    own, by its document's identifier (``image_name`` without the page's number). A training page
    is an error instead, since provider-level privacy would protect the wrong group. With
    ``without_provider="document"``, its document is the group to protect.

    Identifiers: ``image_name``, a part of the record's ``document`` or, without one, of the name
    without the page's number. A page in both the training and the held-out sets is an error: an
    attack would take it for a non-member although it was trained on.

    Attributes:
        root: the folder of the release.
        train: the sets to train on, such as "train" or "blue_train". The name of a set is that of
            its file without `.parquet`. It may also leave out `imdb_` and `_client_<k>`, and then
            stands for the files of all clients, or for the one file there is.
        test: the sets to hold out, such as "val" or "red_test". Their documents become the test
            split.
        test_names: the held-out records to keep, by their value of `set_name`, such as
            "red_test_positive". If empty, all are kept.
        converted: the folder of the `.parquet` files, if `fedpriv data convert` got another one as
            `--out`. None takes imdb/ in the release, or the folder of the release itself.
        without_provider: what happens to training pages without a provider: "raise" is an error,
            "document" takes the document of each page as its provider.
        on_error: "skip" leaves out records that cannot be read, and counts them; "raise" stops at
            the first. A missing or broken file of records or providers is always an error.
    """

    root: PathSetting
    train: tuple[str, ...] = ("train",)
    test: tuple[str, ...] = ("val",)
    test_names: tuple[str, ...] = ()
    converted: PathSetting | None = None
    without_provider: Literal["raise", "document"] = "raise"
    on_error: OnError = "raise"

    def load(self) -> DocumentSet:
        """Reads every record, in the order of the sets asked for, and decodes every image once."""
        if self.without_provider not in ("raise", "document"):
            raise ValueError(
                f"without_provider={self.without_provider!r}: expected 'raise' or 'document'"
            )
        release = _Release(Path(self.root), self.converted)
        pages = _Pages(release, self.on_error, self.without_provider == "document")
        for split, sets in (("train", self.train), ("test", self.test)):
            for file in release.files(sets):
                pages.read(file, split, self.test_names if split == "test" else ())
        return pages.documents()


@dataclass(frozen=True)
class OfficialClients:
    """Each client holds the pages that the release gives it.

    Client k holds the pages of the files ``..._client_<k>``, in the order of k. If there is a
    ``data_points.json``, only the records that it lists count.

    Attributes:
        root: the folder of the release.
        train: the sets that are dealt out to clients, which are those that `PflDocvqa` trains on.
        converted: the folder of the `.parquet` files, if `fedpriv data convert` got another one as
            `--out`. None takes imdb/ in the release, or the folder of the release itself.
    """

    root: PathSetting
    train: tuple[str, ...] = ("train",)
    converted: PathSetting | None = None

    def deal(self, documents: Sequence[Document], seed: int) -> Deal:
        """Deals out by image name; the seed is not used."""
        release = _Release(Path(self.root), self.converted)
        owner: dict[str, int] = {}
        for file in release.files(self.train):
            if file.client is None:
                raise DataError(file.path, "is not one client's: expected names ..._client_<k>")
            listed = release.listed(file) if release.has(CLIENTS) else None
            for row in file.rows(("position", "image_name")):
                image = row["image_name"]
                if listed is not None and row["position"] not in listed:
                    continue
                if owner.setdefault(image, file.client) != file.client:
                    raise DataError(file.path, f"{shown(image)} is client_{owner[image]}'s too")
        hands: dict[int, list[int]] = {client: [] for client in sorted(set(owner.values()))}
        for place, document in enumerate(documents):
            if document.id not in owner:
                raise ValueError(f"{document.id}: no client of {self.root} holds this page")
            hands[owner[document.id]].append(place)
        empty = [f"client_{client}" for client, hand in hands.items() if not hand]
        if empty:
            raise ValueError(f"{', '.join(empty)}: none of the training documents is theirs")
        return tuple(map(tuple, hands.values()))


@dataclass(frozen=True)
class _File:
    """One converted file of records."""

    path: Path

    @property
    def client(self) -> int | None:
        number = re.search(r"_client_(\d{1,9})$", self.path.stem)
        return int(number[1]) if number else None

    @property
    def set_name(self) -> str:
        return re.sub(r"_client_\d{1,9}$", "", self.path.stem).removeprefix("imdb_")

    @cached_property
    def length(self) -> int:
        """How many items the array had, header included."""
        from fedpriv.data.readers.pfl_arrow import length_of

        return length_of(self.path)

    def rows(self, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
        from fedpriv.data.readers.pfl_arrow import read_records

        return read_records(self.path, columns)


class _Release:
    """The files of a release, and the providers that they name."""

    def __init__(self, root: Path, converted: str | Path | None) -> None:
        self.root = root
        self.home = inside(root, "imdb") if (root / "imdb").is_dir() else root
        self.converted = Path(converted) if converted is not None else self.home

    def files(self, sets: Sequence[str]) -> list[_File]:
        paths = self.converted.glob("[!.]*.parquet") if self.converted.is_dir() else ()
        files = [_File(inside(self.converted, path.name)) for path in sorted(paths)]
        found: list[_File] = []
        for name in sets:
            exact = [file for file in files if file.path.stem == name]
            of_set = [file for file in files if file.set_name == name]
            clients = [file for file in of_set if file.client is not None]
            if len({file.client for file in clients}) < len(clients):
                names = ", ".join(file.path.name for file in clients)
                raise DataError(self.converted, f"two files of one client for {name!r}: {names}")
            if not of_set and not exact:
                raise self._missing(name)
            found += exact or sorted(clients, key=lambda file: file.client or 0) or of_set
        return found

    def _missing(self, name: str) -> DataError:
        arrays = sorted(self.home.glob("*.npy")) if self.home.is_dir() else []
        if any(name in (path.stem, _File(path).set_name) for path in arrays):
            return DataError(
                self.home,
                f"holds the set {name!r} only as .npy, which are pickles and can run any program "
                f"when read: they are not. First: fedpriv data convert {self.root}",
            )
        return DataError(
            self.converted,
            f"no set {name!r}: expected {name}.parquet, imdb_{name}.parquet or "
            f"imdb_{name}_client_<k>.parquet; {found_in(self.converted)}",
        )

    def has(self, name: str) -> bool:
        return (self.home / name).exists()

    def listed(self, file: _File) -> dict[int, str]:
        """Returns the provider of each position of a file that a list of data points has."""
        name = CENTRAL if file.client is None and self.has(CENTRAL) else CLIENTS
        if not self.has(name):
            return {}
        points = self._object(name)
        path = self.home / name
        if file.client is not None:
            key = f"client_{file.client}"
            if key not in points:
                raise DataError(path, f"has no {shown(key)}, whose records {file.path.name} holds")
            points = points[key]
        elif any(isinstance(value, dict) for value in points.values()):
            return {}  # of the clients' files, not of this one
        if not isinstance(points, dict):
            why = f"expected providers with lists of indexes, found {shown(points)}"
            raise DataError(path, why)
        names = _names(path, points)
        found: dict[int, str] = {}
        for raw, indexes in points.items():
            for index in indexes if isinstance(indexes, list) else [indexes]:
                if type(index) is not int or not 1 <= index < file.length:
                    raise DataError(
                        path,
                        f"{shown(raw)}: index {shown(index)}; expected whole numbers from 1 (the "
                        f"header counts as 0) to {file.length - 1}, the last record",
                    )
                if found.setdefault(index, names[raw]) != names[raw]:
                    why = f"index {index} is of {shown(found[index])} and of {shown(names[raw])}"
                    raise DataError(path, why)
        return found

    @cached_property
    def by_document(self) -> dict[str, str]:
        """Provider of each document that a file about documents names."""
        found: dict[str, str] = {}
        for name in _BY_DOCUMENT:
            if not self.has(name):
                continue
            for document, provider in _of_documents(self.home / name, self._object(name)):
                if found.setdefault(document, provider) != provider:
                    why = f"{shown(document)} is of {shown(found[document])} and {shown(provider)}"
                    raise DataError(self.home / name, why)
        return found

    def _object(self, name: str) -> dict[str, Any]:
        path = inside(self.home, name)
        content = read_json(path)
        if not isinstance(content, dict):
            raise DataError(path, f"expected a JSON object, found {shown(content)}")
        return content


def _names(path: Path, raw: Iterable[str]) -> dict[str, str]:
    """Returns each provider's name with single spaces; refuses two names that become one."""
    names: dict[str, str] = {}
    origin: dict[str, str] = {}
    for key in raw:
        name = " ".join(key.split())
        if not name or origin.setdefault(name, key) != key:
            other = f"{shown(origin[name])} and {shown(key)}" if name else shown(key)
            raise DataError(
                path, f"the provider's name {other}: expected distinct names, not blank"
            )
        names[key] = name
    return names


def _of_documents(path: Path, content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields (document, provider) of either of the two files about documents."""
    if path.name == "provider2docs.json":
        names = _names(path, content)
        for raw, documents in content.items():
            if not isinstance(documents, list) or not all(isinstance(d, str) for d in documents):
                raise DataError(path, f"{shown(raw)}: expected a list of documents")
            yield from ((document, names[raw]) for document in documents)
        return
    given: dict[str, str] = {}
    for document, value in content.items():
        provider = value.get("provider") if isinstance(value, dict) else value
        if not isinstance(provider, str):
            raise DataError(
                path, f"{shown(document)}: expected a provider, found {shown(provider)}"
            )
        given[document] = provider
    names = _names(path, given.values())
    yield from ((document, names[provider]) for document, provider in given.items())


@dataclass
class _Page:
    """A page while its records come in."""

    split: str
    client: int | None
    path: Path
    size: tuple[int, int]
    document: str
    provider: str
    words: tuple[Word, ...] = ()
    spelled: int | None = None
    questions: list[Question] = field(default_factory=list)
    identifiers: set[str] = field(default_factory=set)


class _Pages:
    """Gathers the records of each page."""

    def __init__(self, release: _Release, on_error: OnError, alone: bool) -> None:
        self.release, self.on_error, self.alone = release, on_error, alone
        self.pages: dict[str, _Page] = {}
        self.skipped: list[DataError] = []

    def read(self, file: _File, split: str, only: Sequence[str]) -> None:
        listed = self.release.listed(file) if split == "train" else {}
        for row in file.rows():
            if only and row["set_name"] not in only:
                continue
            try:
                self._add(row, file, split, listed)
            except ValueError as error:
                why = f"record {row['position']}: {error}"
                refused = error if isinstance(error, DataError) else DataError(file.path, why)
                if self.on_error == "raise":
                    raise refused from error
                self.skipped.append(refused)

    def documents(self) -> DocumentSet:
        found = [
            Document(
                id=name,
                provider=page.provider,
                page=page.path,
                size=page.size,
                words=page.words,
                questions=tuple(page.questions),
                split=page.split,
                part_of=page.document,
            )
            for name, page in self.pages.items()
        ]
        return DocumentSet("PFL-DocVQA", tuple(found), (), tuple(self.skipped))

    def _add(
        self, row: Mapping[str, Any], file: _File, split: str, listed: Mapping[int, str]
    ) -> None:
        """Adds one record to its page; nothing is added if it is malformed."""
        name = row["image_name"]
        text = row["question"].strip()
        if not text:
            raise ValueError("its question is empty")
        page = self.pages.get(name) or self._page(row, file, split, listed)
        if page.split != split:
            raise ValueError(f"{name} is a page of the {page.split} sets too: one must go")
        if split == "train" and page.client != file.client:
            raise ValueError(f"{name} is a page of client_{page.client} too")
        if page.document != (document := _document_of(row)):
            raise ValueError(f"{name} is a page of {shown(page.document)} and of {shown(document)}")
        provider = self._provider(row, split, listed)
        if page.provider != provider:
            raise ValueError(f"{name} is of {shown(page.provider)} and of {shown(provider)}")
        if row["question_id"] in page.identifiers:
            raise ValueError(f"question {row['question_id']} of {name} occurs twice")
        spelled = hash((tuple(row["words"]), tuple(map(tuple, row["boxes"]))))
        if row["words"] and page.spelled is None:
            page.words, page.spelled = _words(row, page.size), spelled
        elif row["words"] and page.spelled != spelled:
            raise ValueError(f"its words or boxes differ from those of {name} in other records")
        page.questions.append(Question("", text, tuple(dict.fromkeys(row["answers"]))))
        page.identifiers.add(row["question_id"])
        self.pages[name] = page

    def _page(
        self, row: Mapping[str, Any], file: _File, split: str, listed: Mapping[int, str]
    ) -> _Page:
        folder = self.release.root / "images"
        name = inside(folder, f"{row['image_name']}.jpg").relative_to(folder)
        path = inside(self.release.root, f"images/{name}")  # images/ is no link out either
        why = found_in(folder) if not folder.is_dir() else f"{folder} has no such image"
        check_file(path, f"missing: record {row['position']} of {file.path.name}; {why}")
        return _Page(
            split,
            file.client,
            path,
            image_size(path),
            _document_of(row),
            self._provider(row, split, listed),
        )

    def _provider(self, row: Mapping[str, Any], split: str, listed: Mapping[int, str]) -> str:
        document = _document_of(row)
        named = (
            " ".join((row["provider"] or "").split()),
            listed.get(row["position"]),
            self.release.by_document.get(document),
        )
        known = sorted({provider for provider in named if provider})
        if len(known) > 1:
            raise ValueError(f"{document} is of {' and of '.join(map(shown, known))}")
        if not known and split == "train" and not self.alone:
            raise ValueError(
                f"{document} has no provider: expected one in the record, {CLIENTS} or "
                f"{' or '.join(_BY_DOCUMENT)}; without_provider='document' protects documents"
            )
        return known[0] if known else document


def _document_of(row: Mapping[str, Any]) -> str:
    """Returns the identifier of the document of a record's page."""
    return str(row["document"] or re.sub(r"_[^_]*$", "", row["image_name"]))


def _words(row: Mapping[str, Any], size: tuple[int, int]) -> tuple[Word, ...]:
    words = []
    for number, (text, box) in enumerate(zip(row["words"], row["boxes"], strict=True)):
        if not text.strip():
            continue
        x0, y0, x1, y1 = (side * size[i % 2] for i, side in enumerate(box))
        try:
            on_page = box_on_page((x0, y0, x1, y1), size)
        except ValueError as error:
            raise ValueError(f"word {number}, {shown(text)}, at {box}: {error}") from error
        words.append(Word(text.strip(), on_page, number))
    return tuple(words)
