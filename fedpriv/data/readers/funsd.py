"""FUNSD: noisy scanned forms whose fields are headers, questions and answers.

Jaume, Ekenel and Thiran, "FUNSD: A Dataset for Form Understanding in Noisy Scanned Documents",
ICDAR-OST 2019, https://guillaumejaume.github.io/FUNSD/ (non-commercial research use only).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from fedpriv.data.document import (
    DataError,
    Document,
    DocumentSet,
    OnError,
    check_file,
    found_in,
    read_all,
)
from fedpriv.data.paths import inside
from fedpriv.data.readers.annotation import at, known_splits, member, size_of_image, stems_in
from fedpriv.data.readers.forms import LABELS, read_form
from fedpriv.data.reading import read_json
from fedpriv.runtime.outside import PathSetting

_FOLDERS = {"train": "training_data", "test": "testing_data"}
_LAYOUT = "dataset/training_data and dataset/testing_data, each with annotations/ and images/"


@dataclass(frozen=True)
class Funsd:
    """Reads FUNSD from the folder of its release.

    Layout: ``dataset/{training_data,testing_data}/annotations/N.json`` and ``images/N.png``.

    A form's fields become segments, in the file's order. Words carry their own boxes; a word may
    hold a space ("AUG 4"), as in the release. Blank words are left out, and so are fields without
    any other word. Fields labelled header, question or answer are entities; fields labelled "other"
    are not. Links are pairs of entities in the file's order, mostly of a question and its answer.
    Links of a field that is not an entity are left out.

    Provider: FUNSD names none, so every form is its own provider, by its identifier, and
    provider-level privacy is document-level privacy.

    Identifiers: the file's stem, or ``split/stem`` if both splits have this stem.

    Attributes:
        root: the folder that holds dataset/, or the folder dataset/ itself.
        splits: the splits to read, "train", "test" or both, in this order. A missing split is left
            out, unless all are missing.
        on_error: "skip" leaves out forms that cannot be read, and counts them; "raise" stops at the
            first. A missing folder is always an error.
    """

    root: PathSetting
    splits: tuple[str, ...] = ("train", "test")
    on_error: OnError = "raise"

    def load(self) -> DocumentSet:
        """Reads every form, ordered by split and identifier, and decodes every image once."""
        root, splits = Path(self.root), known_splits(self.splits, _FOLDERS)
        base = root / "dataset" if (root / "dataset").is_dir() else root
        folders = {split: base / _FOLDERS[split] for split in splits}
        kinds = {"annotations": ".json", "images": ".png"}
        stems = {
            split: stems_in(folder, kinds, _LAYOUT)
            for split, folder in folders.items()
            if folder.is_dir()
        }
        if not stems:
            asked = " nor ".join(f"{folder.name}/" for folder in folders.values())
            raise DataError(base, f"no {asked} here: expected {_LAYOUT}; {found_in(base)}")
        count = Counter(stem for found in stems.values() for stem in found)
        read = _Reader(base, frozenset(stem for stem in count if count[stem] > 1))
        tasks = ((split, stem) for split, found in stems.items() for stem in found)
        documents, skipped = read_all(read, tasks, self.on_error)
        return DocumentSet("FUNSD", tuple(documents), LABELS, skipped)


@dataclass(frozen=True)
class _Reader:
    """Reads the form of a split and stem."""

    root: Path
    ambiguous: frozenset[str]

    def __call__(self, task: tuple[str, str]) -> Document:
        split, stem = task
        path = self.root / _FOLDERS[split] / "annotations" / f"{stem}.json"
        image = self.root / _FOLDERS[split] / "images" / f"{stem}.png"
        check_file(path, f"missing: the image {image.name} has no annotation")
        check_file(image, f"missing: the annotation {path.name} has no image")
        inside(self.root, str(path.relative_to(self.root)))
        size = size_of_image(self.root, image)
        with at(path, ""):
            items = member(read_json(path), "form", list)
        fields, links = read_form(path, "form", items, (1.0, 1.0), size)
        name = f"{split}/{stem}" if stem in self.ambiguous else stem
        return fields.document(name, name, image, size=size, split=split, links=links)
