"""Whole documents in a run folder: what they say as JSON, their pages as pictures beside it."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.data.document import Document, Entity, Question, Word


def keep_documents(pages: Path, documents: Iterable[Document]) -> list[dict[str, Any]]:
    """Writes the documents' pages, and returns the rest as JSON can hold it.

    Args:
        pages: the folder for the pages, named by their pixels.
        documents: in order.
    """
    pages.mkdir(parents=True, exist_ok=True)
    kept: list[dict[str, Any]] = []
    for document in documents:
        name = page_digest(document)
        document.image().save(pages / f"{name}.png", compress_level=1)
        kept.append({**_to_json(document), "page": name})
    return kept


def kept_documents(
    kept: Sequence[Mapping[str, Any]], pages: Path, own: Path
) -> tuple[Document, ...]:
    """Reads documents that `keep_documents` wrote.

    Args:
        kept: what it returned.
        pages: the folder of the pages.
        own: a folder of the adversary's, to which the pages are linked or copied: a document shall
            not lead into the run, where the truth lies.
    """
    names = [f"{values['page']}.png" for values in kept]
    return tuple(
        _from_json(values, _given(pages / name, own / name))
        for name, values in zip(names, kept, strict=True)
    )


def page_digest(document: Document) -> str:
    """Returns a hash of the page's pixels."""
    return hashlib.sha256(np.asarray(document.image()).tobytes()).hexdigest()


def _given(page: Path, own: Path) -> Path:
    """Returns the adversary's copy of a page."""
    if not own.exists():
        try:
            os.link(page, own)
        except OSError:  # another file system
            shutil.copy2(page, own)
    return own


def _to_json(document: Document) -> dict[str, Any]:
    """Returns everything but the page."""
    # What is white on the page is so in its picture.
    left_out = ("page", "white")
    names = [f.name for f in dataclasses.fields(document) if f.name not in left_out]
    values = {name: getattr(document, name) for name in names}
    words = [[word.text, word.box, word.segment] for word in document.words]
    entities = [[entity.label, entity.words] for entity in document.entities]
    questions = [[q.key, q.text, q.answers] for q in document.questions]
    values |= {"words": words, "entities": entities, "questions": questions}
    return values


def _from_json(values: Mapping[str, Any], page: Path) -> Document:
    width, height = values["size"]
    return Document(
        values["id"],
        values["provider"],
        page,
        (width, height),
        tuple(Word(text, _box(box), segment) for text, box, segment in values["words"]),
        tuple(Entity(label, tuple(words)) for label, words in values["entities"]),
        tuple(Question(key, text, tuple(answers)) for key, text, answers in values["questions"]),
        values["split"],
        tuple((first, second) for first, second in values["links"]),
        part_of=values["part_of"],
    )


def _box(sides: Sequence[float]) -> tuple[float, float, float, float]:
    left, top, right, bottom = sides
    return left, top, right, bottom
