"""The private fields of a page: which they are, the page without them, where a model sees them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.document import Box, Document, Entity
from fedpriv.data.links import kept_entities
from fedpriv.models.base import DocumentModel

MARGIN = 2
"""Pixels of the page by which a field is blanked beyond its box: antialiasing, and loose boxes."""


@dataclass(frozen=True)
class PrivateField:
    """One line of an entity, at most.

    Attributes:
        key: the entity's label.
        text: its words in this line.
        box: around these words, in pixels of the page.
    """

    key: str
    text: str
    box: Box


def private_fields(document: Document, keys: Sequence[str] | None) -> tuple[PrivateField, ...]:
    """Returns the lines of the entities with these labels, in the document's order.

    Args:
        document: any.
        keys: labels; all by default.

    Raises:
        ValueError: if the document has no entity of such a label.
    """
    return tuple(
        _field(document, entity.label, line)
        for entity in _chosen(document, keys)
        for line in _lines(document, entity)
    )


def blanked(document: Document, keys: Sequence[str] | None) -> Document:
    """Returns the template of a document: the page with these fields blank, and without their text.

    A field's box, two pixels wider on all sides, takes the median colour of its own edge. The
    words of the fields are gone, and with them every entity that has one of them, and its links;
    the questions stay as they are.

    Args:
        document: any.
        keys: labels; all by default.

    Raises:
        ValueError: if the document has no entity of such a label.
    """
    pixels = np.array(document.image(), dtype=np.uint8)
    for field in private_fields(document, keys):
        _blank(pixels, field.box)
    gone = {word for entity in _chosen(document, keys) for word in entity.words}
    kept = [place for place in range(len(document.words)) if place not in gone]
    entities, links = kept_entities(document, {old: new for new, old in enumerate(kept)})
    return dataclasses.replace(
        document,
        page=pixels,
        words=tuple(document.words[place] for place in kept),
        entities=entities,
        links=links,
    )


def in_model_pixels(
    model: DocumentModel, document: Document, boxes: Sequence[Box]
) -> list[tuple[int, int, int, int]]:
    """Returns where boxes of a page lie in the image that a model makes of it.

    The model itself is asked, with a page that is white in the box and black elsewhere: so this
    holds for any model, whatever it does to a page.

    Args:
        model: reads pages; its examples have shared "pixels".
        document: with the questions that the model needs.
        boxes: in pixels of the page.

    Returns:
        Left, top, right and bottom, the latter two exclusive, in the model's pixels: what is at
        least half in the box, or else touches it; all 0 where nothing of the box is to be seen.
    """
    if not boxes:
        return []
    # Each page is of its own here, so of the questions one is enough.
    bare = dataclasses.replace(
        document, words=(), entities=(), links=(), questions=document.questions[:1]
    )
    pages = [
        dataclasses.replace(bare, page=_lit(document.size, box), id=str(place))
        for place, box in enumerate(boxes)
    ]
    pixels = model.encode(pages).shared["pixels"][0]
    return [_extent(page.max(0)) for page in pixels]


def _chosen(document: Document, keys: Sequence[str] | None) -> list[Entity]:
    if keys is None:
        return list(document.entities)
    there = dict.fromkeys(entity.label for entity in document.entities)
    unknown = sorted(set(keys) - set(there))
    if unknown:
        raise ValueError(
            f"document {document.id} has no {', '.join(unknown)}: it has "
            f"{', '.join(there) or 'no entities'}"
        )
    return [entity for entity in document.entities if entity.label in keys]


def _lines(document: Document, entity: Entity) -> list[list[int]]:
    """Returns the entity's words by the segment that they stand in."""
    lines: dict[int, list[int]] = {}
    for word in entity.words:
        lines.setdefault(document.words[word].segment, []).append(word)
    return list(lines.values())


def _field(document: Document, key: str, line: Sequence[int]) -> PrivateField:
    words = [document.words[place] for place in line]
    left, top, right, bottom = zip(*(word.box for word in words), strict=True)
    box = (min(left), min(top), max(right), max(bottom))
    return PrivateField(key, " ".join(word.text for word in words), box)


def _blank(pixels: NDArray[np.uint8], box: Box) -> None:
    height, width, _ = pixels.shape
    left, top = max(0, math.floor(box[0]) - MARGIN), max(0, math.floor(box[1]) - MARGIN)
    right, bottom = math.ceil(box[2]) + MARGIN, math.ceil(box[3]) + MARGIN
    part = pixels[top : min(bottom, height), left : min(right, width)]
    edge = np.concatenate([part[0], part[-1], part[:, 0], part[:, -1]])
    part[:] = np.median(edge, axis=0).astype(np.uint8)


def _lit(size: tuple[int, int], box: Box) -> NDArray[np.uint8]:
    page = np.zeros((size[1], size[0]), dtype=np.uint8)
    page[math.floor(box[1]) : math.ceil(box[3]), math.floor(box[0]) : math.ceil(box[2])] = 255
    return page


def _extent(image: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    for least in (128, 1):
        rows, columns = np.nonzero(image >= least)
        if len(rows):
            return (
                int(columns.min()),
                int(rows.min()),
                int(columns.max()) + 1,
                int(rows.max()) + 1,
            )
    return (0, 0, 0, 0)
