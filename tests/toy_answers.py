"""A model of one number per vocabulary word that answers questions about toy pages."""

import numpy as np
import torch
from torch import nn

from fedpriv.data.document import Document, Question, Word
from fedpriv.models.base import Answer
from fedpriv.models.question_answering import QuestionAnswerer, asked, table

WORDS = ("ada", "bo", "cy", "di")


class Chooser(QuestionAnswerer):
    """Answers every question on a page with the word whose weight for that page's colour is most.

    `windows` rows for each question, as of a page that is read in several parts.
    """

    def __init__(self, windows: int = 1) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(256, len(WORDS)))
        self.windows = windows
        self.rows_asked = 0

    def encode(self, documents):
        rows = []
        for question in asked(documents):
            page = documents[question.document].page
            right = question.question.answers[0] if question.question.answers else WORDS[0]
            columns = {
                "colour": np.array(int(page[0, 0])),
                "right": np.array(WORDS.index(right) if right in WORDS else 0),
                **question.columns(),
            }
            rows += [columns] * self.windows
        return table(rows)

    def losses(self, batch):
        scores = self.weights[batch["colour"]]
        return nn.functional.cross_entropy(scores, batch["right"], reduction="none")

    def answer_batch(self, batch):
        self.rows_asked += len(batch["colour"])
        certain, word = self.weights[batch["colour"]].softmax(-1).max(-1)
        return [Answer(WORDS[w], c) for w, c in zip(word.tolist(), certain.tolist(), strict=True)]

    def reading(self):
        return {"model": "chooser", "windows": self.windows}


def page(colour: int, *answers: str, provider: str = "p", name: str = "") -> Document:
    """A page of one colour with a question for each answer."""
    pixels = np.full((4, 4), colour, dtype=np.uint8)
    questions = tuple(
        Question("name", f"Who, {n}?", (answer,) if answer else ())
        for n, answer in enumerate(answers)
    )
    words = (Word("hello", (0, 0, 2, 2), 0),)
    return Document(
        name or f"{provider}-{colour}", provider, pixels, (4, 4), words, questions=questions
    )
