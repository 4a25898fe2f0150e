"""Generated identities: what stands on their pages, how often, and what depends on what."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedpriv.data.generated.identities import Identities, others_alike

SIZES = ((64, 64), (128, 112))


def by_person(**settings):
    found = {}
    for page in Identities(**settings).load().documents:
        found.setdefault(page.provider, []).append(page)
    return found


def text_of(document, label):
    (entity,) = (entity for entity in document.entities if entity.label == label)
    return " ".join(document.words[word].text for word in entity.words)


def same(one, other):
    return np.array_equal(one.pixels(), other.pixels()) and (
        dataclasses.replace(one, page=None) == dataclasses.replace(other, page=None)
    )


def test_each_repeat_count_has_as_many_persons():
    persons = by_person(repeats=(1, 3, 5), each=4)
    assert Counter(map(len, persons.values())) == {1: 4, 3: 4, 5: 4}
    assert [len(persons[f"person {n:03}"]) for n in range(6)] == [1, 3, 5, 1, 3, 5]


@pytest.mark.parametrize("size", SIZES)
def test_a_person_has_one_name_and_number_and_many_dates(size):
    for pages in by_person(page_size=size, questions=("account", "person")).values():
        assert len({text_of(page, "account") for page in pages}) == 1
        assert len({text_of(page, "person") for page in pages}) == 1
        assert len({text_of(page, "date") for page in pages}) == len(pages)
        assert len({page.pixels().tobytes() for page in pages}) == len(pages)
        assert len({page.questions for page in pages}) == 1
        first = pages[0]
        answers = {question.key: question.answers for question in first.questions}
        assert answers == {key: (text_of(first, key),) for key in ("account", "person")}
        assert len(answers["account"][0]) == 6


def test_the_account_is_asked_for_unless_said_otherwise():
    assert {q.key for p in Identities().load().documents for q in p.questions} == {"account"}
    one = Identities(each=1, questions=("person",)).load().documents[0]
    assert [question.key for question in one.questions] == ["person"]


def test_names_differ_where_there_is_room_for_them():
    persons = by_person(page_size=SIZES[1], each=100, repeats=(1, 1))
    assert len({text_of(pages[0], "person") for pages in persons.values()}) == 200


@pytest.mark.parametrize("size", SIZES)
def test_every_person_has_a_look_of_its_own(size):
    """The page without its words differs from everybody else's, and not from the person's."""
    looks = {}
    for name, pages in by_person(page_size=size, each=30, repeats=(1, 2)).items():
        for page in pages:
            bare = page.pixels()
            for word in page.words:
                x0, y0, x1, y1 = map(int, word.box)
                bare[y0:y1, x0:x1] = 255
            looks.setdefault(bare.tobytes(), set()).add(name)
    assert [len(names) for names in looks.values()] == [1] * 60


@pytest.mark.parametrize("size", SIZES)
def test_letters_are_sharp_and_words_apart(size):
    for page in Identities(page_size=size, each=10, digits=9).load().documents:
        covered = np.zeros(size[::-1], dtype=int)
        assert page.pixels().shape == (size[1], size[0], 3)
        for word in page.words:
            x0, y0, x1, y1 = map(int, word.box)
            assert 0 <= x0 < x1 <= size[0]
            assert 0 <= y0 < y1 <= size[1]
            covered[y0:y1, x0:x1] += 1
        assert covered.max() == 1
        digits = page.words[
            page.entities[[e.label for e in page.entities].index("account")].words[0]
        ]
        x0, y0, x1, y1 = map(int, digits.box)
        assert y1 - y0 >= 7
        assert page.pixels()[y0:y1, x0:x1].min() < 130


def test_account_numbers_are_uniform():
    pages = Identities(repeats=(1,), each=400, digits=4).load().documents
    values = [int(text_of(page, "account")) / 10**4 for page in pages]
    assert stats.kstest(values, "uniform").pvalue > 0.01
    assert any(text_of(page, "account").startswith("0") for page in pages)


@settings(max_examples=20)
@given(each=st.integers(1, 3), seed=st.integers(0, 99))
def test_counts_do_not_change_the_pages_they_have_in_common(each, seed):
    few = Identities((1, 3), each, seed=seed).load().documents
    more = {page.id: page for page in Identities((1, 3), 4, seed=seed).load().documents}
    assert len(few) == 4 * each
    assert all(same(page, more[page.id]) for page in few)
    longer = {page.id: page for page in Identities((2, 4), 4, seed=seed).load().documents}
    assert all(same(page, longer[page.id]) for page in few)


def test_seeds_differ():
    one, other = (Identities(each=1, seed=seed).load().documents[0] for seed in (0, 1))
    assert text_of(one, "account") != text_of(other, "account")


# --- the space of answers -------------------------------------------------------------------


def test_references_are_different_and_of_the_space():
    found = Identities(digits=4).references(900, np.random.default_rng(0))
    assert len(set(found)) == 900
    assert all(len(value) == 4 and value.isdigit() for value in found)
    many = [Identities(digits=4).references(90, np.random.default_rng(seed)) for seed in range(50)]
    values = [int(value) / 10**4 for found in many for value in found]
    assert stats.kstest(values, "uniform").pvalue > 0.01
    every = Identities(digits=2).references(100, np.random.default_rng(0))
    assert sorted(every) == [f"{value:02}" for value in range(100)]


@given(text=st.text("0123456789-A ", min_size=1).filter(lambda t: any(map(str.isdigit, t))))
def test_all_but_the_digits_stays_and_the_text_itself_never_comes(text):
    count = min(50, 10 ** sum(map(str.isdigit, text)) - 1)
    found = others_alike(text, count, np.random.default_rng(1))
    assert len(set(found)) == count
    assert text not in found
    for other in found:
        assert len(other) == len(text)
        assert all(
            a == b or (a.isdigit() and b.isdigit()) for a, b in zip(text, other, strict=True)
        )


def test_all_others_can_be_drawn():
    found = others_alike("A-37", 99, np.random.default_rng(0))
    assert sorted(found) == [f"A-{value:02}" for value in range(100) if value != 37]


@pytest.mark.parametrize(
    ("text", "count", "space"), [("37", 100, 99), ("##", 101, 100), ("Ada", 1, 0), ("37", 0, 99)]
)
def test_no_more_than_there_are(text, count, space):
    with pytest.raises(ValueError, match=f"count={count}.*there are {space} other"):
        others_alike(text, count, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"repeats": ()}, r"repeats=\(\) to be numbers from 1"),
        ({"repeats": (0, 1)}, r"repeats=\(0, 1\)"),
        ({"each": 0}, "each=0 for 4 repeats"),
        ({"each": 10_000}, "each=10000"),
        ({"digits": 0}, r"digits=0 in 1\.\.9"),
        ({"page_size": (64, 63)}, r"page_size=\(64, 63\)"),
        ({"questions": ("date",)}, r"questions names \['date'\].*account, person"),
    ],
)
def test_settings_that_cannot_work_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        Identities(**setting)
