"""Generated slips: what stands on them, how sharp, and what depends on what."""

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.generated.slips import Slips

SIZES = ((64, 64), (112, 112), (224, 224))
LABELS = {
    (64, 64): ("provider", "customer", "date", "total"),
    (112, 112): ("provider", "customer", "invoice_number", "date", "total"),
    (224, 224): ("provider", "address", "customer", "invoice_number", "date", "total"),
}


def slips(size=(112, 112), **settings):
    return Slips(size, **{"providers": 3, "documents_per_provider": 2, **settings}).load()


def text_of(document, label):
    (entity,) = (entity for entity in document.entities if entity.label == label)
    return " ".join(document.words[word].text for word in entity.words)


def same(one, other):
    return np.array_equal(one.pixels(), other.pixels()) and (
        dataclasses.replace(one, page=None) == dataclasses.replace(other, page=None)
    )


def ink(page):
    """Which pixels are not white, as (height, width)."""
    return (page != 255).any(-1)


@pytest.mark.parametrize("size", SIZES)
def test_every_label_stands_on_every_slip(size):
    found = slips(size)
    assert found.labels == LABELS[size]
    for document in found.documents:
        assert {entity.label for entity in document.entities} == set(LABELS[size])
        assert document.size == size
        assert document.pixels().shape == (size[1], size[0], 3)
        assert document.pixels().dtype == np.uint8


@pytest.mark.parametrize("size", SIZES)
def test_values_are_those_of_the_invoices_written_shorter(size):
    invoices = Invoices(providers=3, documents_per_provider=2, seed=4).load().documents
    for slip, invoice in zip(slips(size, seed=4).documents, invoices, strict=True):
        assert slip.provider == invoice.provider
        for label in ("provider", "customer"):
            assert text_of(slip, label) in text_of(invoice, label)
        assert re.search(r"\d{4}", text_of(slip, "date"))[0] in text_of(invoice, "date")
        digits = [re.sub(r"\D", "", text_of(d, "total")) for d in (slip, invoice)]
        assert digits[0] == digits[1]


def test_the_larger_the_page_the_more_of_a_name():
    names = [text_of(slips(size).documents[0], "provider").split() for size in SIZES]
    whole = slips().documents[0].provider.split()
    assert names == [whole[:1], whole[:2], whole]
    customers = [len(text_of(slips(size).documents[0], "customer").split()) for size in SIZES]
    assert customers == [1, 2, 2]


@pytest.mark.parametrize("size", SIZES)
def test_boxes_hold_the_ink_and_do_not_touch(size):
    for document in slips(size, providers=8).documents:
        inside, inked = np.zeros(size[::-1], dtype=int), ink(document.pixels())
        for word in document.words:
            x0, y0, x1, y1 = map(int, word.box)
            assert 0 <= x0 < x1 <= size[0]
            assert 0 <= y0 < y1 <= size[1]
            inside[y0:y1, x0:x1] += 1
            box = inked[y0:y1, x0:x1]
            assert box[0].any()
            assert box[-1].any()
            assert box[:, 0].any()
            assert box[:, -1].any()
        assert inside.max() == 1
        rows = inked & (inside == 0)
        # What is left are the rules: whole rows of one pixel.
        assert {int(row.sum()) for row in rows if row.any()} == {size[0] - 2 * (size[0] // 28)}


@pytest.mark.parametrize("size", SIZES)
def test_no_value_is_set_in_smaller_type(size):
    """Capital letters and digits are seven pixels high at least, whoever the provider is."""
    for document in slips(size, providers=60, documents_per_provider=1).documents:
        pixels = document.pixels()
        for entity in document.entities:
            words = [document.words[place] for place in entity.words]
            x0, y0, x1, y1 = (int(side) for side in words[0].box)
            assert y1 - y0 >= 7, words[0].text
            # On white: the lightest pixel of a word's ink is grey, the darkest nearly its colour.
            assert pixels[y0:y1, x0:x1].min() < 100


@pytest.mark.parametrize("size", SIZES)
def test_where_a_line_stands_depends_on_the_provider_only(size):
    for one, other in zip(*[iter(slips(size).documents)] * 2, strict=True):
        assert one.provider == other.provider
        # Digits and capital letters stand on the line: so do the bottoms of dates and numbers.
        bottoms = [
            {e.label: max(d.words[w].box[3] for w in e.words) for e in d.entities}
            for d in (one, other)
        ]
        assert bottoms[0].keys() == bottoms[1].keys()
        assert all(abs(bottoms[0][key] - bottoms[1][key]) <= 3 for key in bottoms[0])


@pytest.mark.parametrize("size", SIZES)
def test_private_lines_take_a_modest_share_of_the_page(size):
    document = slips(size).documents[0]
    share = sum(
        (word.box[2] - word.box[0]) * (word.box[3] - word.box[1])
        for entity in document.entities
        if entity.label in ("customer", "date", "total")
        for word in (document.words[place] for place in entity.words)
    ) / (size[0] * size[1])
    assert share < (0.4 if size == (64, 64) else 0.15)


def test_lines_are_segments():
    document = slips().documents[0]
    for entity in document.entities:
        assert len({document.words[place].segment for place in entity.words}) == 1
    tops = {}
    for word in document.words:
        tops.setdefault(word.segment, []).append(word.box[1])
    assert all(max(top) - min(top) < 10 for top in tops.values())


def test_questions_ask_for_what_stands_there():
    document = slips(questions=("date", "customer")).documents[0]
    answers = {question.key: question.answers for question in document.questions}
    assert answers == {key: (text_of(document, key),) for key in ("date", "customer")}
    assert same(document, dataclasses.replace(slips().documents[0], questions=document.questions))


@given(providers=st.integers(1, 4), per_provider=st.integers(1, 4), seed=st.integers(0, 99))
def test_counts_do_not_change_the_documents_they_have_in_common(providers, per_provider, seed):
    few = Slips((64, 64), providers, per_provider, seed).load().documents
    more = {d.id: d for d in Slips((64, 64), 5, 5, seed).load().documents}
    assert len(few) == providers * per_provider
    assert all(same(document, more[document.id]) for document in few)


def test_seeds_differ():
    one, other = (slips(seed=seed).documents[0] for seed in (0, 1))
    assert one.provider != other.provider
    assert not np.array_equal(one.pixels(), other.pixels())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"page_size": (63, 64)}, r"page_size=\(63, 64\) to be \(width, height\), at least"),
        ({"page_size": (64,)}, r"to be \(width, height\)"),
        ({"providers": 0}, r"providers=0 in 1\.\."),
        ({"documents_per_provider": 0}, "documents_per_provider=0 in 1"),
        (
            {"questions": ("phone",)},
            r"questions names \['phone'\]: on slips of \(112, 112\) pixels there are provider",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Slips(**settings)


def test_pages_need_not_be_square():
    document = slips((120, 240)).documents[0]
    assert document.size == (120, 240)
    assert {entity.label for entity in document.entities} == set(LABELS[112, 112])
