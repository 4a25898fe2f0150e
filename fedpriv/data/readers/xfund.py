"""XFUND: forms in seven languages whose fields are headers, questions and answers.

Xu et al., "XFUND: A Benchmark Dataset for Multilingual Visually Rich Form Understanding",
Findings of ACL 2022, https://github.com/doc-analysis/XFUND (CC BY-NC-SA 4.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpriv.data.document import Document, DocumentSet, OnError, read_all
from fedpriv.data.paths import inside
from fedpriv.data.readers.annotation import (
    at,
    files_of_splits,
    is_file,
    known_splits,
    member,
    scale_to,
    size_in,
    size_of_image,
    text_of,
)
from fedpriv.data.readers.forms import LABELS, read_form
from fedpriv.data.reading import read_json, shown
from fedpriv.runtime.outside import PathSetting

_FILES = {"train": "train", "test": "val"}


@dataclass(frozen=True)
class Xfund:
    """Reads one language of XFUND from the folder of its release.

    Layout: ``{language}.train.json`` and ``{language}.val.json``, and the images in ``images/``,
    or in ``{language}.train/`` and ``{language}.val/`` as the release's archives unpack.

    A form's fields become segments, in the file's order. Their words and boxes are those of the
    list `words`; a field without such a list is split at white space, and its box in proportion.
    Blank words are left out. Fields labelled header, question or answer are entities; fields
    labelled "other" are not. Links are pairs of entities in the file's order, mostly of a question
    and its answer. Links of a field that is not an entity, or with itself, are left out.

    Boxes refer to the size that `img` states. If the image has another size, of the same shape,
    they are scaled.

    Provider: XFUND names none, so every form is its own provider, and provider-level privacy is
    document-level privacy. Identifiers: the form's `id`.

    Attributes:
        root: the folder that holds the two JSON files.
        language: the language of the forms, as in the names of the files: de, es, fr, it, ja, pt or
            zh.
        splits: the splits to read, "train", "test" (the file called val) or both, in this order. A
            missing split is left out, unless all are missing.
        on_error: "skip" leaves out forms that cannot be read, and counts them; "raise" stops at the
            first. A broken or missing JSON file is always an error.
    """

    root: PathSetting
    language: str = "zh"
    splits: tuple[str, ...] = ("train", "test")
    on_error: OnError = "raise"

    def load(self) -> DocumentSet:
        """Reads every form, by split in the file's order, and decodes every image once."""
        root, splits = Path(self.root), known_splits(self.splits, _FILES)
        names = {split: f"{self.language}.{_FILES[split]}.json" for split in splits}
        layout = f"{self.language}.train.json and {self.language}.val.json, and their images"
        files = files_of_splits(root, names, layout)

        def forms() -> Iterator[tuple[str, Path, int, Any]]:
            for split, path in files.items():
                with at(path, ""):
                    found = member(read_json(path), "documents", list)
                for number, form in enumerate(found):
                    yield split, path, number, form

        documents, skipped = read_all(_Reader(root, self.language), forms(), self.on_error)
        return DocumentSet(f"XFUND {self.language}", tuple(documents), LABELS, skipped)


@dataclass(frozen=True)
class _Reader:
    """Reads forms; remembers their identifiers, to refuse the second form of the same one."""

    root: Path
    language: str
    seen: set[str] = field(default_factory=set)

    def __call__(self, task: tuple[str, Path, int, Any]) -> Document:
        split, path, number, form = task
        with at(path, f"documents[{number}]"):
            name = text_of(form, "id")
            if not name or name in self.seen:
                raise ValueError(f"expected an id of its own, found {shown(name)}")
            img = member(form, "img", dict)
            folders = ("images", f"{self.language}.{_FILES[split]}")
            paths = [inside(self.root / folder, text_of(img, "fname")) for folder in folders]
            image = next((path for path in paths if is_file(path)), paths[0])
            size = size_of_image(self.root, image)
            scale = scale_to(size, size_in(img))
            items = member(form, "document", list)
        place = f"documents[{number}].document"
        fields, links = read_form(path, place, items, scale, size, lines=True)
        self.seen.add(name)
        return fields.document(name, name, image, size=size, split=split, links=links)
