"""The private fields of a page, and the page without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedpriv.data.document import Box, Document, Entity, bounding_box
from fedpriv.data.redaction.painting import background, lines_of_entity, redact


@dataclass(frozen=True)
class PrivateField:
    """The words of an entity that stand on one line.

    Attributes:
        key: the entity's label.
        text: the words.
        box: around the words, in pixels of the page.
    """

    key: str
    text: str
    box: Box


def private_fields(document: Document, keys: Sequence[str] | None) -> tuple[PrivateField, ...]:
    """Returns the lines of the entities with these labels, in the document's order.

    Args:
        document: the page.
        keys: labels; all of the document's if None.

    Raises:
        ValueError: if the document has no entity with one of the labels.
    """
    fields = []
    for entity in _labelled(document, keys):
        for line in lines_of_entity(document, entity):
            words = [document.words[place] for place in line]
            text = " ".join(word.text for word in words)
            box = bounding_box(word.box for word in words)
            fields.append(PrivateField(entity.label, text, box))
    return tuple(fields)


def without_fields(document: Document, keys: Sequence[str] | None) -> Document:
    """Returns the template of a document: the page without the text of these fields.

    The box of each field, two pixels wider on all sides, takes the median colour of its own edge.
    The words of the fields are dropped, together with every entity that has one of them, and its
    links. The questions stay.

    Args:
        document: the page.
        keys: labels; all of the document's if None.

    Raises:
        ValueError: if the document has no entity with one of the labels.
    """
    entities = _labelled(document, keys)
    lines = [line for entity in entities for line in lines_of_entity(document, entity)]
    page, _ = redact(document, lines, background)
    return page


def _labelled(document: Document, keys: Sequence[str] | None) -> list[Entity]:
    if keys is None:
        return list(document.entities)
    labels = dict.fromkeys(entity.label for entity in document.entities)
    if unknown := sorted(set(keys) - set(labels)):
        raise ValueError(
            f"document {document.id} has no {', '.join(unknown)}: it has "
            f"{', '.join(labels) or 'no entities'}"
        )
    return [entity for entity in document.entities if entity.label in keys]
