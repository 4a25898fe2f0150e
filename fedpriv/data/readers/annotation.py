"""Checks of values in annotation files, shared by the readers of forms and receipts.

Most of these functions raise `ValueError`; the reader adds the file and the place in it (`at`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import (
    MOST_PIXELS,
    Box,
    DataError,
    Document,
    Entity,
    Word,
    box_on_page,
    found_in,
)
from fedpriv.data.page_files import image_size
from fedpriv.data.paths import inside
from fedpriv.data.reading import shown

T = TypeVar("T")

_KINDS = {str: "a text", list: "a list", dict: "an object", int: "a whole number"}


@contextmanager
def at(path: Path, place: str, line: int | None = None) -> Iterator[None]:
    """Turns a `ValueError` about a value into a `DataError` about a file and a place in it."""
    try:
        yield
    except DataError:
        raise
    except ValueError as error:
        raise DataError(path, f"{place}: {error}" if place else str(error), line) from error


class Fields:
    """The words of a page and their entities, gathered field by field in the file's order."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.entities: list[Entity] = []
        self.identifiers: list[Any] = []
        """Of the entities, for `fedpriv.data.links.links_between`."""

    def add(self, words: Sequence[Word], label: str = "", identifier: Any = None) -> None:
        """Adds a field; it is an entity if it has a label and any words."""
        if words and label:
            first = len(self.words)
            self.entities.append(Entity(label, tuple(range(first, first + len(words)))))
            self.identifiers.append(identifier)
        self.words += words

    def document(
        self, name: str, provider: str, page: Path | NDArray[np.uint8], **more: Any
    ) -> Document:
        """Returns the page as a document of that identifier.

        Args:
            name: the identifier.
            provider: of the document.
            page: the image file or the pixels, as of `Document`.
            **more: the other attributes of `Document`, `size` among them.
        """
        words, entities = tuple(self.words), tuple(self.entities)
        return Document(name, provider, page, words=words, entities=entities, **more)


def files_of_splits(root: Path, names: Mapping[str, str], layout: str) -> dict[str, Path]:
    """Returns the file of each split that is there.

    Args:
        root: the data set's folder.
        names: split → name of its file in `root`.
        layout: what is expected in `root`, for the error.

    Raises:
        DataError: if no file is there, or a name leads out of `root`.
    """
    files = {split: inside(root, name) for split, name in names.items()}
    present = {split: path for split, path in files.items() if path.exists()}
    if not present:
        asked = " nor ".join(names.values())
        raise DataError(root, f"no {asked} here: expected {layout}; {found_in(root)}")
    return present


def stems_in(folder: Path, kinds: Mapping[str, str], layout: str) -> list[str]:
    """Returns the sorted stems of all files in some subfolders, of partners without each other too.

    Args:
        folder: of a split.
        kinds: subfolder → the ending of its files.
        layout: what is expected, for the error.

    Raises:
        DataError: if a subfolder is missing, or no file is in any.
    """
    for name in kinds:
        if not (folder / name).is_dir():
            raise DataError(folder / name, f"missing: expected {layout}; {found_in(folder)}")
    # A name that begins with a dot belongs to the file system ("._1.png").
    stems = {p.stem for name, end in kinds.items() for p in (folder / name).glob(f"[!.]*{end}")}
    if not stems:
        raise DataError(folder, f"no documents: expected {layout}, with files in them")
    return sorted(stems)


def known_splits(given: Sequence[str], known: Iterable[str]) -> tuple[str, ...]:
    """Returns the given splits, each once; refuses unknown splits, and an empty list."""
    known = tuple(known)
    if not given or any(split not in known for split in given):
        expected = ", ".join(map(repr, known))
        raise ValueError(f"splits={given!r}: expected one or more of {expected}")
    return tuple(dict.fromkeys(given))


def member(item: Any, key: str, kind: type[T]) -> T:
    """Returns ``item[key]``, which must be of `kind`: str, list, dict or int."""
    if not isinstance(item, dict):
        raise ValueError(f"expected an object with {key!r}, found {shown(item)}")
    found = item.get(key)
    if not isinstance(found, kind) or isinstance(found, bool):
        raise ValueError(f"expected {_KINDS[kind]} for {key!r}, found {shown(found)}")
    return found


def text_of(item: Any, key: str = "text") -> str:
    """Returns ``item[key]``, a text, without outer white space; it may be empty."""
    return encodable(member(item, key, str)).strip()


def encodable(text: str) -> str:
    """Returns the text; refuses half a surrogate pair, which no output can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{shown(text)} is not text: it holds half a surrogate pair") from None
    return text


def numbers(values: Any, count: int) -> tuple[float, ...]:
    """Returns `count` finite numbers."""
    try:
        if any(isinstance(value, str | bool) for value in values):
            raise TypeError
        found = tuple(float(value) for value in values)
    except (OverflowError, TypeError, ValueError):
        found = ()
    if len(found) != count or not all(map(math.isfinite, found)):
        raise ValueError(f"expected {count} finite numbers, found {shown(values)}")
    return found


def box_of(values: Any) -> Box:
    """Returns four finite numbers: left, top, right, bottom."""
    left, top, right, bottom = numbers(values, 4)
    return left, top, right, bottom


def around(corners: Sequence[float]) -> Box:
    """Returns the smallest upright box around corners, given as x, y, x, y and so on.

    The corners may be in any order: in CORD and WildReceipt some boxes are mirrored or turned.
    """
    xs, ys = corners[0::2], corners[1::2]
    return min(xs), min(ys), max(xs), max(ys)


def size_in(item: Any) -> tuple[int, int]:
    """Returns the width and height, in pixels, that an annotation states."""
    return page_size(member(item, "width", int), member(item, "height", int))


def page_size(width: float, height: float) -> tuple[int, int]:
    """Returns the size in whole pixels; refuses an impossible size."""
    # Each side first: a product of two large numbers may be no number.
    sides_fit = all(1 <= side <= MOST_PIXELS for side in (width, height))
    if not sides_fit or width * height > MOST_PIXELS:
        raise ValueError(
            f"a page of {shown(width)} × {shown(height)} pixels: expected sides of at least 1 "
            f"and at most {MOST_PIXELS:,} pixels in all"
        )
    return round(width), round(height)


def scale_to(real: tuple[int, int], stated: tuple[int, int]) -> tuple[float, float]:
    """Returns the factors from a stated size in pixels to the image's size, which may be shrunk.

    Raises:
        ValueError: if the shapes differ by more than 2 %, so that the annotation must be of another
            image. Rounding to whole pixels explains less than 2 %, down to sides of 50 pixels.
    """
    across, down = real[0] / stated[0], real[1] / stated[1]
    if abs(across / down - 1) > 0.02:
        raise ValueError(
            f"the image has {real[0]} × {real[1]} pixels, which is no scaled form of the stated "
            f"{stated[0]} × {stated[1]}"
        )
    return across, down


def fitted(box: Box, scale: tuple[float, float], size: tuple[int, int]) -> Box:
    """Returns the box times `scale`, clipped to a page of `size` pixels as `box_on_page` does."""
    x0, y0, x1, y1 = box
    across, down = scale
    try:
        return box_on_page((x0 * across, y0 * down, x1 * across, y1 * down), size)
    except ValueError as error:
        given = ", ".join(f"{side:g}" for side in box)
        raise ValueError(
            f"the box {given} does not fit the page of {size[0]} × {size[1]} pixels: {error}"
        ) from error


def blank_page(size: tuple[int, int]) -> NDArray[np.uint8]:
    """Returns a white page of `size` (width, height) pixels, read-only; it takes one byte."""
    return np.broadcast_to(np.uint8(255), (size[1], size[0]))


def size_of_image(folder: Path, path: Path) -> tuple[int, int]:
    """Returns the size in pixels of an image that must lie in `folder`, links followed."""
    inside(folder, str(path.relative_to(folder)))
    return image_size(path)


def is_file(path: Path) -> bool:
    """Says whether the path is a file; False for a path too long for the file system."""
    return os.path.isfile(path)  # Path.is_file raises on it


def plain_name(name: str) -> str:
    """Returns a company's name in upper case, letters and digits only, to tell providers apart."""
    return "".join(letter for letter in name.upper() if letter.isalnum())
