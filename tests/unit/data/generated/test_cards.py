"""Generated cards: what stands on them, where, and on how many each customer stands."""

import dataclasses
from collections import Counter, defaultdict

import numpy as np
import pytest

from fedpriv.data.generated.cards import Cards
from fedpriv.models.donut import donut


def cards(**settings):
    return Cards(**{"providers": 3, "documents_per_provider": 5, **settings}).load().documents


def answer(card, key):
    (question,) = (question for question in card.questions if question.key == key)
    return question.answers[0]


def mark(card):
    """The blocks at the top left of a card of 112 pixels, as bytes."""
    return card.pixels()[4:36, 4:84].tobytes()


@pytest.mark.parametrize("side", [112, 160])
def test_answers_are_what_stands_there(side):
    for card in cards(page_size=(side, side)):
        assert card.pixels().shape == (side, side, 3)
        for entity in card.entities:
            written = " ".join(card.words[word].text for word in entity.words)
            assert answer(card, entity.label) == written
        assert answer(card, "provider") == card.provider


def test_boxes_hold_all_the_ink_of_the_words():
    for card in cards():
        lines = card.pixels()[40:, :96]
        assert (lines != 255).any()
        for word in card.words:
            left, top, right, bottom = map(int, word.box)
            assert (card.pixels()[top:bottom, left:right] != 255).any()
            lines[top - 40 : bottom - 40, left:right] = 255
        assert (lines == 255).all()


def test_a_customer_has_one_mark_and_one_name_on_as_many_cards_as_asked_for():
    found = cards(cards_per_customer=(1, 2, 4, 8))
    names = Counter(answer(card, "customer") for card in found)
    assert sorted(names.values()) == [1, 2, 4, 8]
    marks = defaultdict(set)
    for card in found:
        marks[answer(card, "customer")].add(mark(card))
    assert all(len(one) == 1 for one in marks.values())
    assert len(set.union(*marks.values())) == len(marks)


def test_every_customer_has_one_card_unless_asked_for_more():
    found = cards(providers=10, documents_per_provider=20)
    assert len({answer(card, "customer") for card in found}) == 200
    assert len({mark(card) for card in found}) == 200


def test_a_provider_has_a_colour_and_a_name_of_its_own():
    looks = {(card.provider, tuple(card.pixels()[60, -1].tolist())) for card in cards()}
    assert len(looks) == len({name for name, _ in looks}) == len({look for _, look in looks}) == 3


def test_type_is_as_dark_as_asked_for():
    darkest = {
        int(card.pixels()[40:, :96].min())
        for card in cards(documents_per_provider=20, inks=(30, 90))
    }
    assert min(darkest) >= 30
    assert max(darkest) < 120
    assert max(darkest) - min(darkest) > 30


def test_at_a_lower_resolution_marks_are_told_apart_but_names_hardly():
    """Shrunk to an eighth, the contrast between names falls; that between marks hardly does."""
    pages = np.stack([card.pixels().astype(float) for card in cards(documents_per_provider=8)])
    small = pages.reshape(len(pages), 14, 8, 14, 8, 3).mean((2, 4))

    def spread(images, rows):
        top, bottom = (round(share * images.shape[1]) for share in rows)
        left, right = 0, round(0.75 * images.shape[2])
        return images[:, top:bottom, left:right].std(0).mean()

    marks, names = (0.0, 0.3), (0.55, 1.0)
    assert spread(small, marks) / spread(pages, marks) > 0.7
    assert spread(small, names) / spread(pages, names) < 0.5


def test_the_seed_decides_and_questions_change_nothing_else():
    one, same, other = cards(), cards(questions=("provider",)), cards(seed=1)
    for left, right in zip(one, same, strict=True):
        assert np.array_equal(left.pixels(), right.pixels())
        assert [question.key for question in right.questions] == ["provider"]
    assert not np.array_equal(one[0].pixels(), other[0].pixels())


def test_donut_takes_them_at_several_resolutions():
    for side in (64, 112):
        model = donut(image_size=(side, side), max_length=24, answer_length=10)
        examples = model.encode(cards(documents_per_provider=1))
        assert len(examples) == 6
        assert examples.batch(np.arange(2))["pixels"].shape == (2, 3, side, side)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"page_size": (112, 128)}, r"two equal sides of 112 to 10000"),
        ({"page_size": (96, 96)}, r"two equal sides of 112 to 10000"),
        ({"providers": 0}, r"Expected providers=0 in 1\.\."),
        ({"documents_per_provider": 0}, "documents_per_provider=0"),
        ({"questions": ("date",)}, r"questions names \['date'\]: on cards there are"),
        ({"cards_per_customer": ()}, "expected one number or more"),
        ({"cards_per_customer": (1, 0)}, "each at least 1"),
        ({"inks": (90, 30)}, r"inks=\(90, 30\): expected darkest and lightest"),
        ({"documents_per_provider": 100}, "1000 customers: there are names for 576"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Cards(**{"providers": 10, **settings})


def test_settings_are_a_frozen_dataclass():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Cards().seed = 1
