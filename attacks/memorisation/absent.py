"""What a page never said (Tito et al. 2023, Appendix D.1.4).

A model that has learnt to answer a kind of question from few pages only, and is asked it of a page
that has no answer, says what it was trained on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fedpriv.attacks.memorisation.puzzles import Puzzle, Skipped, phrasing, question_on
from fedpriv.data.document import Document, Question
from fedpriv.data.redaction.clues import without_clues
from fedpriv.data.redaction.painting import CannotRemove

TEST = "absent"


def absent(
    documents: Mapping[str, Sequence[Document]],
    keys: Sequence[str],
    random: np.random.Generator,
    *,
    most: int,
    strip: bool,
    radius: float,
    likeness: float,
) -> Iterator[Puzzle | Skipped]:
    """Yields one question a key, on some pages of each provider that do not say the answer.

    A page says it if it has a question or an entity on it; without either, nobody knows.

    Args:
        documents: of each provider.
        keys: of the questions.
        random: draws the pages and the wordings.
        most: pages of a provider; 5 in the paper.
        strip: take the answer off pages that say it. The paper leaves such pages out instead; on
            the generated invoices, all of which say everything, that leaves none.
        radius: of the blur, as of `without_clues`.
        likeness: as of `without_clues`.
    """
    for pages in documents.values():
        order = [pages[place] for place in random.permutation(len(pages))]
        for key in keys:
            asked = 0
            for page in order:
                item = _puzzle(page, key, random, strip, radius, likeness)
                yield item
                asked += isinstance(item, Puzzle)
                if asked == most:
                    break


def _puzzle(
    page: Document,
    key: str,
    random: np.random.Generator,
    strip: bool,
    radius: float,
    likeness: float,
) -> Puzzle | Skipped:
    known = question_on(page, key, random)
    if known is None:
        wording = phrasing(page, key, random)
        if wording is None:
            return Skipped(TEST, key, "no wording of the question is known for such a page")
        question = Question(key, wording, ())
        return Puzzle(TEST, dataclasses.replace(page, questions=(question,)), ())
    if not strip:
        return Skipped(TEST, key, "the page says it")
    # No answer is right any more: the question has none.
    question = dataclasses.replace(known, answers=())
    try:
        found = without_clues(page, question, known.answers, radius=radius, likeness=likeness)
    except CannotRemove as error:
        return Skipped(TEST, key, error.why)
    return Puzzle(TEST, found.page, (), found.residual)
