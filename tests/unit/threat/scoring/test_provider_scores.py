"""Tables, headline and figures of attacks on providers."""

from dataclasses import replace

import numpy as np
import pytest

from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.report import render
from fedpriv.threat.attack import Remarks
from fedpriv.threat.claims import MembershipScores
from fedpriv.threat.results import CANNOT_TELL, LEAK, NONE_SHOWN, Number, Result
from fedpriv.threat.scoring import memorisation, providers, rankings
from fedpriv.threat.scoring.providers import (
    MOST_CURVES,
    WORTH,
    classifier_table,
    classifiers,
    clients_named,
    headline,
    roc_figures,
    score_membership,
)
from fedpriv.threat.scoring.registry import Scoring
from fedpriv.threat.scoring.verdicts import verdict
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
    "interval": {"tpr": [0.05, 0.25], "balanced_accuracy": [0.63, 0.82], "auc": [0.72, 0.92]},
    "p_value": 0.002,
    "p_value_auc": 0.003,
    "subsets": {},
}
AZK = {**NUMBERS, "subsets": {"10": {**NUMBERS, "accuracy": 0.651}}}
UPDATE = {**NUMBERS, "trials": 1, "clients_right": 0.69}


AUC = Number(0.83, (0.72, 0.92), 51, "provider", 0.5, 0.7, 0.003)


def test_a_row_for_each_classifier_and_s():
    numbers = dict.fromkeys(("azk", "azk, s=10", "server_update"), AUC)
    numbers["server_update, the client"] = Number(0.69, (0.56, 0.8), 26, "provider", 0.31, 0.5, 0.1)
    table = classifier_table({"azk": AZK, "server_update": UPDATE}, numbers)
    first, second, third = table.rows
    assert " ".join(first) == (
        "azk 0 51 0.510 0.718 ± 0.011 0.722 [0.63, 0.82] 0.830 [0.72, 0.92] 0.003 "
        "0.125 [0.05, 0.25] —"
    )
    assert (second[:2], second[4]) == (("azk", "10"), "0.651 ± 0.011")
    assert (third[4], third[-1]) == ("0.718", "69% [56%, 80%]")
    assert {len(row) for row in table.rows} == {len(table.headings)}
    shown = list(render.lines(Result("membership", "so it is", tables=(table,))))
    assert shown[0] == "done: so it is"
    assert shown[3].startswith("azk            0")


@pytest.mark.parametrize(
    ("auc", "says"),
    [
        (
            AUC,
            "azk has AUC 0.830 [0.72, 0.92] on 51 suppliers, against 0.5 without a leak, p 0.003",
        ),
        (
            Number(0.55, (0.4, 0.7), 98, "provider", 0.5, 0.66, 0.4),
            "against 0.5 without a leak, p 0.4; 0.66 or more would have been shown",
        ),
        (
            Number(1.0, (0.025, 1.0), 3, "provider", 0.5, None, 1.0),
            "so few suppliers hardly show a leak, however large it is; for AUC 0.8 there must be "
            "16 members and 16 others or more",
        ),
        (Number(0.2, (0.1, 0.3), 60, "provider", 0.5, 0.66, 0.001), "worse than the control"),
    ],
)
def test_the_headline_says_what_could_have_been_shown(auc, says):
    assert says in headline("azk", auc, verdict(auc, WORTH))


def scored(*claims, members):
    class Truth:
        def parts(self):
            return {n: TrainingMembership(int(m)) for n, m in members.items()}

    scoring = Scoring(Truth(), {}, AttackSettings(), np.random.default_rng(0), 0.0, None, Remarks())
    return score_membership(claims, scoring)


def claim_of(members, shift, name, *, primary=False):
    rng = np.random.default_rng(len(name))
    scores = np.array(list(members.values())) * shift + rng.normal(size=len(members))
    guesses = np.where(scores > 0, 1, -1).astype(np.int8)
    return MembershipScores(tuple(members), scores, guesses, name, primary=primary)


def test_the_verdict_rests_on_the_row_that_the_attack_has_chosen():
    members = {f"p{n}": n % 2 for n in range(80)}
    good, bad = claim_of(members, 3.0, "good"), claim_of(members, 0.0, "bad", primary=True)
    found = scored(good, bad, members=members)
    assert (found.primary, found.verdict) == ("bad", NONE_SHOWN)
    assert found.tables[0].rows[0][0] == "bad"
    assert scored(good, claim_of(members, 0.0, "bad"), members=members).verdict == LEAK


def test_naming_a_client_is_held_against_naming_the_largest():
    parts = {"a": (2, 0), "b": (1, 0), "c": (1, 1), "d": (1, 0), "out": (0, None)}
    truth = {name: TrainingMembership(n, client) for name, (n, client) in parts.items()}
    claim = MembershipScores(
        tuple(parts), np.arange(5.0), np.ones(5, np.int8), "u", clients=np.array([0, 0, 1, 1, 1])
    )
    named = clients_named([claim], truth)
    assert (named.value, named.control, named.n) == (0.75, 0.75, 4)
    assert named.p_value == 1
    assert clients_named([claim_of({"a": 1, "out": 0}, 1.0, "x")], truth) is None


def test_a_classifier_that_says_the_same_of_all_cannot_tell():
    members = {f"p{n}": n % 2 for n in range(80)}
    constant = MembershipScores(tuple(members), np.ones(80), np.zeros(80, np.int8), "constant")
    assert scored(constant, members=members).verdict == CANNOT_TELL


def test_three_providers_cannot_tell():
    members = {"a": 1, "b": 1, "c": 0}
    found = scored(claim_of(members, 99.0, "sure"), members=members)
    assert found.verdict == CANNOT_TELL
    assert found.numbers["sure"].interval == pytest.approx((0.025, 1.0))
    assert found.headline.startswith("sure has AUC 1.000 [0.03, 1.00]")


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
    with pytest.raises(ValueError, match="one for each supplier") as caught:
        MembershipScores(("a", "b"), scores, guesses)
    assert named in str(caught.value)


def test_scores_of_unknown_providers_are_refused():
    class Truth:
        def parts(self):
            return {"a": TrainingMembership(1)}

    claim = MembershipScores(("a", "z"), np.ones(2), np.ones(2, np.int8), "mine")
    scoring = Scoring(Truth(), {}, AttackSettings(), np.random.default_rng(0), 0.0, None, Remarks())
    with pytest.raises(ValueError, match="mine scores suppliers that the run does not know: z"):
        classifiers([claim], scoring)


def test_what_a_leak_lets_somebody_do_is_said_against_its_control():
    number = Number(0.83, (0.72, 0.92), 51, "provider", 0.5, 0.7, 0.003)
    assert providers.clause(number) == (
        "tell which suppliers were trained on (83% of pairs are told apart, 50% by guessing)"
    )
    assert providers.clause(replace(number, value=0.4)) == ""
    assert rankings.clause(replace(number, control=0.125)) == (
        "guess 83% of the fields that were removed from training documents at the first attempt, "
        "against 12% where nothing can be remembered"
    )
    assert memorisation.clause(replace(number, control=0.004)) == (
        "get answers that were removed from the page: 83% of those that were trained on, against "
        "0.4% of the others"
    )
    for module in (rankings, memorisation):  # without its control the number proves nothing
        assert module.clause(replace(number, control=None)) == ""
