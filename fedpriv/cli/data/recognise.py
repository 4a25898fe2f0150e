"""Recognises the layout of a data set by the names of its files; no file is opened.

A folder of no known layout with pictures or PDFs is read as a folder of the user's own.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from fedpriv.data.document import DataError, DocumentSource, found_in
from fedpriv.data.folder.page_file import SUFFIXES, TABLES, list_files
from fedpriv.data.folder.reader import Folder
from fedpriv.data.hub.reader import HubData
from fedpriv.data.hub.table import SAVED
from fedpriv.data.readers.cord import Cord
from fedpriv.data.readers.docile import Docile
from fedpriv.data.readers.docvqa import DocVqa
from fedpriv.data.readers.funsd import Funsd
from fedpriv.data.readers.pfl_docvqa import PflDocvqa
from fedpriv.data.readers.sroie import Sroie
from fedpriv.data.readers.wildreceipt import Wildreceipt
from fedpriv.data.readers.xfund import Xfund

LAYOUTS = (
    "SROIE: train/ or test/ with img/ and entities/",
    "FUNSD: dataset/training_data/annotations/ or testing_data/",
    "CORD: train/, dev/, valid/ or test/ with json/",
    "XFUND: LANGUAGE.train.json or LANGUAGE.val.json",
    "WildReceipt: class_list.txt with train.txt or test.txt",
    "DocILE: annotations/ and ocr/ beside a list such as train.json",
    "DocVQA: train_v1.0.json, val_v1.0.json or test_v1.0.json",
    f"your own: pages ({', '.join(SUFFIXES)}) in the folder or its subfolders",
    "a data set of the datasets library: what save_to_disk writes",
    "PFL-DocVQA: .parquet files, in imdb/ or here (`fedpriv data convert`)",
)


def recognise(folder: Path) -> DocumentSource:
    """Returns a reader for the first of the layouts that fits, one that skips what it cannot read.

    Raises:
        ValueError: if no layout fits; lists what was looked for.
    """
    root = str(folder)

    if any((folder / table).is_file() for table in TABLES):
        return Folder(root, on_error="skip")

    if any((folder / state).is_file() for state in SAVED):
        return HubData(root, on_error="skip")

    halves = (folder / "train", folder / "test")
    if any((half / "img").is_dir() and (half / "entities").is_dir() for half in halves):
        return Sroie(root, on_error="skip")

    bases = (folder / "dataset", folder)
    names = ("training_data", "testing_data")
    if any((base / name / "annotations").is_dir() for base in bases for name in names):
        return Funsd(root, on_error="skip")

    base = folder / "CORD" if (folder / "CORD").is_dir() else folder
    splits = [base / name for name in ("train", "dev", "valid", "validation", "test")]
    if any((split / "json").is_dir() for split in splits):
        images = any((split / "image").is_dir() for split in splits)
        return Cord(root, images="required" if images else "blank", on_error="skip")

    files = [*folder.glob("??.train.json"), *folder.glob("??.val.json")]
    if files:
        return Xfund(root, language=min(file.name[:2] for file in files), on_error="skip")

    texts = any((folder / name).is_file() for name in ("train.txt", "test.txt"))
    if texts and (folder / "class_list.txt").is_file():
        return Wildreceipt(root, on_error="skip")

    lists = sorted(path.stem for path in folder.glob("[!.]*.json"))
    if lists and all((folder / name).is_dir() for name in ("annotations", "ocr")):
        official = [name for name in ("train", "val") if name in lists]
        return Docile(
            root,
            pages="render" if (folder / "pdfs").is_dir() else "blank",
            splits=tuple(official or lists[:1]),
            on_error="skip",
        )

    questions = tuple(
        name
        for name in ("train", "val", "test")
        if [*folder.glob(f"{name}_v1.0*.json"), *folder.glob(f"{name}/{name}_v1.0*.json")]
    )
    if questions:
        return DocVqa(root, splits=questions, on_error="skip")

    if [*folder.glob("imdb/*.parquet"), *folder.glob("*.parquet")]:
        return PflDocvqa(root, without_provider="document", on_error="skip")

    with contextlib.suppress(DataError):  # no pages in it
        list_files(folder)
        return Folder(root, on_error="skip")

    raise ValueError(f"{found_in(folder)}: no known layout. Looked for {'; '.join(LAYOUTS)}")
