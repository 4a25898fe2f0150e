"""CORD: photographed Indonesian receipts, every line of which has a category.

Park et al., "CORD: A Consolidated Receipt Dataset for Post-OCR Parsing", Document Intelligence
workshop at NeurIPS 2019, https://github.com/clovaai/cord (CC BY 4.0).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import (
    DataError,
    Document,
    DocumentSet,
    Entity,
    OnError,
    Word,
    found_in,
)
from fedpriv.data.paths import inside
from fedpriv.data.readers.annotation import (
    around,
    at,
    blank_page,
    fitted,
    known_splits,
    member,
    numbers,
    read_each,
    scale_to,
    size_in,
    size_of_image,
    text_of,
)
from fedpriv.data.reading import read_json, shown

_FOLDERS = {"train": ("train",), "valid": ("dev", "valid", "validation"), "test": ("test",)}
_LAYOUT = "train/, dev/ (or valid/) and test/, each with image/ and json/"
_CORNERS = ("x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4")


@dataclass(frozen=True)
class Cord:
    """Reads CORD, version 1 or 2, from the folder of its release.

    Layout: ``{train,dev,test}/image/receipt_N.png`` and ``json/receipt_N.json``; ``valid/`` or
    ``validation/`` is also taken for ``dev/``. A file of `json/` holds the annotation itself, or
    an object whose `ground_truth` is the annotation as a text, as a row of version 2 does.

    Every line of `valid_line` becomes a segment and, unless its category is "other", an entity of
    that category, words that name the field ("TOTAL") included, as LayoutLMv3's benchmark counts
    them. Words carry their own boxes, upright around quadrilaterals that may be mirrored. Where
    `meta.image_size` differs from the image, boxes are scaled; both must have the same shape.

    Labels: the categories that occur in the splits read, sorted. They are no fixed list: version
    2 has "menu.sub.nm" where lists made for version 1 have "menu.sub_nm".

    Provider: CORD names none, so that every receipt is its own provider: provider-level privacy
    is then document-level privacy.

    Identifiers: ``split/stem``, since every split counts its receipts from 0.

    Attributes:
        root: the folder with the splits' folders, or the folder above its CORD/.
        images: "required", or "blank": a white page of `meta.image_size` stands for every image,
            for annotations without images. A model that looks at pixels learns nothing from it.
        splits: "train", "valid", "test", in the order given; one that is not there is left out,
            unless all are. `HoldOut(by="split")` keeps "test" back, so that "valid" is trained on.
        on_error: ``"skip"`` leaves out receipts that cannot be read and counts them; a missing
            folder raises all the same.
    """

    root: str | Path
    images: Literal["required", "blank"] = "required"
    splits: tuple[str, ...] = ("train", "valid", "test")
    on_error: OnError = "raise"

    def load(self) -> DocumentSet:
        """Reads every receipt, ordered by split and file name, and decodes every image once."""
        documents: list[Document] = []
        skipped: tuple[DataError, ...] = ()
        base, folders = self._folders()
        for split, folder in folders.items():
            stems = _stems(folder, with_images=self.images == "required")
            reader = _Reader(base, folder, split, self.images)
            good, bad = read_each(reader, stems, self.on_error)
            documents += good
            skipped += bad
        labels = {entity.label for document in documents for entity in document.entities}
        return DocumentSet("CORD", tuple(documents), tuple(sorted(labels)), skipped)

    def _folders(self) -> tuple[Path, dict[str, Path]]:
        """Returns the data's folder and in it that of every split."""
        splits, root = known_splits(self.splits, _FOLDERS), Path(self.root)
        base = root / "CORD" if (root / "CORD").is_dir() else root
        there = {
            split: base / name
            for split in splits
            for name in reversed(_FOLDERS[split])
            if (base / name).is_dir()
        }
        if not there:
            asked = " nor ".join(f"{name}/" for split in splits for name in _FOLDERS[split])
            raise DataError(base, f"no {asked} here: expected {_LAYOUT}; {found_in(base)}")
        return base, there


def _stems(folder: Path, *, with_images: bool) -> list[str]:
    """Returns the stems of a split's annotations, and of images without one too."""
    kinds = {"json": ".json", "image": ".png"} if with_images else {"json": ".json"}
    for name in kinds:
        if not (folder / name).is_dir():
            hint = ' (images="blank" does without)' if name == "image" else ""
            why = f"missing: expected {_LAYOUT}; {found_in(folder)}{hint}"
            raise DataError(folder / name, why)
    # A name that begins with a dot belongs to the file system ("._1.png").
    stems = {p.stem for name, end in kinds.items() for p in (folder / name).glob(f"[!.]*{end}")}
    if not stems:
        raise DataError(folder, f"no receipts: expected {_LAYOUT}, with files in them")
    return sorted(stems)


@dataclass(frozen=True)
class _Reader:
    """Reads the receipt of one stem."""

    root: Path
    folder: Path
    split: str
    images: Literal["required", "blank"]

    def __call__(self, stem: str) -> Document:
        path = inside(self.root, f"{self.folder.name}/json/{stem}.json")
        content = _annotation(path)
        page, size, scale = self._page(stem, path, content)
        words: list[Word] = []
        entities: list[Entity] = []
        with at(path, ""):
            lines = member(content, "valid_line", list)
        for number, line in enumerate(lines):
            with at(path, f"valid_line[{number}]"):
                label, found = _line(line, number, scale, size)
            if found and label != "other":
                entities.append(Entity(label, tuple(range(len(words), len(words) + len(found)))))
            words += found
        name = f"{self.split}/{stem}"
        return Document(
            name, name, page, size, tuple(words), entities=tuple(entities), split=self.split
        )

    def _page(
        self, stem: str, path: Path, content: Any
    ) -> tuple[Path | NDArray[np.uint8], tuple[int, int], tuple[float, float]]:
        """Returns the page, its size, and the factors from the annotation's pixels to its own."""
        with at(path, "meta"):
            stated = _stated_size(content)
            if self.images == "blank":
                if stated is None:
                    raise ValueError('no image_size: images="blank" needs one')
                return blank_page(stated), stated, (1.0, 1.0)
            image = self.folder / "image" / f"{stem}.png"
            size = size_of_image(self.root, image)
            return image, size, scale_to(size, stated or size)


def _annotation(path: Path) -> Any:
    content = read_json(path)
    if not isinstance(content, dict) or not isinstance(content.get("ground_truth"), str):
        return content
    try:
        return json.loads(content["ground_truth"])
    except (ValueError, RecursionError) as error:
        raise DataError(path, f"the text of ground_truth is not JSON: {error}") from error


def _stated_size(content: Any) -> tuple[int, int] | None:
    meta = content.get("meta") if isinstance(content, dict) else None
    if not isinstance(meta, dict) or meta.get("image_size") is None:
        return None
    return size_in(meta["image_size"])


def _line(
    line: Any, number: int, scale: tuple[float, float], size: tuple[int, int]
) -> tuple[str, list[Word]]:
    """Returns the category and the words of one line; blank words are left out."""
    label = text_of(line, "category")
    if not label:
        raise ValueError(f"expected a category, found {shown(line['category'])}")
    words = [
        Word(text, _box(word, scale, size), number)
        for word in member(line, "words", list)
        if (text := text_of(word))
    ]
    return label, words


def _box(
    word: Any, scale: tuple[float, float], size: tuple[int, int]
) -> tuple[float, float, float, float]:
    quad = member(word, "quad", dict)
    return fitted(around(numbers([quad.get(c) for c in _CORNERS], 8)), scale, size)
