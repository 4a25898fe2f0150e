"""Sizes of image files, known once every pixel has been decoded.

Half of a download may have a whole header. So files are decoded when the data are read, before
anything is trained on them. The cache remembers by path, size and time which files were whole, and
a second run does not decode them again.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

import PIL

from fedpriv.data import apart
from fedpriv.data.document import FORMATS, MOST_PIXELS, check_file, read_image
from fedpriv.runtime import run_files
from fedpriv.runtime.cache import (
    cache_folder,
    file_stamp,
    files_digest,
    json_digest,
    private_folder,
)

FOLDER, TABLE = "pages", "whole.txt"
"""File in the cache with a line for each image: of its stamp, width, height, of its content."""


def image_size(path: Path) -> tuple[int, int]:
    """Returns the width and height, in pixels, of an image after decoding it as a whole.

    Raises:
        DataError: as `read_image`.
    """
    width, height, _ = _facts(path)
    return width, height


def image_digest(path: Path) -> str:
    """Returns a hash of the content of an image's file, wherever it lies and whenever it was made.

    Raises:
        DataError: as `read_image`.
    """
    return _facts(path)[2]


def _facts(path: Path) -> tuple[int, int, str]:
    check_file(path, "the image is missing")
    known = _known(cache_folder() / FOLDER / TABLE)
    name = json_digest([file_stamp(path), PIL.__version__, FORMATS, MOST_PIXELS])
    if name not in known:
        # Apart, so that what is wrong with a file cannot end this process.
        width, height = apart.call(size_once_decoded, path)
        known[name] = width, height, digest = width, height, files_digest([path])
        # Without a cache that can be written to, the next run decodes the file again.
        with (
            contextlib.suppress(OSError),
            run_files.output(private_folder(FOLDER) / TABLE, more=True) as table,
        ):
            table.write(f"{name} {width} {height} {digest}\n".encode())
    return known[name]


def size_once_decoded(path: Path) -> tuple[int, int]:
    """Returns the width and height of an image whose every pixel has been decoded."""
    return read_image(path).size


@functools.cache
def _known(table: Path) -> dict[str, tuple[int, int, str]]:
    """Reads the cache, leaving out lines that another process has not finished."""
    try:
        rows = [line.split() for line in table.read_text("ascii", "replace").splitlines()]
    except OSError:
        return {}
    whole = (row for row in rows if len(row) == 4 and row[1].isdecimal() and row[2].isdecimal())
    return {name: (int(width), int(height), digest) for name, width, height, digest in whole}
