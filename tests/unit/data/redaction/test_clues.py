"""Clues on an answer are taken off a page, out of its words and out of its picture."""

import dataclasses

import numpy as np
import pytest

from fedpriv.data.document import Document, Entity, Question, Word
from fedpriv.data.generated.glyphs import Face, set_word
from fedpriv.data.redaction.clues import without_clues
from fedpriv.data.redaction.painting import CannotRemove

ASKED = Question("provider", "Who is the seller?", ("Vega Builders",))


def document(*lines, entities=()):
    """Lines of words on a page of 400 x 300: 40 pixels a word, 12 high; black where there is one.

    Dark stripes stand for the letters.
    """
    pixels = np.full((300, 400, 3), 255, np.uint8)
    words = []
    for row, line in enumerate(lines):
        for place, text in enumerate(line.split()):
            left, top = 10 + 50 * place, 10 + 30 * row
            pixels[top : top + 12, left : left + 40 : 4] = 0
            words.append(Word(text, (left, top, left + 40, top + 12), row))
    return Document("a", "Vega", pixels, (400, 300), tuple(words), entities, (ASKED,))


def left(page, answer="Vega Builders", **settings):
    """The words that are left."""
    return [word.text for word in without_clues(page, ASKED, [answer], **settings).page.words]


def test_the_words_of_the_answer_go_wherever_they_stand():
    page = document("VEGA Builders, Invoice", "Pay to vega", "or to Builders now")
    assert left(page) == ["Invoice", "Pay", "to", "or", "to", "now"]


def test_an_answer_on_several_lines_goes_with_its_short_words_and_signs():
    page = document("Invoice 12 of 40", "No. 12 High Road,", "Leeds LS 4A & Co thanks", "12 items")
    shown = left(page, "12 High Road, Leeds LS 4A & Co")
    assert shown == ["Invoice", "12", "of", "40", "No.", "thanks", "12", "items"]


def test_short_words_and_signs_go_with_their_neighbours():
    """Where other words come between, no row of words spells the answer."""
    page = document("12 High Road, Invoice", "thanks Leeds LS 4A & Co", "now 12 & Co")
    shown = left(page, "12 High Road, Leeds LS 4A & Co")
    assert shown == ["Invoice", "thanks", "now", "12", "&", "Co"]


@pytest.mark.parametrize("pieces", ["V e g a Buil ders", "Vega-Bui lders", "Ve.ga -- Builders"])
def test_an_answer_in_other_pieces_is_found(pieces):
    assert left(document(f"to {pieces} now")) == ["to", "now"]


def test_words_that_contain_it_or_are_misread_go():
    page = document("www.kcci.com is at info@kcci.test", "a call in")
    assert left(page, "kcci") == ["is", "at", "a", "call", "in"]
    assert left(document("Vega Bui1ders", "Bilders and more")) == ["and", "more"]


def test_words_that_are_short_are_no_clue():
    page = document("Vega & Co of Leeds", "a & b of co", "V e g")
    assert left(page, "Vega & Co of Leeds") == ["a", "&", "b", "of", "co", "V", "e", "g"]


def test_likeness_says_how_alike():
    page = document("Vega Builders", "Vegas")
    assert left(page, "Vega Builders", likeness=100) == ["Vegas"]
    assert left(page, "Vega Builders", likeness=80) == []


def test_all_the_answers_go():
    page = document("Vega Orion and more")
    asked = without_clues(page, ASKED, ["Vega", "Orion"])
    assert [word.text for word in asked.page.words] == ["and", "more"]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([], "document a, answers=\\[\\]: no answer has a letter or digit"),
        ([" ", "--"], "no answer has a letter or digit"),
        (["Orion"], "answers=\\['Orion'\\]: the page's words do not spell the answer"),
        (["Castor Pollux Builders"], "do not spell"),  # "Builders" is less than half of it
    ],
)
def test_what_cannot_be_cleared_is_refused(answers, said):
    with pytest.raises(CannotRemove, match=said):
        without_clues(document("Vega Builders"), ASKED, answers)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"radius": 0}, "radius=0"),
        ({"likeness": 0}, "likeness=0"),
        ({"likeness": 100.5}, "likeness=100.5"),
    ],
)
def test_settings_out_of_range_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        without_clues(document("Vega"), ASKED, ["Vega"], **settings)


@pytest.mark.parametrize(
    ("lines", "answer", "residual"),
    [
        (("Vega Builders", "Invoice 12"), "Vega Builders", False),
        (("Holt Ltd", "info@holt.test"), "Holt Ltd", True),  # partial_ratio 71
        (("Holt Ltd", "hol tel"), "Holt Ltd", True),  # "holt" of the 7 letters, across two words
        (("Holt Ltd", "ho tel"), "Holt Ltd", False),
        (("Slf Cash & Carry", "Cashier"), "Slf Cash & Carry", True),  # "cash"
        (("3M", "www.3m.com"), "3M", True),  # all of a short answer, in one word
        (("AB", "cabs"), "AB", True),  # by chance, which cannot be told
        (("AB", "a", "bill"), "AB", False),  # in two
        (("3M Co", "www.3m.com"), "3M Co", False),  # a part of it, too short to tell from chance
        (("X", "taxi"), "X", False),  # a single letter is everywhere
    ],
)
def test_a_clue_that_is_left_is_told(lines, answer, residual):
    assert without_clues(document(*lines), ASKED, [answer]).residual is residual


def test_entities_that_lose_a_word_go_and_the_others_move_up():
    entities = (
        Entity("provider", (1, 2)),
        Entity("mixed", (2, 3)),
        Entity("total", (3, 4)),
        Entity("number", (0,)),
    )
    page = without_clues(
        document("7 Vega Builders EUR 12", entities=entities), ASKED, ["Vega Builders"]
    )
    assert page.page.entities == (Entity("total", (1, 2)), Entity("number", (0,)))


def test_the_page_keeps_the_one_question():
    other = Question("total", "How much?", ("12",))
    page = dataclasses.replace(document("Vega"), questions=(other, ASKED))
    assert without_clues(page, ASKED, ["Vega"]).page.questions == (ASKED,)


def test_one_box_covers_the_words_of_a_line_and_nothing_else_changes():
    page = document("to Vega Builders now", "Invoice", "Vega")
    found = without_clues(page, ASKED, ["Vega Builders"])
    # 12 pixels high, so 3 wider on all sides.
    assert found.boxes == ((57, 7, 153, 25), (7, 67, 53, 85))
    before, after = np.asarray(page.image()), np.asarray(found.page.image())
    outside = np.ones((300, 400), bool)
    outside[7:25, 57:153] = outside[67:85, 7:53] = False
    np.testing.assert_array_equal(before[outside], after[outside])
    assert before[10:22, 60:150].std() > 80
    assert after[7:25, 57:153].std() < 12


def test_what_stands_between_or_on_another_line_has_a_box_of_its_own():
    page = document("Vega and Builders", "Vega now")
    assert without_clues(page, ASKED, ["Vega Builders"]).boxes == (
        (7, 7, 53, 25),
        (107, 7, 153, 25),
        (7, 37, 53, 55),
    )


def test_boxes_stay_on_the_page():
    page = document("Vega")
    word = dataclasses.replace(page.words[0], box=(0, 290, 400, 300))
    found = without_clues(dataclasses.replace(page, words=(word,)), ASKED, ["Vega"])
    assert found.boxes == ((0, 287, 400, 300),)


@pytest.mark.parametrize("size", [9, 30, 120])
def test_of_letters_of_any_size_only_the_amount_of_ink_is_left(size):
    """The same letters in another order: the pages cannot be told apart any more."""
    before, after = zip(*(set_and_cleared(text, size) for text in ("MHHM", "HMMH")), strict=True)
    assert np.abs(before[0] - before[1]).max() > 150
    assert np.abs(after[0] - after[1]).max() <= 4


def set_and_cleared(text, size):
    """A page with one word in letters of this size, before and after it is cleared."""
    patch = set_word(Face("DejaVuSansMono", size), text, (0, 0, 0), (255, 255, 255))
    height, width, _ = patch.pixels.shape
    left = size + patch.left
    pixels = np.full((3 * size, 5 * size, 3), 255, np.uint8)
    pixels[size : size + height, left : left + width] = patch.pixels
    word = Word("Vega", (size, size, size + patch.advance, size + height), 0)
    page = Document("a", "p", pixels, (5 * size, 3 * size), (word,), (), (ASKED,))
    return pixels.astype(int), np.asarray(without_clues(page, ASKED, ["Vega"]).page.image()).astype(
        int
    )
