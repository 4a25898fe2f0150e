"""Taking every clue on an answer off a page: out of the picture, and out of the words.

Memorisation test, Tito et al. 2023, Appendix D.1.1: what a model still answers, it remembers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from fedpriv.attacks.memorisation.spelling import Clue, matched
from fedpriv.data.document import Box, Document, Question
from fedpriv.data.links import kept_entities
from fedpriv.data.redaction import letters

RADIUS = 20.0
"""Of the blur, in pixels of the page (Appendix D.1.1)."""

LIKENESS = 80.0
"""`partial_ratio`, in 0…100, from which a word is a fuzzy match; the paper gives none."""

MARGIN, LEAST_MARGIN = 0.25, 2.0
"""By which a line's box is enlarged, of its height and in pixels: letters stick out of boxes."""


class CannotClear(ValueError):
    """The clues on an answer cannot be taken off a page: says which, and `why`."""

    def __init__(self, document: Document, answers: Sequence[str], why: str) -> None:
        self.why = why
        super().__init__(f"document {document.id}, answers={list(answers)}: {why}")


@dataclass(frozen=True)
class Cleared:
    """A page without the clues on one answer.

    Attributes:
        page: with the one question that is to be asked.
        residual: whether the words that are left still spell a good part of an answer.
        boxes: what was blurred, in whole pixels of the page; nothing else of the picture changed.
    """

    page: Document
    residual: bool
    boxes: tuple[Box, ...]


def cleared(
    document: Document,
    question: Question,
    answers: Sequence[str],
    *,
    radius: float = RADIUS,
    likeness: float = LIKENESS,
) -> Cleared:
    """Removes every clue on the answers from a page.

    Words are compared by their letters and digits alone, in lower case. Dropped are, wherever they
    stand:

    - words in a row that together spell an answer;
    - a word of an answer that stands apart, from three letters on;
    - a word whose `partial_ratio` with an answer is at least `likeness`, where both have four
      letters or more: so "www.kcci.com" for "kcci", or "Bilders" for "Vega Builders";
    - a shorter word of an answer, or a sign such as "&", beside a word that is dropped.

    Entities that have such a word go with it. In the picture, the lines of dropped words are taken
    from a blurred copy of the page. The blur's radius, its standard deviation, is at least the
    line's height, so that large letters cannot be read either; that there was ink can be seen.

    A clue is left (`residual`) where a word still contains one of the answer's words of four
    letters or more, or where the page's words, joined without blanks, contain half of the answer,
    and four letters, in one stretch; of a shorter answer, where a word contains all of it, be it by
    chance. What is not among the words is not found: a logo stays, as in the paper. That of a
    generated invoice is a mark without letters: it tells providers apart, but spells nothing.

    Args:
        document: the page.
        question: on it, to be asked of the cleared page.
        answers: all that count as the answer; each is removed.
        radius: of the blur, in pixels of the page, at least.
        likeness: in 0…100.

    Raises:
        CannotClear: if no answer has a letter or digit, or if words with half of its letters are
            found for none: it may stand where no word is known, or nowhere.
        ValueError: if `radius` or `likeness` is out of range.
    """
    check_settings(radius, likeness)
    clues = [clue for clue in map(Clue.of, answers) if clue.text]
    if not clues:
        raise CannotClear(document, answers, "no answer has a letter or digit")
    texts = [letters(word.text) for word in document.words]
    gone = matched(texts, clues, likeness)
    dropped = [texts[place] for place in sorted(gone)]
    if not any(clue.is_spelt(dropped, likeness) for clue in clues):
        raise CannotClear(document, answers, "the page's words do not spell the answer")
    left = [text for place, text in enumerate(texts) if place not in gone]
    boxes = tuple(_box(document, line) for line in _lines(document, gone))
    page = dataclasses.replace(
        _without(document, gone),
        page=_blurred(document.image(), boxes, radius),
        questions=(question,),
    )
    return Cleared(page, any(clue.is_left(left) for clue in clues), boxes)


def check_settings(radius: float, likeness: float) -> None:
    """Raises `ValueError` if the settings of `cleared` are out of range."""
    if not radius > 0:
        raise ValueError(f"radius={radius}: expected more than 0 pixels; the paper's is {RADIUS:g}")
    if not 0 < likeness <= 100:
        raise ValueError(f"likeness={likeness}: expected more than 0, and at most 100")


def _lines(document: Document, places: Iterable[int]) -> list[list[int]]:
    """Returns the places in groups that follow each other in one segment."""
    lines: list[list[int]] = []
    for place in sorted(places):
        segment = document.words[place].segment
        if lines and lines[-1][-1] == place - 1 and document.words[place - 1].segment == segment:
            lines[-1].append(place)
        else:
            lines.append([place])
    return lines


def _box(document: Document, line: Sequence[int]) -> Box:
    """Returns the box of a line, enlarged, in whole pixels and on the page."""
    left, top, right, bottom = zip(*(document.words[place].box for place in line), strict=True)
    margin = max(LEAST_MARGIN, MARGIN * (max(bottom) - min(top)))
    width, height = document.size
    return (
        float(max(0, math.floor(min(left) - margin))),
        float(max(0, math.floor(min(top) - margin))),
        float(min(width, math.ceil(max(right) + margin))),
        float(min(height, math.ceil(max(bottom) + margin))),
    )


def _blurred(page: Image.Image, boxes: Sequence[Box], radius: float) -> NDArray[np.uint8]:
    """Returns the page, (height, width, 3), uint8, with the boxes taken from its blurred copy."""
    blurred = page.copy()
    for left, top, right, bottom in boxes:
        here = (int(left), int(top), int(right), int(bottom))
        strength = max(radius, bottom - top)
        # Pillow's blur reaches three radii; so far around the box, the copy is that of the page.
        reach = math.ceil(3 * strength) + 3
        x, y = max(0, here[0] - reach), max(0, here[1] - reach)
        around = page.crop(
            (x, y, min(page.width, here[2] + reach), min(page.height, here[3] + reach))
        )
        smear = around.filter(ImageFilter.GaussianBlur(strength))
        blurred.paste(smear.crop((here[0] - x, here[1] - y, here[2] - x, here[3] - y)), here)
    return np.array(blurred, dtype=np.uint8)


def _without(document: Document, gone: Collection[int]) -> Document:
    """Returns the document without these words, the entities that have one, and their links."""
    kept = [place for place in range(len(document.words)) if place not in gone]
    entities, links = kept_entities(document, {old: new for new, old in enumerate(kept)})
    return dataclasses.replace(
        document,
        words=tuple(document.words[place] for place in kept),
        entities=entities,
        links=links,
    )
