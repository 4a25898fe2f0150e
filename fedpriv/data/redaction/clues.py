"""Takes every clue to an answer off a page: blurred in the picture, dropped from the words.

Memorisation test of PFL-DocVQA (Tito et al. 2023, Appendix D.1.1). What a model still answers, it
remembers.

A clue is left if a remaining word contains one of the answer's words of four letters or more, or if
the remaining words, joined without blanks, contain half of the answer, and at least four letters,
in one stretch. Of an answer of two or three letters and digits, a clue is left if a single word
contains all of it, even by chance: "12" stands in "2012". So pages without a residual are surely
clean. Of a single letter nothing can be said.

A clue that is not among the words is not found: a logo stays, as in the paper. The logo of a
generated invoice is a mark without letters: it tells providers apart, but spells nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from fedpriv.data.document import Document, Question
from fedpriv.data.redaction.answers import letters
from fedpriv.data.redaction.painting import (
    MARGIN,
    CannotRemove,
    Redacted,
    blur,
    redact,
    split_into_lines,
)

RADIUS = 20.0
"""Of the blur, in pixels of the page (Appendix D.1.1)."""

LIKENESS = 80.0
"""`partial_ratio`, in 0…100, from which a word is a fuzzy match; the paper gives none."""

SHORTEST_APART = 3
"""Letters below which a word of an answer is no clue where it stands apart, such as "of"."""

SHORTEST_ALIKE = 4
"""Letters below which any texts are alike: the `partial_ratio` of "a" with "Vega" is 100."""

SHORTEST_LEFT = 2
"""Letters below which a whole answer stands inside a word by chance."""


def without_clues(
    document: Document,
    question: Question,
    answers: Sequence[str],
    *,
    radius: float = RADIUS,
    likeness: float = LIKENESS,
) -> Redacted:
    """Removes every clue to the answers from a page.

    Words are compared by their letters and digits alone, in lower case. These are dropped, wherever
    they stand:

    - words in a row that together spell an answer;
    - a word of an answer that stands apart, if it has three letters or more;
    - a word whose `partial_ratio` with an answer is at least `likeness`, if both have four letters
      or more: "www.kcci.com" for "kcci", or "Bilders" for "Vega Builders";
    - a shorter word of an answer, or a sign such as "&", beside a word that is dropped.

    Entities that contain such a word are dropped too. In the picture, the lines of dropped words
    are taken from a blurred copy of the page. The radius of the blur, its standard deviation, is at
    least the height of the line, so that large letters cannot be read either; it can still be seen
    that there was ink.

    Args:
        document: the page.
        question: on it, to be asked of the redacted page.
        answers: all that count as the answer; each is removed.
        radius: least radius of the blur, in pixels of the page.
        likeness: in 0…100.

    Raises:
        CannotRemove: if no answer has a letter or digit, or if of every answer more than half of
            the letters are missing among the page's words: it may stand where no word is known, or
            nowhere.
        ValueError: if `radius` or `likeness` is out of range.
    """
    check_settings(radius, likeness)
    clues = [clue for clue in map(_Clue.of, answers) if clue.text]
    if not clues:
        raise CannotRemove(document, answers, "no answer has a letter or digit")
    texts = [letters(word.text) for word in document.words]
    gone = _find(texts, clues, likeness)
    left_texts = [text for place, text in enumerate(texts) if place not in gone]
    dropped = "".join(texts[place] for place in sorted(gone))
    if not any(clue.is_half_in(dropped, likeness) for clue in clues):
        raise CannotRemove(document, answers, "the page's words do not spell the answer")
    lines = split_into_lines(document, gone, by_height=False)
    page, boxes = redact(document, lines, blur(radius), margin=MARGIN)
    residual = any(clue.can_be_read(left_texts) for clue in clues)
    return Redacted(dataclasses.replace(page, questions=(question,)), boxes, residual)


def check_settings(radius: float, likeness: float) -> None:
    """Raises `ValueError` if the settings of `without_clues` are out of range."""
    if not radius > 0:
        raise ValueError(f"radius={radius}: expected more than 0 pixels; the paper's is {RADIUS:g}")
    if not 0 < likeness <= 100:
        raise ValueError(f"likeness={likeness}: expected more than 0, and at most 100")


def _find(texts: Sequence[str], clues: Sequence[_Clue], likeness: float) -> set[int]:
    """Returns the places of the words that give an answer away.

    The search is repeated until nothing more is found, since removing words brings others together.
    """
    gone: set[int] = set()
    while True:
        left = [place for place in range(len(texts)) if place not in gone]
        left_texts = [texts[place] for place in left]
        more: set[int] = set()
        for clue in clues:
            more.update(left[n] for row in clue.in_rows(left_texts) for n in row)
            more.update(place for place in left if clue.in_word(texts[place], likeness))
            # A short word of the answer, or a sign, goes with its neighbour.
            beside = (p for p in left if not texts[p] or texts[p] in clue.words)
            more.update(p for p in beside if p - 1 in gone or p + 1 in gone)
        if not more:
            return gone
        gone |= more


@dataclass(frozen=True)
class _Clue:
    """An answer, prepared for comparison with the words of a page.

    Attributes:
        text: its letters and digits, in lower case.
        words: the same for each of its words.
    """

    text: str
    words: frozenset[str]

    @classmethod
    def of(cls, answer: str) -> _Clue:
        return cls(letters(answer), frozenset(filter(None, map(letters, answer.split()))))

    def in_word(self, text: str, likeness: float) -> bool:
        """Says whether a single word gives away the answer or a part of it."""
        if len(text) >= SHORTEST_APART and text in self.words:
            return True
        if min(len(text), len(self.text)) < SHORTEST_ALIKE:
            return text != "" and text == self.text
        return fuzz.partial_ratio(text, self.text) >= likeness

    def in_rows(self, texts: Sequence[str]) -> Iterator[range]:
        """Yields the places of words in a row that together spell the answer."""
        for start, text in enumerate(texts):
            spelt, end = "", start
            while text and end < len(texts) and self.text.startswith(spelt + texts[end]):
                spelt, end = spelt + texts[end], end + 1
                if spelt == self.text:
                    yield range(start, end)
                    break

    def is_half_in(self, joined: str, likeness: float) -> bool:
        """Says whether a text contains words with half of the answer's letters, or nearly so."""
        there = [
            word
            for word in self.words
            if (
                word in joined
                if len(word) < SHORTEST_ALIKE or len(joined) < len(word)
                else fuzz.partial_ratio(word, joined) >= likeness
            )
        ]
        return 2 * sum(map(len, there)) >= sum(map(len, self.words)) > 0

    def can_be_read(self, texts: Sequence[str]) -> bool:
        """Says whether a good part of the answer can be read; see the module."""
        if len(self.text) < SHORTEST_ALIKE:
            return len(self.text) >= SHORTEST_LEFT and any(self.text in text for text in texts)
        words = [word for word in self.words if len(word) >= SHORTEST_ALIKE]
        if any(word in text for text in texts for word in words):
            return True
        joined, part = "".join(texts), max(SHORTEST_ALIKE, math.ceil(len(self.text) / 2))
        starts = range(len(self.text) - part + 1)
        return any(self.text[start : start + part] in joined for start in starts)
