"""The words of a page: from its side file, from the PDF's text layer, or by Tesseract.

They are kept in the cache under a hash of the page, of its side file and of what reads them. So
each page is read once, and a reading that was killed goes on where it was.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from fedpriv.data.document import Box, DataError, DataErrors, Word
from fedpriv.data.folder import page_file, tesseract
from fedpriv.data.folder.page_file import PageFile
from fedpriv.data.folder.progress import Count, duration, on_all_cores, tell
from fedpriv.data.folder.side_files import read_side_file, words_on
from fedpriv.data.readers.annotation import at, box_of, encodable
from fedpriv.runtime.cache import cache_folder, hash_of, private_folder, write_entry
from fedpriv.runtime.versions import cores, versions_of

FORMAT = 1
"""To be raised when words are read otherwise, so that those of before are not taken."""

FOLDER = "words"

TOLD = 20
"""Pages that one message names; the others are only counted."""

Origin = Literal["side", "text", "ocr", "given", "none"]
"""Where words come from: a side file, the PDF's text layer, Tesseract, the data set, or nowhere."""

P = TypeVar("P", bound=Hashable)


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
        reader = [] if side else [self.language, self.layout, *reader_versions()]
        return hash_of([FORMAT, *page, side, reader])

    def read(self, file: PageFile, number: int) -> tuple[tuple[Word, ...], Origin]:
        """Returns the words of a page and where they come from, out of the cache if possible.

        Raises:
            DataError: if they cannot be read.
            NoTesseractError: if Tesseract is needed and not there.
        """
        if not (name := self.entry(file, number)):
            return (), "none"
        return kept_words(name, lambda: self._fresh(file, number))

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


def kept_words(
    name: str, fresh: Callable[[], tuple[tuple[Word, ...], Origin]]
) -> tuple[tuple[Word, ...], Origin]:
    """Returns the words of a page from the cache, or reads and keeps them.

    Args:
        name: of their entry in the cache: a hash of all that decides them.
        fresh: reads them, and tells where they come from.
    """
    if (kept := _kept(name)) is not None:
        return kept
    words, origin = fresh()
    # As the cache keeps them, so that the first run has the same words as the next.
    words = tuple(replace(word, box=_rounded(word.box)) for word in words)
    rows = [[word.text, word.box, word.segment] for word in words]
    content = zlib.compress(json.dumps([origin, rows]).encode(), 1)
    # Without a cache that can be written to, the next run reads the page again.
    with contextlib.suppress(OSError):
        write_entry(private_folder(FOLDER), name, content)
    return words, origin


def read_ahead(
    root: Path | str,
    pages: Sequence[P],
    entry: Callable[[P], str],
    read: Callable[[P], object],
    named: Callable[[P], str],
) -> dict[P, DataError]:
    """Reads the words of pages into the cache, on all cores; returns the error of each bad page.

    Args:
        root: of the data, for errors.
        pages: of which those that lie in the cache are not read again.
        entry: the name of a page's words in the cache; "" if it is to have none.
        read: reads a page.
        named: a page as messages name it.

    Raises:
        DataErrors: if Tesseract is needed and not there, with the pages that need it.
    """
    fresh = [page for page in pages if (name := entry(page)) and not _path(name).is_file()]
    lacking: dict[str, str] = {}

    def one(page: P) -> None:
        try:
            read(page)
        except tesseract.NoTesseractError as error:
            lacking[named(page)] = str(error)

    count = Count(len(fresh), "pages read", first=2 * cores())
    found = zip(fresh, on_all_cores(one, fresh, count), strict=True)
    unread = {page: error for page, error in found if error is not None}
    if lacking:
        some = "; ".join(sorted(lacking)[:TOLD]) + ("; …" if len(lacking) > TOLD else "")
        why = (
            f"{next(iter(lacking.values()))}. {len(lacking):,} page{'s' * (len(lacking) != 1)} "
            f"without words: {some}. Or put words beside them, or take none "
            "(data.source.words=none)"
        )
        raise DataErrors(root, [*unread.values(), DataError(root, why)])
    if (seconds := count.clock() - count.began) > 60:
        tell(f"{len(fresh):,} pages read in {duration(seconds)}; the cache keeps them")
    return unread


def _rounded(box: Box) -> Box:
    left, top, right, bottom = (round(side, 2) for side in box)
    return left, top, right, bottom


def reader_versions() -> list[Any]:
    """Returns the versions of what reads pages, of Tesseract where it is installed."""
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
