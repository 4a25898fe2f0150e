"""From an attack's reconstructions and the truth to numbers and files."""

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from fedpriv.threat.access import ScrubbedField, ScrubbedFields
from fedpriv.threat.attack import Remarks
from fedpriv.threat.claims import PUBLIC, Attempt, FieldGuesses, Reconstruction
from fedpriv.threat.results import CANNOT_TELL, LEAK, NONE_SHOWN
from fedpriv.threat.scoring.reconstructions import (
    MOST_PERFECT,
    MOST_POINTS,
    ReconstructionSettings,
    score_guesses,
)
from fedpriv.threat.scoring.registry import Scoring
from fedpriv.threat.settings import composed
from fedpriv.threat.surfaces.models import SeriesSettings
from fedpriv.threat.truth import TrueField


def attempt(*tokens, gap=0.0, ratio=0.0):
    return Attempt(tokens, {"gap": gap, "ratio": ratio})


def public(*tokens, sure=0.0):
    return Attempt(tokens, {PUBLIC: sure})


FIELDS = (
    ScrubbedField(0, "a", "date", (5, 6)),
    ScrubbedField(1, "a", "total", (9, 10)),
    ScrubbedField(2, "b", "date", (5, 6)),
    ScrubbedField(3, "b", "total", (2, 3, 4, 5)),
)
TRUTHS = {
    0: TrueField((10, 11), "3 May", occurrences=2, public=3),
    1: TrueField((20, 21), "$ 12"),
    2: TrueField((30, 31), "4 June"),
    3: TrueField((40, 41, 42, 43), "secret"),
}
FOUND = FieldGuesses(
    (
        # Its second attempt is right and the surest of all; by ratio the first one is kept.
        Reconstruction(
            0,
            (attempt(10, 99, gap=1, ratio=9), attempt(10, 11, gap=7, ratio=2)),
            (public(10, 99, sure=3), public(10, 98, sure=4)),
        ),
        # Right at once, and kept by either.
        Reconstruction(
            1,
            (attempt(20, 21, gap=5, ratio=1), attempt(99, 99, gap=4, ratio=0)),
            (public(99, 99, sure=1), public(20, 21, sure=2)),
        ),
        # Right at once, but another is kept.
        Reconstruction(
            2,
            (attempt(30, 31, gap=0, ratio=5), attempt(99, 99, gap=6, ratio=4)),
            (public(30, 31, sure=9), public(99, 99, sure=8)),
        ),
        # Never right.
        Reconstruction(
            3,
            (attempt(40, 41, 42, 99, gap=3, ratio=3), attempt(99, 99, 99, 99, gap=2, ratio=2)),
            (public(99, 99, 99, 99, sure=5), public(40, 41, 42, 99, sure=0)),
        ),
    ),
    membership="gap",
)


def in_words(tokens):
    return " ".join(f"t{one}" for one in tokens)


scored_by = composed([SeriesSettings], ReconstructionSettings)
"""Settings of an attack on a series of models."""


def scored(*found, fields=FIELDS, truths=TRUTHS, left_out=None, **settings):
    """Returns the result and the files beside it, as JSON has them."""
    scoring = Scoring(
        SimpleNamespace(fields=lambda: truths),
        {ScrubbedFields: ScrubbedFields(tuple(fields), None, in_words, {"too long": 1})},
        scored_by(**{"resamples": 100, **settings}),
        np.random.default_rng(0),
        remarks=Remarks(left_out=left_out or {}),
    )
    result = score_guesses(found or (FOUND,), scoring)
    return result, json.loads(json.dumps(scoring.files, allow_nan=False))


def scores(*found, **settings):
    return scored(*found, **settings)[0].details


def alone(number, mine, theirs=None):
    """One field's reconstruction only."""
    found = Reconstruction(number, mine, theirs or (public(*mine[0].tokens),))
    return FieldGuesses((found,), "gap")


def test_the_one_shot_part_is_of_the_first_attempts():
    found = scores()
    # By hand. Attack: wrong tokens 1, 0, 0, 1; baseline: 1, 2, 0, 4.
    assert found["pr"] == {"attack": 0.5, "baseline": 0.25}
    assert found["hd"] == {"attack": 0.5, "baseline": 1.75}
    assert found["ld"] == {"attack": (0.5 + 0.25) / 4, "baseline": (0.5 + 1 + 1) / 4}
    # Jaro-Winkler of [10 11] and [10 99]: Jaro (1/2 + 1/2 + 1)/3 = 2/3, not raised below .7.
    # Of 3 in 4: (3/4 + 3/4 + 1)/3 = 5/6, and three equal ones at the front: + .3/6.
    third, sixth = 1 / 3, 1 / 6 * (1 - 0.3)
    jwd = found["jwd"]
    assert jwd["attack"] == pytest.approx((third + sixth) / 4)
    assert jwd["baseline"] == pytest.approx((third + 1 + 1) / 4)
    e = 0.01
    assert found["ipf"] == pytest.approx(
        (0.51 / 0.26 + 1.76 / 0.51 + (0.625 + e) / (0.1875 + e)
         + (jwd["baseline"] + e) / (jwd["attack"] + e)) / 4
    )  # fmt: skip
    assert found["ipf_epsilon"] == e
    assert found["level"] == 0.95
    low, high = found["ipf_interval"]
    assert low < found["ipf"] < high


def test_of_each_field_the_surest_attempt_is_kept_and_the_fields_sorted():
    found = scores()
    # By gap: field 0 right (7), 2 wrong (6), 1 right (5), 3 one of four wrong (3).
    assert found["acc_auc"]["attack"] == pytest.approx((1 + 1 / 2 + 2 / 3 + 2 / 4) / 4)
    assert found["ham_aac"]["attack"] == pytest.approx(1 - (0 + 1 / 2 + 1 / 3 + 1.25 / 4) / 4)
    # By the public confidence: 2 right (9), 3 all wrong (5), 0 half (4), 1 right (2).
    assert found["acc_auc"]["baseline"] == pytest.approx((1 + 1 / 2 + 1 / 3 + 2 / 4) / 4)
    assert found["ham_aac"]["baseline"] == pytest.approx(1 - (0 + 1 / 2 + 1.5 / 3 + 1.5 / 4) / 4)
    assert found["acc_at"] == {
        "0.01": {"attack": 1, "baseline": 1},
        "0.05": {"attack": 1, "baseline": 1},
        "1.0": {"attack": 0.5, "baseline": 0.5},
    }
    assert found["ham_at"]["1.0"] == {"attack": 1.25 / 4, "baseline": 1.5 / 4}
    for name in ("acc_auc", "ham_aac"):
        low, high = found[f"{name}_gain_interval"]
        assert low <= found[name]["attack"] - found[name]["baseline"] <= high


def test_each_membership_metric_chooses_and_sorts_for_itself():
    found = scores()["by_membership"]
    assert list(found) == ["gap", "ratio"]
    assert found["gap"]["acc_auc"] == scores()["acc_auc"]["attack"]
    # By ratio: 0 half (9), 2 right (5), 3 a quarter wrong (3), 1 right (1).
    assert found["ratio"]["acc_auc"] == pytest.approx((0 + 1 / 2 + 1 / 3 + 2 / 4) / 4)
    assert found["ratio"]["ham_aac"] == pytest.approx(1 - (1 / 2 + 1 / 4 + 0.75 / 3 + 0.75 / 4) / 4)
    assert found["ratio"]["acc_at"] == {"0.01": 0, "0.05": 0, "1.0": 0.5}


def test_fields_that_are_public_are_told_apart():
    alone = scores()["not_public"]
    assert alone["fields"] == 3
    # Of fields 1, 2 and 3 the first attempts at 1 and 2 are right.
    assert alone["pr"]["attack"] == pytest.approx(2 / 3)


def test_numbers_by_key_are_of_the_first_attempts():
    found = scores()["by_key"]
    assert {key: row["fields"] for key, row in found.items()} == {"date": 2, "total": 2}
    assert found["date"]["ipf"] == 1  # attack and baseline begin alike
    assert found["date"]["pr"] == {"attack": 0.5, "baseline": 0.5}
    assert found["total"]["pr"] == {"attack": 0.5, "baseline": 0}
    assert found["total"]["ipf"] > 2


def test_counts():
    found = scores()
    counts = ("fields", "documents", "attempts", "membership")
    assert [found[name] for name in counts] == [4, 2, 2, "gap"]


def test_perfect_reconstructions_stand_with_rank_length_and_occurrences():
    common = {"length": 2}
    assert scores()["perfect"] == [
        {
            "rank": 1,
            "key": "date",
            "text": "3 May",
            "occurrences": 2,
            "public": 3,
            "baseline": False,
            **common,
        },
        {
            "rank": 3,
            "key": "total",
            "text": "$ 12",
            "occurrences": 1,
            "public": 0,
            "baseline": True,
            **common,
        },
    ]


def many(count):
    """So many fields, all perfect, the last the surest."""
    fields = [ScrubbedField(i, f"d{i}", "k", (0,)) for i in range(count)]
    truths = {i: TrueField((i,), str(i)) for i in range(count)}
    found = [Reconstruction(i, (attempt(i, gap=i),), (public(i),)) for i in range(count)]
    return scored(FieldGuesses(tuple(found), "gap"), fields=fields, truths=truths)


def test_lists_and_curves_keep_a_length_that_a_report_can_show():
    three = many(60)[0].details["perfect"]
    assert [one["text"] for one in three] == [str(i) for i in range(59, 59 - MOST_PERFECT, -1)]
    drawn = many(777)[1]["curves.json"]
    assert len(drawn["p"]) == len(drawn["acc_at"]["attack"]) <= MOST_POINTS
    assert (drawn["p"][0], drawn["p"][-1]) == (1 / 777, 1)
    assert drawn["p"] == sorted(set(drawn["p"]))


def test_curves_are_those_of_the_areas():
    drawn = scored()[1]["curves.json"]
    assert drawn["p"] == [0.25, 0.5, 0.75, 1]
    assert drawn["fields"] == 4
    assert drawn["acc_at"]["attack"] == [1, 0.5, pytest.approx(2 / 3), 0.5]
    assert drawn["ham_at"]["baseline"] == [0, 0.5, 0.5, 0.375]


def test_an_attack_that_does_as_the_baseline_does_gains_exactly_nothing():
    same = tuple(
        dataclasses.replace(
            one, baseline=tuple(public(*a.tokens, sure=a.confidence["gap"]) for a in one.attempts)
        )
        for one in FOUND.fields
    )
    found = scores(dataclasses.replace(FOUND, fields=same))
    assert found["ipf"] == 1
    assert found["ipf_interval"] == [1, 1]
    for name in ("acc_auc", "ham_aac"):
        assert found[f"{name}_gain_interval"] == [0, 0]


def test_scores_are_json_and_depend_on_the_seed_only():
    assert json.loads(json.dumps(scores(), allow_nan=False)) == scores()


def test_of_equal_confidences_the_first_attempt_is_kept():
    for tokens, share in (((10, 11), 1), ((10, 99), 0)):
        others = tuple(attempt(*pair) for pair in (tokens, (10, 11), (10, 99)))
        assert scores(alone(0, others))["acc_at"]["1.0"]["attack"] == share


def test_settings_reach_the_numbers():
    assert scores(epsilon=1.0)["ipf"] < scores()["ipf"]
    low, high = scores(confidence=0.1)["ipf_interval"]
    wide = scores(confidence=0.99)["ipf_interval"]
    assert wide[0] <= low <= high <= wide[1]
    assert wide[1] - wide[0] > high - low


def test_each_model_is_scored_as_it_would_be_alone():
    other = dataclasses.replace(alone(0, (attempt(10, 99),)), round=3, measured={"loss": 0.5})
    found = scores(other, FOUND, target="series")
    brief = {"round", "ipf", "ipf_interval", "ipf_held_out", "pr", "acc_auc", "ham_aac", "acc_at"}
    # The first model's only field is public, so that nothing is gained that can be told.
    gain = {"gain", "gain_held_out"}
    assert [set(row) for row in found["series"]] == [{*brief, "loss"}, {*brief, *gain}]
    for row, one in zip(found["series"], (other, FOUND), strict=True):
        expected = {**scores(one), "round": one.round, **one.measured}
        assert row == {name: expected[name] for name in row}
    single = scores()
    assert single == {**found, "series": []}


def test_without_a_field_the_reasons_are_named():
    nothing = dataclasses.replace(FOUND, fields=())
    with pytest.raises(ValueError, match="no field was attacked: 1 too long; 2 cut"):
        scores(nothing, left_out={"cut": 2})


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (alone(3, (attempt(1, 2),)), r"field 3 \(total of b\) is reconstructed as 2 tokens: .* 4"),
        (alone(0, (attempt(1, 2),), (public(1),)), r"field 0 .* as 1 tokens: expected 2"),
        (alone(0, (attempt(1, 2), Attempt((1, 2), {"gap": 1}))), r"without .* 'ratio'"),
        (alone(0, (Attempt((1, 2), {"ratio": 1}),)), r"without .* 'gap': expected gap, ratio"),
        (alone(0, (attempt(1, 2),), (attempt(1, 2),)), "without the confidence 'public'"),
        (alone(0, (attempt(1, 2, ratio=math.nan),)), "'ratio' is not a number"),
        (FieldGuesses((Reconstruction(0, (), ()),), "gap"), "field 0 .* has no attempt"),
        (alone(0, (Attempt((1, 2), {"gap": 1, "public": 1}),)), "calls a confidence 'public'"),
        (alone(7, (attempt(1, 2),)), "field 7 is not among the fields to attack"),
        (dataclasses.replace(FOUND, fields=FOUND.fields[:1] * 2), "or is reconstructed twice"),
    ],
)
def test_what_cannot_be_compared_is_named(found, message):
    with pytest.raises(ValueError, match=message):
        scores(found)


def test_curves_and_fields_lie_beside_the_result():
    result, files = scored()
    assert result.left_out == {"too long": 1}
    assert set(files) == {"curves.json", "fields.json"}
    assert files["fields.json"][0] == {
        "document": "a",
        "trained": True,
        "key": "date",
        "length": 2,
        "one_shot": "t10 t99",
        "one_shot_perfect": False,
        "reconstruction": "t10 t11",
        "perfect": True,
        "confidence": 7,
        "baseline_one_shot": "t10 t99",
        "baseline": "t10 t98",
        "truth": "3 May",
    }


def test_a_truth_is_told_only_where_it_was_found_or_may_be_shown():
    result, files = scored()
    withheld = files["fields.json"]
    assert [one.get("truth") for one in withheld] == ["3 May", "$ 12", "4 June", None]
    assert "secret" not in json.dumps([files, dataclasses.asdict(result)])
    shown = scored(originals=True)[1]["fields.json"]
    assert [one["truth"] for one in shown] == ["3 May", "$ 12", "4 June", "secret"]


def test_an_infinite_confidence_leaves_valid_json():
    endless = alone(0, (attempt(10, 11, gap=math.inf),))
    assert scored(endless)[1]["fields.json"][0]["confidence"] is None


def sided(trained, held_out, mute="", repeated=1, **truth):
    """Fields of two tokens, a document each: how many of them attack and baseline have right."""
    fields, truths, found = [], {}, []
    for number, (mine, theirs) in enumerate((*trained, *held_out)):
        own = {"occurrences": repeated}
        if number >= len(trained):
            own = {"trained": False, "occurrences": 0, **truth}
        fields.append(ScrubbedField(number, f"d{number}", "date", (3, 4)))
        truths[number] = TrueField((1, 2), "text", **own)
        sides = [(1, 2)[:right] + (9,) * (2 - right) for right in (mine, theirs)]
        found.append(Reconstruction(number, (attempt(*sides[0]),), (public(*sides[1]),)))
    claim = FieldGuesses(tuple(found), "gap", mute=mute)
    return scored(claim, fields=fields, truths=truths)


def test_fields_trained_on_are_held_against_fields_held_out():
    # A half of the tokens more on average, against a twentieth.
    result, files = sided([(2, 1), (1, 0), (2, 0), (1, 1)] * 10, [(1, 0)] * 2 + [(1, 1)] * 18)
    gain, ipf = result.numbers["gain"], result.numbers["ipf"]
    assert (gain.value, gain.control) == (0.5, pytest.approx(0.05))
    assert gain.interval[0] < 0.5 < gain.interval[1]
    assert (gain.n, gain.unit, result.primary, result.verdict) == (40, "document", "gain", LEAK)
    assert result.details["fields"] == 40
    assert result.details["held_out"]["fields"] == 20
    assert ipf.value == result.details["ipf"]
    assert list(ipf.interval) == result.details["ipf_interval"]
    assert ipf.control == result.details["held_out"]["ipf"] == result.details["ipf_held_out"]
    assert result.details["by_key"]["date"]["held_out"] == result.details["not_public"]["held_out"]
    assert [one["trained"] for one in files["fields.json"]] == [True] * 40 + [False] * 20


def test_what_fields_held_out_gain_as_well_is_no_memory():
    result, _ = sided([(2, 1), (1, 0)] * 20, [(1, 0)] * 20)
    assert result.numbers["gain"].value == result.numbers["gain"].control == 0.5
    assert result.numbers["gain"].p_value == 1
    assert result.verdict != LEAK
    assert result.details["ipf_interval"][0] > 1


@pytest.mark.parametrize("told", [{"public": 1}, {"occurrences": 1}])
def test_a_field_held_out_that_another_document_tells_is_no_control(told):
    result, _ = sided([(2, 1)] * 20, [(1, 0)] * 20, **told)
    assert result.numbers["gain"].control is None
    assert result.verdict == CANNOT_TELL
    assert result.details["not_public"]["held_out"] is None
    assert result.details["held_out"]["fields"] == 20


def test_a_field_that_another_training_document_tells_is_left_out_on_this_side_too():
    trained = [(2, 1)] * 20
    result, _ = sided(trained, [(1, 0)] * 20)
    told, _ = sided(trained, [(1, 0)] * 20, repeated=2)
    assert result.numbers["gain"].value == 0.5
    assert "gain" not in told.numbers
    assert told.verdict == CANNOT_TELL


def test_without_a_field_held_out_nothing_can_be_told():
    result, _ = sided([(2, 1)] * 20, [])
    assert result.verdict == CANNOT_TELL
    assert "no such field of a document held out was attacked" in result.headline


def test_without_a_field_of_the_training_there_is_nothing_to_score():
    with pytest.raises(ValueError, match="no field of a training document was attacked"):
        sided([], [(1, 0)] * 3)


def test_attempts_that_are_the_same_count_once():
    two = (attempt(10, 11), attempt(10, 11), attempt(10, 99))
    assert scores(alone(0, two))["distinct_attempts"] == 2
    assert scores()["distinct_attempts"] == 2


def test_the_share_of_epsilon_is_told():
    found = scores()
    assert sum(found["ipf_terms"].values()) == pytest.approx(found["ipf"])
    assert found["ipf_terms"]["pr"] == pytest.approx(0.51 / 0.26 / 4)
    assert found["ipf_by_epsilon"]["0.01"] == pytest.approx(found["ipf"])
    assert found["ipf_by_epsilon"]["1.0"] == pytest.approx(scores(epsilon=1.0)["ipf"])


def test_an_attack_that_is_mute_and_finds_nothing_cannot_tell():
    nothing, memory = ([(1, 1)] * 6 + [(1, 0), (0, 1)]) * 15, [(2, 1), (1, 0), (2, 0)] * 20
    for trained, mute, verdict in (
        (nothing, "", NONE_SHOWN),
        (nothing, "it repeats another model", CANNOT_TELL),
        (memory, "it repeats another model", LEAK),
    ):
        result, _ = sided(trained, nothing, mute=mute)
        assert result.verdict == verdict
        assert (mute in result.notes) == bool(mute)
