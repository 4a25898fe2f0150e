"""Tables, headline and figures of attacks on providers."""

import numpy as np
import pytest

from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.report import render
from fedpriv.threat.attack import Remarks
from fedpriv.threat.claims import MembershipScores
from fedpriv.threat.results import Result
from fedpriv.threat.scoring.providers import (
    MOST_CURVES,
    best_of,
    classifier_table,
    classifiers,
    roc_figures,
)
from fedpriv.threat.scoring.registry import Scoring
from fedpriv.threat.settings import AttackSettings

NUMBERS = {
    "min_questions": 0,
    "n": 51,
    "trials": 5,
    "prior": 0.51,
    "accuracy": 0.718,
    "accuracy_std": 0.011,
    "balanced_accuracy": 0.722,
    "auc": 0.83,
    "tpr_at_fpr": {"0.01": 0.125, "0.001": 0.0},
    "interval": {"accuracy": [0.6, 0.8], "balanced_accuracy": [0.63, 0.82], "auc": [0.72, 0.92]},
    "p_value": 0.002,
    "p_value_auc": 0.003,
    "subsets": {},
}
AZK = {**NUMBERS, "subsets": {"10": {**NUMBERS, "accuracy": 0.651}}}
UPDATE = {**NUMBERS, "trials": 1, "clients_right": 0.69}


def test_a_row_for_each_classifier_and_s():
    table = classifier_table({"azk": AZK, "server_update": UPDATE})
    first, second, third = table.rows
    assert " ".join(first) == (
        "azk 0 51 0.510 0.718 ± 0.011 0.722 [0.63, 0.82] 0.002 0.830 [0.72, 0.92] 0.125 —"
    )
    assert (second[:2], second[4]) == (("azk", "10"), "0.651 ± 0.011")
    assert (third[4], third[-1]) == ("0.718", "69%")
    assert {len(row) for row in table.rows} == {len(table.headings)}
    shown = list(render.lines(Result("membership", "so it is", tables=(table,))))
    assert shown[0] == "done: so it is"
    assert shown[3].startswith("azk            0")


@pytest.mark.parametrize(
    ("p_value", "others", "says"),
    [
        (0.003, 0, "azk tells members from non-members, with AUC 0.830 [0.72, 0.92] on 51"),
        (0.003, 9, "azk, the best of 10 classifiers, tells members from non-members"),
        (0.006, 9, "azk, the best of 10 classifiers, is not shown to tell members from"),
        (0.5, 0, "azk is not shown to tell members from non-members, with AUC"),
    ],
)
def test_the_headline_is_fair_to_the_choice_among_classifiers(p_value, others, says):
    worse = {f"other {n}": {**NUMBERS, "auc": 0.5} for n in range(others)}
    line = best_of({**worse, "azk": {**NUMBERS, "p_value_auc": p_value}})
    assert line.startswith(says)
    assert f"p {min(1.0, p_value * (others + 1)):.2g}" in line


def test_the_roc_is_that_of_each_classifiers_first_split():
    parts = {"a": TrainingMembership(2), "b": TrainingMembership(0), "c": TrainingMembership(1)}
    claims = [
        MembershipScores(("a", "b", "c"), np.array(scores), np.ones(3, np.int8), name)
        for name in map(str, range(MOST_CURVES + 2))
        for scores in ([3.0, 2.0, 1.0], [0.0, 0.0, 0.0])
    ]
    (figure,) = roc_figures(claims, parts)
    assert figure.kind == "roc"
    assert list(figure.data["curves"]) == list(map(str, range(MOST_CURVES)))
    assert figure.data["curves"]["0"] == [[0.0, 0.0, 1.0, 1.0], [0.0, 0.5, 0.5, 1.0]]


@pytest.mark.parametrize(
    ("scores", "guesses", "named"),
    [
        ([1.0, 2.0], np.ones(2, np.int8), "scores: got [1.0, 2.0]"),
        (np.ones(3), np.ones(2, np.int8), "scores: got array([1., 1., 1.])"),
        (np.ones(2), np.ones((2, 1), np.int8), "guesses: got array([[1]"),
    ],
)
def test_scores_that_do_not_fit_the_providers_are_refused(scores, guesses, named):
    with pytest.raises(ValueError, match="one for each provider") as caught:
        MembershipScores(("a", "b"), scores, guesses)
    assert named in str(caught.value)


def test_scores_of_unknown_providers_are_refused():
    class Truth:
        def parts(self):
            return {"a": TrainingMembership(1)}

    claim = MembershipScores(("a", "z"), np.ones(2), np.ones(2, np.int8), "mine")
    scoring = Scoring(Truth(), {}, AttackSettings(), np.random.default_rng(0), 0.0, None, Remarks())
    with pytest.raises(ValueError, match="mine scores providers that the run does not know: z"):
        classifiers([claim], scoring)
