"""A page of a folder: its pixels and its words are read when somebody looks at them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import DataError, Entity, Question, Word
from fedpriv.data.drawn_page import LazyPage, PageText
from fedpriv.data.folder import page_file
from fedpriv.data.folder.page_file import PageFile
from fedpriv.data.folder.words import Origin, Reading
from fedpriv.runtime.cache import files_digest
from fedpriv.runtime.versions import versions_of

LAST_DRAWN = 2
"""Pages whose pixels stay in memory: most readers look at one page several times in a row."""

LAST_READ = 512
"""Pages whose words stay in memory, some 15 MB."""


@dataclass(frozen=True, slots=True)
class FolderPage(LazyPage):
    """A page of a file in a folder.

    Attributes:
        reading: how pages of the folder are read.
        file: that the page is in.
        number: of the page in the file, from 0.
        entities: label, first word and end of each entity.
        questions: on the page.
    """

    reading: Reading
    file: PageFile
    number: int
    entities: tuple[tuple[str, int, int], ...]
    questions: tuple[Question, ...]

    def pixels(self) -> NDArray[np.uint8]:
        """Returns the page (height × width × 3), read-only.

        Raises:
            DataError: if the file cannot be read any more, or has changed in size.
        """
        return _pixels(self.reading, self.file, self.number)

    @property
    def text(self) -> PageText:
        """What is written on the page.

        Raises:
            DataError: if the words are not those in which the entities were found.
        """
        words, _ = _words(self.reading, self.file, self.number)
        if any(stop > len(words) for _, _, stop in self.entities):
            path = Path(self.reading.root) / self.file.name
            raise DataError(path, "its words have changed since the folder was read")
        entities = tuple(
            Entity(label, tuple(range(start, stop))) for label, start, stop in self.entities
        )
        return PageText(words, entities, self.questions)

    def origin(self) -> Origin:
        """Returns where the words come from."""
        return _words(self.reading, self.file, self.number)[1]

    def key(self) -> list[Any]:
        """Returns which page it is, by content: the folder may lie elsewhere."""
        questions = [[question.key, question.text, question.answers] for question in self.questions]
        words = self.reading.entry(self.file, self.number)
        dpi = self.reading.dpi
        return [self.file.digest, self.number, dpi, words, self.entities, questions]

    def picture_key(self) -> list[Any]:
        """Returns which picture it is: a page of a file, by content."""
        return [self.file.digest, self.number]

    def code(self) -> str:
        """Returns a hash of the code that reads pictures and words."""
        return _code()


@functools.lru_cache(maxsize=LAST_DRAWN)
def _pixels(reading: Reading, file: PageFile, number: int) -> NDArray[np.uint8]:
    pixels = page_file.draw(Path(reading.root), file, number, reading.dpi)
    pixels.flags.writeable = False  # whoever reads the page next must see the same
    return pixels


@functools.lru_cache(maxsize=LAST_READ)
def _words(reading: Reading, file: PageFile, number: int) -> tuple[tuple[Word, ...], Origin]:
    return reading.read(file, number)


@functools.cache
def _code() -> str:
    package = sorted(Path(__file__).parent.glob("*.py"))
    return files_digest(package, versions_of("numpy", "pillow", "pypdfium2"))
