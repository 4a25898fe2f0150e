"""Extraction blocking: the same questions, on pages without their answers."""

import dataclasses

import numpy as np
import pytest
from pages import page

from fedpriv.config.experiment import build, load
from fedpriv.data.augmentation import ANSWER_NOT_PRESENT, ExtractionBlocking
from fedpriv.data.document import Question
from fedpriv.data.generated.slips import Slips

WHO, SUM = Question("who", "Who?", ("Vega",)), Question("sum", "How much?", ("12.50",))


def test_each_question_is_asked_once_more_without_its_answer():
    first, second = ExtractionBlocking()([page("Vega asks 12.50", questions=[WHO, SUM])])
    assert [first.id, second.id] == ["a#0!blocked", "a#1!blocked"]
    assert {first.provider, second.provider} == {"Vega"}
    assert {first.whole, second.whole} == {"a"}
    assert first.questions == (Question("who", "Who?", ("ANSWER NOT PRESENT",)),)
    assert second.questions == (Question("sum", "How much?", (ANSWER_NOT_PRESENT,)),)
    assert [word.text for word in first.words] == ["asks", "12.50"]
    assert [word.text for word in second.words] == ["Vega", "asks"]
    shown = np.asarray(first.image())
    assert (shown[10:30, :9] == 255).all()
    assert (shown[10:30, 20:29] == 99).all()


def test_what_cannot_be_removed_is_left_out():
    unknown, bare = Question("who", "Who?", ("Orion",)), Question("who", "Who?", ())
    pages = [
        page("Vega asks 12.50", questions=[unknown, SUM]),
        page("Vega", questions=[bare], name="b"),
        page("x"),
    ]
    assert [one.id for one in ExtractionBlocking()(pages)] == ["a#1!blocked"]


def test_pages_with_a_trace_are_kept_or_dropped():
    pages = [page("Vega www.vegas.test 12.50", questions=[WHO, SUM])]
    assert len(ExtractionBlocking()(pages)) == 2
    assert [p.id for p in ExtractionBlocking(residual="drop")(pages)] == ["a#1!blocked"]


def test_the_documents_stay_and_no_pixels_are_copied():
    document = page("Vega asks 12.50", questions=[WHO, SUM])
    before = dataclasses.replace(document)
    blocked = ExtractionBlocking()([document])
    assert document == before
    assert all(one.page is document.page for one in blocked)


def test_every_question_of_generated_slips_is_blocked():
    slips = Slips(providers=3, documents_per_provider=4).load().documents
    blocked = ExtractionBlocking()(slips)
    assert len(blocked) == 3 * 4 * 3
    assert len({one.id for one in blocked}) == len(blocked)


def test_settings_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="residual='skip': expected 'keep' or 'drop'"):
        ExtractionBlocking(residual="skip")
    with pytest.raises(ValueError, match=r"margin=-0\.5: expected 0 or more"):
        ExtractionBlocking(margin=-0.5)


def test_an_experiment_is_blocked_by_a_choice_and_not_otherwise():
    assert build(load("quickstart", ["blocking=on"])).data.augmentation == ExtractionBlocking()
    assert build(load("quickstart")).data.augmentation is None
