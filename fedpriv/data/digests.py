"""Digests of documents and of encoded examples: what tells whether data are the same.

Without them in its key, a cache would hand out the encoding of other pages, and private noise would
be drawn again for other messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.runtime.cache import file_stamp, hash_of
from fedpriv.runtime.tensors import digest


def documents_digest(documents: Iterable[Document]) -> str:
    """Returns a hash of all that documents hold; of an image file, its path, size and time.

    To which other pages one belongs (`Document.part_of`) is not in it: no model reads that.
    """
    hashed = hashlib.sha256()
    for document in documents:
        hashed.update(document_digest(document).encode())
    return hashed.hexdigest()


def document_digest(document: Document) -> str:
    """Returns a hash of all that one document holds; as `documents_digest`."""
    return hash_of(_content(document))


def _content(document: Document) -> list[Any]:
    return [
        document.id,
        document.provider,
        document.size,
        document.split,
        [(word.text, word.box, word.segment) for word in document.words],
        [(entity.label, entity.words) for entity in document.entities],
        [(question.key, question.text, question.answers) for question in document.questions],
        document.links,
        document.white,
        _page(document.page),
    ]


def _page(page: Path | NDArray[np.uint8]) -> list[Any]:
    if isinstance(page, Path):
        return file_stamp(page)
    pixels = np.ascontiguousarray(page)
    return [pixels.shape, str(pixels.dtype), hashlib.sha256(pixels.data).hexdigest()]


BLOCK = 256
"""Rows that are hashed at a time."""


def data_digest(train: Examples, rows: Iterable[np.ndarray[Any, Any]]) -> str:
    """Returns a digest of every client's encoded examples, in their order.

    Args:
        train: the examples of the federation.
        rows: for each client, its positions in `train`.
    """
    hashed = hashlib.blake2b(digest_size=16)
    for own in rows:
        examples = train.take(own)
        hashed.update(f"client of {len(examples)}".encode())
        for start in range(0, len(examples), BLOCK):
            block = examples.take(np.arange(start, min(start + BLOCK, len(examples))))
            hashed.update(digest({n: block.column(n) for n in block.columns}).encode())
        for name, (array, pointer) in sorted(examples.shared.items()):
            for at in np.unique(examples.column(pointer)):
                hashed.update(digest({f"{name} {at}": array[at]}).encode())
    return hashed.hexdigest()
