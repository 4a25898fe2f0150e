"""DocILE: business documents (invoices, orders) in PDF with fields and line items.

Šimsa et al., "DocILE Benchmark for Document Information Localization and Extraction", ICDAR 2023,
arXiv:2302.05658, https://docile.rossum.ai (the full data needs a token and has its own terms).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedpriv.data import apart
from fedpriv.data.document import (
    Box,
    DataError,
    Document,
    DocumentSet,
    Entity,
    OnError,
    Word,
    check_file,
    read_all,
)
from fedpriv.data.paths import inside
from fedpriv.data.readers.annotation import (
    at,
    blank_page,
    box_of,
    encodable,
    files_of_splits,
    fitted,
    member,
    numbers,
    page_size,
    plain_name,
    text_of,
)
from fedpriv.data.reading import read_json, shown
from fedpriv.runtime.outside import PathSetting

_LAYOUT = "train.json and val.json (or other lists), and annotations/, ocr/ and pdfs/"
_POINTS = 72
"""PDF's unit is 1/72 inch."""


@dataclass(frozen=True)
class Docile:
    """Reads DocILE from the unpacked folder of its release, page by page.

    Layout: ``{split}.json``, a list of document identifiers; ``annotations/ID.json``,
    ``ocr/ID.json`` and ``pdfs/ID.pdf``.

    Words and text lines are those of `ocr/` (`geometry`, not `snapped_geometry`); a line is a
    segment. Every field and every cell of a line item is an entity of its `fieldtype`, made of the
    words that have their centre in its box. A word in several boxes belongs to the smallest, or to
    the first of equal ones: a document number that is also the payment reference is labelled once,
    and a customer's name is not also part of the address around it. Headers of line items are not
    entities, and neither are fields without a word.

    Labels: the field types that occur in the splits read, sorted.

    Provider: the text of the first field vendor_name, upper case, letters and digits only;
    otherwise ``cluster N``, the documents of the same layout; without that too, the document
    itself. All pages of a document have the same provider.

    Identifiers: ``ID`` for the first page, ``ID/2`` for the second, and so on; all are parts of
    ``ID``.

    Attributes:
        root: the folder that holds the lists of documents and the folders annotations/, ocr/ and
            pdfs/.
        pages: "render" draws the pages of the PDFs in grey and keeps the pixels: at 72 dpi, a page
            of letter size takes 0.5 MB of memory, and the 6,680 annotated documents about 4.5 GB.
            "blank" takes a white page of the same size for each, and opens no PDF.
        dpi: the resolution of the pages in pixels per inch, 10 to 600; words and boxes scale with
            it.
        splits: the names of the lists to read, in this order. A missing list is left out, unless
            all are missing. The list "val" becomes the test split, because the annotations of the
            official test list are not public.
        on_error: "skip" leaves out documents that cannot be read, and counts them; "raise" stops at
            the first. A broken or missing list is always an error.
    """

    root: PathSetting
    pages: Literal["render", "blank"] = "render"
    dpi: int = 72
    splits: tuple[str, ...] = ("train", "val")
    on_error: OnError = "raise"

    def __post_init__(self) -> None:
        if not 10 <= self.dpi <= 600:
            raise ValueError(f"dpi={self.dpi}: expected 10 to 600 pixels per inch")

    def load(self) -> DocumentSet:
        """Reads every document, by list in its order, and renders its pages."""
        root = Path(self.root)
        if not self.splits:
            raise ValueError("splits=(): expected the name of one list or more")
        names = {split: f"{split}.json" for split in self.splits}
        files = files_of_splits(root, names, _LAYOUT)

        def listed() -> Iterator[tuple[str, Path, Any]]:
            for split, path in files.items():
                identifiers = read_json(path)
                if not isinstance(identifiers, list):
                    found = shown(identifiers)
                    raise DataError(path, f"expected a list of identifiers, found {found}")
                for identifier in identifiers:
                    yield "test" if split == "val" else split, path, identifier

        read = _Reader(root, self.pages, self.dpi)
        pages, skipped = read_all(read, listed(), self.on_error)
        documents = tuple(itertools.chain.from_iterable(pages))
        labels = {entity.label for document in documents for entity in document.entities}
        return DocumentSet("DocILE", documents, tuple(sorted(labels)), skipped)


@dataclass(frozen=True)
class _Reader:
    """Reads documents; remembers their identifiers, to refuse the second one of the same."""

    root: Path
    pages: Literal["render", "blank"]
    dpi: int
    seen: set[str] = field(default_factory=set)

    def __call__(self, task: tuple[str, Path, Any]) -> list[Document]:
        split, listed, name = task
        with at(listed, ""):
            if not isinstance(name, str) or not encodable(name) or name in self.seen:
                raise ValueError(f"expected an identifier of its own, found {shown(name)}")
        notes = inside(self.root, f"annotations/{name}.json")
        annotation, text = read_json(notes), inside(self.root, f"ocr/{name}.json")
        provider = _provider(notes, annotation) or name
        with at(text, ""):
            sheets = member(read_json(text), "pages", list)
        images = self._images(name, notes, annotation)
        if len(images) != len(sheets):
            why = f"{len(sheets)} pages of text, but the document has {len(images)}"
            raise DataError(text, why)
        fields = _fields(notes, annotation, len(images))
        found: list[Document] = []
        for number, (sheet, image) in enumerate(zip(sheets, images, strict=True)):
            size = (image.shape[1], image.shape[0])
            with at(text, f"pages[{number}]"):
                words = _words(sheet, size)
            found.append(
                Document(
                    name if number == 0 else f"{name}/{number + 1}",
                    provider,
                    image,
                    size,
                    words,
                    _entities(notes, fields[number], words, size),
                    split=split,
                    part_of=name,
                )
            )
        self.seen.add(name)
        return found

    def _images(self, name: str, notes: Path, annotation: Any) -> list[NDArray[np.uint8]]:
        """Returns the pages: white, height × width, or drawn in grey."""
        if self.pages == "blank":
            with at(notes, "metadata"):
                sizes = member(member(annotation, "metadata", dict), "page_sizes_at_200dpi", list)
                scaled = ([side * self.dpi / 200 for side in numbers(size, 2)] for size in sizes)
                return [blank_page(page_size(width, height)) for width, height in scaled]
        path = inside(self.root, f"pdfs/{name}.pdf")
        check_file(path, 'the PDF is missing (pages="blank" does without)')
        return [apart.call(draw, path, n, self.dpi) for n in range(apart.call(count, path))]


def count(path: Path) -> int:
    """Returns how many pages a PDF has.

    Raises:
        DataError: if pdfium cannot read it.
    """
    with _opened(path) as pdf:
        return len(pdf)


def draw(path: Path, number: int, dpi: int) -> NDArray[np.uint8]:
    """Returns a page in grey, height × width.

    Raises:
        DataError: if pdfium cannot draw it, or it is too large.
    """
    with _opened(path) as pdf:
        page, scale = pdf[number], dpi / _POINTS
        width, height = page.get_size()
        page_size(width * scale, height * scale)
        pixels = page.render(scale=scale, grayscale=True).to_numpy()
        # A copy, because the memory is pdfium's.
        return np.array(pixels.reshape(pixels.shape[:2]), np.uint8)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import pypdfium2

    try:
        with pypdfium2.PdfDocument(path) as pdf, at(path, ""):
            yield pdf
    except pypdfium2.PdfiumError as error:
        raise DataError(path, f"not a PDF that pdfium can read: {error}") from error


def _provider(path: Path, annotation: Any) -> str:
    with at(path, "field_extractions"):
        for item in member(annotation, "field_extractions", list):
            if isinstance(item, dict) and item.get("fieldtype") == "vendor_name":
                name = plain_name(text_of(item))
                if name:
                    return name
    metadata = annotation.get("metadata")
    cluster = metadata.get("cluster_id") if isinstance(metadata, dict) else None
    return "" if cluster is None else f"cluster {shown(cluster)}"


Area = tuple[str, Box]
"""A field type and its box, relative to the page: 0 to 1."""


def _fields(path: Path, annotation: Any, pages: int) -> list[list[Area]]:
    """Returns the fields and the cells of line items of each page, in the file's order."""
    found: list[list[Area]] = [[] for _ in range(pages)]
    for key in ("field_extractions", "line_item_extractions"):
        with at(path, ""):
            items = member(annotation, key, list)
        for number, item in enumerate(items):
            with at(path, f"{key}[{number}]"):
                label, page = text_of(item, "fieldtype"), member(item, "page", int)
                if not label:
                    raise ValueError(f"expected a fieldtype, found {shown(item['fieldtype'])}")
                if not 0 <= page < pages:
                    raise ValueError(
                        f"the field {label} is on page {shown(page)} of a document of {pages}, "
                        "counted from 0"
                    )
                found[page].append((label, box_of(item.get("bbox"))))
    return found


def _words(sheet: Any, size: tuple[int, int]) -> tuple[Word, ...]:
    words: list[Word] = []
    scale = (float(size[0]), float(size[1]))
    blocks = member(sheet, "blocks", list)
    lines = (line for block in blocks for line in member(block, "lines", list))
    for segment, line in enumerate(lines):
        for word in member(line, "words", list):
            if not (text := text_of(word, "value")):
                continue
            corners = member(word, "geometry", list)
            if len(corners) != 2:
                raise ValueError(f"expected [[left, top], [right, bottom]], found {shown(corners)}")
            (left, top), (right, bottom) = (numbers(corner, 2) for corner in corners)
            words.append(Word(text, fitted((left, top, right, bottom), scale, size), segment))
    return tuple(words)


def _entities(
    path: Path, areas: list[Area], words: tuple[Word, ...], size: tuple[int, int]
) -> tuple[Entity, ...]:
    """Returns the entities in the order of their first words."""
    boxes: list[Box] = []
    for label, box in areas:
        with at(path, label):
            boxes.append(fitted(box, (float(size[0]), float(size[1])), size))
    surfaces = [(right - left) * (bottom - top) for left, top, right, bottom in boxes]
    members: dict[int, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        x, y = (word.box[0] + word.box[2]) / 2, (word.box[1] + word.box[3]) / 2
        holding = [
            number
            for number, (left, top, right, bottom) in enumerate(boxes)
            if left <= x <= right and top <= y <= bottom
        ]
        if holding:
            members[min(holding, key=lambda number: (surfaces[number], number))].append(place)
    return tuple(Entity(areas[number][0], tuple(places)) for number, places in members.items())
