"""An answer is taken off a page: white in the picture, gone from words, entities and links."""

import dataclasses

import numpy as np
import pytest

from fedpriv.data.document import Document, Entity, Question, Word
from fedpriv.data.redaction.answers import letters, without_answer
from fedpriv.data.redaction.painting import CannotRemove

ASKED = Question("provider", "Who is the seller?", ("Vega Builders",))


def document(*lines, entities=(), links=()):
    """Lines of words on a page of 400 x 300, 40 pixels a word, 12 high, with black stripes."""
    pixels = np.full((300, 400, 3), 255, np.uint8)
    words = []
    for row, line in enumerate(lines):
        for place, text in enumerate(line.split()):
            left, top = 10 + 50 * place, 10 + 30 * row
            pixels[top : top + 12, left : left + 40 : 4] = 0
            words.append(Word(text, (left, top, left + 40, top + 12), row))
    words = tuple(words)
    return Document("a", "Vega", pixels, (400, 300), words, entities, (ASKED,), links=links)


def removed(page, *answers, **settings):
    return without_answer(page, dataclasses.replace(ASKED, answers=answers), **settings)


def left(page, *answers):
    """The words that are left."""
    return [word.text for word in removed(page, *answers).page.words]


def test_all_occurrences_go_and_parts_of_the_answer_stay():
    page = document("VEGA builders, Invoice", "Pay to vega", "or to Builders now", "vega-builders")
    assert left(page, "Vega Builders") == [
        *("Invoice", "Pay", "to", "vega"),
        *("or", "to", "Builders", "now"),
    ]


@pytest.mark.parametrize("pieces", ["V e g a Buil ders", "Vega-Bui lders", "Ve.ga -- Builders"])
def test_an_answer_in_other_pieces_is_found(pieces):
    assert left(document(f"to {pieces} now"), "Vega Builders") == ["to", "now"]


def test_an_answer_on_several_lines_goes_as_a_whole():
    page = document("No. 12 High Road,", "Leeds LS4 thanks", "12 Leeds")
    assert left(page, "12 High Road, Leeds LS4") == ["No.", "thanks", "12", "Leeds"]


def test_an_entity_that_spells_the_answer_goes_though_other_words_stand_between():
    """Two columns: the reading order goes from the one to the other."""
    page = document("12 High Date", "Road 3/4/19", entities=(Entity("address", (0, 1, 3)),))
    assert left(page, "12 High Road") == ["Date", "3/4/19"]


@pytest.mark.parametrize(
    ("word", "gone"),
    [
        ("Date:12/03/2018", True),
        ("(12/03/2018)", True),
        ("12/03/2018,10:15", False),  # a sign between digits is part of the number
        ("112/03/2018", False),
        ("12/03/20189", False),
    ],
)
def test_a_part_that_signs_set_off_is_a_word(word, gone):
    page = document(f"on {word} at", "12/03/2018")
    assert left(page, "12/03/2018") == (["on", "at"] if gone else ["on", word, "at"])


@pytest.mark.parametrize(("word", "answer"), [("12.50", "50"), ("12.50", "12"), ("2018-7", "7")])
def test_a_part_of_a_number_is_no_word(word, answer):
    assert left(document(f"{word} or {answer}"), answer) == [word, "or"]


def test_all_accepted_answers_go_one_inside_of_another_too():
    page = document("Vega Builders Ltd", "Vega Builders and", "Ltd Orion")
    assert left(page, "Vega Builders", "Vega Builders Ltd", "Orion") == ["and", "Ltd"]


def test_what_words_that_are_gone_bring_together_goes_too():
    assert left(document("Ve Vega ga and"), "Vega") == ["and"]


def test_overlapping_occurrences_all_go():
    assert left(document("1 2 1 2 1 x"), "1 2 1") == ["x"]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((), r"document a, answers=\[\]: no answer has a letter or digit"),
        ((" ", "--"), "no answer has a letter or digit"),
        (("Orion",), r"answers=\['Orion'\]: the page's words do not spell the answer"),
        (("Vega Builders Ltd",), "do not spell"),
        (("eg",), "do not spell"),  # only inside of a word
    ],
)
def test_what_cannot_be_removed_is_refused(answers, said):
    with pytest.raises(CannotRemove, match=said):
        removed(document("Vega Builders"), *answers)


def test_a_margin_below_zero_is_refused():
    with pytest.raises(ValueError, match="margin=-1: expected 0 or more"):
        removed(document("Vega"), "Vega", margin=-1)


def test_one_box_for_each_line_and_nothing_else_changes():
    page = document("to Vega Builders now", "Invoice", "or Vega", "Builders")
    found = removed(page, "Vega Builders")
    # 12 pixels high, so 3 wider on all sides.
    assert found.boxes == ((57, 7, 153, 25), (57, 67, 103, 85), (7, 97, 53, 115))
    before, after = np.asarray(page.image()), np.asarray(found.page.image())
    outside = np.ones((300, 400), bool)
    for rows, across in ((range(7, 25), range(57, 153)), (range(67, 85), range(57, 103))):
        outside[np.ix_(rows, across)] = False
    outside[97:115, 7:53] = False
    np.testing.assert_array_equal(before[outside], after[outside])
    assert (before[~outside] == 0).any()
    assert (after[~outside] == 255).all()


def test_a_segment_of_several_lines_has_a_box_for_each():
    """One box around both lines would cover "to" and "now" as well."""
    page = document("to Vega", "Builders now")
    page = dataclasses.replace(
        page, words=tuple(dataclasses.replace(word, segment=0) for word in page.words)
    )
    assert removed(page, "Vega Builders").boxes == ((57, 7, 103, 25), (7, 37, 53, 55))


def test_segments_beside_each_other_have_boxes_of_their_own():
    """Of two columns, what is drawn between them stays."""
    page = document("Vega Builders now")
    first, second, third = page.words
    page = dataclasses.replace(page, words=(first, dataclasses.replace(second, segment=1), third))
    assert removed(page, "Vega Builders").boxes == ((7, 7, 53, 25), (57, 7, 103, 25))


def test_the_margin_is_of_the_height_and_two_pixels_at_least():
    page = document("Vega")
    assert removed(page, "Vega", margin=0).boxes == ((8, 8, 52, 24),)
    assert removed(page, "Vega", margin=0.5).boxes == ((4, 4, 56, 28),)


def test_boxes_stay_on_the_page():
    page = document("Vega")
    word = dataclasses.replace(page.words[0], box=(0.0, 290.0, 400.0, 300.0))
    assert removed(dataclasses.replace(page, words=(word,)), "Vega").boxes == ((0, 287, 400, 300),)


def test_what_was_white_before_stays_white_and_pixels_are_shared():
    page = dataclasses.replace(document("Vega Invoice"), white=((200.0, 200.0, 210.0, 210.0),))
    found = removed(page, "Vega").page
    assert found.white[0] == (200, 200, 210, 210)
    assert len(found.white) == 2
    assert found.page is page.page


def test_entities_that_lose_a_word_go_with_their_links_and_the_others_move_up():
    entities = (
        Entity("provider", (1, 2)),
        Entity("mixed", (2, 3)),
        Entity("total", (3, 4)),
        Entity("number", (0,)),
    )
    page = document("7 Vega Builders EUR 12", entities=entities, links=((0, 2), (3, 2)))
    found = removed(page, "Vega Builders").page
    assert found.entities == (Entity("total", (1, 2)), Entity("number", (0,)))
    assert found.links == ((1, 0),)


def test_the_page_has_the_one_question_with_its_answers():
    other = Question("total", "How much?", ("12",))
    page = dataclasses.replace(document("Vega Builders"), questions=(other, ASKED))
    assert without_answer(page, ASKED).page.questions == (ASKED,)


@pytest.mark.parametrize(
    ("lines", "answer", "residual"),
    [
        (("Vega Builders", "Invoice 12"), "Vega Builders", False),
        (("Vega Builders", "www.vegabuilders.test"), "Vega Builders", False),  # gone
        (("Vega Builders", "vegabuildersltd.test"), "Vega Builders", True),
        (("Vega Builders", "the Vegas"), "Vega Builders", False),  # a part of it only
        (("Vega Builders", "from nve gabui ldersoon"), "Vega Builders", True),
        (("Vega Builders", "V3ga Bui1ders"), "Vega Builders", False),  # 3 is not taken for e
        (("Vega Builders", "Vega Bui1ders"), "Vega Builders", True),
        (("Vega Builders", "Vega Bvilders"), "Vega Builders", True),
        (("Vega Builders", "Vega Brewers"), "Vega Builders", False),
        (("12/03/2018", "I2/O3/20l8"), "12/03/2018", True),
        (("12/03/2018", "13/03/2018"), "12/03/2018", False),
        (("INV-2019-00123", "INV-2019-00124"), "INV-2019-00123", False),
        (("Invoice 20190012 A", "Invo1ce 20190012 A"), "Invoice 20190012 A", True),
        (("9.00", "RM9.00"), "9.00", True),
        (("12", "2012"), "12", False),  # by chance
        (("AB", "cabs"), "AB", False),
    ],
)
def test_a_trace_that_is_left_is_told(lines, answer, residual):
    assert removed(document(*lines), answer).residual is residual


def test_a_trace_of_any_answer_counts():
    assert removed(document("Vega Orion", "www.orion.test", "orions"), "Vega", "Orion").residual


def test_letters_are_compared_in_any_form():
    assert letters("  Vega-BUILDERS, ①½ ") == "vegabuilders112"
    assert left(document("5㎏ straße ²"), "5 KG STRASSE") == ["²"]
