"""A model's answers about a page: the table's rows and the rectangles around the true answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedpriv.metrics.answers import anls, is_exact
from fedpriv.report.figures.entities import Mark
from fedpriv.report.folder import Answered, TaggedWord


@dataclass(frozen=True)
class AnswerRow:
    """A question, what is accepted, and what the model said.

    Attributes:
        number: its number on the picture, from 1.
        status: "correct" (an accepted answer), "close" (ANLS above 0), "missed" (no answer) or
            "wrong".
        said: the question with both answers and the confidence.
    """

    number: int
    status: str
    said: Answered


def answer_rows(answers: Sequence[Answered]) -> list[AnswerRow]:
    """Returns the table of answers in the order of the questions."""
    rows = []
    for number, given in enumerate(answers, 1):
        accepted = given.accepted or ("",)
        if not given.answer.strip():
            status = "missed"
        elif is_exact(given.answer, accepted):
            status = "correct"
        else:
            status = "close" if anls(given.answer, accepted) else "wrong"
        rows.append(AnswerRow(number, status, given))
    return rows


def answer_marks(words: Sequence[TaggedWord], rows: Sequence[AnswerRow]) -> list[Mark]:
    """Returns a rectangle around the first place where each accepted answer stands, if it does."""
    marks: list[Mark] = []
    for row in rows:
        place = _place(words, row.said.accepted)
        if place:
            boxes = [words[i].box for i in place]
            left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
            right, bottom = max(box[2] for box in boxes), max(box[3] for box in boxes)
            status = row.status if row.status in ("correct", "missed") else "wrong"
            told = f"{row.said.question} {row.said.accepted[0]}, answered {row.said.answer!r}"
            marks.append(Mark(status, left, top, right - left, bottom - top, row.number, told))
    return marks


def _place(words: Sequence[TaggedWord], accepted: Sequence[str]) -> range | None:
    texts = [word.text.lower() for word in words]
    for answer in accepted:
        wanted = answer.lower().split()
        for start in range(len(texts) - len(wanted) + 1):
            if wanted and texts[start : start + len(wanted)] == wanted:
                return range(start, start + len(wanted))
    return None
