"""What holds for every page and answer once the answer is removed."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedpriv.data.document import Document, Entity, Question, Word
from fedpriv.data.redaction.answers import without_answer
from fedpriv.data.redaction.painting import CannotRemove

# Few letters, so that words and answers meet often, in all manner of pieces.
TEXTS = st.text(st.sampled_from("aAbBoO012&-. "), min_size=1, max_size=8)
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
    noise = np.random.default_rng(0).integers(0, 255, (60, 100, 3)).astype(np.uint8)
    return Document("a", "p", noise, (100, 60), tuple(words), tuple(entities))


@st.composite
def questions(draw):
    """A page, and one or two answers that often stand on it."""
    page = draw(documents())
    texts = [word.text for word in page.words]
    start = draw(st.integers(0, len(texts)))
    there = " ".join(texts[start : start + draw(st.integers(1, 4))])
    answers = draw(st.lists(st.sampled_from([there, draw(TEXTS)]), min_size=1, max_size=2))
    return page, Question("key", "?", tuple(answers))


def found(asked):
    """The removal, and the answers as they are compared; None where there is nothing to remove."""
    page, question = asked
    try:
        return without_answer(page, question), set(filter(None, map(spelt, question.answers)))
    except CannotRemove:
        return None


@given(asked=questions())
def test_no_row_of_words_is_an_answer_any_more(asked):
    if (both := found(asked)) is None:
        return
    removed, answers = both
    texts = [spelt(word.text) for word in removed.page.words]
    rows = {
        "".join(texts[start:end])
        for start in range(len(texts))
        for end in range(start + 1, len(texts) + 1)
    }
    assert rows.isdisjoint(answers)


@given(asked=questions())
def test_without_a_residual_no_long_answer_is_left_in_any_stretch(asked):
    if (both := found(asked)) is None:
        return
    removed, answers = both
    joined = "".join(spelt(word.text) for word in removed.page.words)
    assert removed.residual or not any(len(a) >= 4 and a in joined for a in answers)


@given(asked=questions())
def test_a_page_with_a_row_of_words_that_spells_an_answer_is_not_refused(asked):
    page, question = asked
    texts = [spelt(word.text) for word in page.words]
    rows = {
        "".join(texts[start:end])
        for start in range(len(texts))
        for end in range(start + 1, len(texts) + 1)
    }
    answers = set(filter(None, map(spelt, question.answers)))
    assert found(asked) is not None or rows.isdisjoint(answers)


@given(asked=questions())
def test_pixels_outside_of_the_boxes_stay_and_those_inside_are_white(asked):
    if (both := found(asked)) is None:
        return
    removed, _ = both
    inside = np.zeros((60, 100), bool)
    for left, top, right, bottom in removed.boxes:
        assert 0 <= left < right <= 100
        assert 0 <= top < bottom <= 60
        inside[int(top) : int(bottom), int(left) : int(right)] = True
    after = np.asarray(removed.page.image())
    np.testing.assert_array_equal(after[~inside], asked[0].page[~inside])
    assert (after[inside] == 255).all()
    kept = list(removed.page.words)
    for word in asked[0].words:
        if word in kept:
            kept.remove(word)
            continue
        left, top, right, bottom = (int(side) for side in word.box)
        assert inside[top:bottom, left:right].all()


@given(asked=questions())
def test_words_stay_in_their_order_and_entities_keep_all_their_words_or_go(asked):
    if (both := found(asked)) is None:
        return
    (removed, _), page = both, asked[0]
    left = iter(page.words)
    assert all(word in left for word in removed.page.words)
    before = {entity.label: [page.words[i] for i in entity.words] for entity in page.entities}
    for entity in removed.page.entities:
        assert list(entity.words) == sorted(entity.words)
        assert [removed.page.words[i] for i in entity.words] == before[entity.label]
    stay = {id(word) for word in removed.page.words}
    whole = {label for label, words in before.items() if all(id(word) in stay for word in words)}
    assert {entity.label for entity in removed.page.entities} == whole


def brought_together():
    """Returns a page on which the answer is spelt anew once its first occurrence is gone."""
    words = tuple(Word(text, (1, 1, 9, 9), 0) for text in ("a", "ab1", "b1"))
    noise = np.zeros((60, 100, 3), np.uint8)
    return Document("a", "p", noise, (100, 60), words), Question("key", "?", ("AB-1",))


@given(asked=questions())
@example(asked=brought_together())
def test_removing_twice_changes_nothing(asked):
    if (both := found(asked)) is None:
        return
    removed, _ = both
    with pytest.raises(CannotRemove):
        without_answer(removed.page, asked[1])
