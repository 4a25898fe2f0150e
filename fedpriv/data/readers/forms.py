"""The fields of a form as FUNSD and XFUND list them: label, words with boxes, links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedpriv.data.document import Word, words_of_line
from fedpriv.data.links import Link, links_between, stated_links
from fedpriv.data.readers.annotation import Fields, at, box_of, fitted, member, text_of
from fedpriv.data.reading import shown

LABELS = ("header", "question", "answer")


def read_form(
    path: Path,
    place: str,
    items: list[Any],
    scale: tuple[float, float],
    size: tuple[int, int],
    *,
    lines: bool = False,
) -> tuple[Fields, tuple[Link, ...]]:
    """Returns the fields of a form, each a segment, and the links between its entities.

    Args:
        path: of the annotation, for errors.
        place: of the list of items in it, likewise.
        items: as JSON has them. Those labelled "other" are no entities.
        scale: factors from the boxes' pixels to those of the page.
        size: of the page, in pixels.
        lines: whether an item without words is one line of text, to be split.

    Raises:
        DataError: if an item is malformed, or a link names an identifier of two fields.
    """
    fields, pairs = Fields(), list[Link]()
    for number, item in enumerate(items):
        with at(path, f"{place}[{number}]"):
            label = member(item, "label", str)
            if label not in (*LABELS, "other"):
                expected = ", ".join((*LABELS, "other"))
                raise ValueError(f"expected a label of {expected}; found {shown(label)}")
            words: list[Word] = []
            if item.get("words") or not lines:
                for word in member(item, "words", list):
                    if text := text_of(word):
                        box = fitted(box_of(word.get("box")), scale, size)
                        words.append(Word(text, box, number))
            elif text := text_of(item):
                words = words_of_line(text, fitted(box_of(item.get("box")), scale, size), number)
            pairs += stated_links(item)
        fields.add(words, label if label in LABELS else "", item.get("id"))
    with at(path, place):
        return fields, links_between(pairs, fields.identifiers)
