"""Takes words off a page: paints over the place where they stand and drops them from the text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import ImageFilter

from fedpriv.data.document import Box, Document, Entity, bounding_box
from fedpriv.data.links import kept_entities

MARGIN, LEAST_MARGIN = 0.25, 2.0
"""How far a box is enlarged: a share of its height, and at least so many pixels.

Letters stick out of their boxes, and antialiasing spreads them further.
"""

Paint = Callable[[Document, Sequence[Box]], Document]
"""Paints over boxes, given in whole pixels of the page."""


class CannotRemove(ValueError):
    """An answer cannot be taken off a page; `why` gives the reason."""

    def __init__(self, document: Document, answers: Sequence[str], why: str) -> None:
        self.why = why
        super().__init__(f"document {document.id}, answers={list(answers)}: {why}")


@dataclass(frozen=True)
class Redacted:
    """A page without the answer to a question.

    Attributes:
        page: with this question as its only one.
        boxes: the painted boxes, in whole pixels; the rest of the picture is unchanged.
        residual: whether the remaining words still spell the answer, or a good part of it.
    """

    page: Document
    boxes: tuple[Box, ...]
    residual: bool


def redact(
    document: Document, lines: Iterable[Sequence[int]], paint: Paint, *, margin: float = 0.0
) -> tuple[Document, tuple[Box, ...]]:
    """Paints one box over each line of words, and drops these words.

    Entities that lose a word are dropped too, and so are their links.

    Args:
        document: the page.
        lines: positions in `document.words`, at least one for each line.
        paint: `white`, `blur(radius)` or `background`.
        margin: by which each box is enlarged on all sides, as a share of its height; at least
            two pixels.

    Returns:
        The page, and the painted boxes in the order of `lines`.
    """
    width, height = document.size
    gone: set[int] = set()
    boxes = []
    for line in lines:
        gone.update(line)
        left, top, right, bottom = bounding_box(document.words[place].box for place in line)
        more = max(LEAST_MARGIN, margin * (bottom - top))
        boxes.append(
            (
                float(max(0, math.floor(left - more))),
                float(max(0, math.floor(top - more))),
                float(min(width, math.ceil(right + more))),
                float(min(height, math.ceil(bottom + more))),
            )
        )
    kept = [place for place in range(len(document.words)) if place not in gone]
    entities, links = kept_entities(document, {old: new for new, old in enumerate(kept)})
    page = dataclasses.replace(
        paint(document, boxes),
        words=tuple(document.words[place] for place in kept),
        entities=entities,
        links=links,
    )
    return page, tuple(boxes)


def white(document: Document, boxes: Sequence[Box]) -> Document:
    """Paints the boxes white. The page shares its pixels with the document (`Document.white`)."""
    return dataclasses.replace(document, white=(*document.white, *boxes))


def blur(radius: float) -> Paint:
    """Returns a paint that takes the boxes from a blurred copy of the page.

    It hides letters and shows that there was ink.

    Args:
        radius: standard deviation of the blur, in pixels. At least the height of the box is
            taken, so that large letters cannot be read either.
    """

    def paint(document: Document, boxes: Sequence[Box]) -> Document:
        page = document.image()
        blurred = page.copy()
        for box in boxes:
            left, top, right, bottom = map(int, box)
            strength = max(radius, bottom - top)
            # Pillow's blur reaches three radii: only so much of the page around the box matters.
            reach = math.ceil(3 * strength) + 3
            x, y = max(0, left - reach), max(0, top - reach)
            around = (x, y, min(page.width, right + reach), min(page.height, bottom + reach))
            smear = page.crop(around).filter(ImageFilter.GaussianBlur(strength))
            blurred.paste(smear.crop((left - x, top - y, right - x, bottom - y)), (left, top))
        return dataclasses.replace(document, page=np.array(blurred, dtype=np.uint8))

    return paint


def background(document: Document, boxes: Sequence[Box]) -> Document:
    """Paints each box in the median colour of its own edge."""
    pixels = document.pixels()
    for box in boxes:
        left, top, right, bottom = map(int, box)
        part = pixels[top:bottom, left:right]
        edge = np.concatenate([part[0], part[-1], part[:, 0], part[:, -1]])
        part[:] = np.median(edge, axis=0).astype(np.uint8)
    return dataclasses.replace(document, page=pixels)


def split_into_lines(
    document: Document, places: Iterable[int], *, by_height: bool
) -> list[list[int]]:
    """Groups words that follow each other within one segment.

    Args:
        document: the page.
        places: positions in `document.words`.
        by_height: whether to also split where a word stands above or below the previous one,
            since a segment may have several lines.
    """
    lines: list[list[int]] = []
    for place in sorted(places):
        before, word = document.words[place - 1], document.words[place]
        middle = (word.box[1] + word.box[3]) / 2
        if (
            lines
            and lines[-1][-1] == place - 1
            and word.segment == before.segment
            and (not by_height or before.box[1] <= middle <= before.box[3])
        ):
            lines[-1].append(place)
        else:
            lines.append([place])
    return lines


def lines_of_entity(document: Document, entity: Entity) -> list[list[int]]:
    """Groups the words of an entity by the segment in which they stand."""
    lines: dict[int, list[int]] = {}
    for word in entity.words:
        lines.setdefault(document.words[word].segment, []).append(word)
    return list(lines.values())
