"""DocILE: business documents (invoices, orders) in PDF with fields and line items.

Šimsa et al., "DocILE Benchmark for Document Information Localization and Extraction", ICDAR 2023,
arXiv:2302.05658, https://docile.rossum.ai (the full data needs a token and has its own terms).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import (
    Box,
    DataError,
    Document,
    DocumentSet,
    Entity,
    OnError,
    Word,
    check_file,
    found_in,
)
from fedpriv.data.paths import inside
from fedpriv.data.readers.annotation import (
    at,
    blank_page,
    encodable,
    fitted,
    member,
    numbers,
    page_size,
    plain_name,
    read_each,
    text_of,
)
from fedpriv.data.reading import read_json, shown

_LAYOUT = "train.json and val.json (or other lists), and annotations/, ocr/ and pdfs/"
_POINTS = 72
"""PDF's unit is 1/72 inch."""


@dataclass(frozen=True)
class Docile:
    """Reads DocILE from the unpacked folder of its release, page by page.

    Layout: ``{split}.json``, a list of document identifiers; ``annotations/ID.json``,
    ``ocr/ID.json`` and ``pdfs/ID.pdf``.

    Words and text lines are those of `ocr/` (`geometry`, not `snapped_geometry`); a line is a
    segment. Every field and every cell of a line item is an entity of its `fieldtype`: the words
    whose centre lies in its box. A word in several boxes belongs to the smallest, and of equal
    ones to the first: a document number that is also the payment reference is labelled once, and
    a customer's name is not also part of the address around it. Headers of line items are no
    entities. A field in whose box there is no word has no entity.

    Labels: the field types that occur in the splits read, sorted.

    Provider: the text of the first field vendor_name, upper case, letters and digits only;
    otherwise ``cluster N``, the documents of the same layout; without that too, the document
    itself. All pages of a document have the same provider.

    Identifiers: ``ID`` for the first page, ``ID/2`` for the second, and so on; all are parts of
    ``ID``.

    Attributes:
        root: the folder with the lists and the three folders.
        pages: "render" draws the PDF's pages in grey and keeps the pixels: at 72 dpi a page of
            letter size takes 0.5 MB of memory, the 6,680 annotated documents about 4.5 GB.
            "blank" stands a white page of the same size for each: no PDF is opened.
        dpi: pixels per inch of the page; words and boxes scale with it.
        splits: names of lists, in this order; one that is not there is left out, unless all are.
            The list "val" becomes the split "test": the annotations of the official test list
            are not public.
        on_error: ``"skip"`` leaves out documents that cannot be read and counts them; a broken or
            missing list raises all the same.
    """

    root: str | Path
    pages: Literal["render", "blank"] = "render"
    dpi: int = 72
    splits: tuple[str, ...] = ("train", "val")
    on_error: OnError = "raise"

    def __post_init__(self) -> None:
        if not 10 <= self.dpi <= 600:
            raise ValueError(f"dpi={self.dpi}: expected 10 to 600 pixels per inch")

    def load(self) -> DocumentSet:
        """Reads every document, by list in its order, and renders its pages."""
        read = _Reader(Path(self.root), self.pages, self.dpi)
        documents: list[Document] = []
        skipped: tuple[DataError, ...] = ()
        for split, path in self._lists().items():
            names = read_json(path)
            if not isinstance(names, list):
                raise DataError(path, f"expected a list of identifiers, found {shown(names)}")
            tasks = (("test" if split == "val" else split, path, name) for name in names)
            good, bad = read_each(read, tasks, self.on_error)
            documents += [page for pages in good for page in pages]
            skipped += bad
        labels = {entity.label for document in documents for entity in document.entities}
        return DocumentSet("DocILE", tuple(documents), tuple(sorted(labels)), skipped)

    def _lists(self) -> dict[str, Path]:
        root = Path(self.root)
        if not self.splits:
            raise ValueError("splits=(): expected the name of one list or more")
        files = {split: inside(root, f"{split}.json") for split in self.splits}
        there = {split: path for split, path in files.items() if path.exists()}
        if not there:
            asked = " nor ".join(path.name for path in files.values())
            raise DataError(root, f"no {asked} here: expected {_LAYOUT}; {found_in(root)}")
        return there


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
        fields = _fields(notes, annotation)
        provider = _provider(notes, annotation) or name
        with at(text, ""):
            sheets = member(read_json(text), "pages", list)
        images = self._images(name, notes, annotation)
        if len(images) != len(sheets):
            why = f"{len(sheets)} pages of text, but the document has {len(images)}"
            raise DataError(text, why)
        with at(notes, "page"):
            _on_a_page(fields, len(images))
        found: list[Document] = []
        for number, (sheet, image) in enumerate(zip(sheets, images, strict=True)):
            size = (image.shape[1], image.shape[0])
            words = _words(text, number, sheet, size)
            entities = _entities(notes, fields.get(number, []), words, size)
            page = name if number == 0 else f"{name}/{number + 1}"
            found.append(
                Document(
                    page,
                    provider,
                    image,
                    size,
                    words,
                    entities=entities,
                    split=split,
                    part_of=name,
                )
            )
        self.seen.add(name)
        return found

    def _images(self, name: str, notes: Path, annotation: Any) -> list[NDArray[np.uint8]]:
        if self.pages == "render":
            return _rendered(inside(self.root, f"pdfs/{name}.pdf"), self.dpi)
        with at(notes, "metadata"):
            sizes = member(member(annotation, "metadata", dict), "page_sizes_at_200dpi", list)
            scaled = ([side * self.dpi / 200 for side in numbers(size, 2)] for size in sizes)
            return [blank_page(page_size(w, h)) for w, h in scaled]


def _rendered(path: Path, dpi: int) -> list[NDArray[np.uint8]]:
    """Returns a PDF's pages in grey, height × width."""
    import pypdfium2

    check_file(path, 'the PDF is missing (pages="blank" does without)')
    try:
        with pypdfium2.PdfDocument(path) as pdf, at(path, ""):
            return [_pixels(page, dpi / _POINTS) for page in pdf]
    except pypdfium2.PdfiumError as error:
        raise DataError(path, f"not a PDF that pdfium can read: {error}") from error


def _pixels(page: Any, scale: float) -> NDArray[np.uint8]:
    width, height = page.get_size()
    page_size(width * scale, height * scale)
    pixels: NDArray[np.uint8] = page.render(scale=scale, grayscale=True).to_numpy()
    return pixels.reshape(pixels.shape[:2]).copy()  # of its own, not pdfium's memory


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


def _fields(path: Path, annotation: Any) -> dict[int, list[Area]]:
    """Returns the fields and the cells of line items by page, in the file's order."""
    found: dict[int, list[Area]] = defaultdict(list)
    for key in ("field_extractions", "line_item_extractions"):
        with at(path, ""):
            items = member(annotation, key, list)
        for number, item in enumerate(items):
            with at(path, f"{key}[{number}]"):
                label, page = text_of(item, "fieldtype"), member(item, "page", int)
                if not label:
                    raise ValueError(f"expected a fieldtype, found {shown(item['fieldtype'])}")
                x0, y0, x1, y1 = numbers(item.get("bbox"), 4)
                found[page].append((label, (x0, y0, x1, y1)))
    return found


def _on_a_page(fields: dict[int, list[Area]], count: int) -> None:
    beyond = [page for page in fields if not 0 <= page < count]
    if beyond:
        label = fields[beyond[0]][0][0]
        raise ValueError(
            f"the field {label} is on page {shown(beyond[0])} of a document of {count}, counted "
            "from 0"
        )


def _words(path: Path, number: int, sheet: Any, size: tuple[int, int]) -> tuple[Word, ...]:
    words: list[Word] = []
    with at(path, f"pages[{number}]"):
        for segment, line in enumerate(_lines(sheet)):
            for word in member(line, "words", list):
                text = text_of(word, "value")
                if text:
                    words.append(Word(text, _word_box(word, size), segment))
    return tuple(words)


def _lines(sheet: Any) -> Iterator[Any]:
    for block in member(sheet, "blocks", list):
        yield from member(block, "lines", list)


def _word_box(word: Any, size: tuple[int, int]) -> Box:
    corners = member(word, "geometry", list)
    if len(corners) != 2:
        raise ValueError(f"expected [[left, top], [right, bottom]], found {shown(corners)}")
    (left, top), (right, bottom) = (numbers(corner, 2) for corner in corners)
    return fitted((left, top, right, bottom), (float(size[0]), float(size[1])), size)


def _entities(
    path: Path, areas: list[Area], words: tuple[Word, ...], size: tuple[int, int]
) -> tuple[Entity, ...]:
    """Returns the entities in the order of their first words."""
    boxes: list[tuple[str, Box]] = []
    for label, box in areas:
        with at(path, label):
            boxes.append((label, fitted(box, (float(size[0]), float(size[1])), size)))
    members: dict[int, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        around = [i for i, (_, box) in enumerate(boxes) if _holds(box, word.box)]
        if around:
            members[min(around, key=lambda i: (_surface(boxes[i][1]), i))].append(place)
    return tuple(Entity(boxes[i][0], tuple(places)) for i, places in members.items())


def _holds(box: Box, word: Box) -> bool:
    x, y = (word[0] + word[2]) / 2, (word[1] + word[3]) / 2
    return box[0] <= x <= box[2] and box[1] <= y <= box[3]


def _surface(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
