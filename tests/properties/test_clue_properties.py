"""What holds for every page and answer once the clues are taken off."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedpriv.data.document import Document, Entity, Question, Word
from fedpriv.data.redaction.clues import without_clues
from fedpriv.data.redaction.painting import CannotRemove

# Few letters, so that words and answers meet often, in all manner of pieces.
TEXTS = st.text(st.sampled_from("aAbBcC12&-. "), min_size=1, max_size=8)
WORDS = TEXTS.map(lambda text: text.replace(" ", "")).filter(bool)


def spelt(text):
    return "".join(sign for sign in text.lower() if sign.isalnum())


@st.composite
def documents(draw):
    """A page of noise with up to ten words anywhere on it, and entities of any words."""
    words = []
    for text in draw(st.lists(WORDS, max_size=10)):
        left, top = draw(st.integers(0, 90)), draw(st.integers(0, 50))
        right, bottom = draw(st.integers(left + 1, 99)), draw(st.integers(top + 1, 59))
        words.append(Word(text, (left, top, right, bottom), draw(st.integers(0, 2))))
    places = st.sets(st.integers(0, max(0, len(words) - 1)), min_size=1, max_size=3)
    entities = [Entity(label, tuple(sorted(draw(places)))) for label in ("one", "two") if words]
    noise = np.random.default_rng(0).integers(0, 256, (60, 100, 3)).astype(np.uint8)
    return Document("a", "p", noise, (100, 60), tuple(words), tuple(entities))


@st.composite
def questions(draw):
    """A page, and an answer that often stands on it."""
    page = draw(documents())
    texts = [word.text for word in page.words]
    start = draw(st.integers(0, len(texts)))
    there = " ".join(texts[start : start + draw(st.integers(1, 4))])
    answer = draw(st.sampled_from([there, draw(TEXTS)]))
    return page, Question("key", "?", (answer,))


@given(asked=questions())
def test_no_word_and_no_row_of_words_is_the_answer_any_more(asked):
    page, question = asked
    try:
        shown = without_clues(page, question, question.answers).page
    except CannotRemove:
        return
    answer = spelt(question.answers[0])
    texts = [spelt(word.text) for word in shown.words]
    rows = {
        "".join(texts[start:end])
        for start in range(len(texts))
        for end in range(start + 1, len(texts) + 1)
    }
    assert answer not in rows
    assert not any(len(answer) >= 4 and answer in text for text in texts)
    # Of the words that are left, none is new, and they are in their order.
    left = iter(page.words)
    assert all(word in left for word in shown.words)


@given(asked=questions())
def test_pixels_outside_of_the_boxes_stay_and_dropped_words_lie_inside(asked):
    page, question = asked
    try:
        found = without_clues(page, question, question.answers)
    except CannotRemove:
        return
    inside = np.zeros((60, 100), bool)
    for left, top, right, bottom in found.boxes:
        assert 0 <= left < right <= 100
        assert 0 <= top < bottom <= 60
        inside[int(top) : int(bottom), int(left) : int(right)] = True
    after = np.asarray(found.page.image())
    np.testing.assert_array_equal(after[~inside], page.page[~inside])
    kept = list(found.page.words)
    for word in page.words:
        if word in kept:
            kept.remove(word)
            continue
        left, top, right, bottom = (int(side) for side in word.box)
        assert inside[top:bottom, left:right].all()


@given(asked=questions())
def test_entities_keep_all_their_words_or_go(asked):
    page, question = asked
    try:
        shown = without_clues(page, question, question.answers).page
    except CannotRemove:
        return
    before = {entity.label: [page.words[i] for i in entity.words] for entity in page.entities}
    for entity in shown.entities:
        assert list(entity.words) == sorted(entity.words)
        assert [shown.words[i] for i in entity.words] == before[entity.label]
    left = {id(word) for word in shown.words}
    whole = {label for label, words in before.items() if all(id(word) in left for word in words)}
    assert {entity.label for entity in shown.entities} == whole


@given(asked=questions())
def test_nothing_is_left_to_clear(asked):
    page, question = asked
    try:
        shown = without_clues(page, question, question.answers).page
    except CannotRemove:
        return
    with pytest.raises(CannotRemove):
        without_clues(shown, question, question.answers)


def inside_of_another():
    """Returns a page with a short answer, and again inside of a longer word."""
    words = tuple(Word(text, (1, 1, 9, 9), 0) for text in ("b1", "aab1c"))
    noise = np.zeros((60, 100, 3), np.uint8)
    return Document("a", "p", noise, (100, 60), words), Question("key", "?", ("B-1",))


@given(asked=questions())
@example(asked=inside_of_another())
def test_a_page_without_a_clue_left_has_no_word_with_the_answer_inside(asked):
    page, question = asked
    try:
        found = without_clues(page, question, question.answers)
    except CannotRemove:
        return
    answer = spelt(question.answers[0])
    inside = any(answer in spelt(word.text) for word in found.page.words)
    assert found.residual or not inside or len(answer) == 1
