"""Sound folders for the nine readers, and what a hostile or careless hand makes of their files."""

import json
import os
import random
import socket
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from folder_pages import ALTO, OURS, pdf
from form_folders import (
    SIZE,
    quad,
    wild_receipt,
    write,
    write_cord,
    write_docile,
    write_funsd,
    write_image,
    write_sroie,
    write_wildreceipt,
    write_xfund,
    xfund_form,
)

from fedpriv.data.folder import tesseract
from fedpriv.data.folder.reader import Folder
from fedpriv.data.readers.cord import Cord
from fedpriv.data.readers.docile import Docile
from fedpriv.data.readers.docvqa import DocVqa
from fedpriv.data.readers.funsd import Funsd
from fedpriv.data.readers.pfl_arrow import LENGTH, SCHEMA
from fedpriv.data.readers.pfl_docvqa import PflDocvqa
from fedpriv.data.readers.sroie import Sroie
from fedpriv.data.readers.wildreceipt import Wildreceipt
from fedpriv.data.readers.xfund import Xfund


class Layout(NamedTuple):
    """Writes two sound documents into a folder; reads them; the first one's page image, if any."""

    write: Callable[[Path], None]
    load: Callable[..., object]
    image: str


def sroie(root):
    write_sroie(root, "X1")
    write_sroie(root, "X2")
    rows = [{"id": name, "split": "train", "provider": "AB", "size": SIZE} for name in ("X1", "X2")]
    write(root / "manifest.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


def docvqa(root):
    corners = list(quad(10, 20, 30, 28).values())
    line = {"text": "9", "words": [{"text": "9", "boundingBox": corners}]}
    questions = [
        {
            "questionId": number,
            "question": "Total?",
            "image": f"documents/d{number}_1.png",
            "ucsf_document_id": f"d{number}",
            "ucsf_document_page_no": "1",
            "answers": ["9"],
        }
        for number in (1, 2)
    ]
    write(root / "val_v1.0.json", {"data": questions})
    for number in (1, 2):
        write(
            root / "ocr_results" / f"d{number}_1.json", {"recognitionResults": [{"lines": [line]}]}
        )
        write_image(root / "documents" / f"d{number}_1.png")


def pfl_docvqa(root):
    rows = [
        {
            "position": number,
            "question": "Total?",
            "answers": ["9"],
            "words": ["9"],
            "boxes": [[0.1, 0.1, 0.2, 0.2]],
            "image_name": f"d{number}_1",
            "set_name": "train",
            "question_id": str(number),
            "provider": "AB",
            "document": None,
            "label": None,
        }
        for number in (1, 2)
    ]
    (root / "imdb").mkdir(parents=True)
    table = pa.Table.from_pylist(rows, SCHEMA.with_metadata({LENGTH: b"3"}))
    pq.write_table(table, root / "imdb" / "imdb_train.parquet", write_page_checksum=True)
    write(root / "imdb" / "provider2docs.json", {"AB": ["d1", "d2"]})
    for number in (1, 2):
        write_image(root / "images" / f"d{number}_1.jpg")


def own_folder(root):
    write_image(root / "a" / "1.png", (300, 200))
    write(root / "a" / "1.json", OURS)
    write_image(root / "b" / "2.jpg", (300, 200))
    write(root / "b" / "2.xml", ALTO)
    write(root / "c.pdf", pdf())
    write(
        root / "labels.csv", "file,provider,total\na/1.png,A,12.50\nb/2.jpg,B,12.50\nc.pdf,B,12.5\n"
    )


class FolderWithoutOcr(Folder):
    """Reads a folder as if Tesseract were not installed: a process is started for nothing else."""

    def load(self):
        missing = tesseract.NoTesseractError("not installed")
        with mock.patch.object(tesseract, "version", side_effect=missing):
            return super().load()


def twice(write_one):
    """Writes one document twice, under two names."""

    def write_both(root):
        write_one(root, "a")
        write_one(root, "b")

    return write_both


LAYOUTS = {
    "folder": Layout(own_folder, FolderWithoutOcr, "a/1.png"),
    "sroie": Layout(sroie, Sroie, "train/img/X1.jpg"),
    "funsd": Layout(twice(write_funsd), Funsd, "dataset/training_data/images/a.png"),
    "xfund": Layout(
        lambda root: write_xfund(root, [xfund_form("a"), xfund_form("b")]), Xfund, "images/a.jpg"
    ),
    "cord": Layout(twice(write_cord), Cord, "train/image/a.png"),
    "wildreceipt": Layout(
        lambda root: write_wildreceipt(root, [wild_receipt("a.jpeg"), wild_receipt("b.jpeg")]),
        Wildreceipt,
        "a.jpeg",
    ),
    "docile": Layout(twice(write_docile), Docile, "pdfs/a.pdf"),
    "docvqa": Layout(docvqa, DocVqa, "documents/d1_1.png"),
    "pfl_docvqa": Layout(
        pfl_docvqa, lambda root, **rest: PflDocvqa(root, test=(), **rest), "images/d1_1.jpg"
    ),
}


# ------------------------------------------------------------------------------------ hostile files

EPS = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 100 200
%%EndComments
(x) print
showpage
"""
GIF = bytes.fromhex("4749463839610100010080000000000000ffffff2c00000000010001000002024401003b")


def chunk(kind, data):
    """A chunk of a PNG, with its check sum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, *parts, extra=b""):
    """A grey PNG of this size; `parts` are its IDAT chunks, by default one with noise."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + extra + b"".join(parts or [chunk(b"IDAT", noise())])
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


def noise():
    """The compressed rows of a page of `SIZE` pixels."""
    rows = (b"\0" + random.Random(row).randbytes(SIZE[0]) for row in range(SIZE[1]))
    return zlib.compress(b"".join(rows))


def text_bomb():
    """A PNG with a compressed comment of 80 MB."""
    return png(*SIZE, extra=chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(80_000_000), 9)))


def broken_chunk():
    """A PNG that is damaged between two chunks of its pixels."""
    middle = len(noise()) // 2
    return png(
        *SIZE, chunk(b"IDAT", noise()[:middle]), chunk(b"\xff\xff\xff\xff", noise()[middle:])
    )


BAD_IMAGES = {
    "eps": EPS,
    "gif": GIF,
    "empty": b"",
    "cut": png(*SIZE)[:14_000],
    "text bomb": text_bomb(),
    "pixel bomb": png(13_000, 13_000),
    "no such size": png(0, 7),
    "broken chunk": broken_chunk(),
    "header alone": png(*SIZE)[:40],
}


def cut(path, draw):
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(max(len(data), 1))])


def flip_bits(path, draw):
    data = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 4, 32))):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def splice(path, draw):
    """Replaces a piece of the file by another piece of it, or by noise."""
    data = path.read_bytes()
    start, other = draw.randrange(len(data)), draw.randrange(len(data))
    piece = draw.choice((data[other : other + 30], draw.randbytes(20), b""))
    path.write_bytes(data[:start] + piece + data[start + draw.randrange(30) :])


def bad_image(path, draw):
    path.write_bytes(draw.choice(list(BAD_IMAGES.values())))


def bad_json(path, draw):
    deep = b"[" * 60_000
    path.write_bytes(
        draw.choice((deep, deep + b"]" * 60_000, b'{"a": NaN}', b"1" * 5000, b"{}", b"[[]]"))
    )


def pipe(path, draw):
    path.unlink()
    os.mkfifo(path)


def listening(path, draw):
    """A socket; its name may be too long for one where it stands."""
    path.unlink()
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def directory(path, draw):
    path.unlink()
    path.mkdir()


def link(path, draw):
    """To itself, to nowhere, to a device that never ends, or to a sound file outside."""
    outside = path.parent / f"{path.name}.moved"
    path.rename(outside)
    secret = Path(os.environ["FEDPRIV_CACHE"]) / f"secret{path.suffix}"
    secret.write_bytes(outside.read_bytes())
    outside.unlink()
    path.symlink_to(draw.choice((path.name, "gone", "/dev/zero", "/dev/tty", str(secret))))


MUTATIONS = (cut, flip_bits, splice, bad_image, bad_json, pipe, listening, directory, link)


def mutate(root: Path, draw: random.Random) -> tuple[str, str]:
    """Does one hostile thing to one file of a folder; returns which, and to which file."""
    path = draw.choice(sorted(path for path in root.rglob("*") if path.is_file()))
    what = draw.choice(MUTATIONS)
    what(path, draw)
    return what.__name__, str(path.relative_to(root))
