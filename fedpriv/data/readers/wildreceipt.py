"""WildReceipt: photographed receipts whose text lines are labelled as keys and values.

Sun et al., "Spatial Dual-Modality Graph Reasoning for Key Information Extraction", 2021,
arXiv:2103.14470; the release is distributed with MMOCR.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from fedpriv.data.document import (
    DataError,
    Document,
    DocumentSet,
    OnError,
    check_file,
    read_all,
    words_of_line,
)
from fedpriv.data.paths import inside
from fedpriv.data.readers.annotation import (
    Fields,
    around,
    at,
    encodable,
    files_of_splits,
    fitted,
    known_splits,
    member,
    numbers,
    plain_name,
    scale_to,
    size_in,
    size_of_image,
    text_of,
)
from fedpriv.data.reading import parse_json, shown
from fedpriv.runtime.outside import PathSetting

_FILES = {"train": "train.txt", "test": "test.txt"}
_LAYOUT = "class_list.txt, train.txt and test.txt, and the images that they name"
_UNLABELLED = ("Ignore", "Others")
_STORE = "Store_name_value"


@dataclass(frozen=True)
class Wildreceipt:
    """Reads WildReceipt from the folder of its release.

    Layout: ``train.txt`` and ``test.txt``, a JSON object per line with the image's name relative
    to the folder (``image_files/…``), its size, and text lines with a quadrilateral and a label's
    number; ``class_list.txt``, a class per line, with its number before the name or without.

    A line is a segment; its words share its box in proportion to their characters. Lines without
    text are left out. Every line is an entity of its class, such as "Total_key" or "Total_value",
    except lines of the classes Ignore and Others. If the image has another size than stated, of the
    same shape, boxes are scaled.

    Provider: the text of the lines labelled Store_name_value, in upper case, letters and digits
    only. A receipt without such a line is its own provider.

    Identifiers: the image's name.

    Attributes:
        root: the folder that holds the text files.
        splits: the splits to read, "train", "test" or both, in this order. A missing split is left
            out, unless all are missing.
        on_error: "skip" leaves out receipts that cannot be read, and counts them; "raise" stops at
            the first. A broken class list or a missing file is always an error.
    """

    root: PathSetting
    splits: tuple[str, ...] = ("train", "test")
    on_error: OnError = "raise"

    def load(self) -> DocumentSet:
        """Reads every receipt, by split in the file's order, and decodes every image once."""
        root, splits = Path(self.root), known_splits(self.splits, _FILES)
        files = files_of_splits(root, {split: _FILES[split] for split in splits}, _LAYOUT)
        classes = read_classes(inside(root, "class_list.txt"))
        rows = (
            (split, path, number, row)
            for split, path in files.items()
            for number, row in enumerate(_text(path).split("\n"), start=1)
            if row.strip()
        )
        documents, skipped = read_all(_Reader(root, classes), rows, self.on_error)
        labels = tuple(name for name in classes.values() if name not in _UNLABELLED)
        return DocumentSet("WildReceipt", tuple(documents), labels, skipped)


def read_classes(path: Path) -> dict[int, str]:
    """Reads `class_list.txt`, ``0 Ignore`` or only ``Ignore`` per line; returns number to name."""
    rows = [line.split() for line in _text(path).split("\n") if line.strip()]
    classes: dict[int, str] = {}
    for place, row in enumerate(rows):
        numbered = len(row) == 2 and row[0].isascii() and row[0].isdigit() and len(row[0]) < 6
        if len(row) != 1 and not numbered:
            why = f"expected a class or a number and a class, found {shown(' '.join(row))}"
            raise DataError(path, why, place + 1)
        number = int(row[0]) if numbered else place
        if number in classes or row[-1] in classes.values():
            raise DataError(path, f"the class {shown(' '.join(row))} stands twice", place + 1)
        classes[number] = row[-1]
    if not classes:
        raise DataError(path, "no classes: expected one per line")
    return {number: classes[number] for number in sorted(classes)}


def _text(path: Path) -> str:
    check_file(path, f"missing: expected {_LAYOUT}")
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(path, f"cannot be read as UTF-8: {error}") from error


@dataclass(frozen=True)
class _Reader:
    """Reads receipts; remembers their images, to refuse the second receipt on the same one."""

    root: Path
    classes: dict[int, str]
    seen: set[str] = field(default_factory=set)

    def __call__(self, task: tuple[str, Path, int, str]) -> Document:
        split, path, number, row = task
        with at(path, "", number):
            receipt = parse_json(path, encodable(row), number)
            name = text_of(receipt, "file_name")
            image = inside(self.root, name)
            if name in self.seen:
                raise ValueError(f"the image {name} stands in an earlier line too")
            size = size_of_image(self.root, image)
            scale = scale_to(size, size_in(receipt))
            items = member(receipt, "annotations", list)
        fields = Fields()
        store = ""
        for place, item in enumerate(items):
            with at(path, f"annotations[{place}]", number):
                label, text = member(item, "label", int), text_of(item)
                if label not in self.classes:
                    known = f"{min(self.classes)} to {max(self.classes)}"
                    raise ValueError(
                        f"expected a label of class_list.txt, {known}; found {shown(label)}"
                    )
                if not text:
                    continue
                box = fitted(around(numbers(item.get("box"), 8)), scale, size)
            label_name = self.classes[label]
            store += text if label_name == _STORE else ""
            words = words_of_line(text, box, place)
            fields.add(words, "" if label_name in _UNLABELLED else label_name)
        self.seen.add(name)
        provider = plain_name(store) or name
        return fields.document(name, provider, image, size=size, split=split)
