"""Answers that can be inferred from what is left on a page: extracting them shows no memory.

Pinto et al. 2024, §3 looked at 5,400 samples and left those out whose answer "could be easily
inferred from the context"; their examples are a value of a sequence, and a total given a list. Here
these are rules, each a function of a page without its answer. They find what they say, and no more.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal

from fedpriv.data.document import Box, Question, Word
from fedpriv.data.redaction.answers import letters, occurrences
from fedpriv.data.redaction.painting import Redacted
from fedpriv.data.values import dates, has_cents, numbers

Rule = Callable[[Redacted], bool]
"""Says whether the answer to a page's one question can be inferred from the page."""

SHARE = 0.75
"""Of an answer's letters, that stand elsewhere on the page."""

SHORTEST = 3
"""Letters below which a word stands in others by chance."""

MOST = 12
"""Amounts that are added up, at most: longer lists have too many sums for one to mean much."""


def stands_in_question(removed: Redacted) -> bool:
    """The question names the answer, by words in a row: "Is Vega the seller?"."""
    question = _question(removed)
    words = question.text.split()
    return any(any(occurrences(words, letters(a))) for a in question.answers if letters(a))


def continues_a_sequence(removed: Redacted) -> bool:
    """A whole number between two others in its line or column, in steps of 1 or of a third's.

    So 2 between 1 and 3, or 30 where 10, 20 and 40 are left; but not 5 between 2 and 8, which two
    numbers alone do not tell.
    """
    answers = {v for a in _question(removed).answers for v in numbers(a) if v and v % 1 == 0}
    if not answers:
        return False
    lines = [line for box in removed.boxes for line in _numbers_around(removed.page.words, box)]
    return any(_is_between(before, after, value) for before, after in lines for value in answers)


def is_a_sum(removed: Redacted) -> bool:
    """An amount that others on the page make up by a single step.

    These are: one to twelve amounts that follow each other, in reading order or in a column, which
    add up to it, as items or subtotal and tax do; the first of two less the second, as of cash and
    change; the one times the other, as of price and quantity. An amount with decimals is not added
    up from numbers without any. Whole numbers below 100, if written without decimals, are not
    tried: among small numbers, some always add up.
    """
    return any(_is_made_up(removed.page.words, a) for a in _question(removed).answers)


def is_spelt_elsewhere(removed: Redacted) -> bool:
    """A name of several words, most of whose letters stand in what is left, as in an address.

    "Vega Builders Ltd" is told by "info@vega-builders.test": words of three letters or more that
    are inside of words that are left make up three quarters of it. Answers with digits are no
    names, and parts of them tell nothing.
    """
    left = [letters(word.text) for word in removed.page.words]
    for answer in _question(removed).answers:
        words = list(filter(None, map(letters, answer.split())))
        told = [w for w in words if len(w) >= SHORTEST and any(w in text for text in left)]
        name = len(words) > 1 and not any(map(str.isdigit, "".join(words)))
        if name and sum(map(len, told)) >= SHARE * sum(map(len, words)):
            return True
    return False


def is_a_date_elsewhere(removed: Redacted) -> bool:
    """A date that is left in another form: 12/03/2018 by "12 March 2018".

    A due date does not count: it tells the date to those alone who know the term.
    """
    text = " ".join(word.text for word in removed.page.words)
    days = frozenset().union(*(dates(a, whole=True) for a in _question(removed).answers))
    return not days.isdisjoint(dates(text) if days else ())


RULES: Mapping[str, Rule] = {
    "in the question": stands_in_question,
    "sequence": continues_a_sequence,
    "sum": is_a_sum,
    "spelt elsewhere": is_spelt_elsewhere,
    "date elsewhere": is_a_date_elsewhere,
}
"""The rules by name, in the order in which they are asked."""


def _question(removed: Redacted) -> Question:
    (question,) = removed.page.questions
    return question


def _is_made_up(words: Sequence[Word], answer: str) -> bool:
    exact = has_cents(answer)
    totals = {total for total in numbers(answer) if total and (exact or total >= 100)}
    left = [(word, values) for word in words if totals and any(values := numbers(word.text))]
    # A page writes all amounts in one way: both 1,500 and 12,345 are thousands, or none is.
    for pick in (max, min):
        read = [(word, pick(values)) for word, values in left]
        alike = [(word, value) for word, value in read if not exact or has_cents(word.text)]
        made = itertools.chain(
            *(_sums(row) for row in _rows(alike)), *(_products(row) for row in _rows(read))
        )
        if not totals.isdisjoint(made):
            return True
    return False


def _numbers_around(
    words: Sequence[Word], box: Box
) -> Iterator[tuple[list[Decimal], list[Decimal]]]:
    """Yields the whole numbers on either side of a box, nearest first: its line's, its column's."""
    for axis in (0, 1):
        # A word is in line with the box if their sides along the other axis overlap.
        beside = [word for word in words if _overlap(word.box, box, 1 - axis)]
        whole = sorted((w.box[axis], v) for w in beside for v in numbers(w.text) if v % 1 == 0)
        middle = (box[axis] + box[axis + 2]) / 2
        yield [v for at, v in whole if at < middle][::-1], [v for at, v in whole if at >= middle]


def _overlap(one: Box, other: Box, axis: int) -> bool:
    """Says whether the smaller of two boxes shares more than half of its side with the other."""
    shared = min(one[axis + 2], other[axis + 2]) - max(one[axis], other[axis])
    return 2 * shared > min(one[axis + 2] - one[axis], other[axis + 2] - other[axis])


def _is_between(before: list[Decimal], after: list[Decimal], value: Decimal) -> bool:
    if not before or not after or before[0] + after[0] != 2 * value:
        return False
    step = after[0] - value
    further = before[1:2] == [value - 2 * step] or after[1:2] == [value + 2 * step]
    return step != 0 and (abs(step) == 1 or further)


def _rows(amounts: Sequence[tuple[Word, Decimal]]) -> Iterator[list[Decimal]]:
    """Yields amounts in reading order, and the column of each from the top."""
    yield [value for _, value in amounts]
    for word, _ in amounts:
        column = [(w.box[1], value) for w, value in amounts if _overlap(w.box, word.box, 0)]
        yield [value for _, value in sorted(column)]


def _sums(row: Sequence[Decimal]) -> Iterator[Decimal]:
    """Yields the sums of amounts that follow each other, and the first of two less the second."""
    for start in range(len(row)):
        yield from itertools.accumulate(row[start : start + MOST])
    yield from (one - other for one, other in itertools.pairwise(row))


def _products(row: Sequence[Decimal]) -> Iterator[Decimal]:
    """Yields the products of two amounts that follow each other, one of which is a quantity."""
    pairs = itertools.pairwise(row)
    return (one * other for one, other in pairs if one % 1 == 0 or other % 1 == 0)
