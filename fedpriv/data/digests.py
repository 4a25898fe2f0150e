"""Digests of documents and of encoded examples: they tell whether data are the same.

Without them in its key, a cache would hand out the encoding of other pages, and private noise would
be drawn again for other messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.data.document import Document
from fedpriv.data.drawn_page import LazyPage
from fedpriv.data.examples import Examples
from fedpriv.data.page_files import image_digest
from fedpriv.runtime.cache import file_stamp, hash_of
from fedpriv.runtime.tensors import digest


def documents_digest(documents: Iterable[Document]) -> str:
    """Returns a hash of everything that documents hold.

    Of an image file, it is the path, size and time; of a page that is drawn, what it is drawn from
    and the code that draws it. `Document.part_of` is not in it: no model reads that.
    """
    hashed = hashlib.sha256()
    for document in documents:
        hashed.update(document_digest(document).encode())
    return hashed.hexdigest()


def document_digest(document: Document, *, here: bool = True) -> str:
    """Returns a hash of one document; see `documents_digest`.

    Args:
        document: the document.
        here: whether the path of an image file, and the code that draws a page, are part of its
            hash, as they must be where it stands for pixels. Without them, a page that was moved,
            or that another release draws otherwise, is the same private data.
    """
    page: list[Any]
    if isinstance(document.page, Path):
        page = file_stamp(document.page) if here else [image_digest(document.page)]
    elif isinstance(document.page, LazyPage):
        page = [*document.page.key(), document.page.code() if here else ""]
    else:
        pixels = np.ascontiguousarray(document.page)
        page = [pixels.shape, str(pixels.dtype), hashlib.sha256(pixels.data).hexdigest()]
    drawn = document.as_drawn()
    return hash_of(
        [
            document.id,
            document.provider,
            document.size,
            document.split,
            "words" in drawn or [(word.text, word.box, word.segment) for word in document.words],
            "entities" in drawn or [(entity.label, entity.words) for entity in document.entities],
            "questions" in drawn or [(q.key, q.text, q.answers) for q in document.questions],
            document.links,
            document.white,
            page,
        ]
    )


BLOCK = 256
"""Rows that are hashed at a time."""


def data_digest(train: Examples, rows: Iterable[np.ndarray[Any, Any]]) -> str:
    """Returns a digest of every client's encoded examples, in their order.

    Args:
        train: the examples of the federation.
        rows: for each client, its positions in `train`.
    """
    hashed = hashlib.blake2b(digest_size=16)
    for client_rows in rows:
        examples = train.take(client_rows)
        hashed.update(f"client of {len(examples)}".encode())
        for start in range(0, len(examples), BLOCK):
            block = examples.take(np.arange(start, min(start + BLOCK, len(examples))))
            hashed.update(digest({n: block.column(n) for n in block.columns}).encode())
        for name, (array, pointer) in sorted(examples.shared.items()):
            for at in np.unique(examples.column(pointer)):
                hashed.update(digest({f"{name} {at}": array[at]}).encode())
    return hashed.hexdigest()
