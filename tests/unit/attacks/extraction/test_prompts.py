"""Defences that change a question before the model sees it."""

import re

import numpy as np
import pytest
from pages import page

from fedpriv.attacks.extraction.paraphrases import CannotParaphrase, TableParaphraser
from fedpriv.attacks.extraction.prompts import (
    PROMPTS,
    AppendRandom,
    Paraphrase,
    PrependRandom,
    defended,
)
from fedpriv.data.document import Question

WHO = Question("provider", "Who is the seller?", ("Vega", "Vega Ltd"))
WHEN = Question("date", "When is the bill dated?", ("11/02",))
ODD = Question("", "Is it signed?", ("yes",))


def rng():
    return np.random.default_rng(0)


def texts(prompt, count=2000):
    random = rng()
    asked = [prompt(WHO, random) for _ in range(count)]
    assert {(question.key, question.answers) for question in asked} == {("provider", WHO.answers)}
    return [question.text for question in asked]


@pytest.mark.parametrize(
    ("prompt", "pattern"),
    [
        (PrependRandom(), r"(\d{6}) Who is the seller\?"),
        (AppendRandom(), r"Who is the seller\? (\d{6})"),
        (PrependRandom(digits=2), r"(\d{2}) Who is the seller\?"),
        (AppendRandom(digits=9), r"Who is the seller\? (\d{9})"),
    ],
)
def test_a_number_of_that_many_digits_stands_beside_the_question(prompt, pattern):
    numbers = [re.fullmatch(pattern, text)[1] for text in texts(prompt)]
    assert len(set(numbers)) > min(90, len(numbers) * 0.9)
    # Each digit at each place, the first one included, and about as often.
    for column in zip(*numbers, strict=True):
        counts = np.bincount(list(map(int, column)), minlength=10)
        assert counts.min() > 140
        assert counts.max() < 265


def test_itp_asks_in_other_words():
    found = set(texts(Paraphrase(TableParaphraser({"provider": ("Who?", "Which firm?")}))))
    assert found == {"Who?", "Which firm?"}


def test_itp_lets_a_question_through_or_says_that_it_cannot():
    assert Paraphrase(TableParaphraser())(ODD, rng()) == ODD
    with pytest.raises(CannotParaphrase, match="Is it signed"):
        Paraphrase(TableParaphraser(), otherwise="raise")(ODD, rng())


def test_the_defences_have_the_papers_names():
    paraphrase = TableParaphraser({"provider": ("Who?",)})
    built = {name: build(paraphrase) for name, build in PROMPTS.items()}
    assert built == {"PR": PrependRandom(6), "AR": AppendRandom(6), "ITP": Paraphrase(paraphrase)}


def test_every_question_of_every_page_is_defended_and_nothing_else_changes():
    pages = [page(word, name=word, questions=(WHO, WHEN)) for word in "xy"]
    found = defended(pages, PrependRandom(), rng())
    asked = [question.text for page in found for question in page.questions]
    assert [text[7:] for text in asked] == [WHO.text, WHEN.text] * 2
    assert len({text[:6] for text in asked}) == 4
    for before, after in zip(pages, found, strict=True):
        assert (before.id, before.words, before.page.tolist()) == (
            after.id,
            after.words,
            after.page.tolist(),
        )
    assert pages[0].questions == (WHO, WHEN)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: PrependRandom(0), "digits=0"),
        (lambda: AppendRandom(-1), "digits=-1"),
        (lambda: Paraphrase(TableParaphraser(), otherwise="drop"), "otherwise='drop'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
