"""SROIE: scanned receipts with company, date, address and total (ICDAR 2019, task 3).

Huang et al., "ICDAR2019 Competition on Scanned Receipt OCR and Information Extraction",
doi 10.1109/ICDAR.2019.00244. The release gives boxes of text LINES and the four values as strings;
the words are made here, by the rules of `Sroie`, and labelled by
`fedpriv.data.readers.sroie_labels`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedpriv.data.document import (
    Box,
    DataError,
    Document,
    DocumentSet,
    OnError,
    Question,
    Word,
    box_on_page,
    check_file,
    found_in,
    read_all,
    words_of_line,
)
from fedpriv.data.generated.questions import RECEIPT_QUESTIONS
from fedpriv.data.page_files import image_size
from fedpriv.data.paths import inside
from fedpriv.data.readers.annotation import around, at, encodable, numbers, plain_name
from fedpriv.data.readers.sroie_labels import LABELS, label_words
from fedpriv.data.reading import parse_json, shown
from fedpriv.runtime.outside import PathSetting
from fedpriv.runtime.seeds import generator

_LAYOUT = "train/ and test/ (or one of them), each with img/, box/ and entities/"


@dataclass(frozen=True)
class Sroie:
    """Reads SROIE from the folder of its release.

    Layout: ``{train,test}/img/ID.jpg``, ``box/ID.txt`` and ``entities/ID.txt``, with the images in
    their original size; or with shrunk images, and then beside them ``box_scaled/ID.txt``, a
    ``manifest.jsonl`` in the root, or both.

    Boxes: ``box/`` holds coordinates of the ORIGINAL image. ``"auto"`` uses it if the manifest
    says that the image has its original size, or if nothing says that it was shrunk; otherwise
    ``box_scaled/``, or ``box/`` times the manifest's scale. ``"original"`` and ``"scaled"`` force
    one of them. A box that sticks out of the image by more than 1 % is an error and never moved:
    it is the only sign of a shrunk image without manifest and ``box_scaled/``. Of our 258 shrunk
    receipts, 3 do not show it, so keep the manifest with shrunk images.

    Words: a line's words share its box in proportion to their characters; a line is one segment.

    Provider: the manifest's `provider` (misspellings merged) or, without one, `provider_name` of
    the company. All receipts without a company are one provider, "unknown".

    Questions: one on every key that has a value, in the order of the keys. Its wording is drawn
    from `RECEIPT_QUESTIONS` by the receipt's split and stem, so it is the same in every run.

    Identifiers: the file's stem, or ``split/stem`` if two splits have this stem.

    Attributes:
        root: the folder that holds train/, test/ or both.
        boxes: which coordinates to read: "original" those of box/, which fit images in their
            original size; "scaled" those that fit shrunk images, of box_scaled/ or computed with
            the scale in the manifest; "auto" decides for each image, by the manifest and by whether
            box_scaled/ is there.
        splits: the folders to read, in this order. Missing folders are left out, unless all are
            missing.
        rescans: "drop" leaves out receipts that the manifest takes for a second scan of another
            one, and counts them, so that no held-out receipt is trained on in another scan. "keep"
            keeps both scans, which then count as one document (`Document.part_of`).
        on_error: "skip" leaves out receipts that cannot be read, and counts them; "raise" stops at
            the first. A broken manifest or a missing folder is always an error.
    """

    root: PathSetting
    boxes: Literal["auto", "scaled", "original"] = "auto"
    splits: tuple[str, ...] = ("train", "test")
    rescans: Literal["keep", "drop"] = "keep"
    on_error: OnError = "raise"

    def __post_init__(self) -> None:
        if self.rescans not in ("keep", "drop"):
            raise ValueError(f"rescans={self.rescans!r}: expected 'keep' or 'drop'")

    def load(self) -> DocumentSet:
        """Reads every receipt, ordered by split and identifier, and decodes every image once."""
        root = Path(self.root)
        splits = [name for name in dict.fromkeys(self.splits) if (root / name).is_dir()]
        if not splits:
            asked = " nor ".join(f"{name}/" for name in self.splits) or "split (none was asked for)"
            why = f"no {asked} here: expected {_LAYOUT}; {found_in(root)}"
            raise DataError(root, why)
        folders = [_Folder.of(root / split) for split in splits]
        manifest = read_manifest(inside(root, "manifest.jsonl"))
        count = Counter(stem for folder in folders for stem in folder.stems)
        ambiguous = frozenset(stem for stem in count if count[stem] > 1)
        documents: list[Document] = []
        skipped: list[DataError] = []
        for folder in folders:
            rescans: dict[str, str] = {}
            if self.rescans == "drop":
                rows = ((stem, manifest.get((folder.path.name, stem))) for stem in folder.stems)
                rescans = {stem: row.rescan_of for stem, row in rows if row and row.rescan_of}
            read = _Reader(folder, self.boxes, manifest, ambiguous)
            paths = (folder.file("img", stem) for stem in folder.stems if stem not in rescans)
            good, bad = read_all(read, paths, self.on_error)
            documents += good
            skipped += [
                DataError(folder.file("img", stem), f"possibly a second scan of {original}")
                for stem, original in rescans.items()
            ]
            skipped += bad
        return DocumentSet("SROIE", tuple(documents), LABELS, tuple(skipped))


@dataclass(frozen=True, slots=True)
class BoxLine:
    """One line of a box file: its text without outer white space, its box, its number from 1."""

    text: str
    box: Box
    number: int


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """A row of `manifest.jsonl`, of one receipt; sizes in pixels, scale = size / original size."""

    provider: str = ""
    rescan_of: str = ""
    size: tuple[float, float] | None = None
    orig_size: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None


def provider_name(company: str) -> str:
    """Returns the company in upper case, letters and digits only, without a final "SDN BHD".

    "" (a receipt without company) gives "unknown". Agrees with the manifest's merged providers in
    252 of 269 receipts; the others are misspellings, merged firms, and one firm written both with
    "SDN BHD" and with "BHD".
    """
    return plain_name(company).removesuffix("SDNBHD") or "unknown"


# ------------------------------------------------------------------------------------ the files


def decode(data: bytes) -> str:
    """Decodes a file's bytes as UTF-8, or as Latin-1 where they are not UTF-8.

    One official file holds the single byte 0xa3, a pound sign in Latin-1, which never fails.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def read_lines(path: Path) -> list[BoxLine]:
    """Reads a box file: ``x1,y1,x2,y2,x3,y3,x4,y4,text`` per line, LF and CRLF mixed.

    Lines with a blank text are left out. The text is the rest of the line, with its commas and
    quotes. The box is the smallest upright rectangle around the quadrilateral.
    """
    lines: list[BoxLine] = []
    # Not splitlines: it would also cut at characters that are part of a text, such as U+0085.
    for number, line in enumerate(decode(_bytes(path)).split("\n"), start=1):
        if not line.strip():
            continue
        with at(path, "", number):
            *corners, text = fields = line.split(",", 8)
            if len(fields) != 9:
                raise ValueError(
                    f"expected x1,y1,x2,y2,x3,y3,x4,y4,text; found {len(fields)} fields of 9"
                )
            given = shown(",".join(corners))
            try:
                sides = [float(corner) for corner in corners]
            except ValueError:
                raise ValueError(f"expected 8 coordinates, found {given}") from None
            if not all(map(math.isfinite, sides)):
                raise ValueError(f"expected 8 finite coordinates, found {given}")
        if text := text.strip():
            lines.append(BoxLine(text, around(sides), number))
    return lines


def read_entities(path: Path) -> dict[str, str]:
    """Reads a key file: JSON with the texts of `LABELS`; a missing key or null is an empty text."""
    values = parse_json(path, decode(_bytes(path)))
    if not isinstance(values, dict):
        raise DataError(path, f"expected a JSON object, found {type(values).__name__}")
    for label in LABELS:
        if not isinstance(values.get(label, ""), str | None):
            raise DataError(path, f"expected a text for {label!r}, found {shown(values[label])}")
        with at(path, label):
            encodable(values.get(label) or "")
    return {label: (values.get(label) or "").strip() for label in LABELS}


def read_manifest(path: Path) -> dict[tuple[str, str], ManifestRow]:
    """Reads `manifest.jsonl` into rows by (split, file stem); an absent file gives no rows."""
    if not path.exists():
        return {}
    rows: dict[tuple[str, str], ManifestRow] = {}
    for number, line in enumerate(decode(_bytes(path)).split("\n"), start=1):
        if not line.strip():
            continue
        row = parse_json(path, line, number)
        try:
            rows[row["split"], row["id"]] = ManifestRow(
                encodable(str(row.get("provider") or "")),
                encodable(str(row.get("possible_rescan_of") or "")),
                *(_pair(row, key) for key in _PAIRS),
            )
        except (LookupError, AttributeError, OverflowError, TypeError, ValueError) as error:
            why = f"expected an object with id and split, numbers in pairs: {error!r}"
            raise DataError(path, why, number) from error
    return rows


_PAIRS = ("size", "orig_size", "scale")


def _pair(row: Mapping[str, Any], key: str) -> tuple[float, float] | None:
    if row.get(key) is None:
        return None
    first, second = numbers(row[key], 2)
    if not (first > 0 and second > 0):
        raise ValueError(f"{key}={shown(row[key])} is not two positive numbers")
    return first, second


def _bytes(path: Path) -> bytes:
    check_file(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror}") from error


# ---------------------------------------------------------------------------------- one receipt


@dataclass(frozen=True)
class _Folder:
    """A split's folder, and the paths of the files in its subfolders by their stems."""

    path: Path
    files: Mapping[str, Mapping[str, Path]]

    @classmethod
    def of(cls, path: Path) -> _Folder:
        files: dict[str, dict[str, Path]] = {name: {} for name in _SUFFIXES}
        for name, suffixes in _SUFFIXES.items():
            # A name that begins with a dot belongs to the file system (".DS_Store", "._X.jpg").
            for file in sorted((path / name).glob("[!.]*")):
                if file.suffix.lower() in suffixes:
                    files[name][file.stem] = file
        for names in (("img",), ("box", "box_scaled"), ("entities",)):
            if not any((path / name).is_dir() for name in names):
                raise DataError(path / names[0], f"missing: expected {_LAYOUT}; {found_in(path)}")
        if not any(files.values()):
            raise DataError(path, f"no receipts: expected {_LAYOUT}, with files in them")
        return cls(path, files)

    @property
    def stems(self) -> list[str]:
        return sorted(set().union(*self.files.values()))

    def file(self, name: str, stem: str) -> Path:
        return self.files[name].get(stem, self.path / name / f"{stem}{_SUFFIXES[name][0]}")

    def has(self, name: str, stem: str) -> bool:
        return stem in self.files[name]


_SUFFIXES = {
    "img": (".jpg", ".jpeg", ".png"),
    "box": (".txt",),
    "box_scaled": (".txt",),
    "entities": (".txt",),
}


@dataclass(frozen=True)
class _Reader:
    """Reads the receipt of one image path of a split's folder."""

    folder: _Folder
    boxes: Literal["auto", "scaled", "original"]
    manifest: Mapping[tuple[str, str], ManifestRow]
    ambiguous: frozenset[str]

    def __call__(self, path: Path) -> Document:
        stem, split = path.stem, self.folder.path.name
        self._check_partners(stem)
        size = image_size(path)
        row = self.manifest.get((split, stem), ManifestRow())
        values = read_entities(self.folder.file("entities", stem))
        boxes, (across, down) = self._source(stem, size, row)
        words: list[Word] = []
        for segment, line in enumerate(read_lines(boxes)):
            x0, y0, x1, y1 = line.box
            try:
                box = box_on_page((x0 * across, y0 * down, x1 * across, y1 * down), size)
            except ValueError as error:
                why = (
                    f"the box does not fit the image {stem} of {size[0]} × {size[1]} pixels: "
                    f"{error}. If the image was shrunk, put box_scaled/{stem}.txt or the scale in "
                    f"manifest.jsonl beside it, or the image in its original size; "
                    f"boxes={self.boxes!r} was given"
                )
                raise DataError(boxes, why, line.number) from error
            words += words_of_line(line.text, box, segment)
        name = f"{split}/{stem}"
        rng = generator(0, f"wording of the questions on receipt {name}")
        wordings = {key: rng.choice(phrasings) for key, phrasings in RECEIPT_QUESTIONS.items()}
        return Document(
            id=name if stem in self.ambiguous else stem,
            provider=row.provider or provider_name(values["company"]),
            page=path,
            size=size,
            words=tuple(words),
            entities=label_words(words, values),
            questions=tuple(
                Question(key, str(wordings[key]), (values[key],)) for key in LABELS if values[key]
            ),
            split=split,
            part_of=row.rescan_of,
        )

    def _check_partners(self, stem: str) -> None:
        folder = self.folder
        for name in (name for name in _SUFFIXES if folder.has(name, stem)):
            inside(folder.path.parent, f"{folder.path.name}/{name}/{folder.file(name, stem).name}")
        if not (folder.has("box", stem) or folder.has("box_scaled", stem)):
            name = "box_scaled" if self.boxes == "scaled" else "box"
            raise DataError(folder.file(name, stem), f"missing: {stem} has no box file")
        for name, what in (("img", "image"), ("entities", "key file")):
            if not folder.has(name, stem):
                raise DataError(folder.file(name, stem), f"missing: {stem} has no {what}")

    def _source(
        self, stem: str, size: tuple[int, int], row: ManifestRow
    ) -> tuple[Path, tuple[float, float]]:
        """Returns the box file to read and the factors from its pixels to those of the image."""
        box, scaled = self.folder.file("box", stem), self.folder.file("box_scaled", stem)
        has_box, has_scaled = self.folder.has("box", stem), self.folder.has("box_scaled", stem)
        if self.boxes == "original" or (self.boxes == "auto" and row.orig_size == size != row.size):
            if not has_box:
                raise DataError(box, f"missing: {stem} has boxes in box_scaled/ only")
            return box, (1.0, 1.0)
        # Boxes for a shrunk image of a third size are of no use: then the scale is computed.
        if has_scaled and (not has_box or row.size in (None, size)):
            return scaled, (1.0, 1.0)
        factors = row.scale
        if row.orig_size is not None:
            # Not `scale_to`: the manifest may state fractions of a pixel.
            across, down = size[0] / row.orig_size[0], size[1] / row.orig_size[1]
            # Rounding to whole pixels moves the two factors apart by less than this.
            if abs(across * row.orig_size[1] / size[1] - 1) > 0.02:
                why = (
                    f"the image has {size[0]} × {size[1]} pixels, which is no shrunk form of the "
                    f"manifest's orig_size {row.orig_size[0]:g} × {row.orig_size[1]:g}"
                )
                raise DataError(self.folder.file("img", stem), why)
            factors = (across, down)
        if factors is None and self.boxes == "scaled":
            why = f"missing, and manifest.jsonl gives no scale for {stem}: boxes='scaled' needs one"
            raise DataError(scaled, why)
        return box, factors or (1.0, 1.0)
