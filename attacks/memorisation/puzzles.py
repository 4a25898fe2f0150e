"""Questions that a page does not answer, put to the models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedpriv.data.document import Document, Entity, Question
from fedpriv.data.generated.questions import QUESTION_TEMPLATES, RECEIPT_QUESTIONS
from fedpriv.threat.membership_game import Access, Probe
from fedpriv.threat.queries import PAGES_AT_ONCE, BlackBox, GreyBox


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
    items: Iterable[Puzzle | Skipped], access: Access, tell: Callable[[str], None]
) -> tuple[list[Probe], list[Skipped]]:
    """Asks the final model, and that of the start where it is granted.

    Args:
        items: taken as they are needed, so that few pages are in memory at once.
        access: to the models.
        tell: is told how far it is.

    Returns:
        What the models said, and what was left out.
    """
    probes: list[Probe] = []
    skipped: list[Skipped] = []
    waiting: list[Puzzle] = []
    asked = 0
    for item in items:
        if isinstance(item, Skipped):
            skipped.append(item)
            continue
        waiting.append(item)
        if len(waiting) == PAGES_AT_ONCE:
            probes += _ask(waiting, access)
            asked += len(waiting)
            tell(f"memorisation: {asked} questions asked, {len(skipped)} left out")
            waiting = []
    return probes + _ask(waiting, access), skipped


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


def _ask(puzzles: Sequence[Puzzle], access: Access) -> list[Probe]:
    models = {"final": access.final, "start": access.start}
    return [
        Probe(
            puzzle.test,
            puzzle.page.provider,
            puzzle.page.id,
            puzzle.question.key,
            puzzle.question.text,
            puzzle.accepted,
            answer,
            confidence,
            puzzle.residual,
            name,
        )
        for name, model in models.items()
        if model is not None and puzzles
        for puzzle, (answer, confidence) in zip(puzzles, _said(model, puzzles), strict=True)
    ]


def _said(model: BlackBox, puzzles: Sequence[Puzzle]) -> list[tuple[str, float]]:
    """Returns an answer to each, with its confidence; NaN where it is not granted."""
    pages = [puzzle.page for puzzle in puzzles]
    if isinstance(model, GreyBox):
        return [(reply.text, reply.confidence) for (reply,) in model.replies(pages)]
    return [(answer, float("nan")) for (answer,) in model.answers(pages)]
