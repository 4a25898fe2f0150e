"""The words of a page: from its side file, from the PDF's text layer, or by Tesseract.

They are kept in the cache under a hash of the page, of its side file and of what reads them. So
each page is read once, and a reading that was killed goes on where it was.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedpriv.data.document import Box, DataError, Word
from fedpriv.data.folder import page_file, tesseract
from fedpriv.data.folder.page_file import PageFile
from fedpriv.data.folder.side_files import read_side_file, words_on
from fedpriv.data.readers.annotation import at, box_of, encodable
from fedpriv.runtime.cache import cache_folder, hash_of, private_folder, write_entry
from fedpriv.runtime.versions import versions_of

FORMAT = 1
"""To be raised when words are read otherwise, so that those of before are not taken."""

FOLDER = "words"

Origin = Literal["side", "text", "ocr", "none"]
"""Where words come from: a side file, the PDF's text layer, Tesseract, or nowhere."""


@dataclass(frozen=True)
class Reading:
    """How the pages of a folder are read.

    Attributes:
        root: the folder.
        dpi: resolution of the pages of PDFs, in pixels an inch.
        words: "auto" takes a side file, else the text layer, else Tesseract; "ocr" always takes
            Tesseract; "none" takes no words.
        language: of the text, for Tesseract.
        layout: Tesseract's page segmentation mode.
    """

    root: str
    dpi: int
    words: Literal["auto", "ocr", "none"]
    language: str
    layout: int

    def entry(self, file: PageFile, number: int) -> str:
        """Returns the name of a page's words in the cache; "" if it is to have none.

        Words that Tesseract reads have its version in the name where it is installed.
        """
        if self.words == "none":
            return ""
        side = file.side_digest if self.words == "auto" else ""
        page = [file.digest, number, file.sizes[number], self.dpi, self.words]
        # The same picture with words from its side file does not depend on Tesseract.
        reader = [] if side else [self.language, self.layout, _versions()]
        return hash_of([FORMAT, *page, side, reader])

    def read(self, file: PageFile, number: int) -> tuple[tuple[Word, ...], Origin]:
        """Returns the words of a page and where they come from, out of the cache if possible.

        Raises:
            DataError: if they cannot be read.
            NoTesseractError: if Tesseract is needed and not there.
        """
        if not (name := self.entry(file, number)):
            return (), "none"
        if (kept := _kept(name)) is not None:
            return kept
        words, origin = self._fresh(file, number)
        # As the cache keeps them, so that the first run has the same words as the next.
        words = tuple(replace(word, box=_rounded(word.box)) for word in words)
        rows = [[word.text, word.box, word.segment] for word in words]
        content = zlib.compress(json.dumps([origin, rows]).encode(), 1)
        # Without a cache that can be written to, the next run reads the page again.
        with contextlib.suppress(OSError):
            write_entry(private_folder(FOLDER), name, content)
        return words, origin

    def is_kept(self, file: PageFile, number: int) -> bool:
        """Says whether the words of a page lie in the cache, whole or not."""
        name = self.entry(file, number)
        return not name or _path(name).is_file()

    def _fresh(self, file: PageFile, number: int) -> tuple[tuple[Word, ...], Origin]:
        root = Path(self.root)
        if self.words == "auto" and file.side:
            pages = read_side_file(root, file.side)
            with at(root / file.side, f"page {number + 1}" if len(pages) > 1 else ""):
                if len(pages) != len(file.sizes):
                    raise ValueError(
                        f"words of {len(pages)} pages, but {file.name} has {len(file.sizes)}"
                    )
                return words_on(pages[number], file.sizes[number]), "side"
        if self.words == "auto" and (layer := page_file.text_layer(root, file, number, self.dpi)):
            with at(root / file.name, f"page {number + 1}"):
                for word in layer:
                    encodable(word.text)
            return layer, "text"
        tesseract.check_language(self.language)
        pixels = page_file.draw(root, file, number, self.dpi)
        with at(root / file.name, f"page {number + 1}" if len(file.sizes) > 1 else ""):
            return tesseract.recognise(pixels, self.language, self.layout), "ocr"


def _rounded(box: Box) -> Box:
    left, top, right, bottom = (round(side, 2) for side in box)
    return left, top, right, bottom


def _versions() -> list[Any]:
    try:
        read_by = tesseract.version()
    except tesseract.NoTesseractError:
        read_by = ""
    return [read_by, versions_of("pypdfium2")]


def _path(name: str) -> Path:
    return cache_folder() / FOLDER / name


def _kept(name: str) -> tuple[tuple[Word, ...], Origin] | None:
    try:
        origin, rows = json.loads(zlib.decompress(_path(name).read_bytes()))
        words = tuple(Word(text, box_of(box), segment) for text, box, segment in rows)
    except (OSError, ValueError, TypeError, zlib.error, DataError):  # not there, or damaged
        return None
    return (words, origin) if origin in ("side", "text", "ocr") else None
