"""ANLS and accuracy: against another implementation, by hand, and over the rows of a table."""

import re

import numpy as np
import pytest
from anls_star import anls_score
from hypothesis import given
from hypothesis import strategies as st
from pages import page

from fedpriv.data.document import Question
from fedpriv.data.examples import Examples
from fedpriv.metrics.answers import anls, is_exact
from fedpriv.models.base import Answer
from fedpriv.models.question_answering import answer_scores, asked, table

# anls_star rounds its similarities to nothing, but strips and lower-cases as we do. From 1.0 on it
# takes several spaces for one, as PFL-DocVQA's evaluation and ours do not.
TEXTS = st.text(alphabet="abcAB 19.-€é", max_size=12).map(lambda text: re.sub(" +", " ", text))


@given(answer=TEXTS, accepted=st.lists(TEXTS, min_size=1, max_size=3))
def test_anls_is_that_of_anls_star(answer, accepted):
    theirs = anls_score(gt=tuple(accepted), pred=answer)
    assert anls(answer, accepted) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize(
    ("answer", "accepted", "score"),
    [
        ("Vega Builders", ["vega builders"], 1.0),
        ("vega bilders", ["vega builders"], 12 / 13),
        ("  TOTAL ", ["total"], 1.0),
        ("2024", ["1924"], 0.5),  # exactly at the threshold counts
        ("2024", ["1911"], 0.0),  # below it does not
        ("22 april", ["1 may", "22 april 2024"], 8 / 13),
        ("", ["x"], 0.0),
    ],
)
def test_anls_by_hand(answer, accepted, score):
    assert anls(answer, accepted) == pytest.approx(score)


def test_another_threshold():
    assert anls("2024", ["1911"], threshold=0.0) == pytest.approx(0.0)
    assert anls("2024", ["2011"], threshold=0.4) == pytest.approx(0.5)
    assert anls("2024", ["2011"], threshold=0.6) == 0.0
    with pytest.raises(ValueError, match=r"threshold=1.5: expected a value in \[0, 1\]"):
        anls("a", ["a"], threshold=1.5)


def test_exact_is_lower_cased_and_takes_any_accepted_answer():
    assert is_exact(" Vega ", ["lyra", "VEGA"])
    assert not is_exact("vega builders", ["vega"])


@pytest.mark.parametrize("score", [anls, is_exact])
def test_a_question_without_an_accepted_answer_is_refused(score):
    with pytest.raises(ValueError, match="without an accepted answer"):
        score("a", [])


# Rows of questions


def rows(*questions):
    """The rows of pages that have these questions."""
    return table([row.columns() for row in asked([page(questions=q) for q in questions])])


def test_questions_are_counted_over_all_documents_and_belong_to_theirs():
    examples = rows(
        [Question("date", "When?", ("1  May", "May 1"))], [], [Question("", "Who?", ())]
    )
    assert examples.column("question").tolist() == [0, 1]
    assert examples.column("document").tolist() == [0, 2]
    assert examples.column("answers").tolist() == ["1 May\nMay 1", ""]
    assert "answers" not in examples.batch(np.array([0]))  # text is for scoring


def test_scores_are_means_over_questions_overall_and_by_key():
    examples = rows(
        [Question("date", "When?", ("1 may", "may 1")), Question("total", "What?", ("10.00",))],
        [Question("date", "When?", ("2 june",)), Question("", "Why?", ("because",))],
    )
    answers = [Answer(text, 0.5) for text in ("May 1", "10.01", "xyz", "because")]
    assert answer_scores(examples, answers) == pytest.approx(
        {
            "accuracy": 0.5,
            "anls": (1 + 0.8 + 0 + 1) / 4,
            "accuracy/date": 0.5,
            "accuracy/total": 0.0,
            "anls/date": 0.5,
            "anls/total": 0.8,
        }
    )


def test_questions_without_accepted_answers_are_not_scored():
    examples = rows([Question("", "When?", ())], [Question("", "Who?", ("me",))])
    answers = [Answer("x", 1.0), Answer("me", 1.0)]
    assert answer_scores(examples, answers) == {"accuracy": 1.0, "anls": 1.0}


def test_several_windows_of_a_question_are_scored_once():
    questions = Question("", "Who?", ("me",)), Question("", "When?", ("now",))
    one = asked([page(questions=questions)])
    examples: Examples = table([question.columns() for question in (one[0], one[0], one[1])])
    assert answer_scores(examples, [Answer("me", 1.0), Answer("x", 1.0)])["accuracy"] == 0.5
