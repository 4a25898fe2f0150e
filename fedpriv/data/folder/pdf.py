"""Pages and text layers of PDFs, by pdfium, which is not safe in several threads."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import Box, DataError, Word, bounding_box, box_on_page
from fedpriv.data.readers.annotation import page_size

POINTS = 72
"""PDF's unit is 1/72 inch."""

LEAST_LEGIBLE = 0.7
"""Share of a text layer's letters that must mean something: a font without a map of its letters
gives private or unknown signs, and then the page is better read by OCR."""


def is_pdf(path: Path) -> bool:
    """Says whether the file begins as a PDF does; the mark may come a little later."""
    with path.open("rb") as file:
        return b"%PDF-" in file.read(1024)


def page_sizes(path: Path, dpi: int, most: int) -> list[tuple[int, int]]:
    """Returns width and height of each page in pixels at `dpi`.

    Raises:
        DataError: if the PDF is broken or encrypted, or has more than `most` pages or none.
    """
    with _opened(path) as document:
        count = len(document)
        if not 1 <= count <= most:
            raise ValueError(f"{count:,} pages: expected 1 to {most:,}")
        return [_size(document[number], dpi) for number in range(count)]


def draw(path: Path, number: int, dpi: int) -> NDArray[np.uint8]:
    """Returns one page, numbered from 0, drawn in colour at `dpi` (height × width × 3).

    Raises:
        DataError: if pdfium cannot draw it.
    """
    with _opened(path) as document:
        page = document[number]
        _size(page, dpi)
        pixels = page.render(scale=dpi / POINTS, rev_byteorder=True).to_numpy()
        # A copy, because the memory is pdfium's.
        return np.array(pixels[:, :, :3], dtype=np.uint8)


def text_layer(path: Path, number: int, dpi: int) -> tuple[Word, ...]:
    """Returns the words of a page's text layer, with boxes in pixels at `dpi`.

    A line of print is a segment. Words outside of the visible page are left out. Empty without a
    text layer, and where most of its letters mean nothing.

    Raises:
        DataError: if pdfium cannot read the page.
    """
    with _opened(path) as document:
        page = document[number]
        letters = _letters(page)
        size = _size(page, dpi)
        text = "".join(letter for letter, _ in letters if not letter.isspace())
        legible = sum(map(_legible, text))
        if not text or legible < LEAST_LEGIBLE * len(text):
            return ()
        to_pixels = _ToPixels(page, size)
        words: list[Word] = []
        for segment, spelling, boxes in _runs(letters):
            try:
                box = box_on_page(to_pixels(bounding_box(boxes)), size)
            except ValueError:  # outside of what the page shows
                continue
            words.append(Word(spelling, box, segment))
        return tuple(words)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import pypdfium2

    try:
        with pypdfium2.PdfDocument(path) as document:
            yield document
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            why = "an encrypted PDF: save a copy without its password"
        elif not path.stat().st_size:
            why = "not a PDF: the file is empty"
        else:
            why = f"not a PDF that pdfium can read: {error}"
        raise DataError(path, why) from error
    except (IndexError, ValueError) as error:
        raise DataError(path, str(error)) from error


def _size(page: Any, dpi: int) -> tuple[int, int]:
    width, height = (math.ceil(side * dpi / POINTS) for side in page.get_size())
    return page_size(width, height)


def _letters(page: Any) -> list[tuple[str, Box]]:
    """Returns the letters in pdfium's order, each with its box in points, from the lower left."""
    import pypdfium2.raw as pdfium

    text = page.get_textpage()
    codes = [pdfium.FPDFText_GetUnicode(text, at) for at in range(text.count_chars())]
    found: list[tuple[str, Box]] = []
    for at, code in enumerate(codes):
        low_surrogate = 0xDC00 <= code < 0xE000
        if low_surrogate and found:  # the second half of a letter that takes two
            pair = (0, 0) if not at else (codes[at - 1], code)
            both = "".join(map(chr, pair)).encode("utf-16-le", "surrogatepass")
            found[-1] = (both.decode("utf-16-le", "replace"), found[-1][1])
            continue
        letter = "\ufffd" if 0xD800 <= code < 0xE000 or code > 0x10FFFF else chr(code)
        left, bottom, right, top = text.get_charbox(at)
        found.append((letter, (left, bottom, right, top)))
    return found


def _runs(letters: list[tuple[str, Box]]) -> Iterator[tuple[int, str, list[Box]]]:
    """Yields line, spelling and letters' boxes of each word."""
    segment, spelling, boxes = 0, "", list[Box]()
    begun = False  # whether the line has a word
    for letter, box in [*letters, ("\n", (0.0, 0.0, 0.0, 0.0))]:
        if not (letter.isspace() or letter == "\0"):
            spelling += letter
            boxes.append(box)
            continue
        if spelling:
            yield segment, spelling, boxes
            spelling, boxes, begun = "", [], True
        if letter in "\r\n":
            segment, begun = segment + begun, False


def _legible(letter: str) -> bool:
    return letter.isprintable() and letter != "\ufffd" and not "\ue000" <= letter <= "\uf8ff"


class _ToPixels:
    """Turns a box in points into one in pixels, as the page is cropped and turned."""

    def __init__(self, page: Any, size: tuple[int, int]) -> None:
        self.page, self.size = page, size

    def __call__(self, box: Box) -> Box:
        first, second = self._corner(box[0], box[1]), self._corner(box[2], box[3])
        xs, ys = sorted((first[0], second[0])), sorted((first[1], second[1]))
        return xs[0], ys[0], xs[1], ys[1]

    def _corner(self, x: float, y: float) -> tuple[float, float]:
        import pypdfium2.raw as pdfium

        fine = 8  # pdfium gives whole numbers, so it is asked about a larger picture
        across, down = ctypes.c_int(), ctypes.c_int()
        width, height = (side * fine for side in self.size)
        pdfium.FPDF_PageToDevice(self.page, 0, 0, width, height, 0, x, y, across, down)
        return across.value / fine, down.value / fine
