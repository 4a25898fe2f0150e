"""True against predicted entities of a page: the table's rows and the picture's rectangles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedpriv.report.folder import TaggedWord

Span = tuple[str, int, int]
"""An entity's type, its first word, and the word after its last."""


@dataclass(frozen=True)
class EntityRow:
    """A true entity with what was predicted over it, or a prediction that has no true entity.

    Attributes:
        number: its number on the picture, from 1.
        status: "correct" (same words, same type), "missed" (nothing predicted over it), "wrong"
            (something else predicted over it) or "spurious" (no true entity under it).
        true: type and text, or None.
        predicted: types and texts.
    """

    number: int
    status: str
    true: tuple[str, str] | None
    predicted: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Mark:
    """A rectangle on the page: status "correct", "missed" or "wrong", and what to say on hover.

    `number` is its entity row's number where it is the row's first rectangle, else 0.
    """

    status: str
    left: float
    top: float
    width: float
    height: float
    number: int
    words: str


def spans(tags: Sequence[str]) -> list[Span]:
    """Returns (type, first word, word after the last) of each entity in BIO tags.

    An ``I-x`` that follows no ``x`` begins an entity, as seqeval's default has it.
    """
    found: list[Span] = []
    for place, tag in enumerate(tags):
        prefix, _, label = tag.partition("-")
        if not label:
            continue
        if prefix == "I" and found and found[-1][0] == label and found[-1][2] == place:
            found[-1] = (label, found[-1][1], place + 1)
        else:
            found.append((label, place, place + 1))
    return found


def entity_rows(words: Sequence[TaggedWord]) -> tuple[list[EntityRow], dict[int, int]]:
    """Returns the table of entities in reading order, and the row number of each tagged word."""
    true = spans([word.true for word in words])
    predicted = spans([word.predicted for word in words])
    pairs: list[tuple[Span | None, list[Span]]] = [
        (span, [other for other in predicted if other[1] < span[2] and span[1] < other[2]])
        for span in true
    ]
    hit = {other for _, others in pairs for other in others}
    pairs += [(None, [other]) for other in predicted if other not in hit]
    pairs.sort(key=lambda pair: pair[0][1] if pair[0] else pair[1][0][1])
    rows = [
        EntityRow(
            number,
            _status(span, others),
            _said(words, span) if span else None,
            tuple(_said(words, other) for other in others),
        )
        for number, (span, others) in enumerate(pairs, 1)
    ]
    # A word belongs to its true entity's row, and only without one to its prediction's.
    owners = [(number, span) for number, (span, _) in enumerate(pairs, 1) if span]
    owners += [(number, other) for number, (_, others) in enumerate(pairs, 1) for other in others]
    row_of: dict[int, int] = {}
    for number, (_, start, end) in owners:
        for place in range(start, end):
            row_of.setdefault(place, number)
    return rows, row_of


def _status(true: Span | None, predicted: Sequence[Span]) -> str:
    if true is None:
        return "spurious"
    if not predicted:
        return "missed"
    return "correct" if true in predicted else "wrong"


def _said(words: Sequence[TaggedWord], span: Span) -> tuple[str, str]:
    label, start, end = span
    return label, " ".join(word.text for word in words[start:end])


def page_marks(words: Sequence[TaggedWord], row_of: Mapping[int, int]) -> list[Mark]:
    """Returns the rectangles to draw, one per run of words with one fate on one line.

    Args:
        words: the page's words.
        row_of: the row number of each tagged word, from `entity_rows`.
    """
    kinds = _normal([word.true for word in words]), _normal([word.predicted for word in words])
    runs: list[tuple[str, int, list[int]]] = []
    for place, (true, predicted) in enumerate(zip(*kinds, strict=True)):
        if true == predicted == "O":
            continue
        status = "correct" if true == predicted else "missed" if predicted == "O" else "wrong"
        row = row_of[place]
        if runs and runs[-1][:2] == (status, row) and _joins(words, runs[-1][2][-1], place):
            runs[-1][2].append(place)
        else:
            runs.append((status, row, [place]))
    marks: list[Mark] = []
    numbered: set[int] = set()
    for status, row, places in runs:
        marks.append(_mark(words, status, places, 0 if row in numbered else row))
        numbered.add(row)
    return marks


def _normal(tags: Sequence[str]) -> list[str]:
    """Returns the tags with ``B`` and ``I`` as `spans` reads them."""
    normal = ["O"] * len(tags)
    for label, start, end in spans(tags):
        normal[start:end] = [f"{'I' if at > start else 'B'}-{label}" for at in range(start, end)]
    return normal


def _joins(words: Sequence[TaggedWord], before: int, after: int) -> bool:
    """Says whether two words are neighbours on one text line."""
    a, b = words[before].box, words[after].box
    overlap = min(a[3], b[3]) - max(a[1], b[1])
    return after == before + 1 and overlap >= 0.5 * min(a[3] - a[1], b[3] - b[1])


def _mark(words: Sequence[TaggedWord], status: str, places: Sequence[int], number: int) -> Mark:
    boxes = [words[place].box for place in places]
    left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[2] for box in boxes), max(box[3] for box in boxes)
    first = words[places[0]]
    told = " ".join(words[place].text for place in places)
    said = f"{told}: true {first.true}, predicted {first.predicted}"
    return Mark(status, left, top, right - left, bottom - top, number, said)
