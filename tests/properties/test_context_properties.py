"""What holds for every page and every set of canaries, whatever the context draws."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.attacks.extraction.canary import Canary
from fedpriv.attacks.extraction.contexts import (
    Brightness,
    ImageOnly,
    NoText,
    Rotation,
    Shuffle,
    Translation,
)
from fedpriv.data.document import Document, Question, Word

SEEDS = st.integers(0, 2**32 - 1)
ASKED = Question("key", "What is it?", ("it",))


def as_canary(page):
    """A canary whose answer was not on its page to begin with."""
    return Canary(page.question_names()[0], page, page, "", 1)


def only(context, page, seed):
    (asked,) = context.ask([as_canary(page)], [page], np.random.default_rng(seed))
    return asked


@st.composite
def drawn_pages(draw):
    """Up to three words anywhere; the ink of word k, its whole box, is dark in colour k alone."""
    width, height = draw(st.integers(30, 70)), draw(st.integers(30, 70))
    pixels = np.full((height, width, 3), 255, np.uint8)
    words = []
    for colour in range(draw(st.integers(1, 3))):
        left, top = draw(st.integers(0, width - 5)), draw(st.integers(0, height - 5))
        right = draw(st.integers(left + 5, min(width, left + 40)))
        bottom = draw(st.integers(top + 5, min(height, top + 12)))
        pixels[top:bottom, left:right, colour] = 0
        words.append(Word("rgb"[colour], (left, top, right, bottom), colour))
    return Document("a", "Vega", pixels, (width, height), tuple(words), questions=(ASKED,))


def ink(page, word):
    """Left, top, right and bottom of a word's dark pixels; none where there are none."""
    dark = np.asarray(page.image())[..., "rgb".index(word.text)] < 128
    rows, columns = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
    if not len(rows):
        return None
    return columns[0], rows[0], columns[-1] + 1, rows[-1] + 1


def check_boxes(page, slack):
    """Boxes lie on the page and around the ink; those that were not cut fit it closely."""
    width, height = page.size
    for word in page.words:
        left, top, right, bottom = word.box
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height
        x0, y0, x1, y1 = ink(page, word)
        assert left - slack <= x0
        assert top - slack <= y0
        assert x1 <= right + slack
        assert y1 <= bottom + slack
        if left > 0 and top > 0 and right < width and bottom < height:
            assert max(x0 - left, y0 - top, right - x1, bottom - y1) <= 2 + slack


@given(page=drawn_pages(), degrees=st.floats(0, 45), seed=SEEDS)
def test_a_turned_words_box_is_on_the_page_and_around_its_ink(page, degrees, seed):
    turned = only(Rotation(degrees), page, seed)
    assert np.asarray(turned.image()).shape == np.asarray(page.image()).shape
    check_boxes(turned, slack=1)


@given(page=drawn_pages(), pixels=st.integers(1, 80), seed=SEEDS)
def test_a_shifted_words_box_is_on_the_page_and_around_its_ink(page, pixels, seed):
    shifted = only(Translation(pixels, reference=None), page, seed)
    if shifted is None:
        assert pixels >= min(page.size)
        return
    check_boxes(shifted, slack=0)
    for word in shifted.words:
        assert ink(shifted, word) == word.box
    # Of a word that is gone, no more than half can be seen along one of the axes.
    kept = {word.text for word in shifted.words}
    for word in (word for word in page.words if word.text not in kept):
        seen = ink(shifted, word)
        if seen is not None:
            left, top, right, bottom = word.box
            shares = (seen[2] - seen[0]) / (right - left), (seen[3] - seen[1]) / (bottom - top)
            assert min(shares) <= 0.5


@given(page=drawn_pages(), degrees=st.floats(0, 10), seed=SEEDS)
def test_a_word_at_the_centre_survives_a_small_turn(page, degrees, seed):
    width, height = page.size
    box = (width / 2 - 3, height / 2 - 3, width / 2 + 3, height / 2 + 3)
    page = dataclasses.replace(page, words=(*page.words, Word("centre", box, 9)))
    assert only(Rotation(degrees), page, seed).words[-1].text == "centre"


@given(page=drawn_pages(), seed=SEEDS)
def test_brightness_one_and_no_turn_change_nothing(page, seed):
    noise = np.random.default_rng(seed).integers(0, 256, page.page.shape).astype(np.uint8)
    page = dataclasses.replace(page, page=noise)
    for context in (Brightness(1.0), Rotation(0)):
        same = only(context, page, seed)
        assert (np.asarray(same.image()) == noise).all()
        assert same.words == page.words


@given(page=drawn_pages(), factor=st.floats(0, 4), seed=SEEDS)
def test_brightness_keeps_the_order_of_levels(page, factor, seed):
    noise = np.random.default_rng(seed).integers(0, 256, page.page.shape).astype(np.uint8)
    shown = np.asarray(only(Brightness(factor), dataclasses.replace(page, page=noise), 0).image())
    order = np.argsort(noise, axis=None)
    assert (np.diff(shown.ravel()[order].astype(int)) >= 0).all()
    assert ((shown >= noise) if factor >= 1 else (shown <= noise)).all()


@given(page=drawn_pages(), margin=st.integers(0, 5), seed=SEEDS)
def test_no_dark_pixel_is_left_where_a_word_stood(page, margin, seed):
    noise = np.random.default_rng(seed).integers(0, 128, page.page.shape).astype(np.uint8)
    # Boxes need not be whole pixels.
    words = tuple(
        dataclasses.replace(word, box=tuple(edge + 0.3 for edge in word.box[:2]) + word.box[2:])
        for word in page.words
    )
    page = dataclasses.replace(page, page=noise, words=words)
    blank = only(NoText(margin), page, seed)
    shown = np.asarray(blank.image())
    inside = np.zeros(shown.shape[:2], bool)
    for word in words:
        left, top, right, bottom = word.box
        rows = slice(max(0, int(top) - margin), int(bottom) + margin)
        inside[rows, max(0, int(left) - margin) : int(right) + margin] = True
    assert blank.words == ()
    assert (shown[inside] == 255).all()
    # The words are lines of their own: nothing else changed.
    assert (shown[~inside] == noise[~inside]).all()


# ---------------------------------------------------------------------------------- shuffled pairs

# Few letters, so that pages and answers meet often, in all manner of pieces.
TEXTS = st.text(st.sampled_from("abAB12-"), min_size=1, max_size=4)
QUESTIONS = st.builds(
    Question,
    st.sampled_from(["", "one", "two"]),
    st.sampled_from(["Who?", "who?", "When?", " When?  ", "Where is it?", "How much?"]),
    st.lists(TEXTS, min_size=1, max_size=2).map(tuple),
)


@st.composite
def studies(draw):
    """Pages with some words and questions, and some of the questions as canaries."""
    training, canaries = [], []
    for number in range(draw(st.integers(1, 5))):
        texts = draw(st.lists(TEXTS, max_size=4))
        words = tuple(Word(text, (n, 0, n + 1, 1), 0) for n, text in enumerate(texts))
        questions = tuple(draw(st.lists(QUESTIONS, min_size=1, max_size=3)))
        page = Document(
            str(number), "Vega", np.zeros((2, 8, 3), np.uint8), (8, 2), words, (), questions
        )
        training.append(page)
        for name, question in zip(page.question_names(), questions, strict=True):
            if draw(st.booleans()):
                one = dataclasses.replace(page, questions=(question,))
                left = tuple(word for word in words if word.text not in question.answers)
                removed = dataclasses.replace(one, words=left)
                canaries.append(Canary(name, one, removed, "", 1))
    return canaries, training


def spelt(page):
    return "".join(sign for word in page.words for sign in word.text.lower() if sign.isalnum())


def is_said(answers, page):
    plain = ("".join(sign for sign in answer.lower() if sign.isalnum()) for answer in answers)
    return any(text in spelt(page) for text in plain)


def is_asked(text, page):
    return text.lower().split() in [question.text.lower().split() for question in page.questions]


@given(study=studies(), seed=SEEDS)
def test_a_shuffled_question_meets_the_papers_conditions_or_none_could(study, seed):
    canaries, training = study
    whole = {page.id: page for page in training}
    for canary, asked in zip(
        canaries, Shuffle().ask(canaries, training, np.random.default_rng(seed)), strict=True
    ):
        fits = [
            other
            for other in canaries
            if not is_asked(canary.question.text, whole[other.page.id])
            and not is_said(canary.question.answers, other.page)
            and not is_said(canary.question.answers, other.removed)
        ]
        assert (asked is None) == (not fits)
        if asked is not None:
            assert asked.id != canary.page.id
            assert asked.questions == (canary.question,)
            shown = [(other.page.id, other.removed.words) for other in fits]
            assert (asked.id, asked.words) in shown


@given(study=studies(), seed=SEEDS)
def test_a_question_to_the_image_alone_is_unrelated_and_its_own_answer_does_not_count(study, seed):
    canaries, training = study
    whole = {page.id: page for page in training}
    for canary, asked in zip(
        canaries, ImageOnly().ask(canaries, training, np.random.default_rng(seed)), strict=True
    ):
        if asked is None:
            continue
        (question,) = asked.questions
        assert asked.words == canary.removed.words
        assert not is_asked(question.text, whole[asked.id])
        donors = [
            other.question
            for other in canaries
            if (other.question.key, other.question.text) == (question.key, question.text)
            and not is_said(other.question.answers, canary.page)
        ]
        assert donors
        assert set(canary.question.answers) <= set(question.answers)
        trained = {text for one in whole[asked.id].questions for text in one.answers}
        assert set(question.answers) <= trained
