"""Whole documents in a run folder: text, entities and questions as JSON, pages as pictures."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.data.document import DataError, Document, Entity, Question, Word, read_image
from fedpriv.runtime import run_files
from fedpriv.runtime.cache import write_entry
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_folder import RunFolder


def keep_documents(
    folder: RunFolder, pages: str, documents: Iterable[Document]
) -> list[dict[str, Any]]:
    """Writes the documents' pages, and returns the rest as JSON can hold it.

    Args:
        folder: of the run.
        pages: the folder in it for the pages, named by their pixels.
        documents: in order.
    """
    kept: list[dict[str, Any]] = []
    for document in documents:
        name = page_digest(document)
        png = io.BytesIO()
        document.image().save(png, "PNG", compress_level=1)
        folder.write(f"{pages}/{name}.png", png.getvalue())
        values = {
            field.name: getattr(document, field.name)
            for field in dataclasses.fields(document)
            # White boxes are white in the picture. Who holds a page is not the adversary's to know.
            if field.name not in ("page", "white", "client")
        }
        values["words"] = [[word.text, word.box, word.segment] for word in document.words]
        values["entities"] = [[entity.label, entity.words] for entity in document.entities]
        values["questions"] = [[q.key, q.text, q.answers] for q in document.questions]
        kept.append({**values, "page": name})
    return kept


def kept_documents(
    kept: Sequence[Mapping[str, Any]], folder: RunFolder, pages: str, own: Path
) -> tuple[Document, ...]:
    """Reads documents that `keep_documents` wrote.

    Args:
        kept: the return value of `keep_documents`.
        folder: of the run.
        pages: the folder of the pages in it.
        own: a folder of the adversary, to which the pages are copied, so that the paths of the
            documents do not lead into the run, where the truth lies.

    Raises:
        Damaged: if a page is missing, or its pixels do not match its name.
        KeyError, TypeError, ValueError: if `kept` is malformed.
    """
    documents = []
    for values in kept:
        width, height = values["size"]
        document = Document(
            values["id"],
            values["provider"],
            _given(folder, pages, str(values["page"]), own),
            (width, height),
            tuple(
                Word(text, (left, top, right, bottom), segment)
                for text, (left, top, right, bottom), segment in values["words"]
            ),
            tuple(Entity(label, tuple(words)) for label, words in values["entities"]),
            tuple(Question(key, text, tuple(given)) for key, text, given in values["questions"]),
            values["split"],
            tuple((first, second) for first, second in values["links"]),
            part_of=values["part_of"],
        )
        documents.append(document)
    return tuple(documents)


def page_digest(document: Document) -> str:
    """Returns a hash of the page's pixels."""
    return hashlib.sha256(np.asarray(document.image()).tobytes()).hexdigest()


def _given(folder: RunFolder, pages: str, name: str, own: Path) -> Path:
    """Returns the adversary's copy of a page.

    All runs that keep the page share the copy, so its pixels must match its name.
    """
    if not re.fullmatch("[0-9a-f]{64}", name):
        raise ValueError(f"page {name!r:.100}: expected the hash of its pixels")
    copy = own / f"{name}.png"
    if copy.exists():
        return copy
    page = f"{pages}/{name}.png"
    try:
        with run_files.open_file(folder.path, page) as file:
            pixels = np.asarray(read_image(Path(f"/dev/fd/{file.fileno()}")).convert("RGB"))
            if hashlib.sha256(pixels.tobytes()).hexdigest() != name:
                raise Damaged(f"{folder.path / page} is not the page that its name says")
            file.seek(0)
            content = file.read()
    except FileNotFoundError as error:
        raise Damaged(f"{folder.path} has no {page}") from error
    except DataError as error:
        raise Damaged(f"{folder.path / page}: {error.why}") from error
    write_entry(own, copy.name, content)  # attacks on other runs may be writing it too
    return copy
