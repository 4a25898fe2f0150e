"""The contexts of Pinto et al., §5, on hand-made pages of 100 x 60 pixels."""

import dataclasses

import numpy as np
import pytest

from fedpriv.attacks.extraction.canary import Canary
from fedpriv.attacks.extraction.contexts import (
    Brightness,
    Constant,
    ImageOnly,
    NoText,
    Paraphrased,
    Rotation,
    Shuffle,
    Translation,
    contexts,
)
from fedpriv.attacks.extraction.paraphrases import CannotParaphrase
from fedpriv.data.document import Document, Entity, Question, Word

WHO = Question("provider", "Who is the seller?", ("Vega Ltd", "Vega"))
WHEN = Question("date", "When is the bill dated?", ("11/02",))
TOTAL = Question("total", "What is the total amount?", ("4437.93",))


def rng(seed=0):
    return np.random.default_rng(seed)


def document(name="a", said="Vega Ltd", *questions):
    """A grey rule at the bottom, and words of 20 x 10 pixels in black, two blanks apart."""
    pixels = np.full((60, 100, 3), 255, np.uint8)
    pixels[55] = 120
    words = []
    for place, text in enumerate(said.split()):
        left, top = 4 + 24 * (place % 4), 10 + 20 * (place // 4)
        pixels[top : top + 10, left : left + 20] = 0
        words.append(Word(text, (left, top, left + 20, top + 10), place // 4))
    entities = (Entity("all", tuple(range(len(words)))),) if words else ()
    return Document(name, "Vega", pixels, (100, 60), tuple(words), entities, questions)


def canary(page, place=0):
    """Without the words that stand in the first answer."""
    question = page.questions[place]
    gone = question.answers[0].split()
    one = dataclasses.replace(page, questions=(question,))
    removed = dataclasses.replace(
        one,
        words=tuple(word for word in page.words if word.text not in gone),
        entities=(),
        white=tuple(word.box for word in page.words if word.text in gone),
    )
    return Canary(page.question_names()[place], one, removed, "", 1)


def pixels(page):
    return np.asarray(page.image())


def only(context, page=None):
    """What a context asks for a single canary."""
    page = page or document("a", "Vega Ltd Bill 11/02 total 4437.93", WHO, WHEN)
    (asked,) = context.ask([canary(page)], [page], rng())
    return asked


def test_the_contexts_have_the_papers_names_and_values():
    found = contexts(lambda question, random: "?", reference=None)
    assert list(found) == [
        *("no_text", "paraphrase", "shuffle", "image_only"),
        *("constant_white", "constant_black", "constant_mean", "rotate_5", "rotate_10"),
        *("translate_20", "translate_100", "translate_200"),
        *("brightness_2", "brightness_1.3", "brightness_0.8", "brightness_0.5"),
    ]
    assert found["rotate_10"] == Rotation(10)
    assert found["translate_200"] == Translation(200, reference=None)
    assert found["brightness_1.3"] == Brightness(1.3)
    assert found["constant_mean"] == Constant("mean")


def test_without_text_all_words_are_white_and_the_rest_of_the_picture_stays():
    asked = only(NoText(margin=0))
    assert (asked.words, asked.entities, asked.questions) == ((), (), (WHO,))
    shown = pixels(asked)
    assert (shown[:55] == 255).all()
    assert (shown[55] == 120).all()


def test_without_text_the_gap_between_two_words_of_a_line_is_white_but_not_that_between_lines():
    page = document("a", "Vega Ltd Bill 11/02 total", WHO)
    page.page[12:18, 24:28] = 0  # between "Vega" and "Ltd"
    page.page[22:28, 4:8] = 0  # between the lines
    shown = pixels(only(NoText(margin=0), page))
    assert (shown[10:20, 24:28] == 255).all()
    assert (shown[22:28, 4:8] == 0).all()


def test_without_text_a_line_of_a_segment_is_not_joined_to_the_next():
    words = (Word("two", (70, 10, 90, 20), 0), Word("lines", (10, 30, 30, 40), 0))
    page = dataclasses.replace(
        document("a", "", WHO), words=words, page=np.zeros((60, 100, 3), np.uint8)
    )
    shown = pixels(only(NoText(margin=0), page))
    assert shown.sum() == 2 * 20 * 10 * 3 * 255


def test_the_margin_widens_the_boxes_and_stays_on_the_page():
    page = dataclasses.replace(
        document("a", "", WHO),
        words=(Word("Vega", (0, 0, 10, 10), 0),),
        page=np.zeros((60, 100, 3), np.uint8),
    )
    shown = pixels(only(NoText(margin=3), page))
    assert (shown[:13, :13] == 255).all()
    assert shown.sum() == 13 * 13 * 3 * 255


def test_a_paraphrased_question_keeps_page_and_answers():
    page = document("a", "Vega Ltd Bill", WHO)
    asked = only(Paraphrased(lambda question, random: f"Say: {question.text}"), page)
    expected = Question("provider", "Say: Who is the seller?", WHO.answers)
    assert asked == dataclasses.replace(canary(page).removed, questions=(expected,))


def test_a_question_without_other_words_is_not_asked():
    def knows_nothing(question, random):
        raise CannotParaphrase(question)

    assert only(Paraphrased(knows_nothing)) is None


@pytest.mark.parametrize(("intensity", "level"), [("white", 255), ("black", 0)])
def test_a_constant_page_has_the_size_of_the_canarys_and_no_words(intensity, level):
    asked = only(Constant(intensity))
    assert (asked.words, asked.entities, asked.questions) == ((), (), (WHO,))
    assert pixels(asked).shape == (60, 100, 3)
    assert (pixels(asked) == level).all()


def test_the_mean_is_that_of_the_whole_page():
    page = document("a", "Vega Ltd", WHO)
    dark = 2 * 20 * 10
    mean = (255 * (6000 - dark - 100) + 120 * 100) / 6000
    shown = pixels(only(Constant("mean"), page))
    assert (shown == round(mean)).all()


def test_a_shuffled_question_goes_to_the_one_page_that_qualifies():
    pages = [
        document("own", "Vega Ltd Bill", WHO),
        document("asked", "Bill 11/02", WHEN, WHO),  # WHO was asked of it, but is no canary
        document("says", "Bill ve ga total 4437.93", TOTAL),
        document("fits", "Orion Bill 4437.93", TOTAL),
    ]
    canaries = [canary(page) for page in pages]
    for seed in range(20):
        asked = Shuffle().ask(canaries, pages, rng(seed))[0]
        assert asked == dataclasses.replace(canaries[3].removed, questions=(WHO,))


def test_the_same_question_is_the_same_whatever_its_case_and_blanks():
    again = dataclasses.replace(WHO, text="who  is the SELLER?", answers=("Orion",))
    pages = [document("own", "Vega Ltd", WHO), document("other", "Orion", again)]
    assert Shuffle().ask([canary(page) for page in pages], pages, rng()) == [None, None]


def test_a_page_that_says_the_answer_before_its_own_is_removed_does_not_qualify():
    other = Question("customer", "Who is the customer?", ("Vega",))
    pages = [document("own", "Vega Ltd", WHO), document("other", "Vega pays", other)]
    assert Shuffle().ask([canary(page) for page in pages], pages, rng())[0] is None


def test_a_page_that_spells_the_answer_once_its_own_is_removed_does_not_qualify():
    pages = [document("own", "Vega Ltd", WHO), document("other", "Ve 11/02 ga", WHEN)]
    assert Shuffle().ask([canary(page) for page in pages], pages, rng())[0] is None


def test_an_answer_without_letters_is_on_every_page():
    dash = dataclasses.replace(WHO, answers=("-",))
    pages = [document("own", "- Bill", dash), document("other", "Bill 11/02", WHEN)]
    assert Shuffle().ask([canary(page) for page in pages], pages, rng())[0] is None


def test_the_image_alone_is_asked_what_it_does_not_say():
    pages = [
        document("own", "Vega Ltd 11/02", WHO, WHEN),
        document("other", "Total 4437.93", TOTAL),
    ]
    canaries = [canary(page) for page in pages]
    asked = ImageOnly().ask(canaries, pages, rng())[0]
    question = Question("total", TOTAL.text, ("Vega Ltd", "Vega"))
    assert asked == dataclasses.replace(canaries[0].removed, questions=(question,))


def test_answers_that_can_be_read_count_only_if_asked_for():
    pages = [
        document("own", "Vega Ltd 11/02", WHO, WHEN),
        document("other", "Total 4437.93", TOTAL),
    ]
    canaries = [canary(page) for page in pages]
    (question,) = ImageOnly(readable=True).ask(canaries, pages, rng())[0].questions
    assert question.answers == ("Vega Ltd", "Vega", "11/02")


def test_an_answer_of_training_that_the_page_does_not_show_counts():
    logo = Question("mark", "What does the logo say?", ("Star",))
    pages = [document("own", "Vega Ltd", WHO, logo), document("other", "Sum 4437.93", TOTAL)]
    (question,) = ImageOnly().ask([canary(page) for page in pages], pages, rng())[0].questions
    assert question.answers == ("Vega Ltd", "Vega", "Star")


@pytest.mark.parametrize(
    "other",
    [
        Question("provider", "Which firm sold this?", ("Orion",)),  # the same in other words
        Question("date", "When is the bill dated?", ("Orion",)),  # asked of the page
        Question("total", "What is the total amount?", ("Bill",)),  # the page says it
    ],
)
def test_the_image_alone_is_not_asked_a_related_question(other):
    pages = [
        document("own", "Vega Ltd Bill 11/02", WHO, WHEN),
        document("other", "Orion Bill", other),
    ]
    assert ImageOnly().ask([canary(page) for page in pages], pages, rng())[0] is None


def test_questions_without_a_key_are_told_apart_by_their_text():
    pages = [
        document("own", "Vega Ltd", dataclasses.replace(WHO, key="")),
        document("other", "4437.93", dataclasses.replace(TOTAL, key="")),
    ]
    first, second = ImageOnly().ask([canary(page) for page in pages], pages, rng())
    assert first.questions[0].text == TOTAL.text
    assert second.questions[0].text == WHO.text


def square(*words):
    """A page of 60 x 60 pixels with a dark box for each word."""
    page = np.full((60, 60, 3), 255, np.uint8)
    for word in words:
        left, top, right, bottom = map(int, word.box)
        page[top:bottom, left:right] = 0
    entities = (Entity("all", tuple(range(len(words)))), Entity("first", (0,)))
    return Document("a", "Vega", page, (60, 60), words, entities, (WHO,))


def test_a_quarter_turn_moves_ink_and_box_alike_and_goes_either_way():
    page = square(Word("Bill", (10, 20, 30, 26), 0))
    one = canary(page)
    asked = Rotation(90).ask([one] * 20, [page], rng())
    boxes = {tuple(round(edge) for edge in shown.words[0].box) for shown in asked}
    # Left comes to the bottom, or to the top.
    assert boxes == {(20, 30, 26, 50), (34, 10, 40, 30)}
    for shown in asked:
        left, top, right, bottom = (round(edge) for edge in shown.words[0].box)
        ink = np.zeros((60, 60, 3), bool)
        ink[top:bottom, left:right] = True
        assert ((pixels(shown) < 128) == ink).all()


def test_a_turned_page_is_filled_at_the_corners():
    page = square(Word("Bill", (25, 25, 35, 35), 0))
    assert (pixels(only(Rotation(45), page))[:5, :5] == 255).all()
    assert (pixels(only(Rotation(45, fill=7), page))[:5, :5] == 7).all()


def test_a_turned_edge_has_levels_in_between():
    page = square(Word("Bill", (20, 20, 40, 40), 0))
    shown = np.unique(pixels(only(Rotation(5), page)))
    assert ((shown > 20) & (shown < 235)).sum() > 5


def test_words_that_leave_the_page_are_gone_and_their_entities_with_them():
    page = square(Word("Bill", (25, 25, 35, 35), 0), Word("Far", (0, 0, 6, 4), 1))
    whole = dataclasses.replace(canary(page), removed=page)
    (asked,) = Rotation(45).ask([whole], [page], rng())
    assert [word.text for word in asked.words] == ["Bill"]
    assert asked.entities == (Entity("first", (0,)),)


def test_a_shift_moves_pixels_and_boxes_by_the_same():
    page = document("a", "Vega Ltd Bill 11/02 total 4437.93", WHO)
    before = pixels(canary(page).removed)
    seen = set()
    for shown in Translation(8, reference=None).ask([canary(page)] * 30, [page], rng()):
        x, y = shown.words[0].box[0] - 52, shown.words[0].box[1] - 10
        seen.add((x, y))
        rows, columns = np.arange(60) - int(y), np.arange(100) - int(x)
        there = ((rows >= 0) & (rows < 60))[:, None] & ((columns >= 0) & (columns < 100))
        expected = np.where(there[..., None], before[rows % 60][:, columns % 100], 255)
        assert (pixels(shown) == expected).all()
    assert seen == {(8, 8), (8, -8), (-8, 8), (-8, -8)}


def test_a_shifted_word_is_cut_at_the_edge_or_gone():
    page = square(Word("cut", (10, 25, 30, 35), 0), Word("gone", (0, 45, 20, 50), 0))
    found = Translation(13, reference=None).ask([canary(page)] * 30, [page], rng())
    to_the_left = [shown for shown in found if shown.words[0].box[2] == 17]
    assert to_the_left
    for shown in to_the_left:
        assert [word.text for word in shown.words] == ["cut"]
        assert shown.words[0].box[0] == 0


@pytest.mark.parametrize(
    ("shift", "height", "step"),
    [(20, 128, 1), (100, 128, 5), (200, 560, 44), (20, 64, 1), (20, 2560, 20)],
)
def test_a_shift_is_a_share_of_the_pages_height(shift, height, step):
    middle = height / 2
    page = Document(
        "a",
        "Vega",
        np.full((height, height, 3), 255, np.uint8),
        (height, height),
        (Word("Bill", (middle - 1, middle - 1, middle + 1, middle + 1), 0),),
        questions=(WHO,),
    )
    (word,) = only(Translation(shift), page).words
    assert abs(word.box[0] - (middle - 1)) == abs(word.box[1] - (middle - 1)) == step


def test_a_shift_that_leaves_nothing_of_the_page_is_not_had():
    assert only(Translation(60, reference=None)) is None


def test_brightness_multiplies_and_clips():
    levels = np.array([0, 3, 100, 128, 250, 255], np.uint8)
    page = document("a", "Vega", WHO)
    page = dataclasses.replace(
        page, words=(), entities=(), page=np.repeat(levels[None, :, None], 3, 2), size=(6, 1)
    )
    assert pixels(only(Brightness(2), page))[0, :, 0].tolist() == [0, 6, 200, 255, 255, 255]
    assert pixels(only(Brightness(0.5), page))[0, :, 0].tolist() == [0, 2, 50, 64, 125, 128]


def test_a_changed_picture_does_not_show_the_answer_again():
    """What is white on I^-a is so in the new pixels."""
    page = document("a", "Vega Ltd", WHO)
    for context in (Brightness(1), Rotation(0), Rotation(5), Translation(5)):
        asked = only(context, page)
        assert (pixels(asked)[:50] > 200).all()


def test_the_same_generator_asks_the_same():
    pages = [document(name, f"{name} Bill", WHO, WHEN, TOTAL) for name in "abcd"]
    canaries = [canary(page, place % 3) for place, page in enumerate(pages)]
    for context in contexts(lambda question, random: str(random.integers(10**6))).values():
        one, two = (context.ask(canaries, pages, rng(3)) for _ in range(2))
        assert [page and page.questions for page in one] == [
            page and page.questions for page in two
        ]
        assert all(
            a is b is None or (pixels(a) == pixels(b)).all() for a, b in zip(one, two, strict=True)
        )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: NoText(margin=-1), "margin=-1"),
        (lambda: Constant("grey"), "'grey'"),
        (lambda: Rotation(-5), "degrees=-5"),
        (lambda: Rotation(5, fill=256), "fill=256"),
        (lambda: Translation(0), "pixels=0"),
        (lambda: Translation(20, reference=0), "reference=0"),
        (lambda: Brightness(-1), "factor=-1"),
        (lambda: Brightness(float("nan")), "factor=nan"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
