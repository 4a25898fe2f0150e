"""Questions in other words."""

import numpy as np
import pytest

from fedpriv.attacks.extraction.paraphrases import PARAPHRASES, CannotParaphrase, TableParaphraser
from fedpriv.data.document import Question
from fedpriv.data.generated.questions import (
    IDENTITY_QUESTIONS,
    QUESTION_TEMPLATES,
    RECEIPT_QUESTIONS,
)

TRAINING = (QUESTION_TEMPLATES, RECEIPT_QUESTIONS, IDENTITY_QUESTIONS)


def plain(text):
    return "".join(sign for sign in text.lower() if sign.isalnum())


def all_of(question, paraphrase=None, draws=200):
    paraphrase, rng = paraphrase or TableParaphraser(), np.random.default_rng(0)
    return {paraphrase(question, rng) for _ in range(draws)}


def test_every_key_that_is_asked_for_has_several_wordings():
    for key in {key for questions in TRAINING for key in questions}:
        assert len(set(map(plain, PARAPHRASES[key]))) >= 5


def test_no_wording_is_one_of_training():
    trained = {plain(text) for table in TRAINING for texts in table.values() for text in texts}
    assert len(trained) > 200
    assert not trained & {plain(text) for texts in PARAPHRASES.values() for text in texts}


def test_no_wording_belongs_to_two_keys():
    texts = [plain(text) for wordings in PARAPHRASES.values() for text in wordings]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("table", TRAINING)
def test_questions_of_training_are_asked_in_all_the_wordings_of_their_key(table):
    for key, wordings in table.items():
        assert all_of(Question(key, wordings[0], ("x",))) == set(PARAPHRASES[key])


def test_the_questions_own_words_are_not_drawn():
    paraphrase = TableParaphraser({"date": ("When?", "Which day?")})
    assert all_of(Question("date", " which  DAY?", ("x",)), paraphrase) == {"When?"}


def test_a_table_with_the_questions_own_words_alone_does_not_help():
    paraphrase = TableParaphraser({"date": ("When?",)})
    with pytest.raises(CannotParaphrase, match=r"'When\?' on key='date'.*table"):
        paraphrase(Question("date", "When?", ("x",)), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (
            "What is the name of the hotel?",
            {
                "Can you tell me the name of the hotel?",
                "The name of the hotel, please?",
                "Please state the name of the hotel.",
            },
        ),
        (
            "what's the date",
            {"Can you tell me the date?", "The date, please?", "Please state the date."},
        ),
        ("Give the page number.", {"What is the page number?", "Can you tell me the page number?"}),
        ("How much was the fee?", {"What is the amount of the fee?"}),
        ("How many cups are sold?", {"What is the number of cups sold?"}),
        ("How many cups are there?", {"What is the number of cups?"}),
        ("How many pages are there in it?", {"What is the number of pages in it?"}),
        ("Who signed the letter?", {"Which person signed the letter?"}),
        ("To whom is the memo sent?", {"To which person is the memo sent?"}),
        ("When was the letter sent?", {"On what date was the letter sent?"}),
        ("Where is the meeting held?", {"In what place is the meeting held?"}),
        ("Which brand is shown?", {"What brand is shown?"}),
        ("What year was it?", {"Which year was it?"}),
    ],
)
def test_questions_without_a_key_are_rewritten_by_their_form(asked, expected):
    assert all_of(Question("", asked, ("x",))) == expected


@pytest.mark.parametrize(
    "asked",
    [
        "What is the letter about?",  # asks for no letter
        "What is the company called?",
        "What is written there?",
        "What does the sign say?",
        "Is it signed?",
        "",
    ],
)
def test_what_cannot_be_rewritten_is_said(asked):
    with pytest.raises(CannotParaphrase, match="no paraphrase of"):
        TableParaphraser()(Question("", asked, ("x",)), np.random.default_rng(0))


@pytest.mark.parametrize("wordings", [(), ("When?", " "), "When?"])
def test_a_key_needs_wordings(wordings):
    with pytest.raises(ValueError, match=r"table\['date'\]"):
        TableParaphraser({"date": wordings})
