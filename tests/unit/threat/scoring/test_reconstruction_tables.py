"""What terminal and report show of attacks on scrubbed fields."""

from fedpriv.threat.results import Number
from fedpriv.threat.scoring.reconstruction_tables import (
    MOST_PRINTED,
    figures,
    headline,
    notes,
    tables,
)


def pair(attack, baseline):
    return {"attack": attack, "baseline": baseline}


PERFECT = {
    "rank": 1,
    "key": "date",
    "text": "april 13, 1984",
    "length": 4,
    "occurrences": 2,
    "public": 3,
    "baseline": False,
}
ROUND = {
    "round": 5,
    "ipf": 1.1,
    "ipf_interval": [0.95, 1.25],
    "ipf_held_out": 1.02,
    "acc_auc": pair(0.01, 0.005),
    "ham_aac": 0.2,
    "pr": pair(0.02, 0.01),
    "loss": 0.4,
    "score": None,
}
HELD_OUT = {
    "fields": 80,
    "documents": 20,
    "ipf": 1.04,
    "ipf_interval": [0.98, 1.1],
    "pr": pair(0.0, 0.0),
    "ham": pair(0.71, 0.72),
}
CDMI = {
    "target": "round 12 (best validation score)",
    "ipf": 1.395,
    "ipf_interval": [1.21, 1.58],
    "ipf_epsilon": 0.01,
    "ipf_terms": {"pr": 0.5, "hd": 0.3, "ld": 0.3, "jwd": 0.295},
    "ipf_by_epsilon": {"0.01": 1.395, "0.05": 1.22},
    "distinct_attempts": 1.13,
    "held_out": HELD_OUT,
    "ham": pair(0.6, 0.7),
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
    "by_key": {
        "date": {
            "fields": 777,
            "ipf": 1.395,
            "ipf_interval": [1.21, 1.58],
            "pr": pair(0.027, 0.0077),
            "held_out": HELD_OUT,
        }
    },
    "fields": 777,
    "documents": 75,
    "attempts": 8,
    "membership": "ratio",
    "mute": "",
    "perfect": [PERFECT],
    "not_public": None,
    "series": [],
}
CURVES = {
    "fields": 777,
    "p": [1 / 777, 0.5, 1.0],
    "acc_at": pair([1.0, 0.05, 0.027], [0.0, 0.01, 0.008]),
    "ham_at": pair([0.0, 0.6, 0.7], [1.0, 0.7, 0.8]),
}


SERIES = [ROUND, {**ROUND, "round": 10, "ipf": 1.3}]


def table(start, **changes):
    """Returns the table whose first heading is this."""
    return next(t for t in tables({**CDMI, **changes}) if t.headings[0] == start)


def drawn(**changes):
    return {one.title: one for one in figures({**CDMI, **changes}, CURVES)}


GAIN = Number(0.31, (0.25, 0.37), 40, "document", 0.01, 0.08, 2e-9)


def test_the_headline_says_what_is_gained_beyond_the_fields_held_out():
    assert headline(CDMI, GAIN) == (
        "share of right tokens +0.310 against the baseline, in fields whose text no other document "
        "has, on 40 documents, against 0.01 without a leak, p 2e-09; IpF 1.395 [1.210, 1.580] of "
        "777 fields with the model of round 12 (best validation score), 1.040 [0.980, 1.100] of "
        "fields held out (attempts: 8; ε = 0.01, 95% interval)"
    )


def test_the_headline_says_where_there_is_nothing_to_compare_with():
    alone = headline({**CDMI, "held_out": None}, Number(0.31, (0.25, 0.37), 40, "document"))
    assert "no such field of a document held out was attacked" in alone
    assert "(data.test.fraction, controls)" in alone
    assert "every text is in another document too" in headline(CDMI, None)


def test_the_notes_say_what_epsilon_makes_of_a_baseline_that_is_perfect_nowhere():
    (only,) = [one for one in notes({**CDMI, "pr": pair(0.1, 0.0)}) if "ε" in one]
    assert "ε decides 0.50 of the IpF of 1.40; it would be 1.40 at ε = 0.01, 1.22 at" in only
    assert not any("ε" in one for one in notes(CDMI))


def test_the_notes_say_how_many_attempts_differ():
    (only,) = notes(CDMI)
    assert only.startswith("the 8 attempts at a field are 1.13 different ones, so that several")
    (many,) = notes({**CDMI, "distinct_attempts": 7.0})
    assert many.endswith("7.00 different ones")
    assert not list(notes({**CDMI, "attempts": 1}))


def test_fields_trained_on_stand_beside_those_held_out():
    alone = {**CDMI["by_key"]["date"], "documents": 30, "ham": pair(0.5, 0.7), "fields": 90}
    shown = table("first attempts at fields", not_public=alone)
    assert [row[0] for row in shown.rows] == [
        "trained on",
        "held out",
        "trained on, in no other document",
        "held out, in no other document",
    ]
    held_out = ("80", "20", "1.040 [0.980, 1.100]", "0.710 (0.720)", "0.000 (0.000)")
    assert shown.rows[1][1:] == shown.rows[3][1:] == held_out
    alone = table("first attempts at fields", held_out=None, not_public=None)
    assert [row[0] for row in alone.rows] == ["trained on"]


def test_the_table_of_the_paper():
    shown = table("")
    assert shown.headings == (
        *("", "IpF", "HamAAC", "AccAUC"), *("AccAt 1%", "AccAt 5%", "AccAt 100%"),
    )  # fmt: skip
    assert shown.rows == (
        (
            "attack, sorted by ratio",
            "1.395 [1.210, 1.580]",
            *["0.274", "0.061", "0.125", "0.154", "0.027"],
        ),
        ("baseline", "1", *["0.151", "0.011", "0.000", "0.026", "0.008"]),
        ("attack - baseline", "", "[-0.012, +0.163]", "[+0.021, +0.083]", "", "", ""),
        ("attack, sorted by raw", "", *["0.122", "0.003", "0.000", "0.051", "0.019"]),
    )
    assert "bootstrap over documents" in shown.note


def test_first_attempts():
    shown = table("first attempts")
    assert shown.headings[1:] == ("PR", "HD", "LD", "JWD")
    assert shown.rows[0] == ("attack", "0.027", "3.200", "0.600", "0.400")
    assert shown.rows[1] == ("baseline", "0.008", "3.900", "0.700", "0.500")


def test_keys_are_for_the_report_and_what_no_public_document_holds_stands_apart():
    alone = {
        **{"fields": 9, "documents": 1, "ipf": 1.2, "ipf_interval": None},
        **{"pr": pair(0.1, 0.0), "ham": pair(0.5, 0.7), "held_out": None},
    }
    shown = table("first attempts by key", not_public=alone)
    assert shown.printed == 0
    assert shown.rows == (
        ("date", "777", "1.395 [1.210, 1.580]", "1.040 [0.980, 1.100]", "0.027", "0.008"),
        ("in no other document", "9", "1.200", "—", "0.100", "0.000"),
    )
    assert len(table("first attempts by key").rows) == 1


def test_perfect_reconstructions():
    shown = table("perfect")
    assert shown.rows == (("april 13, 1984", "date", "4", "2", "3", "1", "no"),)
    assert shown.printed == MOST_PRINTED
    assert "Trained on" in shown.note
    assert "None of the chosen attempts is perfect." in table("perfect", perfect=[]).note


def test_a_series_has_a_row_for_each_round():
    assert table("round", series=SERIES).rows == (
        (
            "5",
            "1.100 [0.950, 1.250]",
            "1.020",
            "0.010 (0.005)",
            "0.200",
            "0.020 (0.010)",
            "0.400",
            "—",
        ),
        (
            "10",
            "1.300 [0.950, 1.250]",
            "1.020",
            "0.010 (0.005)",
            "0.200",
            "0.020 (0.010)",
            "0.400",
            "—",
        ),
    )
    assert not any(one.headings[0] == "round" for one in tables(CDMI))


def test_the_figures_of_the_paper_are_drawn():
    shown = drawn()
    assert {one.kind for one in shown.values()} == {"shares", "bars"}
    over_p = shown["AccAt(p), perfect reconstructions"].data["curves"]
    assert over_p == {side: [CURVES["p"], CURVES["acc_at"][side]] for side in CURVES["acc_at"]}
    assert "HamAt(p), wrong tokens" in shown
    bars = shown["Sorted reconstructions: the higher, the more was learnt"].data["bars"]
    assert (bars["attack"]["HamAAC"], bars["baseline"]["AccAUC"]) == (0.274, 0.011)


def test_a_series_is_drawn_where_it_has_numbers():
    shown = drawn(series=SERIES)
    assert shown["Improvement factor"].data == {
        "curves": {
            "IpF": {5: 1.1, 10: 1.3},
            "IpF, held out": {5: 1.02, 10: 1.02},
            "interval, lower end": {5: 0.95, 10: 0.95},
            "interval, upper end": {5: 1.25, 10: 1.25},
        },
        "x": "round",
    }
    areas = shown["Sorted reconstructions"].data["curves"]
    assert set(areas) == {"AccAUC attack", "AccAUC baseline", "HamAAC"}
    assert "Validation loss" in shown
    assert "Validation score" not in shown  # none is recorded
