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
    DataError,
    Document,
    DocumentSet,
    OnError,
    Question,
    Word,
    check_file,
    found_in,
    read_all,
)
from fedpriv.data.page_files import image_size
from fedpriv.data.paths import inside
from fedpriv.data.readers.annotation import (
    around,
    at,
    fitted,
    known_splits,
    member,
    numbers,
    text_of,
)
from fedpriv.data.reading import read_json, shown
from fedpriv.runtime.outside import PathSetting

_SPLITS = {"train": "train", "val": "test", "test": "test"}
_NAMES = ("{}_v1.0.json", "{}_v1.0_withQT.json")


@dataclass(frozen=True)
class DocVqa:
    """Reads DocVQA (version 1, single pages) from the folder of its release.

    Layout: ``<split>_v1.0.json`` (or ``<split>_v1.0_withQT.json``), ``documents/`` and
    ``ocr_results/``, in ``root/<split>/`` or all in ``root``.

    Each page has all of its questions, in the file's order. Its words are those of the release's
    OCR; each line is a segment. Blank words and answers are left out. Questions have no key;
    questions of the official test split have no answers.

    Provider: DocVQA names none. The provider of a page is the document that it was taken from
    (``ucsf_document_id``), so provider-level privacy is privacy of documents with all their pages.
    The release does not say who wrote the documents; a company has many.

    Identifiers: ``<ucsf_document_id>_<page>``, a part of ``<ucsf_document_id>``.

    Attributes:
        root: the folder that holds the splits.
        splits: the splits to read, any of "train", "val" and "test"; "val" and "test" both become
            the test split. A missing split is left out, unless all are missing.
        on_error: "skip" leaves out questions and pages that cannot be read, and counts them;
            "raise" stops at the first. A missing or broken list of questions is always an error.
    """

    root: PathSetting
    splits: tuple[str, ...] = ("train", "val")
    on_error: OnError = "raise"

    def load(self) -> DocumentSet:
        """Reads every page, in the order of the questions, and decodes every image once."""
        root, lists = Path(self.root), {}
        for split in known_splits(self.splits, _SPLITS):
            names = [base + name.format(split) for base in (f"{split}/", "") for name in _NAMES]
            if present := [name for name in names if (root / name).exists()]:
                lists[split] = inside(root, present[0])
        if not lists:
            asked = " or ".join(f"{split}_v1.0.json" for split in self.splits)
            raise DataError(root, f"no {asked} here or in a folder of the split; {found_in(root)}")
        seen: set[str] = set()

        def read(task: tuple[str, Path, _Page | DataError]) -> Document:
            split, path, page = task
            if isinstance(page, DataError):
                raise page
            image = inside(path.parent, page.image)
            check_file(image, f"missing: {path.name} asks about this page")
            size = image_size(image)
            words = _words(inside(path.parent, f"ocr_results/{page.id}.json"), size)
            if page.id in seen:
                raise DataError(path, f"{page.id} is a page of another split too")
            seen.add(page.id)
            return Document(
                id=page.id,
                provider=page.document,
                page=image,
                size=size,
                words=words,
                questions=tuple(page.questions),
                split=_SPLITS[split],
                part_of=page.document,
            )

        pages = ((split, path, page) for split, path in lists.items() for page in _pages(path))
        documents, skipped = read_all(read, pages, self.on_error)
        return DocumentSet("DocVQA", tuple(documents), (), skipped)


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
    """Yields the pages of a list of questions, and an error for each malformed item."""
    with at(path, ""):
        items = member(read_json(path), "data", list)
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
    identifier = item.get("questionId")
    if not isinstance(identifier, int | str) or isinstance(identifier, bool):
        raise ValueError(f"expected a questionId, found {shown(identifier)}")
    if identifier in seen:
        raise ValueError(f"the questionId {shown(identifier)} occurs twice")
    number = item.get("ucsf_document_page_no")
    page = _Page(
        document=_text(item, "ucsf_document_id"),
        number=str(number) if type(number) is int else _text(item, "ucsf_document_page_no"),
        image=_text(item, "image"),
    )
    answers = item.get("answers", [])
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise ValueError(f"expected a list of answers, found {shown(answers)}")
    answers = dict.fromkeys(answer.strip() for answer in answers if answer.strip())
    question = Question("", _text(item, "question").strip(), tuple(answers))
    first = pages.setdefault(page.id, page)
    if (first.document, first.image) != (page.document, page.image):
        raise ValueError(f"{page.id} has the images {shown(first.image)} and {shown(page.image)}")
    first.questions.append(question)
    seen.add(identifier)


def _text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"expected a text {name}, found {shown(value)}")
    return value


def _words(path: Path, size: tuple[int, int]) -> tuple[Word, ...]:
    """Reads the words of a page of OCR; the page must be of the image's `size`, in pixels."""
    words: list[Word] = []
    with at(path, ""):
        pages = member(read_json(path), "recognitionResults", list)
        if not pages:
            raise ValueError("it has no page")
        lines = member(pages[0], "lines", list)
        # Boxes of another size of the image are refused where the file tells.
        stated = (pages[0].get("width", size[0]), pages[0].get("height", size[1]))
        if any(
            type(given) not in (int, float) or not abs(given - side) <= 2
            for given, side in zip(stated, size, strict=True)
        ):
            raise ValueError(
                f"it is of a page of {shown(stated[0])} × {shown(stated[1])} pixels, but the image "
                f"is of {size[0]} × {size[1]}"
            )
        for number, line in enumerate(lines):
            for word in member(line, "words", list):
                if text := text_of(word):
                    box = around(numbers(word.get("boundingBox"), 8))
                    words.append(Word(text, fitted(box, (1.0, 1.0), size), number))
    return tuple(words)
