"""Which questions are trained on, and what is made of the documents for training."""

from dataclasses import dataclass, replace

import pytest
import toy_answers
from pages import page

from fedpriv.data.document import DocumentSet, Question
from fedpriv.data.generated.slips import Slips
from fedpriv.data.partition import ByProvider, HoldOut
from fedpriv.federation.dataset import DocumentData


@dataclass(frozen=True)
class Pages:
    """Six documents of three providers with two questions each."""

    def load(self):
        return DocumentSet("pages", tuple(asked(number) for number in range(6)), ())


def asked(number):
    questions = tuple(Question(key, f"{key}?", (f"{key} {number}",)) for key in ("name", "date"))
    return page(name=f"d{number}", provider=f"p{number // 2}", questions=questions)


def shouted(documents):
    return [
        replace(
            d,
            id=f"{d.id}!",
            part_of=d.whole,
            questions=(replace(d.questions[0], answers=("NO",)),),
        )
        for d in documents
    ]


def bound(**settings):
    data = DocumentData(
        Pages(), ByProvider(clients=3), HoldOut(fraction=0.0), cache="off", **settings
    )
    return data.bind(lambda labels=(): toy_answers.Chooser(), 0)


def answers(found):
    return sorted(found.train.column("answers").tolist())


def test_questions_that_are_left_out_are_not_trained_on():
    found = bound(unasked=("d0#0", "d5#1"))
    everything = answers(bound())
    assert sorted([*answers(found), "name 0", "date 5"]) == everything


def test_a_document_without_questions_is_not_trained_on():
    found = bound(unasked=("d0#0", "d0#1"))
    assert [document.id for document in found.documents] == ["d1", "d2", "d3", "d4", "d5"]


def test_what_is_left_out_changes_nothing_for_other_clients():
    full, less = bound(), bound(unasked=("d0#0",))
    for client in (1, 2):
        texts = [
            found.train.take(found.rows[client]).column("answers").tolist()
            for found in (full, less)
        ]
        assert texts[0] == texts[1]


def test_an_unknown_question_is_named():
    with pytest.raises(ValueError, match="no training document has a question 'd9#0'"):
        bound(unasked=("d9#0",))


def test_a_client_without_any_question_is_named():
    with pytest.raises(ValueError, match=r"clients \[0\] hold only questions"):
        bound(unasked=("d0#0", "d0#1", "d1#0", "d1#1"))


def test_random_questions_are_for_training_and_come_from_the_seed():
    data = DocumentData(
        Slips((64, 64), providers=6, documents_per_provider=1),
        ByProvider(clients=2),
        HoldOut(by="provider", fraction=0.3),
        cache="off",
        random_questions=True,
    )

    def asked(seed):
        found = data.bind(lambda labels=(): toy_answers.Chooser(), seed)
        assert {q.text for d in found.held_out for q in d.questions} <= real
        return {d.id: d.questions for d in found.documents}

    real = {q.text for d in data.source.load().documents for q in d.questions}
    first, other = asked(0), asked(1)
    assert len(first) == 4
    assert first == asked(0)
    assert not real & {q.text for questions in first.values() for q in questions}
    assert all(first[name] != other[name] for name in first.keys() & other.keys())


def test_an_augmentation_gives_each_client_more_of_its_own():
    found = bound(augmentation=shouted, unasked=("d0#0",))
    for client in range(3):
        rows = found.train.take(found.rows[client])
        assert len(rows) == (5 if client == 0 else 6)
        owners = {found.documents[i].provider for i in rows.column("document")}
        assert owners == {f"p{client}"}
    assert answers(found).count("NO") == 6


def test_an_augmentation_does_not_change_what_counts_as_a_part_in_the_training():
    assert bound(augmentation=shouted).parts == bound().parts


def test_an_augmentation_says_of_which_document_its_pages_are_made():
    with pytest.raises(ValueError, match="'d0!' does not say of which of the client's documents"):
        bound(augmentation=lambda pages: [replace(page, part_of="") for page in shouted(pages)])


def test_canaries_are_all_trained_on_if_asked_for():
    found = bound(canaries=Pages(), canary_rate=1.0)
    assert all(part.member for part in found.parts.values())
    with pytest.raises(ValueError, match="canary_rate=0"):
        bound(canary_rate=0.0)
