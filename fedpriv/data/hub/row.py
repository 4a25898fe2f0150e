"""What a row of a data set says: words with boxes and tags, a question with its answers."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedpriv.data.document import Box, DataError, Entity, Question, Word
from fedpriv.data.drawn_page import PageText
from fedpriv.data.hub.boxes import Unit, scale_of
from fedpriv.data.hub.columns import Found
from fedpriv.data.readers.annotation import around, encodable, fitted, numbers, scale_to
from fedpriv.data.readers.cord import read_lines, stated_size
from fedpriv.data.reading import parse_json, shown

OUTSIDE = ("", "o", "other", "others", "none")
"""Tags, in lower case, of words that belong to no entity."""

_PREFIXED = re.compile(r"^([BIESLU])[-_](.+)$")


def boxes_of(row: Mapping[str, Any], columns: Found) -> list[Box]:
    """Returns the boxes as the row has them, upright; quadrilaterals have four corners.

    Raises:
        ValueError: if a box is not four or eight finite numbers.
    """
    boxes: list[Box] = []
    for place, given in enumerate(row[columns.boxes] or ()):
        try:
            count = 8 if given is not None and len(given) == 8 else 4
            sides = numbers(given, count)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{columns.boxes}[{place}]: {error}") from error
        boxes.append(around(sides) if count == 8 else (sides[0], sides[1], sides[2], sides[3]))
    return boxes


def text_of_row(
    row: Mapping[str, Any],
    columns: Found,
    names: Sequence[str],
    unit: Unit,
    size: tuple[int, int],
) -> PageText:
    """Returns the words and entities of a row, without its question.

    Words that share their box with a word beside them have boxes of their segment, so a segment
    ends where the box changes. Otherwise a segment is a line: it ends where a word stands lower,
    further left, or more than twice its height away.

    Args:
        row: the values by column.
        columns: which column holds what.
        names: of tags that are numbers.
        unit: of the boxes.
        size: of the page in pixels.

    Raises:
        ValueError: if the values do not fit together or the page.
    """
    if columns.annotation:
        return _receipt(row[columns.annotation], columns.annotation, size)
    if not columns.words:
        return PageText((), (), ())
    texts = row[columns.words] or ()
    boxes = boxes_of(row, columns)
    tags = row[columns.tags] or () if columns.tags else ["O"] * len(texts)
    counts = {columns.words: len(texts), columns.boxes: len(boxes), columns.tags: len(tags)}
    if len({*counts.values()}) > 1:
        told = ", ".join(f"{count} in {name}" for name, count in counts.items() if name)
        raise ValueError(f"expected as many words as boxes and tags; found {told}")
    spelled = [_tag(tag, names, columns.tags) for tag in tags]
    segments = _segments(boxes)
    words: list[Word] = []
    kept: list[str] = []
    for place, (text, box) in enumerate(zip(texts, boxes, strict=True)):
        if text is None or not encodable(text).strip():  # a blank is no word
            continue
        try:
            onto = fitted(box, scale_of(unit, size), size)
        except ValueError as error:
            raise ValueError(f"{columns.boxes}[{place}]: {error}") from error
        words.append(Word(text.strip(), onto, segments[place]))
        kept.append(spelled[place])
    return PageText(tuple(words), tuple(entities_of(kept)), ())


def question_of(row: Mapping[str, Any], columns: Found) -> Question | None:
    """Returns the question of a row; None if it has none. Blank answers are left out."""
    asked = row[columns.question]
    if isinstance(asked, Mapping):  # by language
        asked = asked.get("en") or next((text for text in asked.values() if text), None)
    if asked is None or not encodable(asked).strip():
        return None
    given = row[columns.answers] if columns.answers else None
    answers = [given] if isinstance(given, str) else list(given or ())
    spelled = (encodable(answer).strip() for answer in answers if answer is not None)
    return Question("", asked.strip(), tuple(dict.fromkeys(answer for answer in spelled if answer)))


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """Returns the entities of words with BIO or BIOES tags, or with plain labels.

    An "I-" after another label, or after no entity, begins one, as in conlleval. Words beside each
    other with the same plain label are one entity.
    """
    entities: list[Entity] = []
    inside = False
    for place, tag in enumerate(tags):
        if tag.lower() in OUTSIDE:
            inside = False
            continue
        begins, label = label_of(tag)
        if inside and not begins and entities[-1].label == label:
            entities[-1] = Entity(label, (*entities[-1].words, place))
        else:
            entities.append(Entity(label, (place,)))
        inside = not tag.startswith(("E-", "S-", "L-", "U-"))
    return entities


def label_of(tag: str) -> tuple[bool, str]:
    """Returns whether a tag begins an entity by what it says, and its label."""
    prefixed = _PREFIXED.match(tag)
    return (prefixed[1] in "BSU", prefixed[2]) if prefixed else (False, tag)


def _tag(tag: Any, names: Sequence[str], column: str) -> str:
    if isinstance(tag, str):
        return encodable(tag)
    if isinstance(tag, int) and 0 <= tag < len(names):
        return names[tag]
    raise ValueError(f"{column}: expected a tag of 0 to {len(names) - 1}, found {shown(tag)}")


def _segments(boxes: Sequence[Box]) -> list[int]:
    """Returns the segment of each word."""
    pairs = list(itertools.pairwise(boxes))
    of_segments = any(one == other for one, other in pairs)
    segments = [0] * min(1, len(boxes))
    for before, box in pairs:
        ends = box != before
        if not of_segments:
            height = min(before[3] - before[1], box[3] - box[1])
            beside = min(before[3], box[3]) - max(before[1], box[1])
            far = box[0] - before[2] > 2 * max(height, 0)
            ends = beside < height / 2 or box[0] < before[0] or far
        segments.append(segments[-1] + ends)
    return segments


def _receipt(text: Any, column: str, size: tuple[int, int]) -> PageText:
    """Returns what CORD's annotation says."""
    if not isinstance(text, str):
        raise ValueError(f"{column}: expected a text of JSON, found {shown(text)}")
    try:
        content = parse_json(Path(column), text)
        scale = scale_to(size, stated_size(content) or size)
        read = read_lines(Path(column), content, scale, size)
    except DataError as error:
        raise ValueError(f"{column}: {error.why}") from error
    return PageText(tuple(read.words), tuple(read.entities), ())


def has_lines(text: Any) -> bool:
    """Says whether a text is JSON with the lines of a receipt, as CORD's is."""
    try:
        content = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and isinstance(content.get("valid_line"), list)
