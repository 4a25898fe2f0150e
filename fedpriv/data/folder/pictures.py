"""Pages of image files, or of their content: PNG, JPEG, WebP, and TIFF with one page or many.

The format is told by the content. A photograph is turned as its camera says (EXIF), and what is
transparent is white, as a viewer shows both.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# The plug-ins by name: else Pillow imports those of every format that it knows.
from PIL import Image, ImageOps, TiffImagePlugin, WebPImagePlugin  # noqa: F401

from fedpriv.data.document import DataError
from fedpriv.data.readers.annotation import page_size

FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")


def page_sizes(path: Path, most: int, content: bytes | None = None) -> list[tuple[int, int]]:
    """Returns width and height of each page in pixels, after decoding every one.

    Args:
        path: of the image.
        most: the largest number of pages.
        content: of the image; None reads the file. The path then only tells where it stands.

    Raises:
        DataError: if one of the pages cannot be decoded, or there are more.
    """
    sizes: list[tuple[int, int]] = []
    with _opened(path, content) as image:
        for page in _pages(image):
            if len(sizes) == most:
                raise ValueError(f"more than {most:,} pages")
            sizes.append(_upright(page).size)
    return sizes


def draw(path: Path, number: int, content: bytes | None = None) -> NDArray[np.uint8]:
    """Returns one page, numbered from 0 (height × width × 3); `content` as of `page_sizes`.

    Raises:
        DataError: if it cannot be decoded, or there is no such page.
    """
    with _opened(path, content) as image:
        if number:
            image.seek(number)
        page = _upright(image)
        if page.has_transparency_data:
            white = Image.new("RGBA", page.size, "white")
            white.alpha_composite(page.convert("RGBA"))
            page = white
        return np.array(page.convert("RGB"), dtype=np.uint8)


@contextmanager
def _opened(path: Path, content: bytes | None) -> Iterator[Image.Image]:
    try:
        with warnings.catch_warnings():
            # Pillow warns of large images before our own limit, and of odd metadata.
            warnings.simplefilter("ignore")
            opened = path if content is None else io.BytesIO(content)
            with Image.open(opened, formats=FORMATS) as image:
                yield image
    except (DataError, MemoryError):
        raise
    # A damaged file makes Pillow raise nearly anything, SyntaxError and struct.error among them.
    except Exception as error:
        empty = not (path.stat().st_size if content is None else content)
        why = "it is empty" if empty else str(error) or type(error).__name__
        raise DataError(path, f"not a picture that Pillow can read: {why}") from error


def _pages(image: Image.Image) -> Iterator[Image.Image]:
    """Yields the pages of a TIFF one after the other; of the other formats the first picture."""
    yield image
    number = 1
    while image.format == "TIFF":
        try:
            image.seek(number)
        except EOFError:
            return
        yield image
        number += 1


def _upright(image: Image.Image) -> Image.Image:
    page_size(*image.size)  # before anything is decoded
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"its pixels are of mode {image.mode}: expected 8 bits for each colour")
    image.load()
    return ImageOps.exif_transpose(image)
