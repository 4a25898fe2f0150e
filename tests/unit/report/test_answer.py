"""The sentences that a report opens with say what the attacks and the ledger say, and no more."""

import dataclasses

import pytest

from fedpriv.report.answer import answer, observer, promise
from fedpriv.report.folder import UNREADABLE, Finding
from fedpriv.report.privacy import planned, privacy_view, promised
from fedpriv.threat.results import (
    CANNOT_TELL,
    LEAK,
    NONE_SHOWN,
    NOT_GRANTED,
    Number,
    Result,
)
from fedpriv.threat.surfaces.base import SERVER, Surface

AUC = Number(0.83, (0.72, 0.92), 51, "provider", 0.5, 0.7, 0.003)
PAGES = Result(
    "pages",
    "recovered from one message: the private fields at 100.7 dB",
    threat_model={"Transcript": True, "BatchKnowledge": True},
    verdict=LEAK,
    primary="pages_recovered",
    numbers={"pages_recovered": Number(0.6, (0.4, 0.8), 30, "message", 0.02, 0.1, 0.0001)},
    clause="restore 60% of the pages in a client's update, 2% by chance",
)
MEMBERS = Result(
    "membership",
    "apk has AUC 0.830",
    threat_model={"Transcript": False, "GreyBox": True},
    verdict=LEAK,
    primary="apk",
    numbers={"apk": AUC},
    clause="tell which suppliers were trained on",
)


def said(**results):
    return answer([Finding(name, result) for name, result in results.items()])


def judged(verdict, value=0.6, **more):
    number = dataclasses.replace(AUC, value=value, **more)
    return dataclasses.replace(MEMBERS, verdict=verdict, numbers={"apk": number})


def test_nothing_is_known_where_nothing_was_attacked():
    assert "nothing is known about what this run leaks" in said()
    refused = Result("", "not granted, because …", status=NOT_GRANTED)
    broken = Result("", "the result cannot be shown", status=UNREADABLE)
    assert said(a=refused, b=broken).startswith("No attack could be made on this run")


def test_a_stolen_page_comes_first_and_says_who_can_read_it():
    assert said(pmia=MEMBERS, closed_form=PAGES) == (
        "The server can restore 60% of the pages in a client's update, 2% by chance. Whoever can "
        "query the model can tell which suppliers were trained on."
    )


def test_a_clause_from_elsewhere_is_one_line_and_cut_where_it_is_too_long():
    own = dataclasses.replace(PAGES, clause="read <b>all</b>\nof it " + "x" * 500)
    assert "\n" not in said(a=own)
    assert len(said(a=own)) < 400


def test_other_attacks_are_told_beside_a_leak():
    assert said(a=PAGES, pmia=judged(NONE_SHOWN), lira=judged(CANNOT_TELL)).endswith(
        " The attack pmia found no leak, and the attack lira cannot tell."
    )
    assert said(a=PAGES, b=judged(NONE_SHOWN), c=judged(NONE_SHOWN)).endswith(
        " 2 other attacks found no leak."
    )


def test_of_several_attacks_of_one_observer_the_strongest_is_told_with_a_p_over_all():
    weak, strong = judged(LEAK, 0.7, p_value=0.02), judged(LEAK, 0.9, p_value=0.001)
    assert said(pmia=weak, rmia=strong).startswith(
        "Whoever can query the model can tell which suppliers were trained on, by rmia, p 0.002 "
        "over all attacks. 1 more attack"
    )


def test_the_luck_of_many_attacks_is_no_leak():
    lucky, others = judged(LEAK, 0.7, p_value=0.03), judged(NONE_SHOWN, 0.5, p_value=0.9)
    assert "can tell which suppliers" in said(a=lucky)
    assert "can tell which" not in said(a=lucky, b=others)
    # What the server sees is another question than what the model says.
    server = dataclasses.replace(others, threat_model={"Transcript": True})
    assert "can tell which suppliers" in said(a=lucky, b=server)


def test_a_leak_of_a_kind_without_words_has_its_headline():
    own = Result("own", "the sky is dark; p 0.01", verdict=LEAK)
    assert said(mine=own) == "The attack mine found a leak: the sky is dark."
    assert said(a=PAGES, b=MEMBERS, mine=own).endswith(" 1 more attack finds a leak.")


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ({"pmia": judged(NONE_SHOWN)}, "The attack pmia found no leak, although a large one"),
        (
            {"a": judged(NONE_SHOWN), "b": judged(NONE_SHOWN)},
            "No attack found a leak, although a large one would have shown.",
        ),
        (
            {"pmia": judged(CANNOT_TELL, n=3)},
            "The attack pmia cannot tell whether this run leaks: judged on 3 suppliers, it shows "
            "nothing either way.",
        ),
        (
            {"a": judged(NONE_SHOWN), "b": judged(CANNOT_TELL)},
            "No attack found a leak, but some cannot tell whether this run leaks",
        ),
    ],
)
def test_no_leak_is_told_apart_from_not_knowing(results, words):
    assert words in said(**results)


def test_who_is_looking_is_who_was_granted_the_access():
    assert observer(PAGES) == "the server"
    assert observer(MEMBERS) == "whoever can query the model"
    assert observer(Result("own", "x")) == "an adversary"
    sums = dataclasses.replace(PAGES, threat_model={"ColludingTranscript": True})
    assert observer(sums) == "the server, told by colluding clients,"
    batches = dataclasses.replace(PAGES, threat_model={"BatchKnowledge": True, "OfMyOwn": True})
    assert observer(batches) == "the server"


def test_the_type_of_an_access_says_who_has_it():
    class OfMyOwn(Surface, observer=SERVER):
        pass

    own = dataclasses.replace(PAGES, threat_model={"OfMyOwn": True, "GreyBox": True})
    assert observer(own) == "the server"
    with pytest.raises(TypeError, match="Misspelt: a surface says nothing of 'onloker'"):
        type("Misspelt", (Surface,), {}, onloker=SERVER)


def ledger(**views):
    row = {"rdp": None, "prv": None, "gdp": None, "reasons": {}, "doubts": [], "note": ""}
    return {
        "unit": "provider",
        "delta": 1e-5,
        "mechanism": {"clip_norm": 1.0},
        "views": {
            name: {**row, "pld": epsilon, "guarantee": sure, "applies": True}
            for name, (epsilon, sure) in views.items()
        },
    }


@pytest.mark.parametrize(
    ("views", "sentence"),
    [
        (
            {"paper": (1.0, False), "global": (8.0, True), "server_plain": (19.041, True)},
            "ε is at most 19.05 for one supplier, against whoever is looking.",
        ),
        (
            {"global": (8.0, True), "server_plain": ("inf", False)},
            "ε is 8.00 for one supplier against whoever sees the global models; nothing holds "
            "against the server, which sees each update.",
        ),
        (
            {"paper": (1.0, False), "global": (8.0, False)},
            "No ε of this run is a guarantee for one supplier; the table says why.",
        ),
        (
            {"global": (8.0, True)},
            "ε is at most 8.00 for one supplier, against whoever sees the global models.",
        ),
    ],
)
def test_the_epsilon_that_is_quoted_is_the_one_that_holds(views, sentence):
    assert promise(promised(privacy_view(ledger(**views)))) == sentence


PLAN = {
    "strategy": "FL-PROVIDER-DP",
    "delta": 1e-5,
    "rounds": 10,
    "noise_multiplier": 1.0,
    "masked": True,
    "views": {"global": {"pld": 14.0076}, "server_masked": {"pld": 15.5}},
}


def test_a_plan_beside_the_run_is_told_as_a_plan():
    assert promise(None, planned(PLAN)) == (
        "There is no ε: the run has no privacy mechanism, so nothing bounds what can be learnt. "
        "With FL-PROVIDER-DP, ε would be 14.01 for one supplier, against whoever sees the global "
        "models."
    )
    assert planned(PLAN)["rows"][1] == ("the server, which sees sums only", "15.50")
    assert promise(None, None).startswith("There is no ε")


@pytest.mark.parametrize("plan", [None, {}, {"views": 3}, {**PLAN, "views": {}}, {"rounds": 1}])
def test_a_plan_of_another_shape_is_none(plan):
    assert planned(plan) is None
