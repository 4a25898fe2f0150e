"""What terminal and report show of an extraction; every cell is worked out by hand."""

import copy
import re

import numpy as np
import pytest

from fedpriv.attacks.extraction.asking import Said
from fedpriv.attacks.extraction.canary import Canary
from fedpriv.attacks.extraction.scoring import ExtractedAnswers, score_answers
from fedpriv.attacks.extraction.tables import CONTEXTS, figures, headline, tables
from fedpriv.data.document import Document, Question
from fedpriv.report import render
from fedpriv.report.build import write_report
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat.results import Number, Result, write_result
from fedpriv.threat.scoring.registry import Scoring
from fedpriv.threat.settings import AttackSettings


def sizes(e, g, m, pii=None, unique=None, **more):
    personal = {} if pii is None else {"pii": pii, "unique_pii": unique}
    return {"E": e, "G": g, "M": m, **personal, **more}


def mean(value, low, high, count=None):
    return {"mean": value, "low": low, "high": high, "count": count}


AUDIT = {
    "references": 1000,
    "bound": 9.967,
    "expected": 1.437,
    "in": {"1": mean(2.5, 1.5, 3.5, 8), "10": mean(9.0, 8.0, 9.9, 8)},
    "out": {"1": mean(1.4, 1.0, 1.8, 8), "10": mean(1.5, 1.1, 1.9, 8)},
    "ks": {"statistic": 0.15, "p": 0.42},
}
NUMBERS = {
    "model": "Donut<b>",
    "target": "final",
    "splits": 4,
    "canaries": {"drawn": 50, "kept": 40, "planted": 5, "dropped": {"in a <sequence>": 10}},
    **sizes(12, 3, 10, 6, 4, control=1, answers=30, answers_in_M=8, interval=[4.2, 12.9]),
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
        "none": sizes(12, 3, 10, 6, 4, anls=0.5, anls_change=0.0, anls_change_interval=None),
        "PR": sizes(
            8, 3, 6, 4, 2, anls=0.466, anls_change=-0.034, anls_change_interval=[-0.1, 0.03]
        ),
        "EB": sizes(
            1, 3, 0, 0, 0, anls=0.512, anls_change=0.012, anls_change_interval=[-0.02, 0.04]
        )
        | {"contexts": {"baseline": {"asked": 40, "M": 0, "pii": 0}}},
        "DP": sizes(
            3,
            3,
            1,
            0,
            0,
            anls=0.2,
            anls_change=-0.3,
            anls_change_interval=[-0.4, -0.2],
            epsilon=8.0,
            delta=1e-5,
        ),
    },
    "side_channel": {
        "standard": {
            "auc": 0.52,
            "low": 0.46,
            "high": 0.58,
            "tpr": {"0.01": 0.01},
            "tpr_interval": [0.0, 0.07],
        },
        "EB": {
            "auc": 0.81,
            "low": 0.76,
            "high": 0.86,
            "tpr": {"0.01": 0.22},
            "tpr_interval": [0.11, 0.36],
        },
    },
    "controls": {
        "untrained": {"E": 0, "canaries": 40},
        "unseen": {"E": 3, "G": 4, "both": 2, "p": 1.0},
    },
    "exposure": {"fedavg": AUDIT, "feam_dp": {**AUDIT, "ks": None}},
}
SCORES = {
    "memorization": [0.0, 0.5, 1.0, 0.0],
    "simplicity": [0.0, 0.5, 1.0, 2.0],
    "in_E": [False, True, True, True],
    "in_G": [False, False, False, True],
    "names": ["a", "b", "c", "d"],
}
PRIMARY = Number(0.2, (0.15, 0.25), 30, "answer", 0.0, 0.02, 0.004)
NONE = ("—", "—")  # where |G ∖ E| and the different answers were not counted
BY_CONTEXT = "|M| by what the model is asked with; in full colour: personal information"


def table_of(numbers, first):
    """The table whose first heading is this one."""
    (found,) = (table for table in tables(numbers) if table.headings[0] == first)
    return found


def figures_of(numbers, scores=SCORES):
    return {figure.title: figure.data for figure in figures(numbers, scores)}


def changed(**sections):
    return {**copy.deepcopy(NUMBERS), **sections}


# Tables


def test_the_headline_has_the_sets_and_the_score():
    assert headline(NUMBERS, PRIMARY) == (
        "the model says 12 of 40 training answers that were taken off their page, and one trained "
        "without them says 3: 10 are in M, 6 of these personal, and 1 are the other way round; "
        "M_E 0.200 [0.150, 0.250] over 4 splits on 30 answers, against 0 without a leak, p 0.004"
    )
    without = {key: value for key, value in NUMBERS.items() if key != "memorization"}
    assert "; M 20.0% on 30 answers, against 0 without a leak" in headline(without, PRIMARY)


def test_the_sets_are_counted_whole_and_by_repeats():
    found = table_of(NUMBERS, "extracted")
    assert found.headings == (
        "extracted", "canaries", "|E|", "|G|", "|M|", "|G ∖ E|",
        "different answers in M", "PII in M", "unique PII",
    )  # fmt: skip
    assert found.rows == (
        ("all", "40", "12", "3", "10", "1", "8 of 30 [4, 13]", "6", "4"),
        ("trained on once", "30", "7", "3", "5", "—", "—", "—", "—"),
        ("trained on 10 times", "10", "5", "0", "5", "—", "—", "—", "—"),
    )
    assert "Personal information in M: 4 person, 2 place." in found.note
    assert "Of 50 drawn were left out: 10 in a <sequence>." in found.note


def test_the_scores_stand_with_what_chance_gives_and_their_tests():
    found = table_of(NUMBERS, "scores")
    assert found.rows == (
        ("M_E, all", "0.200 [0.150, 0.250]", "40"),
        ("M_E in M", "0.700 [0.600, 0.800]", "10"),
        ("M_E in G", "—", "0"),
        ("M_E, trained on 10 times", "0.500 [0.400, 0.600]", "10"),
        ("chance: models without it, halved", "0.000 [-0.030, 0.030]", ""),
        ("S_E, all", "0.300 [0.250, 0.350]", ""),
    )
    assert "in 93% of the pairs, p = 0.0021 (10 against 3)." in found.note
    assert "the mean M_E would be as high with p = 0.001." in found.note


def test_a_rank_test_without_samples_is_told_as_such():
    scores = {**NUMBERS["memorization"], "null": None, "p": None}
    scores["rank_test"] = {"auc": None, "p": None, "M": 10, "G": 0}
    found = table_of(changed(memorization=scores), "scores")
    assert "cannot be tested: 10 answers against 0." in found.note
    assert not any(row[0].startswith("chance") for row in found.rows)
    assert "Had other canaries" not in found.note


def test_the_tables_of_the_paper():
    assert table_of(NUMBERS, "pixels").rows == (
        ("96", "12", "3", "10", "—", "—", "6", "4", "0.500"),
        ("48", "20", "3", "18", "—", "—", "9", "7", "0.300"),
    )
    changes = table_of(NUMBERS, "ΔANLS / |M|")
    assert changes.headings[1:] == ("ANLS / |M| without", "PR", "EB", "DP")
    assert changes.rows == (("Donut<b>", "50.0 / 10", "-3.4 / 6", "+1.2 / 0", "-30.0 / 1"),)
    defences = table_of(NUMBERS, "defence")
    assert defences.rows == (
        ("none", "12", "3", "10", *NONE, "6", "4", "0.500", "+0.0", ""),
        ("PR", "8", "3", "6", *NONE, "4", "2", "0.466", "-3.4 [-10.0, +3.0]", ""),
        ("EB", "1", "3", "0", *NONE, "0", "0", "0.512", "+1.2 [-2.0, +4.0]", ""),
        (
            "DP",
            "3",
            "3",
            "1",
            *NONE,
            "0",
            "0",
            "0.200",
            "-30.0 [-40.0, -20.0]",
            "ε = 8.00, δ = 1e-05",
        ),
    )


def test_contexts_have_their_names_and_blocking_stands_beside_the_same():
    asked, blocked = (t for t in tables(NUMBERS) if t.headings[0] == "context")
    assert asked.rows == (
        ("baseline", "40", "12", "3", "10", *NONE, "6", "4"),
        ("brightness ×0.5", "39", "6", "1", "5", *NONE, "2", "1"),
        ("own <context>", "40", "2", "1", "1", *NONE, "0", "0"),
    )
    assert blocked.headings == ("context", "without defence", "EB")
    assert blocked.rows == (("baseline", "10 / 6", "0 / 0"),)


def test_the_side_channel_and_exposure_have_their_intervals():
    channel = table_of(NUMBERS, "training")
    assert channel.headings == ("training", "AUC", "TPR at 1.0%")
    assert channel.rows == (
        ("standard", "0.520 [0.460, 0.580]", "0.010 [0.000, 0.070]"),
        ("EB", "0.810 [0.760, 0.860]", "0.220 [0.110, 0.360]"),
    )
    secrets, bounds = table_of(NUMBERS, "secrets planted"), table_of(NUMBERS, "bounds")
    assert secrets.rows[1] == ("FedAvg 10 times", "9.000 [8.000, 9.900]", "1.500 [1.100, 1.900]",
                               "8")  # fmt: skip
    assert bounds.rows == (
        ("FedAvg", "1,000", "9.97", "1.44", "0.150", "0.42"),
        ("FeAm-DP", "1,000", "9.97", "1.44", "—", "—"),
    )


@pytest.mark.parametrize(
    ("left", "change", "between", "verdict"),
    [
        (
            0,
            0.012,
            [-0.03, 0.05],
            "stops the extraction: |M| goes from 10 to 0, ANLS changes by "
            "+1.2 [-3.0, +5.0] points.",
        ),
        (0, -0.02, [-0.05, 0.01], "stops the extraction: |M| goes from 10 to 0, ANLS"),
        (0, -0.05, [-0.08, -0.01], "stops the extraction, at a cost: |M| goes from 10 to 0, ANLS"),
        (4, 0.012, [0.0, 0.02], "does not stop the extraction: |M| goes from 10 to 4, ANLS"),
        (0, None, None, "stops the extraction: |M| goes from 10 to 0."),
    ],
)
def test_it_is_said_whether_blocking_did_what_it_promises(left, change, between, verdict):
    defences = copy.deepcopy(NUMBERS["defences"])
    defences["EB"] |= {"M": left, "anls_change": change, "anls_change_interval": between}
    note = table_of(changed(defences=defences), "ΔANLS / |M|").note
    assert note.startswith(f"Extraction blocking {verdict}")


def test_controls_say_what_is_amiss():
    found = table_of(NUMBERS, "model")
    assert found.rows == (
        ("untrained", "0 of 40"),
        ("trained without the canaries", "4"),
        ("another without them", "3, 2 of them the same"),
    )
    assert "untrained" not in found.note
    assert "they say with p = 1: " in found.note
    wrong = table_of(changed(controls={"untrained": {"E": 2, "canaries": 40}}), "model")
    assert wrong.rows == (("untrained", "2 of 40"),)
    assert "The untrained model says answers, though it can have memorised none." in wrong.note


PARTS = ("memorization", "resolutions", "side_channel", "controls", "exposure")


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_was_not_studied_has_no_table(part):
    rest = {key: value for key, value in NUMBERS.items() if key != part}
    given = SCORES if part != "memorization" else {}
    titles = [one.title for one in tables(NUMBERS)]
    left = [one.title for one in tables(rest)]
    lost = {title for title in titles if title not in left}
    assert len(lost) == 1
    assert list(dict.fromkeys(left)) == [t for t in dict.fromkeys(titles) if t not in lost]
    assert not lost & {figure.section for figure in figures(rest, given)}


# Figures


def test_figures_hold_the_numbers():
    found = figures_of(NUMBERS)
    assert found["Canaries in each set"]["bars"] == {
        "canaries": {"|E|": 12, "|G|": 3, "|M|": 10, "PII in M": 6, "unique PII": 4}
    }
    repeats = found["By how often the answer was trained on"]["bars"]
    assert repeats == {
        "|E|": {"1×": 7, "10×": 5}, "|G|": {"1×": 3, "10×": 0}, "|M|": {"1×": 5, "10×": 5}
    }  # fmt: skip
    assert found["By training resolution, pixels"]["bars"]["|M|"] == {"96": 10, "48": 18}
    personal = found["Personal information by training resolution, pixels"]["bars"]
    assert personal["unique PII"] == {"96": 4, "48": 7}
    asked = found[BY_CONTEXT]
    assert asked["bars"] == {"without defence": {"baseline": 10, "brightness ×0.5": 5}}
    assert asked["darker"] == {"without defence": {"baseline": 6, "brightness ×0.5": 2}}
    exposed = found["Exposure of planted secrets, bits"]
    assert exposed["lines"]["FedAvg"]["in"]["mean"] == {"1": 2.5, "10": 9.0}
    assert (exposed["bound"], exposed["baseline"]) == (9.967, 1.437)


def test_blocking_is_drawn_where_it_was_asked_the_same():
    defences = copy.deepcopy(NUMBERS["defences"])
    defences["EB"]["contexts"]["brightness_0.5"] = {"asked": 40, "M": 2, "pii": 1}
    asked = figures_of(changed(defences=defences))[BY_CONTEXT]
    assert asked["bars"]["EB"] == {"baseline": 0, "brightness ×0.5": 2}
    assert asked["darker"]["EB"] == {"baseline": 0, "brightness ×0.5": 1}


def test_histograms_are_of_all_of_m_and_of_g():
    panels = figures_of(NUMBERS)["Canaries by memorization and simplicity"]["panels"]
    taken = {name: np.argwhere(np.array(counts)).tolist() for name, counts in panels.items()}
    # Rows S_E = 0, ½ … 2, columns M_E = -1, -½ … 1.
    assert taken == {
        "all canaries": [[0, 2], [1, 3], [2, 4], [4, 2]],
        "M = E ∖ G": [[1, 3], [2, 4]],
        "G": [[4, 2]],
    }


# The report


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = RunFolder.made(tmp_path_factory.mktemp("runs") / "run")
    folder.write_config({"name": "extraction", "rounds": 1})
    shown = (tables(NUMBERS), figures(NUMBERS, SCORES), ("mind <this>",), ("knows <Q>",))
    result = Result("extraction", headline(NUMBERS, PRIMARY), NUMBERS, *shown)
    write_result(folder, "extraction", result)
    return write_report(folder.path).read_text("utf-8")


def test_the_page_has_a_section_for_each_part(page):
    for heading in (
        "Extracted answers",
        "By training resolution",
        "Memorization",
        "Contexts",
        "Defences",
        "Side channel of extraction blocking",
        "Controls",
        "Exposure",
    ):
        assert f"<h4>{heading}" in page, heading
    assert headline(NUMBERS, PRIMARY) in page


def test_every_figure_is_drawn(page):
    for title in figures_of(NUMBERS):
        caption = rf'<figcaption>{re.escape(title)}<span class="see">[^<]+</span></figcaption>'
        assert re.search(rf"{caption}\s*<svg", page), title
    assert "is not drawn" not in page


def test_texts_of_a_result_are_escaped(page):
    for tame in ("Donut&lt;b&gt;", "knows &lt;Q&gt;", "own &lt;context&gt;", "mind &lt;this&gt;"):
        assert tame in page
    for wild in ("Donut<b>", "<Q>", "<context>", "<sequence>", "<this>", "<script"):
        assert wild not in page


def test_a_context_of_another_name_is_in_the_table_and_in_no_picture(page):
    drawings = " ".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "own" not in drawings
    assert CONTEXTS["brightness_0.5"] in drawings


# The scorer


def canary(name, pii, repeats):
    pixels = np.zeros((2, 2), np.uint8)
    asked = (Question("key", f"{name}?", (name,)),)
    page = Document(name, "provider", pixels, (2, 2), (), questions=asked)
    return Canary(f"{name}/0", page, page, pii, repeats)


def bits(text):
    return tuple({"1": True, "0": False, "-": None}[letter] for letter in text)


def said(baseline, anls=None, losses=None, **others):
    extracted = {name: bits(text) for name, text in {"baseline": baseline, **others}.items()}
    # Of ten pages with one question each.
    marks = {name: ((value,),) * 10 for name, value in (anls or {}).items()}
    return Said(extracted, marks, losses or {})


FOUR = (
    canary("ann", "person", 1), canary("blue", "", 1), canary("rome", "place", 2),
    canary("lima", "place", 2),
)  # fmt: skip
LOSSES = {"trained": (0.1, 2.0, 0.2, 3.0), "blocked": (5.0, 5.0, 5.0, 5.0)}
CLAIM = ExtractedAnswers(
    canaries=FOUR,
    described={"drawn": 5, "kept": 4, "planted": 0, "dropped": {"left a trace": 1}, "training": 9},
    inside=np.array([bits("1010"), bits("0101")]),
    said={
        "all": said("1110", {"none": 0.9, "PR": 0.85}, PR="1000", shuffle="10--"),
        "all-without": said("0010", {"none": 0.8, "PR": 0.8}, PR="0000", shuffle="00--"),
        "split-00": said("1010", losses=LOSSES),
        "split-01": said("0110"),
        "EB": said("0000", {"none": 0.9}),
        "EB-without": said("0010", {"none": 0.7}),
        "DP": said("1000", {"none": 0.4}),
        "DP-without": said("0000", {"none": 0.4}),
        "untrained": said("0000"),
        "unseen": said("0001"),
    },
    exposed={},
    trained={
        "all": {"model": "fedpriv.models.donut.donut", "strategy": "x"},
        "DP": {"model": "m", "strategy": "x", "epsilon": 8.0, "delta": 1e-5},
    },
    resolutions={},
    prompts=("PR",),
    target="final",
    seed=0,
    originals=False,
)


@pytest.fixture(scope="module")
def scoring():
    return Scoring(None, {}, AttackSettings(), np.random.default_rng(0))


@pytest.fixture(scope="module")
def scored(scoring):
    return score_answers([CLAIM], scoring)


def of(found, answers):
    return {"answers_in_M": found, "answers": answers}


def counted(row):
    return {name: value for name, value in row.items() if name != "interval"}


def test_the_sets_follow_from_what_the_models_say(scored):
    numbers = scored.details
    assert {key: numbers[key] for key in ("E", "G", "M", "pii", "unique_pii")} == {
        "E": 3, "G": 1, "M": 2, "pii": 1, "unique_pii": 1
    }  # fmt: skip
    assert numbers["pii_classes"] == {"person": 1}
    assert {n: counted(row) for n, row in numbers["by_repeats"].items()} == {
        "1": {"canaries": 2, "E": 2, "G": 0, "M": 2, "control": 0, **of(2, 2)},
        "2": {"canaries": 2, "E": 1, "G": 1, "M": 0, "control": 0, **of(0, 2)},
    }
    assert scored.headline.startswith(
        "the model says 3 of 4 training answers that were taken off their page, and one trained "
        "without them says 1: 2 are in M, 1 of these personal, and 0 are the other way round; "
        "M_E 0.500 ["
    )
    assert (numbers["model"], numbers["splits"]) == ("donut", 2)


def test_the_scores_follow_from_the_splits(scored, scoring):
    """Ann and blue are said by the split with them only, rome by both, lima by none."""
    assert scoring.files["scores.json"]["memorization"] == [1.0, 1.0, 0.0, 0.0]
    assert scoring.files["scores.json"]["simplicity"] == [1.0, 1.0, 2.0, 0.0]
    scores = scored.details["memorization"]
    assert scores["mean"] == 0.5
    assert (scores["of_M"]["mean"], scores["of_M"]["count"]) == (1.0, 2)
    assert (scores["of_G"]["mean"], scores["of_G"]["count"]) == (0.0, 1)
    assert scores["rank_test"]["auc"] == 1.0
    assert scores["null"] is None  # one model on either side cannot be halved
    assert scored.details["simplicity"]["mean"] == 1.0


def test_contexts_count_what_could_be_asked(scored):
    assert {name: counted(row) for name, row in scored.details["contexts"].items()} == {
        "baseline": sizes(3, 1, 2, 1, 1, asked=4, control=0, **of(2, 4)),
        "shuffle": sizes(1, 0, 1, 1, 1, asked=2, control=0, **of(1, 2)),
    }


def test_contexts_and_defences_stand_beside_what_chance_makes_of_them(scored):
    held = {name: (one.value, one.control, one.n) for name, one in scored.numbers.items()}
    assert held == {
        "M_E": (0.5, 0, 4),
        "M": (0.5, 0, 4),
        "M, shuffled": (0.5, 0, 2),
        "M under PR": (0.25, 0, 4),
        "M under EB": (0, 0.25, 4),
        "M under DP": (0.25, 0, 4),
    }
    assert all(one.unit == "answer" and one.interval for one in scored.numbers.values())


def test_defences_stand_against_the_model_without_any(scored):
    rows = scored.details["defences"]
    shown = {name: (row["M"], row["anls_change"]) for name, row in rows.items()}
    assert shown == {
        "none": (2, 0.0),
        "PR": (1, pytest.approx(-0.05)),
        "EB": (0, 0.0),
        "DP": (1, pytest.approx(-0.5)),
    }
    (blocked,) = rows["EB"]["contexts"].values()
    assert counted(blocked) == sizes(0, 1, 0, 0, 0, asked=4, control=1, **of(0, 4))
    assert (rows["DP"]["epsilon"], rows["DP"]["delta"]) == (8.0, 1e-5)
    (changes,) = (t for t in scored.tables if t.headings[0] == "ΔANLS / |M|")
    assert changes.rows == (("donut", "90.0 / 2", "-5.0 / 1", "+0.0 / 0", "-50.0 / 1"),)
    assert "Extraction blocking stops the extraction: |M| goes from 2 to 0" in changes.note


def test_members_are_told_by_the_loss_and_controls_compared(scored):
    channel = scored.details["side_channel"]
    assert channel["standard"]["auc"] == 1.0  # 0.1 and 0.2 in, 2 and 3 out
    assert channel["standard, refusal"]["auc"] == 0.5  # all alike
    assert set(channel) == {"standard", "standard, refusal"}
    assert scored.details["controls"] == {
        "untrained": {"E": 0, "canaries": 4},
        "unseen": {"E": 1, "G": 1, "both": 0, "p": 1.0},
    }


def test_a_row_for_each_canary_holds_no_answer(scored, scoring):
    rows = scoring.files["canaries.json"]
    assert [(row["document"], row["E"], row["G"]) for row in rows] == [
        ("ann", True, False), ("blue", True, False), ("rome", True, True), ("lima", False, False)
    ]  # fmt: skip
    assert not any("answer" in row or "question" in row for row in rows)


def test_the_terminal_shows_the_result(scored):
    shown = [" ".join(line.split()) for line in render.lines(scored)]
    assert shown[0].startswith("cannot tell: the model says 3 of 4 training answers")
    assert "all 4 3 1 2 0 2 of 4 [0, 4] 1 1" in shown
    assert "shuffled 2 1 0 1 0 1 of 2 [0, 2] 1 1" in shown
    assert "DP 1 0 1 0 1 of 4 [0, 3] 1 1 0.400 -50.0 [-50.0, -50.0] ε = 8.00, δ = 1e-05" in shown
    assert any("f is trained on 9 samples, f_G on 5" in line for line in shown)


def test_without_another_model_there_is_e_alone():
    alone = {**vars(CLAIM), "said": {"all": CLAIM.said["all"]}, "inside": np.zeros((0, 4), bool)}
    found = score_answers([ExtractedAnswers(**alone)], Scoring(None, {}, AttackSettings(), None))
    assert found.details["E"] == 3
    assert "M" not in found.details
    assert found.headline == (
        "the model says 3 of 4 training answers that were taken off their page; how many of them "
        "it would say without having seen them is not known"
    )
    (table,) = found.tables
    assert table.rows == (("baseline", "4", "3"), ("PR", "4", "1"), ("shuffled", "2", "1"))
