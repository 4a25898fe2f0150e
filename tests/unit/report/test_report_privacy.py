"""The report's section on privacy says what ledger.json says, and which of it to rely on."""

import json
import re

import pytest
import yaml

from fedpriv.privacy.views import rounded_up
from fedpriv.report.build import write_report

VIEW = {"rdp": 9.0, "prv": None, "gdp": None, "reasons": {"gdp": "no client stage"}}
LEDGER = {
    "unit": "example",
    "meaning": "adding or removing one training example",
    "delta": 1e-5,
    "mechanism": {"clip_norm": 0.1},
    "uncovered": ["the number of examples"],
    "not_covered": ["when a client answers", "the sizes of messages"],
    "views": {
        "paper": VIEW
        | {"pld": 7.984, "guarantee": False, "doubts": ["drawn together"], "note": "as accounted"},
        "server_plain": VIEW
        | {"pld": "inf", "guarantee": True, "doubts": [], "applies": False, "note": "the server"},
    },
    "larger_units": {
        "document": {"records": 3, "how": "by PLD", "epsilon": {"paper": 33.861, "global": None}}
    },
    "colluders": [{"colluders": 0, "epsilon": 10.971}, {"colluders": 7, "epsilon": "inf"}],
    "by_round": [{"round": 1, "paper": 2.0}, {"round": 2, "paper": 4.0}],
}


def section_of(folder, ledger):
    (folder / "config.yaml").write_text(yaml.safe_dump({"name": "tiny", "rounds": 2}))
    text = ledger if isinstance(ledger, str) else json.dumps(ledger)
    (folder / "ledger.json").write_text(text)
    page = write_report(folder).read_text("utf-8")
    (section,) = re.findall(r'<section id="privacy".*?</section>', page, re.DOTALL)
    return section


def words(section):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", section))


def test_the_numbers_of_the_ledger_are_there_with_what_they_are_worth(tmp_path):
    section = section_of(tmp_path, LEDGER)
    text = words(section)
    for said in (
        "adding or removing one training example",
        "1e-05",
        "7.99",  # never rounded down
        "not a guarantee drawn together gdp: no client stage",
        "server plain (not this run)",
        "∞",
        "document 3 33.87 – by PLD",
        "Not guaranteed, because no ε covers: the number of examples.",
        "What no ε covers when a client answers the sizes of messages",
        "larger unit examples in it paper global",
        "clients 0 7 ε 10.98 ∞",
    ):
        assert said in text, said
    assert "<svg" in section


SPENT = {
    "means": "by how long its contributions were",
    "limit": 4.0,
    "epsilon": {"7": 4.0, "0": 1.5, "12": 2.251},
}


def test_what_each_unit_has_spent_is_told_and_who_gives_no_more(tmp_path):
    views = {"global": VIEW | {"pld": 8.0, "guarantee": True, "individual": SPENT}}
    spent = {name: {"releases": 2} for name in SPENT["epsilon"]}
    text = words(section_of(tmp_path, {**LEDGER, "views": views, "spent": spent}))
    assert (
        "What each example that was drawn has spent by itself, against whoever sees the global "
        "models: ε 1.50 at least, 2.26 at the median, 4.00 at most. 1 of 3 have reached the limit "
        "of 4, and give no more. It is told by how long its contributions were."
    ) in text
    assert "example releases ε 7 2 4.00 12 2 2.26 0 2 1.50" in text


def test_a_run_that_is_not_private_says_so(tmp_path):
    plain = {"mechanism": None, "views": {"global": {"pld": "inf"}}}
    assert "This run is not differentially private" in words(section_of(tmp_path, plain))


@pytest.mark.parametrize("ledger", ["{", "[]", {"views": {"paper": 3}}, {"events": []}])
def test_a_ledger_that_cannot_be_read_spoils_nothing_else(ledger, tmp_path):
    assert "No ledger that can be read is recorded" in words(section_of(tmp_path, ledger))


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [
        (7.981, "7.99"),
        (8.0, "8.00"),
        (0, "0.00"),
        ("inf", "∞"),
        (None, "–"),
        (125589.4, "1.3e+05"),
        (1910, "2e+03"),
    ],
)
def test_an_epsilon_is_never_shown_smaller_than_it_is(epsilon, shown):
    assert rounded_up(epsilon) == shown
