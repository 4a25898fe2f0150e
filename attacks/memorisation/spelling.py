"""Which words of a page give an answer away, and whether the others still do."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from fedpriv.data.redaction import letters

SHORTEST_APART = 3
"""Letters below which a word of an answer is no clue where it stands apart, such as "of"."""

SHORTEST_ALIKE = 4
"""Letters below which a text is like any other: the `partial_ratio` of "a" with "Vega" is 100."""

SHORTEST_LEFT = 2
"""Letters below which a whole answer inside of a word is chance."""


@dataclass(frozen=True)
class Clue:
    """An answer, as its words on a page are compared with it.

    Attributes:
        text: its letters and digits, in lower case.
        words: the same for each of its words.
    """

    text: str
    words: frozenset[str]

    @classmethod
    def of(cls, answer: str) -> Clue:
        """Returns the clue that an answer is."""
        return cls(letters(answer), frozenset(filter(None, map(letters, answer.split()))))

    def in_word(self, text: str, likeness: float) -> bool:
        """Says whether a single word gives the answer away, or a part of it."""
        if len(text) >= SHORTEST_APART and text in self.words:
            return True
        if min(len(text), len(self.text)) < SHORTEST_ALIKE:
            return text != "" and text == self.text
        return fuzz.partial_ratio(text, self.text) >= likeness

    def in_row(self, texts: Sequence[str]) -> Iterator[range]:
        """Yields the places of words in a row that together spell the answer."""
        for start, text in enumerate(texts):
            spelt, end = "", start
            while text and end < len(texts) and self.text.startswith(spelt + texts[end]):
                spelt, end = spelt + texts[end], end + 1
                if spelt == self.text:
                    yield range(start, end)
                    break

    def is_spelt(self, texts: Sequence[str], likeness: float) -> bool:
        """Says whether words in which half of the answer's letters stand are among the texts."""
        joined = "".join(texts)
        there = [word for word in self.words if _is_in(word, joined, likeness)]
        return 2 * sum(map(len, there)) >= sum(map(len, self.words)) > 0

    def is_left(self, texts: Sequence[str]) -> bool:
        """Says whether a good part of the answer can be read in the texts.

        This is the case where a text contains one of the answer's words of four letters or more,
        or where the texts, joined, contain half of the answer, and four letters, in one stretch. Of
        an answer of two or three letters and digits, where a single text contains all of it, as
        "www.3m.com" contains "3M". So short a text is often met by chance: "12" stands in "2012".
        Such a page counts as one with a clue left, so that those without are surely clean. Of a
        single letter nothing can be said.
        """
        if len(self.text) < SHORTEST_ALIKE:
            return len(self.text) >= SHORTEST_LEFT and any(self.text in text for text in texts)
        words = [word for word in self.words if len(word) >= SHORTEST_ALIKE]
        if any(word in text for text in texts for word in words):
            return True
        joined, part = "".join(texts), max(SHORTEST_ALIKE, math.ceil(len(self.text) / 2))
        starts = range(len(self.text) - part + 1)
        return any(self.text[start : start + part] in joined for start in starts)


def matched(texts: Sequence[str], clues: Sequence[Clue], likeness: float) -> frozenset[int]:
    """Returns the places of the words that give an answer away.

    Words that are gone bring others together; it is repeated until nothing more is found.

    Args:
        texts: of the page's words, letters and digits only.
        clues: any number of answers.
        likeness: `partial_ratio`, in 0…100, from which a word is a fuzzy match.
    """
    gone: frozenset[int] = frozenset()
    while more := _more(texts, clues, likeness, gone):
        gone |= more
    return gone


def _more(
    texts: Sequence[str], clues: Sequence[Clue], likeness: float, gone: Collection[int]
) -> frozenset[int]:
    left = [place for place in range(len(texts)) if place not in gone]
    found: set[int] = set()
    for clue in clues:
        for row in clue.in_row([texts[place] for place in left]):
            found.update(left[at] for at in row)
        found.update(place for place in left if clue.in_word(texts[place], likeness))
        # A short word of the answer, or a sign, goes with its neighbour.
        beside = (p for p in left if not texts[p] or texts[p] in clue.words)
        found.update(p for p in beside if p - 1 in gone or p + 1 in gone)
    return frozenset(found)


def _is_in(word: str, joined: str, likeness: float) -> bool:
    if len(word) < SHORTEST_ALIKE or len(joined) < len(word):
        return word in joined
    return fuzz.partial_ratio(word, joined) >= likeness
