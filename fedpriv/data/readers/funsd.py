"""FUNSD: noisy scanned forms whose fields are headers, questions and answers.

Jaume, Ekenel and Thiran, "FUNSD: A Dataset for Form Understanding in Noisy Scanned Documents",
ICDAR-OST 2019, https://guillaumejaume.github.io/FUNSD/ (non-commercial research use only).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.data.document import (
    Box,
    DataError,
    Document,
    DocumentSet,
    Entity,
    OnError,
    Word,
    box_on_page,
    check_file,
    found_in,
    read_all,
)
from fedpriv.data.links import Link, links_between, stated_links
from fedpriv.data.paths import inside
from fedpriv.data.readers.annotation import at, encodable, numbers, size_of_image
from fedpriv.data.reading import read_json, shown

LABELS = ("header", "question", "answer")

_FOLDERS = {"train": "training_data", "test": "testing_data"}
_LAYOUT = "dataset/training_data and dataset/testing_data, each with annotations/ and images/"


@dataclass(frozen=True)
class Funsd:
    """Reads FUNSD from the folder of its release.

    Layout: ``dataset/{training_data,testing_data}/annotations/N.json`` and ``images/N.png``.

    A form's fields become segments, in the file's order. Words carry their own boxes; a word may
    hold a space ("AUG 4"), as in the release. Blank words are left out, and so are fields that
    have no other. Fields labelled header, question or answer are entities; "other" is none.
    Links are pairs of entities in the file's order, mostly of a question and of its answer; those
    of a field that is no entity are left out.

    Provider: FUNSD names none, so that every form is its own provider, by its identifier:
    provider-level privacy is then document-level privacy.

    Identifiers: the file's stem; ``split/stem`` where both splits hold the same stem.

    Attributes:
        root: the folder with dataset/, or the dataset folder itself.
        splits: "train", "test" or both, in this order; one that is not there is left out, unless
            all are.
        on_error: ``"skip"`` leaves out forms that cannot be read and counts them; a missing
            folder raises all the same.
    """

    root: str | Path
    splits: tuple[str, ...] = ("train", "test")
    on_error: OnError = "raise"

    def load(self) -> DocumentSet:
        """Reads every form, ordered by split and identifier, and decodes every image once."""
        folders = self._folders()
        stems = {split: _stems(folder) for split, folder in folders.items()}
        count = Counter(stem for found in stems.values() for stem in found)
        ambiguous = frozenset(stem for stem in count if count[stem] > 1)
        documents: list[Document] = []
        skipped: tuple[DataError, ...] = ()
        for split, folder in folders.items():
            paths = (folder / "annotations" / f"{stem}.json" for stem in stems[split])
            good, bad = read_all(_Reader(folder.parent, split, ambiguous), paths, self.on_error)
            documents += good
            skipped += bad
        return DocumentSet("FUNSD", tuple(documents), LABELS, skipped)

    def _folders(self) -> dict[str, Path]:
        root = Path(self.root)
        unknown = [split for split in self.splits if split not in _FOLDERS]
        if unknown or not self.splits:
            raise ValueError(f'splits={self.splits!r}: expected "train", "test" or both')
        base = root / "dataset" if (root / "dataset").is_dir() else root
        folders = {split: base / _FOLDERS[split] for split in self.splits}
        there = {split: folder for split, folder in folders.items() if folder.is_dir()}
        if not there:
            asked = " nor ".join(f"{folder.name}/" for folder in folders.values())
            raise DataError(base, f"no {asked} here: expected {_LAYOUT}; {found_in(base)}")
        return there


def _stems(folder: Path) -> list[str]:
    """Returns the stems of a split's annotations and images, of either without the other too."""
    stems: set[str] = set()
    for name, suffix in (("annotations", ".json"), ("images", ".png")):
        if not (folder / name).is_dir():
            raise DataError(folder / name, f"missing: expected {_LAYOUT}; {found_in(folder)}")
        # A name that begins with a dot belongs to the file system ("._1.png").
        paths = (folder / name).glob(f"[!.]*{suffix}")
        stems.update(path.stem for path in paths)
    if not stems:
        raise DataError(folder, f"no forms: expected {_LAYOUT}, with files in them")
    return sorted(stems)


@dataclass(frozen=True)
class _Reader:
    """Reads the form of one annotation file."""

    root: Path
    split: str
    ambiguous: frozenset[str]

    def __call__(self, path: Path) -> Document:
        image = path.parent.parent / "images" / f"{path.stem}.png"
        check_file(path, f"missing: the image {image.name} has no annotation")
        check_file(image, f"missing: the annotation {path.name} has no image")
        inside(self.root, str(path.relative_to(self.root)))
        size = size_of_image(self.root, image)
        words: list[Word] = []
        entities: list[Entity] = []
        identifiers: list[Any] = []
        pairs: list[Link] = []
        for number, item in enumerate(_items(path)):
            with at(path, f"form[{number}]"):
                label, field = _field(item, number, size)
                pairs += stated_links(item)
            if field and label in LABELS:
                entities.append(Entity(label, tuple(range(len(words), len(words) + len(field)))))
                identifiers.append(item.get("id"))
            words += field
        with at(path, "form"):
            links = links_between(pairs, identifiers)
        name = f"{self.split}/{path.stem}" if path.stem in self.ambiguous else path.stem
        return Document(
            id=name,
            provider=name,
            page=image,
            size=size,
            words=tuple(words),
            entities=tuple(entities),
            split=self.split,
            links=links,
        )


def _items(path: Path) -> list[Any]:
    content = read_json(path)
    items = content.get("form") if isinstance(content, dict) else None
    if not isinstance(items, list):
        raise DataError(path, 'expected a JSON object with a list "form"')
    return items


def _field(item: Any, number: int, size: tuple[int, int]) -> tuple[str, list[Word]]:
    """Returns the label and the words of one form item; raises `ValueError` on a malformed one."""
    if not isinstance(item, dict):
        raise ValueError(f"expected an object, found {shown(item)}")
    label, words = item.get("label"), item.get("words")
    if label not in (*LABELS, "other"):
        raise ValueError(f"expected a label of {', '.join(LABELS)}, other; found {shown(label)}")
    if not isinstance(words, list):
        raise ValueError(f"expected a list of words, found {shown(words)}")
    texts = [_text(word) for word in words]
    found = [(text, word) for text, word in zip(texts, words, strict=True) if text]
    return str(label), [Word(text, _box(word.get("box"), size), number) for text, word in found]


def _text(word: Any) -> str:
    if not isinstance(word, dict) or not isinstance(word.get("text"), str):
        raise ValueError(f"expected a word with text and box, found {shown(word)}")
    return encodable(word["text"]).strip()


def _box(value: Any, size: tuple[int, int]) -> Box:
    x0, y0, x1, y1 = numbers(value, 4)
    try:
        return box_on_page((x0, y0, x1, y1), size)
    except ValueError as error:
        of = f"the image of {size[0]} × {size[1]} pixels"
        raise ValueError(f"the box {shown(value)} does not fit {of}: {error}") from error
