"""What terminal and report show of attacks on scrubbed fields."""

import copy
import json

import pytest

from fedpriv.report.build import write_report
from fedpriv.report.fields import MOST_PRINTED, fields_view, is_of_fields, lines
from fedpriv.report.figures import bar_chart, share_chart
from fedpriv.report.folder import Found


def pair(attack, baseline):
    return {"attack": attack, "baseline": baseline}


PERFECT = {
    "rank": 1,
    "key": "date<b>",
    "text": "april 13, <i>1984</i>",
    "length": 4,
    "occurrences": 2,
    "public": 3,
    "baseline": False,
}
ROUND = {
    "round": 5,
    "ipf": 1.1,
    "ipf_interval": [0.95, 1.25],
    "acc_auc": pair(0.01, 0.005),
    "ham_aac": 0.2,
    "pr": pair(0.02, 0.01),
    "loss": 0.4,
    "score": None,
}
CDMI = {
    "status": "done",
    "target": "round 12 (best <validation> score)",
    "ipf": 1.395,
    "ipf_interval": [1.21, 1.58],
    "ipf_epsilon": 0.01,
    "level": 0.95,
    "pr": pair(0.027, 0.0077),
    "hd": pair(3.2, 3.9),
    "ld": pair(0.6, 0.7),
    "jwd": pair(0.4, 0.5),
    "acc_auc": pair(0.061, 0.011),
    "acc_auc_gain_interval": [0.021, 0.083],
    "ham_aac": pair(0.274, 0.151),
    "ham_aac_gain_interval": [-0.012, 0.163],
    "acc_at": {"0.01": pair(0.125, 0.0), "0.05": pair(0.154, 0.026), "1.0": pair(0.027, 0.008)},
    "ham_at": {"0.01": pair(0.5, 0.6), "0.05": pair(0.6, 0.7), "1.0": pair(0.7, 0.8)},
    "by_membership": {
        "ratio": {
            "acc_auc": 0.061,
            "ham_aac": 0.274,
            "acc_at": {"0.01": 0.125, "0.05": 0.154, "1.0": 0.027},
        },
        "raw": {
            "acc_auc": 0.003,
            "ham_aac": 0.122,
            "acc_at": {"0.01": 0.0, "0.05": 0.051, "1.0": 0.019},
        },
    },
    "by_key": {"date<b>": {"fields": 777, "ipf": 1.395, "pr": pair(0.027, 0.0077)}},
    "fields": 777,
    "documents": 75,
    "attempts": 8,
    "membership": "ratio",
    "perfect": [PERFECT],
    "left_out": {"longer than the <window>": 3, "no reason": 0},
    "assumptions": ["knows <D>"],
    "notes": ["mind this"],
}
CURVES = {
    "fields": 777,
    "p": [1 / 777, 0.5, 1.0],
    "acc_at": pair([1.0, 0.05, 0.027], [0.0, 0.01, 0.008]),
    "ham_at": pair([0.0, 0.6, 0.7], [1.0, 0.7, 0.8]),
}


def words(line):
    return " ".join(line.split())


def row_of(metrics, start):
    return words(next(line for line in lines(metrics) if line.startswith(start)))


@pytest.fixture
def folder(tmp_path):
    return kept(tmp_path)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return page_of(kept(tmp_path_factory.mktemp("run")))


def kept(folder):
    (folder / "config.yaml").write_text("name: reconstructed\nseed: 0\n")
    keep(folder, CDMI, CURVES)
    return folder


def keep(folder, metrics, curves=None, name="cdmi"):
    place = folder / "findings" / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "metrics.json").write_text(json.dumps(metrics))
    if curves is not None:
        (place / "curves.json").write_text(json.dumps(curves))


def page_of(folder):
    return write_report(folder).read_text("utf-8")


def test_metrics_of_fields_are_told_from_others():
    assert is_of_fields(CDMI)
    assert not is_of_fields({"status": "not_applicable", "reason": "no fields"})


def test_the_terminal_shows_the_table_of_the_paper():
    shown = list(lines(CDMI))
    assert shown[0].startswith("777 fields in 75 documents of round 12 (best <validation> score)")
    assert "8 attempts at each; IpF with ε = 0.01; in brackets 95% intervals" in shown[0]
    assert words(shown[1]) == "IpF HamAAC AccAUC AccAt 1% AccAt 5% AccAt 100%"
    expected = "attack, sorted by ratio 1.395 [1.210, 1.580] 0.274 0.061 0.125 0.154 0.027"
    assert words(shown[2]) == expected
    assert words(shown[3]) == "baseline 1 0.151 0.011 0.000 0.026 0.008"
    assert words(shown[4]) == "attack - baseline [-0.012, +0.163] [+0.021, +0.083]"
    assert words(shown[5]) == "attack, sorted by raw 0.122 0.003 0.000 0.051 0.019"


def test_the_terminal_shows_the_first_attempts_and_what_was_reconstructed():
    assert row_of(CDMI, "first attempts") == "first attempts PR HD LD JWD"
    assert row_of(CDMI, "attack  ") == "attack 0.027 3.200 0.600 0.400"
    assert row_of(CDMI, "april") == "april 13, <i>1984</i> date<b> 4 2 3 1 no"


def test_the_terminal_shows_ten_reconstructions_and_counts_the_rest():
    perfect = [{**PERFECT, "text": f"text {i}", "rank": i} for i in range(1, 15)]
    shown = list(lines({**CDMI, "perfect": perfect}))
    assert sum(line.startswith("text ") for line in shown) == MOST_PRINTED
    assert "and 4 more perfect reconstructions in metrics.json" in shown


def test_a_text_of_a_document_cannot_steer_the_terminal():
    wild = {**PERFECT, "text": "\x1b[2J" + "long\n" * 40}
    shown = "".join(lines({**CDMI, "perfect": [wild]}))
    assert "\x1b" not in shown
    assert "\n" not in shown
    assert max(map(len, lines({**CDMI, "perfect": [wild]}))) < 200


def test_a_series_has_a_row_for_each_round():
    series = [ROUND, {**ROUND, "round": 10, "ipf": 1.3}]
    assert row_of({**CDMI, "series": series}, "5 ") == (
        "5 1.100 [0.950, 1.250] 0.010 (0.005) 0.200 0.020 (0.010) 0.400 —"
    )
    assert row_of({**CDMI, "series": series}, "10 ").startswith("10 1.300")
    assert not any(line.startswith("round ") for line in lines(CDMI))


@pytest.mark.parametrize(
    "change",
    [
        {"ipf": None},
        {"ipf_interval": [1]},
        {"acc_at": 3},
        {"by_membership": ["ratio"]},
        {"perfect": [{}]},
        {"fields": "many"},
        {"series": [3]},
        {"left_out": 5},
        {"ham_aac": pair(10**400, 0.1)},
    ],
)
def test_numbers_of_another_shape_are_said_not_raised(change):
    broken = {**CDMI, **change}
    found = [Found(name, metrics, {}, {}, {}) for name, metrics in (("x", broken), ("y", CDMI))]
    said, shown = fields_view(found)
    assert said.summary.startswith("its findings cannot be shown")
    assert not said.tables
    assert shown.tables  # the other is
    if "left_out" not in change:  # which the terminal is not asked for
        assert next(lines(broken)).startswith("its findings cannot be shown")


def test_a_broken_attack_is_named_in_the_report(folder):
    keep(folder, {"ipf": "high"}, name="broken")
    page = page_of(folder)
    assert "<h3>broken</h3>" in page
    assert "its findings cannot be shown" in page
    assert "1.395 [1.210, 1.580]" in page


def test_the_report_has_a_section_of_its_own(page):
    assert "Fields reconstructed" in page
    assert '<a href="#fields">' in page
    assert "Attacks on what the server saw" not in page
    assert "777 fields in 75 documents" in page
    assert "1.395 [1.210, 1.580]" in page
    assert "attack, sorted by raw" in page
    assert "mind this" in page
    assert "3 longer than the" in page
    assert "0 no reason" not in page


def test_a_report_without_such_an_attack_has_no_such_section(folder):
    other = {"status": "not_applicable", "reason": "no fields", "assumptions": [], "notes": []}
    keep(folder, other)
    page = page_of(folder)
    assert "Fields reconstructed" not in page
    assert "not applicable: no fields" in page


def test_everything_of_the_findings_is_escaped(page):
    for text in ("april 13, <i>1984</i>", "date<b>", "knows <D>", "<window>", "<validation>"):
        assert text not in page
        assert text.replace("<", "&lt;").replace(">", "&gt;") in page


def test_the_figures_of_the_paper_are_drawn(page):
    for title in ("HamAt(p), wrong tokens", "AccAt(p), perfect reconstructions"):
        assert f"<figcaption>{title}</figcaption>" in page
    assert "attack from 1 at 0.00129 to 0.027 at 1; baseline from 0 at 0.00129" in page
    assert "attack: HamAAC 0.274, AccAUC 0.061" in page
    assert "Improvement factor" not in page


def test_a_series_is_drawn_where_it_has_numbers(folder):
    keep(folder, {**CDMI, "series": [ROUND, {**ROUND, "round": 10, "ipf": 1.3}]})
    page = page_of(folder)
    assert "IpF from 1.1 in round 5 to 1.3 in round 10" in page
    assert "AccAUC baseline from 0.005" in page
    assert "HamAAC from 0.2" in page
    assert "Validation loss" in page
    assert "Validation score" not in page  # none is recorded


def test_without_curves_the_tables_stay(folder):
    (folder / "findings" / "cdmi" / "curves.json").write_text("[{")
    page = page_of(folder)
    assert "1.395 [1.210, 1.580]" in page
    assert "HamAt(p)" not in page
    assert "curves.json is not valid JSON" in page


def test_no_perfect_reconstruction_is_said(folder):
    keep(folder, {**CDMI, "perfect": []})
    assert "None of the chosen attempts is perfect." in page_of(folder)


def test_metrics_are_left_as_they_are():
    before = copy.deepcopy(CDMI)
    list(lines(CDMI))
    assert before == CDMI


def test_charts_of_one_point_and_of_nothing_but_zeros_can_be_drawn():
    dot = share_chart("t", {"attack": ([1.0], [0.0])})
    assert "attack from 0 at 1 to 0 at 1" in dot.svg
    flat = bar_chart("t", {"attack": {"a": 0.0}, "baseline": {"a": 0.0}})
    assert [key.label for key in flat.keys] == ["attack", "baseline"]
    assert "baseline: a 0" in flat.svg
