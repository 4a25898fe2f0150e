"""A page of a data set: its pixels and its words are read when somebody looks at them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedpriv.data import apart
from fedpriv.data.document import DataError, Question, Word
from fedpriv.data.drawn_page import LazyPage, PageText
from fedpriv.data.folder import pictures, tesseract
from fedpriv.data.folder.words import Origin, kept_words, reader_versions
from fedpriv.data.hub.boxes import Unit
from fedpriv.data.hub.columns import Found
from fedpriv.data.hub.row import question_of, text_of_row
from fedpriv.data.hub.table import HubTable
from fedpriv.data.readers.annotation import blank_page
from fedpriv.runtime.cache import files_digest, hash_of
from fedpriv.runtime.versions import versions_of

LAST_DRAWN = 2
"""Pages whose pixels stay in memory: most readers look at one page several times in a row."""

LAST_READ = 512
"""Pages whose words stay in memory, some 15 MB."""

FORMAT = 1
"""To be raised when words are read otherwise, so that those of before are not taken."""


@dataclass(frozen=True)
class Reading:
    """How the rows of a data set are read.

    Attributes:
        path: of the data set, for errors.
        columns: which column holds what.
        names: of tags that are numbers.
        unit: of the boxes.
        ocr: whether Tesseract reads the words.
        without_words: whether pages have no words.
        language: of the text, for Tesseract.
        layout: Tesseract's page segmentation mode.
        images: "blank" takes white pages.
    """

    path: str
    columns: Found
    names: tuple[str, ...]
    unit: Unit
    ocr: bool
    without_words: bool
    language: str
    layout: int
    images: Literal["required", "blank"]

    def used(self) -> tuple[str, ...]:
        """Returns the columns that are read for a page, images left out."""
        found = self.columns
        roles = (found.words, found.boxes, found.tags, found.annotation)
        of_words = () if self.ocr or self.without_words else roles
        return tuple(name for name in (*of_words, found.question, found.answers) if name)


@dataclass(frozen=True, slots=True)
class HubPage(LazyPage):
    """A page of a data set.

    Attributes:
        reading: how rows of the data set are read.
        table: the split that the page is in.
        numbers: of the rows with this page; each but the first adds a question.
        size: width and height in pixels.
        picture: a hash of the image as it is stored; "" for a white page.
        content: a hash of the rows' other values.
        asked: a question on every page, on its provider; None for none.
    """

    reading: Reading
    table: HubTable
    numbers: tuple[int, ...]
    size: tuple[int, int]
    picture: str
    content: str
    asked: Question | None = None

    def pixels(self) -> NDArray[np.uint8]:
        """Returns the page (height × width × 3), read-only.

        Raises:
            DataError: if the image cannot be read any more.
        """
        return _pixels(self)

    @property
    def text(self) -> PageText:
        """What is written on the page.

        Raises:
            DataError: if the rows are not as they were.
        """
        return _text(self)[0]

    def origin(self) -> Origin:
        """Returns where the words come from."""
        return _text(self)[1]

    def place(self) -> str:
        """Returns the first row of the page as messages name it."""
        return place_of(self.table, self.numbers[0])

    def entry(self) -> str:
        """Returns the name of the words in the cache; "" if Tesseract does not read them."""
        if not self.reading.ocr:
            return ""
        page = [self.picture, self.reading.language, self.reading.layout]
        return hash_of([FORMAT, "a page of a data set", *page, *reader_versions()])

    def key(self) -> list[Any]:
        """Returns which page it is, by content: the data set may lie elsewhere."""
        asked = self.asked and [self.asked.key, self.asked.text, self.asked.answers]
        read = self.reading
        return [self.picture, self.content, self.size, self.entry(), read.unit, read.names,
                read.used(), read.without_words, asked]  # fmt: skip

    def picture_key(self) -> list[Any]:
        """Returns which picture it is, by content; a white page is none, and like no other."""
        return [self.picture] if self.picture else self.key()

    def code(self) -> str:
        """Returns a hash of the code that reads rows and pictures."""
        return _code()


def place_of(table: HubTable, number: int) -> str:
    """Returns a row as messages name it: "train[3]"."""
    return f"{table.split or 'rows'}[{number}]"


def picture_of(table: HubTable, number: int, column: str) -> bytes:
    """Returns the image of a row as it is stored.

    Raises:
        ValueError: if there is none.
    """
    return table.picture(table.row(number, (column,))[column])


@functools.lru_cache(maxsize=LAST_DRAWN)
def _pixels(page: HubPage) -> NDArray[np.uint8]:
    read, number = page.reading, page.numbers[0]
    if read.images == "blank":
        white = np.broadcast_to(blank_page(page.size)[..., None], (*page.size[::-1], 3))
        return white
    path = Path(read.path) / page.place()
    try:
        content = picture_of(page.table, number, read.columns.image)
    except ValueError as error:
        raise DataError(path, str(error)) from error
    pixels: NDArray[np.uint8] = apart.call(pictures.draw, path, 0, content=content)
    if (pixels.shape[1], pixels.shape[0]) != page.size:
        raise DataError(path, "the image has changed since the data set was read")
    pixels.flags.writeable = False  # whoever reads the page next must see the same
    return pixels


@functools.lru_cache(maxsize=LAST_READ)
def _text(page: HubPage) -> tuple[PageText, Origin]:
    read = page.reading
    rows: list[Mapping[str, Any]] = [page.table.row(one, read.used()) for one in page.numbers]
    path = Path(read.path) / page.place()
    questions: list[Question] = [page.asked] if page.asked else []
    try:
        if read.columns.question:
            questions += [asked for row in rows if (asked := question_of(row, read.columns))]
        if not read.ocr and not read.without_words:
            text = text_of_row(rows[0], read.columns, read.names, read.unit, page.size)
            return PageText(text.words, text.entities, tuple(questions)), "given"
    except ValueError as error:
        raise DataError(path, str(error)) from error
    if read.without_words:
        return PageText((), (), tuple(questions)), "none"

    def fresh() -> tuple[tuple[Word, ...], Origin]:
        tesseract.check_language(read.language)
        try:
            return tesseract.recognise(page.pixels(), read.language, read.layout), "ocr"
        except ValueError as error:
            raise DataError(path, str(error)) from error

    words, origin = kept_words(page.entry(), fresh)
    return PageText(words, (), tuple(questions)), origin


@functools.cache
def _code() -> str:
    package = Path(__file__).parent
    others = [pictures.__file__, tesseract.__file__]
    own = [*sorted(package.glob("*.py")), *map(Path, others)]
    return files_digest(own, versions_of("numpy", "pillow", "datasets"))
