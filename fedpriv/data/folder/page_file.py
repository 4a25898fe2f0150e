"""Files with pages: which there are in a folder, and what was found when each was opened.

A file is opened as a whole once. The cache remembers its digest and the sizes of its pages by its
path, size and time, so the next run opens none of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import PIL
from numpy.typing import NDArray

from fedpriv.data import apart
from fedpriv.data.document import DataError, Word, check_file, found_in
from fedpriv.data.folder import pdf, pictures
from fedpriv.data.paths import inside
from fedpriv.runtime import run_files
from fedpriv.runtime.cache import cache_folder, file_stamp, hash_of, private_folder
from fedpriv.runtime.versions import versions_of

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp", ".pdf")
"""Of files with pages. What is in a file is told by its content."""

SIDE_SUFFIXES = (".json", ".hocr", ".html", ".htm", ".xhtml", ".xml", ".alto")
"""Of files with the words of a page beside it, likewise."""

TABLES = ("labels.csv", "labels.jsonl")

MOST_BYTES = 2 * 1024**3
"""Largest file with pages that is opened."""

MOST_PAGES = 10_000
"""Most pages of one file."""

_FOLDER, _TABLE = "pages", "folder_files.jsonl"
_appending = threading.Lock()


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies in a folder and its subfolders, by paths in it, sorted.

    Attributes:
        pages: files with pages, each with its side file, or "".
        named: the same and those that have a problem.
        others: files that are neither, for the user to know.
        problems: names that lead out of the folder, and pages with two side files.
    """

    pages: Mapping[str, str]
    named: frozenset[str]
    others: tuple[str, ...]
    problems: tuple[DataError, ...]


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file with pages.

    Attributes:
        name: its path in the folder, with "/".
        digest: SHA-256 of its content.
        sizes: width and height of each page in pixels.
        side: the path of its side file; "" without one.
        side_digest: SHA-256 of the side file; "" without one.
    """

    name: str
    digest: str
    sizes: tuple[tuple[int, int], ...]
    side: str
    side_digest: str


def list_files(root: Path) -> Listing:
    """Lists a folder. The order does not depend on the file system; hidden files are left out.

    Raises:
        DataError: if there is no such folder, or no file with pages in it.
    """
    if not root.is_dir():
        raise DataError(root, f"expected a folder with pictures or PDFs; {found_in(root)}")
    try:
        names = sorted(_names(root), key=lambda name: PurePosixPath(name).parts)
    except RecursionError as error:  # of os.walk, before Python 3.12
        raise DataError(root, "its folders are nested too deeply") from error
    pages = {name: "" for name in names if name.lower().endswith(SUFFIXES)}
    named = frozenset(pages)
    problems: dict[str, DataError] = {}
    for name in pages:
        try:
            inside(root, name)
        except DataError as error:
            problems[name] = error
    if not pages:
        kinds = ", ".join(SUFFIXES)
        raise DataError(
            root, f"no pages: expected files {kinds}, in subfolders too; {_some(names)}"
        )
    others: list[str] = []
    owners: dict[str, list[str]] = {}
    for name in pages:
        for key in {name, str(PurePosixPath(name).with_suffix(""))}:
            owners.setdefault(key, []).append(name)
    for name in names:
        if name in pages or name in TABLES:
            continue
        stem = str(PurePosixPath(name).with_suffix(""))
        owned = owners.get(stem, []) if name.lower().endswith(SIDE_SUFFIXES) else []
        for page in owned:
            if pages[page]:
                why = f"two files may hold its words, {pages[page]} and {name}: leave one"
                problems.setdefault(page, DataError(root / page, why))
            pages[page] = name
        if not owned and not name.lower().endswith(SUFFIXES):
            others.append(name)
    good = {name: side for name, side in pages.items() if name not in problems}
    return Listing(good, named, tuple(others), tuple(problems.values()))


def _names(root: Path) -> Iterator[str]:
    """Yields the paths of all files; links to folders are not followed, so no ring is walked."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            if not name.startswith("."):
                path = os.path.relpath(os.path.join(folder, name), root)
                yield path.replace(os.sep, "/")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"it holds {', '.join(names[:8]) or 'no files'}{more}"


# ---------------------------------------------------------------------------------- what is in one


@dataclass(frozen=True)
class FileIndex:
    """Looks into files, or remembers what was found there.

    Attributes:
        root: the folder.
        dpi: of the pages of PDFs.
        known: what the cache remembers, see `remembered`.
    """

    root: Path
    dpi: int
    known: dict[str, Any]

    def look(self, name: str, side: str) -> PageFile:
        """Returns the file of that name; decodes every page unless it is remembered.

        Raises:
            DataError: if the file, or a page of it, cannot be read.
        """
        path = inside(self.root, name)
        check_file(path)
        side_digest = self._digest(side) if side else ""
        stamp = hash_of([file_stamp(path), self.dpi, PIL.__version__, versions_of("pypdfium2")])
        row = self.known.get(stamp)
        if row is None:
            size = path.stat().st_size
            if size > MOST_BYTES:
                raise DataError(path, f"{size:,} bytes: expected at most {MOST_BYTES:,}")
            row = [_sha256(path), _sizes(path, self.dpi)]
            _remember(stamp, row)
        digest, sizes = row
        pairs = tuple((width, height) for width, height in sizes)
        return PageFile(name, digest, pairs, side, side_digest)

    def _digest(self, side: str) -> str:
        path = inside(self.root, side)
        check_file(path)
        return _sha256(path)


def draw(root: Path, file: PageFile, number: int, dpi: int) -> NDArray[np.uint8]:
    """Returns the pixels of a page (height × width × 3).

    Raises:
        DataError: if it cannot be read any more, or has become a page of another size.
    """
    path = inside(root, file.name)
    check_file(path)
    how = (pdf.draw, path, number, dpi) if pdf.is_pdf(path) else (pictures.draw, path, number)
    pixels: NDArray[np.uint8] = apart.call(*how)
    if (pixels.shape[1], pixels.shape[0]) != file.sizes[number]:
        raise DataError(path, "the file has changed since the folder was read")
    return pixels


def text_layer(root: Path, file: PageFile, number: int, dpi: int) -> tuple[Word, ...]:
    """Returns the words that a PDF itself holds of a page; none of a picture."""
    path = inside(root, file.name)
    if not pdf.is_pdf(path):
        return ()
    words = apart.call(pdf.text_layer, path, number, dpi)
    return tuple(Word(text, tuple(box), segment) for text, box, segment in words)


def remembered() -> dict[str, Any]:
    """Returns what the cache knows of files, leaving out lines that were not finished."""
    found: dict[str, Any] = {}
    try:
        text = (cache_folder() / _FOLDER / _TABLE).read_text("utf-8", "replace")
    except OSError:
        return found
    for line in text.splitlines():
        with contextlib.suppress(ValueError, TypeError):
            stamp, digest, sizes = json.loads(line)
            whole = all(type(side) is int for size in sizes for side in size)
            if whole and sizes and isinstance(digest, str) and isinstance(stamp, str):
                found[stamp] = [digest, sizes]
    return found


def _remember(stamp: str, row: list[Any]) -> None:
    line = json.dumps([stamp, *row])
    # Without a cache that can be written to, the next run opens the file again.
    with (
        contextlib.suppress(OSError),
        _appending,
        run_files.output(private_folder(_FOLDER) / _TABLE, more=True) as file,
    ):
        file.write(f"{line}\n".encode())


def _sizes(path: Path, dpi: int) -> list[tuple[int, int]]:
    if pdf.is_pdf(path):
        return _pairs(apart.call(pdf.page_sizes, path, dpi, MOST_PAGES))
    if path.suffix.lower() == ".pdf":
        why = "the file is empty" if not path.stat().st_size else "it does not begin with %PDF-"
        raise DataError(path, f"not a PDF: {why}")
    return _pairs(apart.call(pictures.page_sizes, path, MOST_PAGES))


def _pairs(sizes: list[list[int]]) -> list[tuple[int, int]]:
    return [(width, height) for width, height in sizes]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
