"""Which reader a folder is for, by the names of what lies in it; no file is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedpriv.data.document import DocumentSource, found_in
from fedpriv.data.readers.cord import Cord
from fedpriv.data.readers.docile import Docile
from fedpriv.data.readers.docvqa import DocVqa
from fedpriv.data.readers.funsd import Funsd
from fedpriv.data.readers.pfl_docvqa import PflDocvqa
from fedpriv.data.readers.sroie import Sroie
from fedpriv.data.readers.wildreceipt import Wildreceipt
from fedpriv.data.readers.xfund import Xfund


@dataclass(frozen=True)
class Layout:
    """A layout: its name, what is looked for, and the reader of a folder that has it, or None."""

    name: str
    looked_for: str
    reader: Callable[[Path], DocumentSource | None]


def recognise(folder: Path) -> DocumentSource:
    """Returns a reader for the folder, one that skips what cannot be read.

    Raises:
        ValueError: if no layout fits; lists what was looked for.
    """
    for layout in LAYOUTS:
        source = layout.reader(folder)
        if source is not None:
            return source
    looked_for = "; ".join(f"{layout.name}: {layout.looked_for}" for layout in LAYOUTS)
    raise ValueError(f"no known layout. Looked for {looked_for}. {found_in(folder)}")


def _sroie(folder: Path) -> DocumentSource | None:
    halves = [folder / "train", folder / "test"]
    fits = any((half / "img").is_dir() and (half / "entities").is_dir() for half in halves)
    return Sroie(str(folder), on_error="skip") if fits else None


def _funsd(folder: Path) -> DocumentSource | None:
    bases = (folder / "dataset", folder)
    names = ("training_data", "testing_data")
    fits = any((base / name / "annotations").is_dir() for base in bases for name in names)
    return Funsd(str(folder), on_error="skip") if fits else None


def _cord(folder: Path) -> DocumentSource | None:
    base = folder / "CORD" if (folder / "CORD").is_dir() else folder
    splits = [base / name for name in ("train", "dev", "valid", "validation", "test")]
    if not any((split / "json").is_dir() for split in splits):
        return None
    images = any((split / "image").is_dir() for split in splits)
    return Cord(str(folder), images="required" if images else "blank", on_error="skip")


def _xfund(folder: Path) -> DocumentSource | None:
    files = [*folder.glob("??.train.json"), *folder.glob("??.val.json")]
    languages = sorted({file.name[:2] for file in files})
    return Xfund(str(folder), language=languages[0], on_error="skip") if languages else None


def _wildreceipt(folder: Path) -> DocumentSource | None:
    texts = [(folder / name).is_file() for name in ("train.txt", "test.txt")]
    fits = (folder / "class_list.txt").is_file() and any(texts)
    return Wildreceipt(str(folder), on_error="skip") if fits else None


def _docile(folder: Path) -> DocumentSource | None:
    lists = sorted(path.stem for path in folder.glob("[!.]*.json"))
    if not lists or not all((folder / name).is_dir() for name in ("annotations", "ocr")):
        return None
    official = [name for name in ("train", "val") if name in lists]
    return Docile(
        str(folder),
        pages="render" if (folder / "pdfs").is_dir() else "blank",
        splits=tuple(official or lists[:1]),
        on_error="skip",
    )


def _docvqa(folder: Path) -> DocumentSource | None:
    names = ("train", "val", "test")
    splits = [
        n for n in names if [*folder.glob(f"{n}_v1.0*.json"), *folder.glob(f"{n}/{n}_v1.0*.json")]
    ]
    return DocVqa(str(folder), splits=tuple(splits), on_error="skip") if splits else None


def _pfl_docvqa(folder: Path) -> DocumentSource | None:
    converted = [*folder.glob("imdb/*.parquet"), *folder.glob("*.parquet")]
    source = PflDocvqa(str(folder), without_provider="document", on_error="skip")
    return source if converted else None


LAYOUTS = (
    Layout("SROIE", "train/ or test/ with img/ and entities/", _sroie),
    Layout("FUNSD", "dataset/training_data/annotations/ or testing_data/", _funsd),
    Layout("CORD", "train/, dev/, valid/ or test/ with json/", _cord),
    Layout("XFUND", "LANGUAGE.train.json or LANGUAGE.val.json", _xfund),
    Layout("WildReceipt", "class_list.txt with train.txt or test.txt", _wildreceipt),
    Layout("DocILE", "annotations/ and ocr/ beside a list such as train.json", _docile),
    Layout("DocVQA", "train_v1.0.json, val_v1.0.json or test_v1.0.json", _docvqa),
    Layout("PFL-DocVQA", ".parquet files, in imdb/ or here (`fedpriv data convert`)", _pfl_docvqa),
)
"""In this order the first that fits is taken."""
