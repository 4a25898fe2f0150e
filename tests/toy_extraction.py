"""A training set whose pages are told apart by their colour alone, to be extracted from."""

from dataclasses import dataclass

import numpy as np
from toy_answers import WORDS, Chooser

from fedpriv.data.document import Document, DocumentSet, Question, Word


@dataclass(frozen=True)
class Badges:
    """Pages of a colour each, with one of four names; the last `held` are held out."""

    count: int = 24
    held: int = 4

    def load(self):
        pages = tuple(badge(number, self.count - self.held) for number in range(self.count))
        return DocumentSet("badges", pages, ())


def badge(number, trained):
    """Names change from page to page; each is asked for by a question of its own."""
    name = WORDS[number % len(WORDS)]
    pixels = np.full((16, 16), 40 + 4 * number, np.uint8)
    words = (Word(name, (4.0, 4.0, 10.0, 8.0), 0), Word("badge", (4.0, 10.0, 12.0, 14.0), 1))
    question = Question("name", f"Who is it on page {number}?", (name,))
    split = "train" if number < trained else "test"
    return Document(f"b{number}", f"p{number}", pixels, (16, 16), words, (), (question,), split)


def chooser(labels=()):
    return Chooser()


def shouting(question, rng):
    """A paraphraser."""
    return question.text.upper()
