"""What terminal and report show of attacks on providers."""

import json

import pytest
from PIL import Image

from fedpriv.report.build import write_report
from fedpriv.report.membership import audit_line, lines

NUMBERS = {
    "least_questions": 0,
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
    "p_value_auc": 0.002,
}
GROUP = {"n": 120, "accuracy": 0.0355, "anls": 0.1164}
MEMORY = {
    "removed": {
        "final": {
            "provider": {
                "members": GROUP,
                "non_members": {"n": 0, "accuracy": None, "anls": None},
                "p_value": None,
            }
        }
    },
    "absent": {
        "final": {
            "tax_number": {
                "n": 150,
                "unique": 95,
                "top_share": 0.28,
                "entropy": 0.87,
                "from_training": {"same_key": 3, "other_key": 1},
            }
        }
    },
}
PMIA = {
    "status": "done",
    "classifiers": {"az<k>": {**NUMBERS, "subsets": {"10": {**NUMBERS, "accuracy": 0.651}}}},
    "memorisation": MEMORY,
    "assumptions": ["who knows <what>"],
    "notes": ["mind this"],
}
AUDIT = {
    "status": "done",
    "classifiers": {
        "server_update": {**NUMBERS, "trials": 1, "clients_right": 0.69, "subsets": {}}
    },
    "epsilon_lower": 1.234,
    "epsilon_ceiling": 3.04,
    "confidence": 0.95,
    "canaries": 64,
    "guesses": 64,
    "right": 60,
    "delta": 1e-5,
    "view": "server_plain",
    "epsilon_claimed_provider": {"server_plain": 8.0, "global": "inf", "paper": None},
    "violated": False,
    "assumptions": [],
    "notes": [],
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.yaml").write_text("name: judged\nseed: 0\n")
    for name, metrics in {"pmia": PMIA, "audit": AUDIT}.items():
        place = tmp_path / "findings" / name
        place.mkdir(parents=True)
        (place / "metrics.json").write_text(json.dumps(metrics))
    return tmp_path


def page_of(folder):
    return write_report(folder).read_text("utf-8")


def test_the_terminal_shows_a_row_for_each_classifier_and_s():
    shown = list(lines(PMIA))
    assert " ".join(shown[1].split()) == (
        "az<k> 0 51 0.510 0.718 ± 0.011 0.722 [0.63, 0.82] 0.002 0.830 [0.72, 0.92] 0.125 —"
    )
    assert shown[2].startswith("az<k>  10")
    assert "0.651" in shown[2]


def test_the_terminal_shows_what_is_remembered():
    shown = "\n".join(lines(PMIA))
    assert "provider, final model" in shown
    assert "120 pages  3.5%  ANLS 11.6%  0 pages  —" in shown
    assert "gives 95 different answers to 150 questions, 28% of them the most frequent" in shown
    assert "3 were trained on as answers on tax_number, 1 on other keys" in shown


@pytest.mark.parametrize(
    ("view", "says"),
    [
        ("server_plain", "the ledger claims ε ≤ 8 of a provider"),
        ("global", "the ledger promises nothing"),
        ("paper", "the ledger says nothing of a provider"),
    ],
)
def test_an_audit_stands_beside_the_ledger(view, says):
    line = audit_line({**AUDIT, "view": view})
    assert line.startswith("ε ≥ 1.23 of a provider with 95% confidence (at most 3.04 could be")
    assert "60 of 64 guesses are right" in line
    assert says in line
    assert "BROKEN" not in line
    assert "BROKEN" in audit_line({**AUDIT, "violated": True})


def test_the_report_has_a_section_of_its_own(folder):
    page = page_of(folder)
    assert "Who was trained on" in page
    assert "Attacks on what the server saw" not in page
    assert "0.718 ± 0.011" in page
    assert "az&lt;k&gt;" in page
    assert "who knows &lt;what&gt;" in page
    assert "69%" in page
    assert "ε ≥ 1.23 of a provider" in page


def test_the_roc_is_drawn_from_the_verdicts(folder):
    assert "false alarms" not in page_of(folder)
    verdict = {
        "classifier": "az<k>",
        "member": [True, False, True, False],
        "scores": [3.0, 2.0, 1.0, 0.0],
    }
    path = folder / "findings" / "pmia" / "verdicts.json"
    path.write_text(
        json.dumps([verdict, {**verdict, "classifier": "all in", "member": [True] * 4}])
    )
    page = page_of(folder)
    assert "Members found (TPR) by false alarms (FPR)" in page
    assert "all in" not in page  # of members alone there is no ROC


def test_pictures_are_shown_and_broken_files_named(folder):
    Image.new("RGB", (8, 8)).save(folder / "findings" / "pmia" / "removed-provider-00-page.png")
    (folder / "findings" / "pmia" / "verdicts.json").write_text("[{")
    page = page_of(folder)
    assert "removed-provider-00" in page
    assert "verdicts.json is not valid JSON" in page


def test_findings_that_are_not_ours_are_named(folder):
    broken = {**PMIA, "classifiers": {"azk": {"n": 3}}}
    (folder / "findings" / "pmia" / "metrics.json").write_text(json.dumps(broken))
    page = page_of(folder)
    assert "its findings cannot be shown" in page
    assert "ε ≥ 1.23 of a provider" in page  # the others are
