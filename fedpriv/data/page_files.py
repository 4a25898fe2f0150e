"""The image files of pages: their sizes, once every pixel has been decoded.

A header says nothing of what follows it: half of a download has a whole header. So a file is
decoded when the data are read, before anything is trained on them. The cache remembers which files
were whole, by path, size and time, and a second run decodes none of them again.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

import PIL

from fedpriv.data.document import FORMATS, MOST_PIXELS, check_file, read_image
from fedpriv.runtime.cache import cache_folder, file_stamp, json_digest, private_folder

FOLDER, TABLE = "pages", "whole.txt"
"""Where the cache remembers: a line for each file, with a digest, its width and its height."""


def image_size(path: Path) -> tuple[int, int]:
    """Returns the width and height, in pixels, of an image that can be decoded as a whole.

    Raises:
        DataError: as `read_image`.
    """
    check_file(path, "the image is missing")
    known = _known(cache_folder() / FOLDER / TABLE)
    name = json_digest([file_stamp(path), PIL.__version__, FORMATS, MOST_PIXELS])
    if name not in known:
        known[name] = width, height = read_image(path).size
        # Without a cache that can be written to, the next run decodes the file again.
        with contextlib.suppress(OSError), (private_folder(FOLDER) / TABLE).open("a") as table:
            table.write(f"{name} {width} {height}\n")
    return known[name]


@functools.cache
def _known(table: Path) -> dict[str, tuple[int, int]]:
    """Returns what the cache remembers, but for lines that another process has not finished."""
    try:
        rows = [line.split() for line in table.read_text("ascii", "replace").splitlines()]
    except OSError:
        return {}
    whole = (row for row in rows if len(row) == 3 and row[1].isdecimal() and row[2].isdecimal())
    return {name: (int(width), int(height)) for name, width, height in whole}
