"""Random questions: as long as the real ones, and answered by other words of the page."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pages import page

from fedpriv.data.document import Question
from fedpriv.data.generated.slips import Slips
from fedpriv.data.random_questions import with_random_questions


@given(st.sampled_from([(64, 64), (112, 112), (224, 224)]), st.integers(0, 50))
def test_a_random_question_is_as_long_and_answered_by_other_words_of_the_page(size, seed):
    own = Slips(size, providers=2, documents_per_provider=1, seed=seed).load().documents
    for one in own:
        two = with_random_questions(one, np.random.default_rng(seed))
        assert dataclasses.replace(two, questions=one.questions) == one
        text = " ".join(word.text for word in two.words)
        for true, random in zip(one.questions, two.questions, strict=True):
            assert random.key == true.key
            assert [*map(len, random.text.split())] == [*map(len, true.text.split())]
            assert random.text.replace(" ", "").isalpha()
            assert random.text.lower() == random.text != true.text
            ((answer,), (shown,)) = true.answers, random.answers
            assert shown != answer
            assert len(shown.split()) == len(answer.split())
            assert f" {shown} " in f" {text} "


def test_no_accepted_answer_is_taken_for_another():
    asked = Question("total", "How much?", ("9.00", "EUR"))
    document = page("9.00 EUR paid", questions=[asked])
    found = with_random_questions(document, np.random.default_rng(0))
    assert found.questions[0].answers == ("paid",)


def test_a_page_without_other_words_has_no_random_question():
    questions = (Question("total", "How much?", ("9.00",)), Question("all", "?", ("9.00 EUR",)))
    found = with_random_questions(page("9.00 EUR", questions=questions), np.random.default_rng(0))
    assert [(one.key, one.answers) for one in found.questions] == [("total", ("EUR",))]
