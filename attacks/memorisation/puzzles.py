"""Questions that a page does not answer, put to the models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedpriv.data.document import Document, Entity, Question
from fedpriv.data.generated.questions import QUESTION_TEMPLATES, RECEIPT_QUESTIONS
from fedpriv.threat.access import BlackBox, GreyBox
from fedpriv.threat.claims import MemorisationProbe
from fedpriv.threat.queries import PAGES_AT_ONCE

Models = Mapping[str, tuple[BlackBox, GreyBox | None]]
"""By name, "final" or "start"; the grey box is the same model where confidence is granted."""


@dataclass(frozen=True)
class Puzzle:
    """A page with the one question that it does not answer.

    Attributes:
        test: "removed" or "absent".
        page: as it is shown to the model.
        accepted: what it said before; empty where it never said anything.
        residual: whether other words on it still spell the answer, or a part of it.
    """

    test: str
    page: Document
    accepted: tuple[str, ...]
    residual: bool = False

    @property
    def question(self) -> Question:
        """The page's one question."""
        return self.page.questions[0]


@dataclass(frozen=True)
class Skipped:
    """A question of a test that was left out, and why."""

    test: str
    key: str
    why: str


def put(
    items: Iterable[Puzzle | Skipped], models: Models, log: Callable[[str], None]
) -> tuple[list[MemorisationProbe], list[Skipped]]:
    """Asks all models.

    Args:
        items: taken as they are needed, so that few pages are in memory at once.
        models: to be asked.
        log: shows how far it is.

    Returns:
        What the models said, and what was left out.
    """
    probes: list[MemorisationProbe] = []
    skipped: list[Skipped] = []
    waiting: list[Puzzle] = []
    asked = 0
    for item in items:
        if isinstance(item, Skipped):
            skipped.append(item)
            continue
        waiting.append(item)
        if len(waiting) == PAGES_AT_ONCE:
            probes += _ask(waiting, models)
            asked += len(waiting)
            log(f"memorisation: {asked} questions asked, {len(skipped)} left out")
            waiting = []
    return probes + _ask(waiting, models), skipped


def question_on(document: Document, key: str, random: np.random.Generator) -> Question | None:
    """Returns a question on a key whose answer is known to stand on the page; none where none is.

    The page's own, or else one in the words of the training questions on the text of the entity
    with this label.
    """
    for question in document.questions:
        if question.key == key and question.answers:
            return question
    text = next((_text(document, e) for e in document.entities if e.label == key), None)
    wording = phrasing(document, key, random)
    return None if text is None or wording is None else Question(key, wording, (text,))


def phrasing(document: Document, key: str, random: np.random.Generator) -> str | None:
    """Draws a wording of the training questions on a key; none where there is no wording.

    Those of receipts for a receipt, or else those of invoices.
    """
    wordings = _wordings(document).get(key, ())
    return wordings[int(random.integers(len(wordings)))] if wordings else None


def _text(document: Document, entity: Entity) -> str:
    return " ".join(document.words[place].text for place in entity.words)


def _wordings(document: Document) -> Mapping[str, tuple[str, ...]]:
    """A receipt has a company, an invoice has a provider."""
    labels = {q.key for q in document.questions} | {e.label for e in document.entities}
    return RECEIPT_QUESTIONS if "company" in labels else QUESTION_TEMPLATES


def _ask(puzzles: Sequence[Puzzle], models: Models) -> list[MemorisationProbe]:
    probes: list[MemorisationProbe] = []
    pages = [puzzle.page for puzzle in puzzles]
    for name, (model, confidence) in models.items() if puzzles else ():
        if confidence is None:
            said = [(answer, math.nan) for (answer,) in model.answers(pages)]
        else:
            said = [(reply.text, reply.confidence) for (reply,) in confidence.replies(pages)]
        probes += [
            MemorisationProbe(
                puzzle.test,
                puzzle.page.provider,
                puzzle.page.id,
                puzzle.question.key,
                puzzle.question.text,
                puzzle.accepted,
                answer,
                sure,
                puzzle.residual,
                name,
            )
            for puzzle, (answer, sure) in zip(puzzles, said, strict=True)
        ]
    return probes
