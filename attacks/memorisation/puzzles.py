"""Questions that a page does not answer, put to the models."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedpriv.data.document import Document, Question
from fedpriv.data.generated.questions import QUESTION_TEMPLATES, RECEIPT_QUESTIONS
from fedpriv.data.redaction.clues import without_clues
from fedpriv.data.redaction.painting import CannotRemove
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


def cleared(
    test: str, page: Document, question: Question, answers: Sequence[str], **clearing: float
) -> Puzzle | Skipped:
    """Returns a page without the clues on answers to a question, or why they cannot be cleared."""
    try:
        found = without_clues(page, question, answers, **clearing)
    except CannotRemove as error:
        return Skipped(test, question.key, error.why)
    return Puzzle(test, found.page, question.answers, found.residual)


def removed(
    documents: Sequence[Document],
    keys: Sequence[str],
    random: np.random.Generator,
    **clearing: float,
) -> Iterator[Puzzle | Skipped]:
    """Yields one question a page and key, on the page without the clues on its answer.

    What the page said and does not say any more (Tito et al. 2023, App. D.1.1 to D.1.3).

    Args:
        documents: pages of the providers; left out are those that do not say what is asked for.
        keys: of the questions.
        random: draws the wording where the page has no question on a key.
        clearing: radius and likeness, as of `without_clues`.
    """
    for document in documents:
        for key in keys:
            question = question_on(document, key, random)
            if question is None:
                yield Skipped(
                    "removed", key, "no question on the page, and no text with this label"
                )
            else:
                yield cleared("removed", document, question, question.answers, **clearing)


def absent(
    documents: Mapping[str, Sequence[Document]],
    keys: Sequence[str],
    random: np.random.Generator,
    *,
    most: int,
    strip: bool,
    **clearing: float,
) -> Iterator[Puzzle | Skipped]:
    """Yields one question a key, on some pages of each provider that do not say the answer.

    What the page never said (Tito et al. 2023, App. D.1.4): a model that has learnt to answer a
    kind of question from few pages only, and is asked it of a page that has no answer, says what it
    was trained on. A page says it if it has a question or an entity on it; without either, nobody
    knows.

    Args:
        documents: of each provider.
        keys: of the questions.
        random: draws the pages and the wordings.
        most: pages of a provider; 5 in the paper.
        strip: take the answer off pages that say it. The paper leaves such pages out instead; on
            the generated invoices, all of which say everything, that leaves none.
        clearing: radius and likeness, as of `without_clues`.
    """
    for pages in documents.values():
        order = [pages[place] for place in random.permutation(len(pages))]
        for key in keys:
            asked = 0
            for page in order:
                item = _puzzle(page, key, random, strip, clearing)
                yield item
                asked += isinstance(item, Puzzle)
                if asked == most:
                    break


def _puzzle(
    page: Document, key: str, random: np.random.Generator, strip: bool, clearing: dict[str, float]
) -> Puzzle | Skipped:
    known = question_on(page, key, random)
    if known is None:
        if not (page.entities or any(question.key for question in page.questions)):
            why = "its questions have no keys and its words no labels: nobody knows what it says"
            return Skipped("absent", key, why)
        wording = phrasing(page, key, random)
        if wording is None:
            return Skipped("absent", key, "no wording of the question is known for such a page")
        question = Question(key, wording, ())
        return Puzzle("absent", dataclasses.replace(page, questions=(question,)), ())
    if not strip:
        return Skipped("absent", key, "the page says it")
    # No answer is right any more: the question has none.
    question = dataclasses.replace(known, answers=())
    return cleared("absent", page, question, known.answers, **clearing)


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
    entity = next((entity for entity in document.entities if entity.label == key), None)
    wording = phrasing(document, key, random)
    if entity is None or wording is None:
        return None
    text = " ".join(document.words[place].text for place in entity.words)
    return Question(key, wording, (text,))


def phrasing(document: Document, key: str, random: np.random.Generator) -> str | None:
    """Draws a wording of the training questions on a key; none where there is no wording.

    Those of receipts for a receipt, or else those of invoices.
    """
    # A receipt has a company, an invoice has a provider.
    labels = {q.key for q in document.questions} | {e.label for e in document.entities}
    known = RECEIPT_QUESTIONS if "company" in labels else QUESTION_TEMPLATES
    wordings = known.get(key, ())
    return wordings[int(random.integers(len(wordings)))] if wordings else None


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
