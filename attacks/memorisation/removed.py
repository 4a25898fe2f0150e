"""What a page said and does not say any more (Tito et al. 2023, Appendix D.1.1 to D.1.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fedpriv.attacks.memorisation.puzzles import Puzzle, Skipped, question_on
from fedpriv.data.document import Document
from fedpriv.data.redaction.clues import without_clues
from fedpriv.data.redaction.painting import CannotRemove

TEST = "removed"


def removed(
    documents: Sequence[Document],
    keys: Sequence[str],
    random: np.random.Generator,
    *,
    radius: float,
    likeness: float,
) -> Iterator[Puzzle | Skipped]:
    """Yields one question a page and key, on the page without the clues on its answer.

    Args:
        documents: pages of the providers; left out are those that do not say what is asked for.
        keys: of the questions.
        random: draws the wording where the page has no question on a key.
        radius: of the blur, as of `without_clues`.
        likeness: as of `without_clues`.
    """
    for document in documents:
        for key in keys:
            question = question_on(document, key, random)
            if question is None:
                yield Skipped(TEST, key, "no question on the page, and no text with this label")
                continue
            try:
                found = without_clues(
                    document, question, question.answers, radius=radius, likeness=likeness
                )
            except CannotRemove as error:
                yield Skipped(TEST, key, error.why)
            else:
                yield Puzzle(TEST, found.page, question.answers, found.residual)
