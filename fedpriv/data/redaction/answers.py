"""Takes an answer off a page: white boxes over all its occurrences, its words dropped.

I^-a of Pinto et al. 2024, §3. What a model still answers, it knows from elsewhere.

A trace of the answer is left if the remaining words, joined without blanks and signs,

- contain an answer of four letters and digits or more, as "vegas.com" contains "Vega";
- contain one once signs that OCR confuses are taken for each other (O and 0; l, I and 1; S and 5;
  B and 8; Z and 2; g, q and 9);
- contain a text that has a `partial_ratio` of 90 with an answer of six letters and digits or more,
  and the same digits: other digits make another number, not a misread one;

or if a shorter answer is a whole run of letters or of digits in a word: "RM5" for "5". An answer
that is not among the words is not found: it may still stand in a logo.

The paper (§3) takes Tesseract's boxes of "all occurrences" and does not say how these are matched;
its authors looked for remaining traces by eye.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence

from rapidfuzz import fuzz

from fedpriv.data.document import Document, Question
from fedpriv.data.redaction.painting import (
    MARGIN,
    CannotRemove,
    Redacted,
    redact,
    split_into_lines,
    white,
)

LIKENESS = 90.0
"""`partial_ratio`, 0…100, from which the remaining text counts as a misread copy of the answer."""

SHORTEST = 4
"""Letters and digits below which an answer stands inside other words by chance."""

SHORTEST_ALIKE = 6
"""Letters and digits below which texts are not compared by likeness."""

# A sign between two digits is part of a number or date: "2018" is no piece of "12/03/2018".
_PIECE = re.compile(r"[^\W_](?:[^\W_]|(?<=\d)[^\w\s]+(?=\d))*")
_RUN = re.compile(r"\d+|[^\W\d_]+")
_MISREAD = str.maketrans("oilsbzgq", "01158299")


def without_answer(document: Document, question: Question, *, margin: float = MARGIN) -> Redacted:
    """Removes every occurrence of a question's accepted answers from a page.

    Only letters and digits are compared, regardless of case. An occurrence is a row of words that
    together spell an answer, so punctuation, line breaks and the places where OCR splits words do
    not matter. A part of a word counts as a word where signs set it off, as in "Date:12/03/2018"
    or "www.vega.com", but not within a number. An entity that spells an answer is an occurrence
    too, since its words need not stand in a row. A mere part of an answer stays. The search is
    repeated until nothing more is found, since removing words brings others together.

    Each occurrence becomes one white box for every line that it stands on, enlarged by the margin.
    Whole words are painted and dropped, and with them the entities that contain one of them. The
    page shares its pixels with the document, so a removal costs no memory (`Document.white`).

    Args:
        document: the page.
        question: on it; it need not be one of the document's own.
        margin: by which boxes are enlarged on all sides, as a share of their height; at least two
            pixels.

    Raises:
        CannotRemove: if no answer has a letter or digit, or none is found.
        ValueError: if `margin` is negative.
    """
    check_margin(margin)
    answers = tuple(dict.fromkeys(filter(None, map(letters, question.answers))))
    if not answers:
        raise CannotRemove(document, question.answers, "no answer has a letter or digit")
    texts = [word.text for word in document.words]
    gone = {
        word
        for entity in document.entities
        if letters("".join(texts[word] for word in entity.words)) in answers
        for word in entity.words
    }
    while True:
        left = [place for place in range(len(texts)) if place not in gone]
        left_texts = [texts[place] for place in left]
        more = {left[n] for a in answers for row in occurrences(left_texts, a) for n in row}
        if not more:
            break
        gone |= more
    if not gone:
        raise CannotRemove(document, question.answers, "the page's words do not spell the answer")
    lines = split_into_lines(document, gone, by_height=True)
    page, boxes = redact(document, lines, white, margin=margin)
    residual = any(_can_be_read(left_texts, answer) for answer in answers)
    return Redacted(dataclasses.replace(page, questions=(question,)), boxes, residual)


def check_margin(margin: float) -> None:
    """Raises `ValueError` if the margin of `without_answer` is negative."""
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
    pieces = [
        (place, "".join(filter(str.isalnum, piece)))
        for place, text in enumerate(texts)
        for piece in _PIECE.findall(_folded(text))
    ]
    ends = list(itertools.accumulate((len(piece) for _, piece in pieces), initial=0))
    at = {end: number for number, end in enumerate(ends)}
    joined = "".join(piece for _, piece in pieces)
    start = joined.find(answer)
    while start >= 0:
        first, last = at.get(start), at.get(start + len(answer))
        if first is not None and last is not None:
            yield range(pieces[first][0], pieces[last - 1][0] + 1)
        start = joined.find(answer, start + 1)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _can_be_read(texts: Sequence[str], answer: str) -> bool:
    """Says whether the answer, or nearly the answer, can still be read; see the module."""
    words = list(map(letters, texts))
    if len(answer) < SHORTEST:
        return any(answer in _RUN.findall(word) for word in words)
    joined = "".join(words)
    if answer.translate(_MISREAD) in joined.translate(_MISREAD):
        return True
    # Of two texts, rapidfuzz looks for the shorter one in the longer one.
    if not SHORTEST_ALIKE <= len(answer) <= len(joined):
        return False
    match = fuzz.partial_ratio_alignment(answer, joined, score_cutoff=LIKENESS)
    if match is None:
        return False
    copy = joined[match.dest_start : match.dest_end]
    return list(filter(str.isdigit, copy)) == list(filter(str.isdigit, answer))
