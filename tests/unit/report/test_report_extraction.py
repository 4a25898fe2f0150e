"""What terminal and report show of a study of extraction, and of an audit by exposure."""

import copy
import json
import re

import numpy as np
import pytest
from markupsafe import Markup

from fedpriv.report import figures
from fedpriv.report.build import write_report
from fedpriv.report.extraction import extraction_view, is_of_extraction, lines
from fedpriv.report.extraction_charts import CONTEXTS
from fedpriv.report.figures import ExposureLine
from fedpriv.report.folder import Found, read_run
from fedpriv.report.trainings import study_state, trainings_view


def sizes(e, g, m, pii=None, unique=None, **more):
    personal = {} if pii is None else {"pii": pii, "unique_pii": unique}
    return {"E": e, "G": g, "M": m, **personal, **more}


def mean(value, low, high, count=None):
    return {"mean": value, "low": low, "high": high, "count": count}


AUDIT = {
    "references": 1000,
    "bound": 9.967,
    "in": {"1": mean(2.5, 1.5, 3.5, 8), "10": mean(9.0, 8.0, 9.9, 8)},
    "out": {"1": mean(1.4, 1.0, 1.8, 8), "10": mean(1.5, 1.1, 1.9, 8)},
    "ks": {"statistic": 0.15, "p": 0.42},
}
STUDY = {
    "status": "done",
    "model": "Donut<b>",
    "target": "final",
    "splits": 4,
    "canaries": {"drawn": 50, "kept": 40, "planted": 5, "dropped": {"in a <sequence>": 10}},
    **sizes(12, 3, 10, 6, 4),
    "pii_classes": {"person": 4, "place": 2},
    "by_repeats": {"1": sizes(7, 3, 5, canaries=30), "10": sizes(5, 0, 5, canaries=10)},
    "memorization": {
        **mean(0.2, 0.15, 0.25, 40),
        "of_M": mean(0.7, 0.6, 0.8, 10),
        "of_G": mean(None, None, None, 0),
        "by_repeats": {"10": mean(0.5, 0.4, 0.6, 10)},
        "rank_test": {"auc": 0.93, "p": 0.0021, "M": 10, "G": 3},
        "null": {"mean": -0.0001, "low": -0.03, "high": 0.03},
        "p": 0.001,
    },
    "simplicity": mean(0.3, 0.25, 0.35, 40),
    "resolutions": {"96": sizes(12, 3, 10, 6, 4, anls=0.5), "48": sizes(20, 3, 18, 9, 7, anls=0.3)},
    "contexts": {
        "baseline": sizes(12, 3, 10, 6, 4, asked=40),
        "brightness_0.5": sizes(6, 1, 5, 2, 1, asked=39),
        "own <context>": sizes(2, 1, 1, 0, 0, asked=40),
    },
    "defences": {
        "none": sizes(12, 3, 10, 6, 4, anls=0.5, anls_change=0.0),
        "PR": sizes(8, 3, 6, 4, 2, anls=0.466, anls_change=-0.034),
        "EB": sizes(
            1,
            3,
            0,
            0,
            0,
            anls=0.512,
            anls_change=0.012,
            contexts={"baseline": {"asked": 40, "M": 0, "pii": 0}},
        ),
        "DP": sizes(3, 3, 1, 0, 0, anls=0.2, anls_change=-0.3, epsilon=8.0, delta=1e-5),
    },
    "side_channel": {
        "standard": {"auc": 0.52, "low": 0.46, "high": 0.58, "tpr": {"0.01": 0.01}},
        "EB": {"auc": 0.81, "low": 0.76, "high": 0.86, "tpr": {"0.01": 0.22}},
    },
    "controls": {
        "untrained": {"E": 0, "canaries": 40},
        "unseen": {"E": 3, "G": 4, "both": 2, "p": 1.0},
    },
    "exposure": {"fedavg": AUDIT, "feam_dp": {**AUDIT, "ks": None}},
    "assumptions": ["knows <Q>"],
    "notes": ["mind this"],
}
SCORES = {
    "memorization": [0.0, 0.5, 1.0, 0.0],
    "simplicity": [0.0, 0.5, 1.0, 2.0],
    "in_E": [False, True, True, True],
    "in_G": [False, False, False, True],
    "names": ["a", "b", "c", "d"],
}


def words(line):
    return " ".join(line.split())


def row_of(metrics, start):
    return words(next(line for line in lines(metrics) if line.startswith(start)))


def study(folder, metrics=STUDY):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text("name: extraction\nseed: 1\nrounds: 3\n")
    (folder / "plan.json").write_text(
        json.dumps({training: {"rounds": 3} for training in ("all", "with out", "later")})
    )
    if metrics is not None:
        place = folder / "findings" / "extraction"
        place.mkdir(parents=True)
        (place / "metrics.json").write_text(json.dumps(metrics))
        (place / "scores.json").write_text(json.dumps(SCORES))
    train(folder, "all", 3)
    train(folder, "with out", 2)
    return folder


def train(folder, name, rounds):
    own = folder / "trainings" / name
    own.mkdir(parents=True, exist_ok=True)
    (own / "config.yaml").write_text(f"name: {name}\nrounds: 3\n")
    rows = [{"round": n, "anls": n / 10, "loss": 1 / n} for n in range(1, rounds + 1)]
    (own / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if rounds == 3:
        (own / "report.html").write_text("a report")


def page_of(folder):
    return write_report(folder).read_text("utf-8")


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures without matplotlib: what is given to them is what is tested."""
    given = {}
    for name in ("count_chart", "score_chart", "exposure_chart"):

        def chart(title, *data, **how):
            given[title] = data
            return figures.Chart(title, Markup("<svg></svg>"))

        monkeypatch.setattr(figures, name, chart)
    return given


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return page_of(study(tmp_path_factory.mktemp("runs") / "study"))


def test_metrics_of_extraction_are_told_from_others():
    assert is_of_extraction(STUDY)
    assert is_of_extraction({"status": "done", "exposure": AUDIT})
    assert not is_of_extraction({"status": "not_applicable", "reason": "no canary"})
    assert not is_of_extraction({"exposure": 3.2, "E": 1})


def test_the_terminal_shows_what_was_studied_and_how_much_was_extracted():
    shown = lines(STUDY)
    assert shown[0] == (
        "Donut<b>, attacked after its last round, 40 canaries, 5 of them planted, 4 splits."
    )
    assert words(shown[1]) == "extracted canaries |E| |G| |M| PII in M unique PII"
    assert words(shown[2]) == "all 40 12 3 10 6 4"
    assert row_of(STUDY, "trained on once") == "trained on once 30 7 3 5 — —"
    assert row_of(STUDY, "trained on 10 times") == "trained on 10 times 10 5 0 5 — —"
    assert "Personal information in M: 4 person, 2 place." in shown
    assert "Of 50 drawn were left out: 10 in a <sequence>." in shown


def test_the_terminal_shows_the_scores_and_their_tests():
    assert row_of(STUDY, "M_E, all") == "M_E, all 0.200 [0.150, 0.250] 40"
    assert row_of(STUDY, "M_E in M") == "M_E in M 0.700 [0.600, 0.800] 10"
    assert row_of(STUDY, "M_E in G") == "M_E in G — 0"
    assert row_of(STUDY, "chance: models") == (
        "chance: models without it, halved at random 0.000 [-0.030, 0.030]"
    )
    said = row_of(STUDY, "M_E of a sample")
    assert "in 93% of the pairs, p = 0.0021 (10 against 3)" in said


def test_a_rank_test_without_samples_is_told_as_such():
    study = copy.deepcopy(STUDY)
    study["memorization"]["rank_test"] = {"auc": None, "p": None, "M": 10, "G": 0}
    assert "cannot be tested: 10 samples against 0" in row_of(study, "Whether M_E")


def test_the_terminal_shows_the_tables_of_the_paper():
    shown = list(map(words, lines(STUDY)))
    at = shown.index("ΔANLS / |M| ANLS / |M| without PR EB DP")
    assert shown[at + 1] == "Donut<b> 50.0 / 10 -3.4 / 6 +1.2 / 0 -30.0 / 1"
    at = shown.index("context without defence EB")
    assert shown[at + 1] == "baseline 10 / 6 0 / 0"
    assert "DP 3 3 1 0 0 0.200 -30.0 ε = 8, δ = 1e-05" in shown
    assert "brightness ×0.5 39 6 1 5 2 1" in shown
    assert "48 20 3 18 9 7 0.300" in shown
    assert "EB 0.810 [0.760, 0.860] 0.220" in shown


@pytest.mark.parametrize(
    ("left", "change", "verdict"),
    [
        (0, 0.012, "stops the extraction: |M| goes from 10 to 0, ANLS changes by +1.2 points."),
        (0, -0.05, "stops the extraction, at a cost: |M| goes from 10 to 0, ANLS changes by -5.0"),
        (4, 0.012, "does not stop the extraction: |M| goes from 10 to 4, ANLS changes by +1.2"),
    ],
)
def test_it_is_said_whether_blocking_did_what_it_promises(left, change, verdict):
    study = copy.deepcopy(STUDY)
    study["defences"]["EB"] |= {"M": left, "anls_change": change}
    assert verdict in row_of(study, "Extraction blocking")


def test_controls_say_what_is_amiss():
    assert "says 0 of 40 answers, as it must." in row_of(STUDY, "The untrained")
    assert "say 3 and 4 answers, 2 of them both; McNemar's p = 1." in row_of(STUDY, "Two models")
    wrong = {**STUDY, "controls": {"untrained": {"E": 2, "canaries": 40}}}
    assert "2 of 40 answers, though it can have memorised none." in row_of(wrong, "The untrained")


def test_exposure_is_shown_by_strategy_with_its_bounds():
    assert row_of(STUDY, "FedAvg 10 times") == (
        "FedAvg 10 times 9.000 [8.000, 9.900] 1.500 [1.100, 1.900] 8"
    )
    assert row_of(STUDY, "FeAm-DP  ") == "FeAm-DP 1,000 9.97 1.44 — —"


def test_an_audit_of_one_strategy_needs_no_name():
    shown = list(map(words, lines({"status": "done", "exposure": AUDIT})))
    assert shown[0] == "Exposure of planted secrets."
    assert "once 2.500 [1.500, 3.500] 1.400 [1.000, 1.800] 8" in shown
    assert "all 1,000 9.97 1.44 0.150 0.42" in shown


@pytest.mark.parametrize("section", sorted(set(STUDY) - {"status", "E", "G", "M"}))
@pytest.mark.usefixtures("undrawn")
def test_any_section_may_be_missing(section):
    rest = {key: value for key, value in STUDY.items() if key != section}
    (shown,) = extraction_view([Found("extraction", rest, {}, {}, {}, scores=SCORES)])
    assert shown.parts
    assert not any("cannot be shown" in line for line in [shown.summary, *lines(rest)])


@pytest.mark.parametrize(
    "change",
    [
        {"by_repeats": {"1": {}}},
        {"memorization": {"mean": "high"}},
        {"defences": {"EB": [1]}},
        {"exposure": {"fedavg": {"in": {"1": {}}}}},
        {"controls": {"untrained": {"E": 1}}},
        {"splits": 6},
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_numbers_of_another_shape_are_told_and_break_nothing(change):
    wrong = Found("extraction", {**STUDY, **change}, {}, {}, {}, scores=SCORES)
    good = Found("exposure", {"exposure": AUDIT}, {}, {}, {})
    shown = extraction_view([wrong, good])
    assert "its findings cannot be shown" in shown[0].summary
    assert [part.heading for part in shown[1].parts] == ["Exposure"]


def test_the_least_that_a_study_has_is_shown(undrawn):
    least = {"E": 3, "G": 1, "M": 2}
    (shown,) = extraction_view([Found("extraction", least, {}, {}, {})])
    assert [part.heading for part in shown.parts] == ["Extracted answers"]
    assert undrawn == {"Canaries in each set": ({"canaries": {"|E|": 3, "|G|": 1, "|M|": 2}},)}


def test_pictures_hold_the_numbers_of_the_study(undrawn):
    extraction_view([Found("extraction", STUDY, {}, {}, {}, scores=SCORES)])
    (sizes,) = undrawn["Canaries in each set"]
    assert sizes == {"canaries": {"|E|": 12, "|G|": 3, "|M|": 10, "PII in M": 6, "unique PII": 4}}
    (repeats,) = undrawn["By how often the answer was trained on"]
    assert repeats["|M|"] == {"1×": 5, "10×": 5}
    (resolutions,) = undrawn["By training resolution, pixels"]
    assert resolutions["|M|"] == {"96": 10, "48": 18}
    bars, darker = undrawn[
        "|M| by what the model is asked with; in full colour: personal information"
    ]
    assert bars["without defence"] == {"baseline": 10, "brightness ×0.5": 5}
    assert darker["without defence"] == {"baseline": 6, "brightness ×0.5": 2}
    assert "EB" not in bars


def test_blocking_stands_beside_where_it_was_asked_the_same(undrawn):
    study = copy.deepcopy(STUDY)
    study["defences"]["EB"]["contexts"]["brightness_0.5"] = {"asked": 40, "M": 2, "pii": 1}
    extraction_view([Found("extraction", study, {}, {}, {}, scores=SCORES)])
    bars, darker = undrawn[
        "|M| by what the model is asked with; in full colour: personal information"
    ]
    assert bars["EB"] == {"baseline": 0, "brightness ×0.5": 2}
    assert darker["EB"] == {"baseline": 0, "brightness ×0.5": 1}


def test_histograms_are_of_all_of_m_and_of_g(undrawn):
    extraction_view([Found("extraction", STUDY, {}, {}, {}, scores=SCORES)])
    (panels,) = undrawn["Canaries by memorization and simplicity"]
    taken = {name: np.argwhere(counts).tolist() for name, counts in panels.items()}
    # Rows S_E = 0, ½ … 2, columns M_E = -1, -½ … 1.
    assert taken == {
        "all canaries": [[0, 2], [1, 3], [2, 4], [4, 2]],
        "M = E ∖ G": [[1, 3], [2, 4]],
        "G": [[4, 2]],
    }


def test_the_page_of_a_study_has_its_sections_and_not_those_of_a_run(page):
    for heading in (
        "Training answers extracted",
        "Extracted answers",
        "By training resolution",
        "Memorization and simplicity",
        "Contexts",
        "Defences",
        "Side channel of extraction blocking",
        "Controls",
        "Exposure",
        "Trainings",
        "Settings",
    ):
        assert f">{heading}</h" in page, heading
    for section in ("curves", "partition", "privacy", "page", "failures", "cost"):
        assert f'id="{section}"' not in page
        assert f'href="#{section}"' not in page


def test_every_figure_is_drawn(page):
    for title in (
        "Canaries in each set",
        "By how often the answer was trained on",
        "By training resolution, pixels",
        "Personal information by training resolution, pixels",
        "Canaries by memorization and simplicity",
        "|M| by what the model is asked with; in full colour: personal information",
        "Exposure of planted secrets, bits",
    ):
        assert re.search(rf"<figcaption>{re.escape(title)}</figcaption>\s*<svg", page), title


def test_texts_of_a_run_are_escaped(page):
    assert "Donut&lt;b&gt;" in page
    assert "knows &lt;Q&gt;" in page
    assert "own &lt;context&gt;" in page
    for wild in ("<b>,", "<Q>", "<context>", "<sequence>", "<script"):
        assert wild not in page


def test_a_context_of_another_name_is_in_the_table_and_in_no_picture(page):
    drawings = " ".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "own" not in drawings
    assert CONTEXTS["brightness_0.5"] in drawings


def test_trainings_lead_to_their_reports(page):
    assert '<a href="trainings/all/report.html">all</a>' in page
    assert "trainings/with%20out" not in page
    for cells in (("3 of 3", "0.300", "0.333"), ("2 of 3", "0.200", "0.500"), ("0 of 3", "—")):
        assert "".join(f'<td class="number">{cell}</td>' for cell in cells) in page


def test_names_of_trainings_are_quoted_in_links(tmp_path):
    folder = study(tmp_path / "run", None)
    train(folder, 'a "b" #1', 3)
    page = page_of(folder)
    assert 'href="trainings/a%20%22b%22%20%231/report.html"' in page


def test_the_state_of_a_study_is_that_of_its_trainings(tmp_path):
    folder = study(tmp_path / "run")
    assert study_state(read_run(folder)) == ("1 of 3 trainings done", False)
    train(folder, "with out", 3)
    train(folder, "later", 3)
    assert study_state(read_run(folder)) == ("complete: 3 trainings", True)
    (folder / "findings" / "extraction" / "metrics.json").unlink()
    assert study_state(read_run(folder)) == ("all 3 trainings done, nothing concluded", False)


def test_a_folder_without_a_plan_shows_the_trainings_that_are_there(tmp_path):
    folder = study(tmp_path / "run")
    (folder / "plan.json").unlink()
    shown = trainings_view(read_run(folder).trainings)
    assert [(row.name, row.rounds) for row in shown.rows] == [("all", "3"), ("with out", "2")]
    assert shown.headings == ["ANLS", "held-out loss"]


def test_a_run_is_no_study(tmp_path):
    (tmp_path / "config.yaml").write_text("name: run\nrounds: 1\n")
    (tmp_path / "metrics.jsonl").write_text('{"round": 1, "loss": 1.0}\n')
    page = page_of(tmp_path)
    assert 'id="curves"' in page
    assert 'id="trainings"' not in page
    assert 'id="extraction"' not in page


def test_a_study_killed_early_still_has_a_page(tmp_path):
    (tmp_path / "config.yaml").write_text("name: extraction\nrounds: 1\n")
    (tmp_path / "plan.json").write_text('{"all": {"rounds": 1}, "odd": 3}')
    (tmp_path / "trainings").mkdir()
    page = page_of(tmp_path)
    assert "0 of 2 trainings done" in page
    assert "Training answers extracted" not in page


def test_bars_have_their_counts_and_nothing_is_drawn_for_zero():
    chart = figures.count_chart("Sets", {"a": {"x": 41, "y": 0}, "b": {"x": 1, "y": 1000}})
    assert "a: x 41, y 0; b: x 1, y 1000" in chart.svg
    assert [key.label for key in chart.keys] == ["a", "b"]
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", chart.svg)
    assert {"41", "0", "1", "1000", "x", "y"} <= set(drawn)


def test_the_darker_part_of_a_bar_has_the_colour_of_the_whole():
    chart = figures.count_chart("M", {"M": {"x": 10}}, {"M": {"x": 4}})
    fills = re.findall(r"fill: var\(--c0\)(; opacity: 0\.4)?", chart.svg)
    assert sorted(fills) == ["", "; opacity: 0.4"]
    assert chart.keys == ()


def test_a_histogram_has_a_diamond_for_each_taken_place():
    counts = np.zeros((5, 5), int)
    counts[0, 2], counts[2, 4] = 30, 2
    chart = figures.score_chart("Scores", {"all": counts, "G": np.zeros((5, 5), int)})
    assert "all: 30 at M_E 0 and S_E 0, 2 at M_E 1 and S_E 1" in chart.svg
    opacities = re.findall(r"fill: var\(--c0\); opacity: ([\d.]+)", chart.svg)
    assert len(opacities) == 2
    # log1p(2) / log1p(30) = 0.32 of 0.6, on 0.25; the fullest has all of it.
    assert sorted(map(float, opacities)) == pytest.approx([0.442, 0.85], abs=1e-3)


def test_exposure_has_a_line_for_each_strategy_and_side():
    line = ExposureLine({1: 2.0, 10: 8.0}, {1: 1.0, 10: 7.0}, {1: 3.0, 10: 9.0})
    chart = figures.exposure_chart("Exposure", {"FedAvg": {"in": line, "out": line}}, 9.97, 1.44)
    assert [(key.label, key.dashes) for key in chart.keys] == [
        ("FedAvg, in training", ""),
        ("FedAvg, out of training", "5 3"),
    ]
    assert "FedAvg in: 1 times 2, 10 times 8" in chart.svg
    assert "the bound, 9.97 bits, and uniform ranks, 1.44 bits" in chart.note
