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
    OnError,
    Word,
    found_in,
    read_all,
)
from fedpriv.data.paths import inside
from fedpriv.data.readers.annotation import (
    Fields,
    around,
    at,
    blank_page,
    fitted,
    known_splits,
    member,
    numbers,
    scale_to,
    size_in,
    size_of_image,
    stems_in,
    text_of,
)
from fedpriv.data.reading import read_json, shown
from fedpriv.runtime.outside import PathSetting

_FOLDERS = {"train": ("train",), "valid": ("dev", "valid", "validation"), "test": ("test",)}
_LAYOUT = (
    "train/, dev/ (or valid/) and test/, each with json/ and image/ "
    '(images="blank" does without image/)'
)
_CORNERS = ("x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4")


@dataclass(frozen=True)
class Cord:
    """Reads CORD, version 1 or 2, from the folder of its release.

    Layout: ``{train,dev,test}/image/receipt_N.png`` and ``json/receipt_N.json``; ``dev/`` may also
    be called ``valid/`` or ``validation/``. A file of `json/` holds the annotation itself or, as
    rows of version 2 do, an object with the annotation as a text in `ground_truth`.

    Every line of `valid_line` becomes a segment and, unless its category is "other", an entity of
    that category, words that name the field ("TOTAL") included, as LayoutLMv3's benchmark counts
    them. Words carry their own boxes, upright around quadrilaterals that may be mirrored. Where
    `meta.image_size` differs from the image, boxes are scaled; both must have the same shape.

    Labels: the categories that occur in the splits read, sorted. The list is not fixed: version 2
    has "menu.sub.nm" where lists made for version 1 have "menu.sub_nm".

    Provider: CORD names none, so every receipt is its own provider, and provider-level privacy is
    document-level privacy.

    Identifiers: ``split/stem``, since every split counts its receipts from 0.

    Attributes:
        root: the folder that holds the folders of the splits, or the folder above its CORD/.
        images: "required" reads the image of each receipt. "blank" takes a white page of the size
            in `meta.image_size` instead, for annotations without images; a model that looks at
            pixels learns nothing from it.
        splits: the splits to read, in this order: "train", "valid", "test". A missing split is left
            out, unless all are missing. With `HoldOut(by="split")`, "test" is held out and "valid"
            is trained on.
        on_error: "skip" leaves out receipts that cannot be read, and counts them; "raise" stops at
            the first. A missing folder is always an error.
    """

    root: PathSetting
    images: Literal["required", "blank"] = "required"
    splits: tuple[str, ...] = ("train", "valid", "test")
    on_error: OnError = "raise"

    def load(self) -> DocumentSet:
        """Reads every receipt, ordered by split and file name, and decodes every image once."""
        splits, root = known_splits(self.splits, _FOLDERS), Path(self.root)
        base = root / "CORD" if (root / "CORD").is_dir() else root
        folders = {
            split: base / name
            for split in splits
            for name in reversed(_FOLDERS[split])
            if (base / name).is_dir()
        }
        if not folders:
            asked = " nor ".join(f"{name}/" for split in splits for name in _FOLDERS[split])
            raise DataError(base, f"no {asked} here: expected {_LAYOUT}; {found_in(base)}")
        kinds = {"json": ".json", "image": ".png"}
        if self.images == "blank":
            del kinds["image"]
        # Listed split by split, as they are read: a folder without receipts is an error.
        tasks = (
            (split, folder, stem)
            for split, folder in folders.items()
            for stem in stems_in(folder, kinds, _LAYOUT)
        )
        documents, skipped = read_all(_Reader(base, self.images), tasks, self.on_error)
        labels = {entity.label for document in documents for entity in document.entities}
        return DocumentSet("CORD", tuple(documents), tuple(sorted(labels)), skipped)


def read_lines(
    path: Path, content: Any, scale: tuple[float, float], size: tuple[int, int]
) -> Fields:
    """Returns the fields of a receipt; each line is a segment.

    Args:
        path: of the annotation, for errors.
        content: of the annotation.
        scale: factors from the annotation's pixels to those of the page.
        size: of the page, in pixels.

    Raises:
        DataError: if the annotation is malformed, or a box does not fit the page.
    """
    fields = Fields()
    with at(path, ""):
        lines = member(content, "valid_line", list)
    for number, line in enumerate(lines):
        words: list[Word] = []
        with at(path, f"valid_line[{number}]"):
            label = text_of(line, "category")
            if not label:
                raise ValueError(f"expected a category, found {shown(line['category'])}")
            for word in member(line, "words", list):
                if text := text_of(word):
                    quad = member(word, "quad", dict)
                    corners = numbers([quad.get(corner) for corner in _CORNERS], 8)
                    words.append(Word(text, fitted(around(corners), scale, size), number))
        fields.add(words, "" if label == "other" else label)
    return fields


def stated_size(content: Any) -> tuple[int, int] | None:
    """Returns the size in pixels that `meta.image_size` of an annotation states, if any."""
    meta = content.get("meta") if isinstance(content, dict) else None
    given = meta.get("image_size") if isinstance(meta, dict) else None
    return None if given is None else size_in(given)


@dataclass(frozen=True)
class _Reader:
    """Reads the receipt of one stem of a split's folder."""

    root: Path
    images: Literal["required", "blank"]

    def __call__(self, task: tuple[str, Path, str]) -> Document:
        split, folder, stem = task
        path = inside(self.root, f"{folder.name}/json/{stem}.json")
        content = read_json(path)
        if isinstance(content, dict) and isinstance(content.get("ground_truth"), str):
            try:
                content = json.loads(content["ground_truth"])
            except (ValueError, RecursionError) as error:
                why = f"the text of ground_truth is not JSON: {error}"
                raise DataError(path, why) from error
        page, size, scale = self._page(folder / "image" / f"{stem}.png", path, content)
        fields = read_lines(path, content, scale, size)
        name = f"{split}/{stem}"
        return fields.document(name, name, page, size=size, split=split)

    def _page(
        self, image: Path, path: Path, content: Any
    ) -> tuple[Path | NDArray[np.uint8], tuple[int, int], tuple[float, float]]:
        """Returns the page, its size, and the factors from the annotation's pixels to its own."""
        with at(path, "meta"):
            stated = stated_size(content)
            if self.images == "blank":
                if stated is None:
                    raise ValueError('no image_size: images="blank" needs one')
                return blank_page(stated), stated, (1.0, 1.0)
            size = size_of_image(self.root, image)
            return image, size, scale_to(size, stated or size)
