"""Entity scores on sequences short enough to count by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import classification_report

from fedpriv.metrics.entities import entity_scores


def score(true, predicted):
    return entity_scores([true.split()], [predicted.split()])


def test_all_right():
    scores = score("B-date I-date O B-total", "B-date I-date O B-total")
    assert scores == {"precision": 1, "recall": 1, "f1": 1, "f1/date": 1, "f1/total": 1}


def test_all_wrong():
    scores = score("B-date I-date O O", "O O B-date O")
    assert scores == {"precision": 0, "recall": 0, "f1": 0, "f1/date": 0}


def test_two_of_four_found_among_three_guesses():
    scores = entity_scores(
        [["B-date", "O", "B-total"], ["B-date", "I-date", "O", "B-total"]],
        [["B-date", "O", "O"], ["B-date", "I-date", "B-total", "O"]],
    )
    # Of the entities (date, total, date, total) the two dates are found; one guess is wrong.
    assert scores["precision"] == pytest.approx(2 / 3)
    assert scores["recall"] == 2 / 4
    assert scores["f1"] == pytest.approx(2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2))
    assert scores["f1/date"] == 1
    assert scores["f1/total"] == 0


def test_micro_averages_weigh_entities_not_types():
    scores = score("B-a O B-a O B-a O B-b", "B-a O B-a O B-a O O")
    assert scores["recall"] == 3 / 4
    assert scores["precision"] == 1
    assert scores["f1"] == pytest.approx(6 / 7)


@pytest.mark.parametrize(
    "predicted",
    ["B-date O O", "B-date I-date I-date", "O B-date O", "B-total I-total O", "B-date B-date O"],
)
def test_half_an_entity_is_none(predicted):
    assert score("B-date I-date O", predicted)["recall"] == 0


def test_an_inside_without_its_beginning_opens_an_entity():
    assert score("B-date I-date O", "I-date I-date O")["f1"] == 1
    assert score("O I-date O", "O B-date O")["f1"] == 1


def test_another_label_inside_opens_another_entity():
    # Predicted: a of one word, then b of one word.
    scores = score("B-a I-a", "B-a I-b")
    assert (scores["precision"], scores["recall"]) == (0, 0)
    scores = score("B-a B-b", "B-a I-b")
    assert scores["f1"] == 1


def test_neighbours_of_one_label_are_two_entities():
    assert score("B-a B-a", "B-a I-a")["recall"] == 0
    assert score("B-a B-a", "B-a B-a")["recall"] == 1


def test_an_entity_does_not_go_on_in_the_next_document():
    scores = entity_scores([["B-a"], ["I-a"]], [["B-a"], ["B-a"]])
    assert scores["f1"] == 1


def test_labels_may_have_hyphens():
    scores = score("B-due-date I-due-date B-due-day", "B-due-date I-due-date O")
    assert scores["f1/due-date"] == 1
    assert scores["f1/due-day"] == 0


def test_types_that_are_only_guessed_count_as_wrong_and_are_not_listed():
    scores = score("B-date O", "B-date B-total")
    assert scores["precision"] == 1 / 2
    assert sorted(scores) == ["f1", "f1/date", "precision", "recall"]


@pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_undefined_scores_are_zero():
    for true, predicted in [("O O", "O O"), ("O O", "B-a O"), ("", "")]:
        scores = score(true, predicted)
        assert scores == {"precision": 0, "recall": 0, "f1": 0}
    assert score("B-a O", "O O") == {"precision": 0, "recall": 0, "f1": 0, "f1/a": 0}


def test_no_documents_score_zero():
    """As from a held-out page without words."""
    assert entity_scores([], []) == {"precision": 0, "recall": 0, "f1": 0}


def test_scores_are_plain_floats():
    assert {type(value) for value in score("B-a O", "B-a B-a").values()} == {float}


@pytest.mark.parametrize(
    ("true", "predicted"),
    [([["O"]], [["O", "O"]]), ([["O"]], []), ([["O", "O"]], [["O"], ["O"]])],
)
def test_the_two_must_have_one_shape(true, predicted):
    with pytest.raises(ValueError, match=r"^true and predicted tags differ in number$"):
        entity_scores(true, predicted)


TAGS = st.lists(st.sampled_from(["O", "B-a", "I-a", "B-b", "I-b"]), max_size=8)


@given(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=4))
def test_scores_are_those_of_seqevals_report_to_the_bit(documents):
    pairs = [tuple(zip(*zip(a, b, strict=False), strict=True)) or ((), ()) for a, b in documents]
    true, predicted = ([list(pair[side]) for pair in pairs] for side in (0, 1))
    if not any(true):  # seqeval refuses to score nothing
        assert entity_scores(true, predicted) == {"precision": 0, "recall": 0, "f1": 0}
        return
    report = classification_report(true, predicted, output_dict=True, zero_division=0)
    scores = entity_scores(true, predicted)
    micro = report["micro avg"]
    assert (scores.pop("precision"), scores.pop("recall")) == (micro["precision"], micro["recall"])
    assert scores.pop("f1") == micro["f1-score"]
    kinds = {kind for kind in ("a", "b") if report.get(kind, {"support": 0})["support"]}
    assert scores == {f"f1/{kind}": report[kind]["f1-score"] for kind in kinds}
