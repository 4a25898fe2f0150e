"""Taking an answer off a page: white boxes over all its occurrences, and out of the words.

I^-a of Pinto et al. 2024, §3: what a model still answers, it knows from elsewhere.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from fedpriv.data.document import Box, Document, Question
from fedpriv.data.links import kept_entities

MARGIN, LEAST_MARGIN = 0.25, 2.0
"""By which a box is enlarged, of its height and in pixels: letters stick out of boxes."""

LIKENESS = 90.0
"""`partial_ratio`, in 0…100, from which what is left is a copy of the answer, misread."""

SHORTEST = 4
"""Letters and digits below which an answer inside of other words is chance."""

SHORTEST_ALIKE = 6
"""Letters and digits below which no text is nearly another one."""

# A sign between two digits is part of a number or date: "2018" is no piece of "12/03/2018".
_PIECE = re.compile(r"[^\W_](?:[^\W_]|(?<=\d)[^\w\s]+(?=\d))*")
_RUN = re.compile(r"\d+|[^\W\d_]+")
_MISREAD = str.maketrans("oilsbzgq", "01158299")


class CannotRemove(ValueError):
    """An answer cannot be taken off a page: says which, and `why`."""

    def __init__(self, document: Document, answers: Sequence[str], why: str) -> None:
        self.why = why
        super().__init__(f"document {document.id}, answers={list(answers)}: {why}")


@dataclass(frozen=True)
class Removed:
    """A page without an answer.

    Attributes:
        page: with the one question, whose answers are as they were.
        boxes: what is white now, in whole pixels of the page; nothing else of the picture changed.
        residual: whether the words that are left still spell the answer, see `without_answer`.
    """

    page: Document
    boxes: tuple[Box, ...]
    residual: bool


def without_answer(document: Document, question: Question, *, margin: float = MARGIN) -> Removed:
    """Removes every occurrence of a question's accepted answers from a page.

    Compared are letters and digits alone, whatever their case. An occurrence are words in a row
    that together spell an answer: so punctuation, the places where OCR splits words, and line
    breaks do not matter. A part of a word counts as a word where signs set it off, as in
    "Date:12/03/2018" or "www.vega.com", but not within a number. An entity that spells an answer
    is an occurrence too, since its words need not stand in a row. What is only a part of an answer
    stays. It is repeated until nothing more is found, since words that are gone bring others
    together.

    Each occurrence becomes one white box for every line that it stands on, enlarged by the margin.
    Whole words are painted, and dropped, and with them the entities that have one of them. The
    pixels are those of the given page: a removal costs no memory (`Document.white`).

    A trace is left (`residual`) where the words that are left, joined without blanks and signs,

    - contain an answer of four letters and digits or more, as "vegas.com" contains "Vega";
    - do so once signs that OCR confuses are taken for one (O and 0; l, I and 1; S and 5; B and 8;
      Z and 2; g, q and 9);
    - contain something that has a `partial_ratio` of 90 with an answer of six letters and digits
      or more, and the same digits: other digits are another number, not a misread one;

    or where, of a shorter answer, a word's run of letters or of digits is all of it: "RM5" for "5".
    What is not among the words is not found: the answer may still stand in a logo.

    The paper (§3) takes Tesseract's boxes of "all occurrences", and does not say how these are
    matched; what is left over was found by eye there.

    Args:
        document: the page.
        question: on it; it need not be one of the document's own.
        margin: by which boxes are enlarged on all sides, of their height; at least two pixels.

    Raises:
        CannotRemove: if no answer has a letter or digit, or none is found.
        ValueError: if `margin` is negative.
    """
    check_margin(margin)
    answers = tuple(dict.fromkeys(filter(None, map(letters, question.answers))))
    if not answers:
        raise CannotRemove(document, question.answers, "no answer has a letter or digit")
    texts = [word.text for word in document.words]
    gone = _gone(document, texts, answers)
    if not gone:
        raise CannotRemove(document, question.answers, "the page's words do not spell the answer")
    boxes = tuple(_box(document, line, margin) for line in _lines(document, gone))
    page = dataclasses.replace(
        _without(document, gone), white=(*document.white, *boxes), questions=(question,)
    )
    left = [text for place, text in enumerate(texts) if place not in gone]
    return Removed(page, boxes, any(_is_left(left, answer) for answer in answers))


def check_margin(margin: float) -> None:
    """Raises `ValueError` if the margin of `without_answer` is none."""
    if not margin >= 0:
        raise ValueError(f"margin={margin}: expected 0 or more, of a box's height")


def letters(text: str) -> str:
    """Returns the letters and digits of a text, in lower case."""
    return "".join(filter(str.isalnum, _folded(text)))


def occurrences(texts: Sequence[str], answer: str) -> Iterator[range]:
    """Yields the places of words in a row that together spell an answer.

    Args:
        texts: of the words.
        answer: its `letters`, at least one.
    """
    pieces = [(place, piece) for place, text in enumerate(texts) for piece in _pieces(text)]
    ends = list(itertools.accumulate((len(piece) for _, piece in pieces), initial=0))
    at = {end: number for number, end in enumerate(ends)}
    joined = "".join(piece for _, piece in pieces)
    start = joined.find(answer)
    while start >= 0:
        first, last = at.get(start), at.get(start + len(answer))
        if first is not None and last is not None:
            yield range(pieces[first][0], pieces[last - 1][0] + 1)
        start = joined.find(answer, start + 1)


def _pieces(text: str) -> list[str]:
    """Returns the parts of a word that signs set off, by their letters and digits."""
    return ["".join(filter(str.isalnum, piece)) for piece in _PIECE.findall(_folded(text))]


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _gone(document: Document, texts: Sequence[str], answers: Sequence[str]) -> set[int]:
    """Returns the places of all words of all occurrences."""
    gone = {
        word
        for entity in document.entities
        if letters("".join(texts[word] for word in entity.words)) in answers
        for word in entity.words
    }
    while True:
        left = [place for place in range(len(texts)) if place not in gone]
        shown = [texts[place] for place in left]
        more = {left[at] for a in answers for row in occurrences(shown, a) for at in row}
        if not more:
            return gone
        gone |= more


def _is_left(texts: Sequence[str], answer: str) -> bool:
    """Says whether the answer, or nearly the answer, can still be read; see `without_answer`."""
    words = list(map(letters, texts))
    if len(answer) < SHORTEST:
        return any(answer in _RUN.findall(word) for word in words)
    joined = "".join(words)
    if answer.translate(_MISREAD) in joined.translate(_MISREAD):
        return True
    return len(answer) >= SHORTEST_ALIKE and _is_nearly_in(answer, joined)


def _is_nearly_in(answer: str, joined: str) -> bool:
    # Of a longer and a shorter text, the shorter one would be looked for in the longer one.
    if len(joined) < len(answer):
        return False
    found = fuzz.partial_ratio_alignment(answer, joined, score_cutoff=LIKENESS)
    if found is None:
        return False
    return _digits(joined[found.dest_start : found.dest_end]) == _digits(answer)


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


def _lines(document: Document, places: Collection[int]) -> list[list[int]]:
    """Returns the places in groups that follow each other on one line."""
    lines: list[list[int]] = []
    for place in sorted(places):
        if lines and lines[-1][-1] == place - 1 and _go_on(document, place):
            lines[-1].append(place)
        else:
            lines.append([place])
    return lines


def _go_on(document: Document, place: int) -> bool:
    """Says whether a word stands on the line of the word before it: a segment may have several."""
    before, word = document.words[place - 1 : place + 1]
    middle = (word.box[1] + word.box[3]) / 2
    return word.segment == before.segment and before.box[1] <= middle <= before.box[3]


def _box(document: Document, line: Sequence[int], margin: float) -> Box:
    """Returns the box of a line, enlarged, in whole pixels and on the page."""
    left, top, right, bottom = zip(*(document.words[place].box for place in line), strict=True)
    more = max(LEAST_MARGIN, margin * (max(bottom) - min(top)))
    width, height = document.size
    return (
        float(max(0, math.floor(min(left) - more))),
        float(max(0, math.floor(min(top) - more))),
        float(min(width, math.ceil(max(right) + more))),
        float(min(height, math.ceil(max(bottom) + more))),
    )


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
