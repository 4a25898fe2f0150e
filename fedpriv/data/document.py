"""Documents: pages with words, boxes, entities and questions. Every reader returns them."""

from __future__ import annotations

import math
import os
import stat
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedpriv.data.drawn_page import LazyPage

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels of the page image that the document holds."""

OnError = Literal["raise", "skip"]

FORMATS = ("PNG", "JPEG")
"""The image formats that are opened. Pillow knows others, of which PostScript is a program."""

MOST_PIXELS = 100_000_000
"""Largest page that is opened; A4 at 1000 dpi has 97 million pixels."""

MOST_DOCUMENTS = 1_000_000
"""Most pages that a generator makes. Each takes nearly a kilobyte, whether or not it is read."""

MOST_SIDE = 10_000
"""Longest side of a generated page, in pixels."""

MOST_TOLD = 200
"""Problems that one message lists."""

SKIP = "data.source.on_error=skip leaves these out"
"""What can be done about several files that cannot be used, if others can be."""

DRAWN = ("words", "entities", "questions")
"""What a document leaves to `LazyPage.text` until it is read."""


class DataError(ValueError):
    """A file cannot be read. The message names the file, the line if known, and the reason."""

    def __init__(self, path: Path | str, why: str, line: int | None = None) -> None:
        self.path, self.line, self.why = Path(path), line, why
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {why}")


class DataErrors(DataError):
    """Several files cannot be used. The message names all of them, one a line.

    Attributes:
        errors: one for each problem.
        hint: what can be done about them; empty if there is nothing to advise.
    """

    def __init__(self, path: Path | str, errors: Sequence[DataError], hint: str = "") -> None:
        self.errors, self.hint = tuple(errors), hint
        lines = [f"  {error}" for error in self.errors[:MOST_TOLD]]
        if len(self.errors) > MOST_TOLD:
            lines.append(f"  and {len(self.errors) - MOST_TOLD:,} more")
        lines += [f"  {hint}"] if hint else []
        many = f"{len(self.errors):,} problem{'s' * (len(self.errors) != 1)}"
        super().__init__(path, "\n".join([many, *lines]))


@dataclass(frozen=True, slots=True)
class Word:
    """One word and where it stands.

    Attributes:
        text: the word as read, never blank.
        box: its box in the page's pixels.
        segment: the number of the text line or form field that it belongs to; the words of one
            segment share their 2-D position in LayoutLMv3.
    """

    text: str
    box: Box
    segment: int


@dataclass(frozen=True, slots=True)
class Entity:
    """A labelled run of words; `words` are ascending indices into `Document.words`."""

    label: str
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A question on one key of the document, with every accepted answer."""

    key: str
    text: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Document:
    """One page.

    Attributes:
        id: unique within its data set.
        provider: who issued the document, the group that provider-level privacy protects. Where
            that is not known, it is the document's own name (`names_provider`).
        page: the image file, or the pixels themselves (height × width, or height × width × 3,
            uint8), or what draws them.
        size: width and height of the page image; all boxes are in these pixels.
        words: in reading order.
        entities: key information, for token classification.
        questions: for document visual question answering.
        split: the official split ("train", "test"); empty if the data set has no splits.
        links: pairs of positions in `entities`, for example of a question and its answer; empty if
            the data set has no links.
        white: boxes that `image` paints white. A page with something removed so shares its pixels
            with the page itself.
        part_of: the document that the page belongs to. Pages and copies of one document share it.
            Empty if the page is a whole document.
        client: the name of the client that holds the page, for `fedpriv.data.partition.ByClient`;
            empty if the data set names none.
    """

    id: str
    provider: str
    page: Path | NDArray[np.uint8] | LazyPage
    size: tuple[int, int]
    words: tuple[Word, ...]
    entities: tuple[Entity, ...] = field(default_factory=tuple)
    questions: tuple[Question, ...] = field(default_factory=tuple)
    split: str = ""
    links: tuple[tuple[int, int], ...] = ()
    white: tuple[Box, ...] = ()
    part_of: str = ""
    client: str = ""

    def __eq__(self, other: object) -> bool:
        """Compares all attributes; pages in memory by their pixels, drawn ones by what draws."""
        if not isinstance(other, Document):
            return NotImplemented
        # The dataclass's own method takes the truth value of arrays, from Python 3.13 on.
        if isinstance(self.page, np.ndarray) and isinstance(other.page, np.ndarray):
            same = np.array_equal(self.page, other.page)
        else:
            same = type(self.page) is type(other.page) and self.page == other.page
        names = (named.name for named in fields(self) if named.name != "page")
        return same and all(getattr(self, name) == getattr(other, name) for name in names)

    if not TYPE_CHECKING:  # it would make a type checker believe that every name is an attribute

        def __getattr__(self, name: str) -> Any:
            """Returns what `drawn` has left to the drawing of the page."""
            page = vars(self).get("page")
            if name in DRAWN and isinstance(page, LazyPage):
                return getattr(page.text, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @classmethod
    def drawn(
        cls,
        name: str,
        provider: str,
        page: LazyPage,
        size: tuple[int, int],
        *,
        split: str = "",
        part_of: str = "",
        client: str = "",
    ) -> Document:
        """Returns a document that is drawn when its words, entities, questions or image are read.

        Args:
            name: its `id`.
            provider: as above.
            page: what draws it.
            size: width and height of the drawing, in pixels.
            split: as above.
            part_of: as above.
            client: as above.
        """
        document, (width, height) = cls.__new__(cls), size
        vars(document).update(id=name, provider=provider, page=page, size=(width, height))
        told = {"split": split, "part_of": part_of, "client": client}
        vars(document).update({key: value for key, value in told.items() if value})
        return document

    @property
    def whole(self) -> str:
        """The document that the page belongs to, or is."""
        return self.part_of or self.id

    @property
    def names_provider(self) -> bool:
        """Whether it is known who issued the document."""
        return self.provider not in ("", self.id, self.part_of)

    def image(self) -> Image.Image:
        """Returns the page as an RGB image; reads the file if the page is one, or draws it.

        Raises:
            DataError: if the file cannot be decoded.
        """
        if isinstance(self.page, Path):
            page = read_image(self.page)
        else:
            pixels = self.page.pixels() if isinstance(self.page, LazyPage) else self.page
            page = Image.fromarray(pixels).convert("RGB")
        for left, top, right, bottom in self.white:
            place = (math.floor(left), math.floor(top), math.ceil(right), math.ceil(bottom))
            page.paste((255, 255, 255), place)
        return page

    def pixels(self) -> NDArray[np.uint8]:
        """Returns `image` as a new array (height × width × 3)."""
        return np.array(self.image(), dtype=np.uint8)

    def as_drawn(self) -> set[str]:
        """Returns the names in `DRAWN` whose values are those of the page's drawing."""
        if not isinstance(page := self.page, LazyPage):
            return set()
        own = vars(self)
        return {n for n in DRAWN if n not in own or own[n] == getattr(page.text, n)}

    def question_names(self) -> list[str]:
        """Returns a name for each question, unique within the data set: ``id#place``."""
        return [f"{self.id}#{place}" for place in range(len(self.questions))]

    def segment_boxes(self) -> list[Box]:
        """Returns, for each word, the union of the boxes of its segment (LayoutLMv3's position)."""
        segments: dict[int, list[Box]] = {}
        for word in self.words:
            segments.setdefault(word.segment, []).append(word.box)
        unions = {segment: bounding_box(boxes) for segment, boxes in segments.items()}
        return [unions[word.segment] for word in self.words]

    def tags(self) -> list[str]:
        """Returns one BIO tag per word: ``B-label``, ``I-label`` or ``O``."""
        tags = ["O"] * len(self.words)
        for entity in self.entities:
            for place, word in enumerate(entity.words):
                tags[word] = f"{'I' if place else 'B'}-{entity.label}"
        return tags


@dataclass(frozen=True)
class DocumentSet:
    """What a reader returns.

    Attributes:
        name: of the data set, for reports.
        documents: in a fixed order that does not depend on the file system.
        labels: the entity labels that may occur, in a fixed order.
        skipped: one error for each file that was left out under ``on_error="skip"``.
        remarks: what else there is to know, by topic, such as fields that were not found on their
            page; for `fedpriv data check`.
    """

    name: str
    documents: tuple[Document, ...]
    labels: tuple[str, ...]
    skipped: tuple[DataError, ...] = field(default=())
    remarks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class DocumentSource(Protocol):
    """Reads or makes a data set; a frozen dataclass of settings with one method."""

    def load(self) -> DocumentSet:
        """Reads everything; raises `DataError` on the first file that cannot be used."""


T = TypeVar("T")
Item = TypeVar("Item")


def read_all(
    read: Callable[[Item], T], items: Iterable[Item], on_error: OnError
) -> tuple[list[T], tuple[DataError, ...]]:
    """Reads every item, such as a path.

    Returns:
        What was read and, under ``on_error="skip"``, the `DataError`s of the other items. Otherwise
        the first error is raised. An error of `items` itself is always raised.
    """
    good: list[T] = []
    bad: list[DataError] = []
    for item in items:
        try:
            good.append(read(item))
        except DataError as error:
            if on_error == "raise":
                raise
            bad.append(error)
    return good, tuple(bad)


def words_of_line(text: str, box: Box, segment: int) -> list[Word]:
    """Splits a text line at white space and its box in proportion to the characters.

    For data sets that give boxes of lines only (SROIE, XFUND's export).
    """
    x0, y0, x1, y1 = box
    step = (x1 - x0) / max(len(text), 1)
    words: list[Word] = []
    end = 0
    for piece in text.split():
        start = text.index(piece, end)
        end = start + len(piece)
        # min: rounding may carry the last word's edge past the line's.
        words.append(Word(piece, (x0 + start * step, y0, min(x0 + end * step, x1), y1), segment))
    return words


def check_file(path: Path, missing: str = "there is no such file") -> None:
    """Refuses anything but a regular file, following links: a pipe can be read for ever.

    Args:
        path: of the file.
        missing: message if the path does not exist.

    Raises:
        DataError: if the path does not exist, or is not a regular file.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(path, missing) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the name
        raise DataError(path, f"cannot be read: {error}") from error
    if not stat.S_ISREG(mode):
        raise DataError(path, f"is {_KINDS.get(stat.S_IFMT(mode), 'something else')}, not a file")


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_image(path: Path) -> Image.Image:
    """Returns the pixels of an image file in RGB: the only place that opens one.

    Raises:
        DataError: if it is not a regular file, not of a format in `FORMATS`, has more than
            `MOST_PIXELS`, or cannot be decoded to its last row.
    """
    check_file(path, "the image is missing")
    try:
        with warnings.catch_warnings():
            # Pillow warns of large images before our own limit and refuses them beyond it.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    why = f"{width} × {height} pixels: expected at most {MOST_PIXELS:,} in all"
                    raise DataError(path, why)
                return image.convert("RGB")
    except (DataError, MemoryError):
        raise
    # A damaged file makes Pillow raise nearly anything, SyntaxError and struct.error among them.
    except Exception as error:
        why = str(error) or type(error).__name__
        raise DataError(path, f"not an image that Pillow can read as PNG or JPEG: {why}") from error


def bounding_box(boxes: Iterable[Box]) -> Box:
    """Returns the smallest box around one box or more."""
    left, top, right, bottom = zip(*boxes, strict=True)
    return (min(left), min(top), max(right), max(bottom))


def box_on_page(box: Box, size: tuple[int, int]) -> Box:
    """Returns the box, in pixels, clipped to a page of `size` (width, height) pixels.

    Annotators draw a little over the edge: up to 1 % of the page's side, or 2 pixels if that is
    more, are clipped. A box without width or height is widened to one pixel, to keep its text.

    Raises:
        ValueError: if the box sticks out further, which means that it belongs to another image
            or to another size of this one.
    """
    low0, high0 = _side(box[0], box[2], size[0])
    low1, high1 = _side(box[1], box[3], size[1])
    return (low0, low1, high0, high1)


def _side(low: float, high: float, length: int) -> tuple[float, float]:
    slack = max(2.0, 0.01 * length)
    # Negated, so that NaN is refused too.
    if not (-slack <= low <= high <= length + slack):
        raise ValueError(f"{low:g} to {high:g} is not within the page's 0 to {length} pixels")
    low, high = max(low, 0.0), min(high, float(length))
    if high - low > 0:
        return low, high
    low = min(max(low, 0.0), length - 1.0)
    return low, low + 1.0


def found_in(folder: Path) -> str:
    """Lists a folder's content, for the error of a reader that expected something else."""
    if not folder.exists():
        return f"there is no folder {folder} (is FEDPRIV_DATA set?)"
    if not folder.is_dir():
        return f"{folder} is a file, not a folder"
    names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{folder} holds {', '.join(names[:8]) or 'nothing'}{more}"


def providers(documents: Sequence[Document]) -> list[str]:
    """Returns the providers in order of first appearance."""
    return list(dict.fromkeys(document.provider for document in documents))
