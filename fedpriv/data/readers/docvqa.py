"""DocVQA: questions on scanned pages of industry documents.

Mathew, Karatzas and Jawahar, "DocVQA: A Dataset for VQA on Document Images", WACV 2021,
https://www.docvqa.org.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpriv.data.document import (
    Box,
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
from fedpriv.data.paths import inside
from fedpriv.data.reading import read_json, shown

_SPLITS = {"train": "train", "val": "test", "test": "test"}
_NAMES = ("{}_v1.0.json", "{}_v1.0_withQT.json")


@dataclass(frozen=True)
class DocVqa:
    """Reads DocVQA (version 1, single pages) from the folder of its release.

    Layout: ``<split>_v1.0.json`` (or ``<split>_v1.0_withQT.json``), ``documents/`` and
    ``ocr_results/``, in ``root/<split>/`` or all in ``root``.

    Each page has all of its questions, in the file's order. Its words are those of
    the release's OCR; each line is a segment. Blank words and answers are left out. Questions have
    no key; those of the official test split have no answers.

    Provider: DocVQA names none. A page's is the document that it was taken from
    (``ucsf_document_id``), so that provider-level privacy is document-level privacy, with all
    pages of a document. Who wrote the documents (a company has many) is not in the release.

    Identifiers: ``<ucsf_document_id>_<page>``, a part of ``<ucsf_document_id>``.

    Attributes:
        root: the folder with the splits.
        splits: "train", "val", "test", some of them; val and test get the split "test". One that
            is not there is left out, unless all are.
        on_error: ``"skip"`` leaves out questions and pages that cannot be read and counts them; a
            missing or broken list of questions raises all the same.
    """

    root: str | Path
    splits: tuple[str, ...] = ("train", "val")
    on_error: OnError = "raise"

    def load(self) -> DocumentSet:
        """Reads every page, in the order of the questions, and decodes every image once."""
        documents: dict[str, Document] = {}
        skipped: list[DataError] = []
        for split, path in self._lists().items():
            for found in _pages(path):
                try:
                    if isinstance(found, DataError):
                        raise found
                    document = _document(found, path, _SPLITS[split])
                    if document.id in documents:
                        raise DataError(path, f"{document.id} is a page of another split too")
                    documents[document.id] = document
                except DataError as error:
                    if self.on_error == "raise":
                        raise
                    skipped.append(error)
        return DocumentSet("DocVQA", tuple(documents.values()), (), tuple(skipped))

    def _lists(self) -> dict[str, Path]:
        """Returns the file of each split's questions."""
        if not self.splits or any(split not in _SPLITS for split in self.splits):
            raise ValueError(f"splits={self.splits!r}: expected some of {', '.join(_SPLITS)}")
        found = {split: self._list(split) for split in self.splits}
        there = {split: path for split, path in found.items() if path}
        if not there:
            asked = " or ".join(f"{split}_v1.0.json" for split in self.splits)
            root = Path(self.root)
            raise DataError(root, f"no {asked} here or in a folder of the split; {found_in(root)}")
        return there

    def _list(self, split: str) -> Path | None:
        root = Path(self.root)
        for base in (f"{split}/", ""):
            for name in _NAMES:
                if (root / base / name.format(split)).exists():
                    return inside(root, base + name.format(split))
        return None


@dataclass
class _Page:
    """A page while its questions come in."""

    document: str
    number: str
    image: str
    questions: list[Question] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{self.document}_{self.number}"


def _pages(path: Path) -> Iterator[_Page | DataError]:
    """Yields the pages of a list of questions, and an error for each item that is none."""
    content = read_json(path)
    items = content.get("data") if isinstance(content, dict) else None
    if not isinstance(items, list):
        raise DataError(path, 'expected a JSON object with a list "data"')
    pages: dict[str, _Page] = {}
    seen: set[int | str] = set()
    for number, item in enumerate(items):
        try:
            _add(item, pages, seen)
        except ValueError as error:
            yield DataError(path, f"data[{number}]: {error}")
    yield from pages.values()


def _add(item: Any, pages: dict[str, _Page], seen: set[int | str]) -> None:
    """Adds one question to its page; raises `ValueError` on a malformed one."""
    if not isinstance(item, dict):
        raise ValueError(f"expected an object, found {shown(item)}")
    identifier = _identifier(item.get("questionId"))
    if identifier in seen:
        raise ValueError(f"the questionId {shown(identifier)} occurs twice")
    number = item.get("ucsf_document_page_no")
    page = _Page(
        document=_text(item, "ucsf_document_id"),
        number=str(number) if type(number) is int else _text(item, "ucsf_document_page_no"),
        image=_text(item, "image"),
    )
    question = Question("", _text(item, "question"), _answers(item.get("answers", [])))
    first = pages.setdefault(page.id, page)
    if (first.document, first.image) != (page.document, page.image):
        raise ValueError(f"{page.id} has the images {shown(first.image)} and {shown(page.image)}")
    first.questions.append(question)
    seen.add(identifier)


def _identifier(value: Any) -> int | str:
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise ValueError(f"expected a questionId, found {shown(value)}")
    return value


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text {name}, found {shown(value)}")
    return value.strip() if name == "question" else value


def _answers(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(answer, str) for answer in value):
        raise ValueError(f"expected a list of answers, found {shown(value)}")
    return tuple(dict.fromkeys(answer.strip() for answer in value if answer.strip()))


def _document(page: _Page, path: Path, split: str) -> Document:
    image = inside(path.parent, page.image)
    check_file(image, f"missing: {path.name} asks about this page")
    size = image_size(image)
    return Document(
        id=page.id,
        provider=page.document,
        page=image,
        size=size,
        words=_words(inside(path.parent, f"ocr_results/{page.id}.json"), size),
        questions=tuple(page.questions),
        split=split,
        part_of=page.document,
    )


def _words(path: Path, size: tuple[int, int]) -> tuple[Word, ...]:
    """Reads the words of a page of OCR; the page must be of the image's `size`, in pixels."""
    content = read_json(path)
    try:
        page = _item(_items(content, "recognitionResults"), 0)
        _same_size(page, size)
        return tuple(
            Word(word["text"].strip(), _box(word.get("boundingBox"), size), number)
            for number, line in enumerate(_items(page, "lines"))
            for word in _items(line, "words")
            if _spelled(word)
        )
    except ValueError as error:
        raise DataError(path, str(error)) from error


def _items(value: Any, name: str) -> list[Any]:
    items = value.get(name) if isinstance(value, dict) else None
    if not isinstance(items, list):
        raise ValueError(f'expected an object with a list "{name}", found {shown(value)}')
    return items


def _item(items: list[Any], place: int) -> Any:
    if len(items) <= place:
        raise ValueError("it has no page")
    return items[place]


def _same_size(page: Any, size: tuple[int, int]) -> None:
    """Refuses boxes that are those of another size of the image, where the file tells."""
    if not isinstance(page, dict):
        raise ValueError(f"expected a page, found {shown(page)}")
    given = (page.get("width", size[0]), page.get("height", size[1]))
    numbers = all(type(side) in (int, float) for side in given)
    if not numbers or any(not abs(a - b) <= 2 for a, b in zip(given, size, strict=True)):
        raise ValueError(
            f"it is of a page of {shown(given[0])} × {shown(given[1])} pixels, but the image is "
            f"of {size[0]} × {size[1]}"
        )


def _spelled(word: Any) -> bool:
    if not isinstance(word, dict) or not isinstance(word.get("text"), str):
        raise ValueError(f"expected a word with text and boundingBox, found {shown(word)}")
    return bool(word["text"].strip())


def _box(value: Any, size: tuple[int, int]) -> Box:
    """Returns the box around a quadrilateral x, y, x, y, x, y, x, y."""
    whole = isinstance(value, list) and len(value) == 8
    if not whole or not all(type(side) in (int, float) for side in value):
        raise ValueError(f"expected a boundingBox of 8 numbers, found {shown(value)}")
    try:
        sides = [float(side) for side in value]
    except OverflowError:
        raise ValueError(f"the boundingBox {shown(value)} is not within the page") from None
    across, down = sides[0::2], sides[1::2]
    if any(side != side for side in sides):
        raise ValueError(f"the boundingBox {shown(value)} holds what is no number")
    try:
        return box_on_page((min(across), min(down), max(across), max(down)), size)
    except ValueError as error:
        raise ValueError(f"the boundingBox {shown(value)}: {error}") from error
