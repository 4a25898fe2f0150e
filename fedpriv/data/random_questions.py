"""Questions without meaning, for clients that train on random words (Ben Hemo et al. 2025)."""

from __future__ import annotations

import dataclasses
from string import ascii_lowercase

import numpy as np

from fedpriv.data.document import Document, Question


def with_random_questions(document: Document, random: np.random.Generator) -> Document:
    """Returns a document with a random question in the place of each of its own.

    A random question has words of random letters, as long as those of the original. Its answer is
    as many other words of the page, in a row, as the first accepted answer has. A question is left
    out if the page has no others. Ben Hemo et al. 2025 (Table 3, last row) take random tokens for
    both; our answers stand on the page, since some models can point at no others.
    """
    words = [word.text for word in document.words]
    questions = []
    for question in document.questions:
        count = len(question.answers[0].split())
        runs = [" ".join(words[start : start + count]) for start in range(len(words) - count + 1)]
        if others := [run for run in runs if run not in question.answers]:
            letters = (random.choice(list(ascii_lowercase), len(w)) for w in question.text.split())
            answer = others[int(random.integers(len(others)))]
            questions.append(Question(question.key, " ".join(map("".join, letters)), (answer,)))
    return dataclasses.replace(document, questions=tuple(questions))
