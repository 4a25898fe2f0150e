"""The generated invoices: what is on the page, what is said about it, and what depends on what."""

import dataclasses
import re
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpriv.data.document import Word
from fedpriv.data.generated import lexicon
from fedpriv.data.generated.invoice_page import Printed, draw_page
from fedpriv.data.generated.invoice_style import ARRANGEMENTS, draw_style
from fedpriv.data.generated.invoices import (
    LABELS,
    NAME_SPACE,
    QUESTION_TEMPLATES,
    Invoices,
    _shuffled,
    draw_bill,
    draw_provider,
)

MONEY = re.compile(r"\D*(\d+|\d{1,3}([.,']\d{3})+)[.,]\d\d\D*")


@pytest.fixture(scope="module")
def many():
    """Sixty providers, two documents each."""
    return Invoices(providers=60, documents_per_provider=2, seed=11).load().documents


def text_of(document, entity):
    return " ".join(document.words[word].text for word in entity.words)


def segments(document):
    """The printed strings in reading order."""
    strings = {}
    for word in document.words:
        strings.setdefault(word.segment, []).append(word.text)
    return [" ".join(words) for words in strings.values()]


def assert_same(one, other):
    assert np.array_equal(one.pixels(), other.pixels())
    assert dataclasses.replace(one, page=None) == dataclasses.replace(other, page=None)


def assert_well_set(words, size):
    """Every box is on the page, has an area, and touches no other."""
    boxes = np.array([word.box for word in words])
    left, top, right, bottom = boxes.T
    assert (boxes >= 0).all()
    assert (right <= size[0]).all()
    assert (bottom <= size[1]).all()
    assert (right > left).all()
    assert (bottom > top).all()
    across = np.minimum.outer(right, right) > np.maximum.outer(left, left)
    down = np.minimum.outer(bottom, bottom) > np.maximum.outer(top, top)
    both = np.argwhere(np.triu(across & down, 1))
    assert not both.size, [(words[a].text, words[b].text) for a, b in both]


# --- What depends on what ---------------------------------------------------------------------


def test_the_same_settings_draw_the_same_documents():
    one, other = (Invoices(providers=3, documents_per_provider=3).load() for _ in range(2))
    assert one.labels == LABELS
    assert len(one.documents) == 9
    for a, b in zip(one.documents, other.documents, strict=True):
        assert_same(a, b)


def test_counts_do_not_change_the_documents_they_have_in_common():
    few = Invoices(providers=2, documents_per_provider=2).load().documents
    more = {
        document.id: document
        for document in Invoices(providers=5, documents_per_provider=4).load().documents
    }
    assert len(few) == 4
    assert len(more) == 20
    for document in few:
        assert_same(document, more[document.id])
    assert_same(Invoices().document(1, 1), few[3])


def test_the_page_size_changes_no_word():
    small, large = (
        Invoices(providers=1, documents_per_provider=1, page_size=size).load().documents[0]
        for size in ((400, 560), (800, 1120))
    )
    assert [word.text for word in small.words] == [word.text for word in large.words]
    assert small.questions == large.questions
    assert large.pixels().shape == (1120, 800, 3)
    assert large.pixels().dtype == np.uint8


def test_seeds_differ():
    one, other = (Invoices(providers=1, seed=seed).document(0, 0) for seed in (0, 1))
    assert one.provider != other.provider
    assert not np.array_equal(one.pixels(), other.pixels())


def test_documents_of_a_provider_share_its_identity_and_nothing_else(many):
    first, second = many[0], many[1]
    answers = [{q.key: q.answers for q in document.questions} for document in (first, second)]
    fixed = {"provider", "address", "email", "phone", "tax_number", "registration_id"}
    assert {key for key in answers[0] if answers[0][key] == answers[1][key]} == fixed
    assert first.provider == second.provider == answers[0]["provider"][0]
    assert [first.id, second.id] == ["invoice-p000-d000", "invoice-p000-d001"]


# --- Names ----------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32), start=st.integers(0, NAME_SPACE - 200))
@settings(max_examples=15)
def test_no_two_providers_share_a_name_or_an_email(seed, start):
    companies = [draw_provider(seed, index) for index in range(start, start + 100)]
    assert len({company.name for company in companies}) == 100
    assert len({company.email for company in companies}) == 100
    assert all(2 <= len(company.name.split()) <= 3 for company in companies)
    assert all(re.fullmatch(r"[a-z]+@[a-z]+-[a-z]+\.test", company.email) for company in companies)


@given(seed=st.integers(0, 2**32), size=st.integers(1, 300))
@settings(max_examples=25)
def test_the_order_of_names_is_a_permutation(seed, size):
    assert sorted(_shuffled(index, size, seed) for index in range(size)) == list(range(size))


def test_names_can_be_told_from_captions():
    """Otherwise a blanked page could hold a company's name by accident."""
    names = {*lexicon.COMPANY_FIRST, *lexicon.COMPANY_SECOND, *lexicon.COMPANY_FORM}
    assert len(names) == sum(
        map(len, (lexicon.COMPANY_FIRST, lexicon.COMPANY_SECOND, lexicon.COMPANY_FORM))
    )
    printed = [*lexicon.NOTES, *lexicon.TITLES]
    printed += [caption for captions in lexicon.CAPTIONS.values() for caption in captions]
    words = {word.strip(".,#").lower() for text in printed for word in text.split()}
    assert not (words - {""}) & {name.lower() for name in names}
    assert not any(re.search(r"\d", word) for word in words)
    assert NAME_SPACE > 500_000
    assert len(set(lexicon.MAILBOXES)) == len(lexicon.COMPANY_FORM)


def test_the_first_company_of_seed_zero_stays_the_same():
    """From blake2b alone, so it changes with no library; a change here changes every data set."""
    assert draw_provider(0, 0).name == "Vega Builders ApS"


# --- The page -----------------------------------------------------------------------------------


def test_words_lie_on_the_page_and_apart(many):
    for document in many:
        assert document.size == (400, 560)
        assert_well_set(document.words, document.size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(360, 504), (400, 560), (700, 504), (1654, 2339)])
def test_every_arrangement_has_room(size):
    """Longest value of every field, every arrangement, both ways round, every way to set rows."""
    values = dict.fromkeys([*LABELS, "due_date", "subtotal", "tax"], ("Wwwww wwwww",))
    values |= {
        "provider": ("Foxglove Vineyards GmbH",),
        "email": ("orders@foxglove-catering.test",),
        "address": ("239 Saddler Street,", "Wallingby 9999 WW"),
        "customer_address": ("239 Saddler Street,", "Wallingby 9999 WW"),
        "date": ("September 29, 2024",),
        "due_date": ("29 September 2024",),
        "total": ("EUR 123.456,00",),
        "tax_rate": ("25%",),
    }
    row = {"description": "Room, one night", "quantity": "12", "price": "479.99"}
    printed = Printed(values, (row | {"amount": "USD 5,759.88"},) * 6)
    random = np.random.default_rng(0)
    for arrangement in ARRANGEMENTS:
        for rows in ("inline", "tabbed", "stacked"):
            style = dataclasses.replace(draw_style(random), arrangement=arrangement, rows=rows)
            for mirrored in (True, False):
                page = draw_page(dataclasses.replace(style, mirrored=mirrored), size, printed)
                assert_well_set(page.words, size)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_an_arrangement_holds_every_block_once(arrangement):
    blocks = Counter(re.findall(r"\w+", arrangement))
    parties, sums = ("provider", "contact", "legal", "customer"), ("meta", "table", "totals")
    assert blocks == Counter(("logo", "title", *parties, *sums, "notes"))


@pytest.mark.parametrize("size", [(360, 504), (400, 560)])
def test_every_box_is_cut_to_ink(size):
    """Its four sides touch ink; paper is the colour just outside its upper left corner."""
    for document in Invoices(30, documents_per_provider=1, page_size=size, seed=5).load().documents:
        pixels = document.pixels()
        for word in document.words:
            left, top, right, bottom = map(int, word.box)
            inked = (pixels[top:bottom, left:right] != pixels[top - 1, left - 1]).any(2)
            assert inked[0].any(), word
            assert inked[-1].any(), word
            assert inked[:, 0].any(), word
            assert inked[:, -1].any(), word


def test_outside_the_words_only_the_logo_differs_from_the_template(many):
    """So no text is drawn that is not in `words`."""
    source = Invoices(providers=60, documents_per_provider=2, seed=11)
    for index in range(0, 60, 4):
        template, document = source.template(index), many[2 * index]
        differs = (template.pixels() != document.pixels()).any(2)
        for word in document.words:
            left, top, right, bottom = map(int, word.box)
            differs[top:bottom, left:right] = False
        rows, columns = np.nonzero(differs)
        assert rows.size, "no logo"
        assert np.ptp(rows) < 44
        assert np.ptp(columns) < 44
        logo = Word("", (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1), -1)
        assert_well_set([logo, *document.words], document.size)


def test_the_words_of_a_page_can_be_read(many):
    """Capitals and digits are at least five pixels tall."""
    for document in many:
        for word in document.words:
            if re.search("[A-Z0-9]", word.text):
                assert word.box[3] - word.box[1] >= 5, word


def test_pages_vary(many):
    """By the order of their fields, and by their colours."""
    orders = {
        tuple(e.label for e in sorted(document.entities, key=lambda e: e.words))
        for document in many
    }
    places = {
        tuple(next(w.box[:2] for w in d.words if w.segment == s) for s in range(3)) for d in many
    }
    assert len(orders) >= 12
    assert len(places) >= 40


# --- What is said about the page ----------------------------------------------------------------


def test_entities_are_the_answers(many):
    for document in many:
        labels = [entity.label for entity in document.entities]
        assert sorted(labels) == sorted(LABELS)
        printed = {entity.label: text_of(document, entity) for entity in document.entities}
        assert {q.key: q.answers for q in document.questions} == {
            label: (text,) for label, text in printed.items()
        }
        assert printed["provider"] == document.provider
        for entity in document.entities:
            first, last = entity.words[0], entity.words[-1]
            assert entity.words == tuple(range(first, last + 1))


def test_tags_are_valid_bio(many):
    for document in many:
        tags = document.tags()
        assert len(tags) == len(document.words)
        for before, tag in zip(["O", *tags], tags, strict=False):
            if tag.startswith("I-"):
                assert before[2:] == tag[2:]
        assert Counter(tag[2:] for tag in tags if tag.startswith("B-")) == Counter(LABELS)


def test_a_segment_is_one_line(many):
    for document in many:
        numbers = [word.segment for word in document.words]
        assert numbers == sorted(numbers)
        assert set(numbers) == set(range(numbers[-1] + 1))
        lines = {}
        for word in document.words:
            lines.setdefault(word.segment, []).append(word.box)
        for boxes in lines.values():
            assert max(box[3] for box in boxes) - min(box[1] for box in boxes) <= 20
            assert all(a[2] < b[0] for a, b in pairwise(boxes))


def test_printed_amounts_add_up(many):
    """Read from the page: per item a price and an amount, then subtotal, tax and total."""
    for document in many:
        cents = [
            int(re.sub(r"\D", "", text)) for text in segments(document) if MONEY.fullmatch(text)
        ]
        *items, subtotal, tax, total = cents
        assert 2 <= len(items) // 2 <= 6
        assert sum(items[1::2]) == subtotal
        assert subtotal + tax == total
        answer = next(q.answers[0] for q in document.questions if q.key == "total")
        assert int(re.sub(r"\D", "", answer)) == total


@given(seed=st.integers(0, 1000), provider=st.integers(0, 50), number=st.integers(0, 50))
@settings(max_examples=30)
def test_bills_add_up(seed, provider, number):
    bill = draw_bill(seed, draw_provider(seed, provider).habits, provider, number)
    subtotal = sum(Decimal(item.quantity * item.price) for item in bill.items)
    tax = subtotal * bill.tax_percent / 100
    assert bill.total == subtotal + tax.quantize(Decimal(1), ROUND_HALF_UP)
    assert 2 <= len(bill.items) <= 6
    assert bill.due > bill.issued


def test_invoice_numbers_of_a_provider_differ():
    habits = draw_provider(3, 0).habits
    assert len({draw_bill(3, habits, 0, number).number for number in range(200)}) == 200


def test_every_key_has_twenty_phrasings():
    assert tuple(sorted(QUESTION_TEMPLATES)) == tuple(sorted(LABELS))
    plain = [
        re.sub(r"\W+", " ", template).strip().lower()
        for templates in QUESTION_TEMPLATES.values()
        for template in templates
    ]
    assert all(len(templates) == 20 for templates in QUESTION_TEMPLATES.values())
    assert len(set(plain)) == len(plain) == 200


def test_questions_are_drawn_from_the_phrasings(many):
    for document in many:
        assert [question.key for question in document.questions] == list(QUESTION_TEMPLATES)
    for place, (key, templates) in enumerate(QUESTION_TEMPLATES.items()):
        asked = {document.questions[place].text for document in many}
        assert asked <= set(templates), key
        assert len(asked) >= 15


def test_fewer_questions_are_the_same_questions():
    whole = Invoices(providers=2, documents_per_provider=1).document(1, 0)
    few = Invoices(providers=2, documents_per_provider=1, questions=("date", "total")).document(
        1, 0
    )
    all_of_them = {question.key: question for question in whole.questions}
    assert few.questions == (all_of_them["date"], all_of_them["total"])
    assert few.words == whole.words


# --- Templates ----------------------------------------------------------------------------------


def test_a_template_is_what_the_documents_of_a_provider_share(many):
    source = Invoices(providers=60, documents_per_provider=2, seed=11)
    for index in range(60):
        template = source.template(index)
        assert template.entities == template.questions == ()
        kept = {(word.text, word.box) for word in template.words}
        for document in many[2 * index : 2 * index + 2]:
            assert kept < {(word.text, word.box) for word in document.words}


def test_a_template_holds_no_private_value(many):
    source = Invoices(providers=60, documents_per_provider=2, seed=11)
    for index in range(60):
        words = {word.text for word in source.template(index).words}
        for document in many[2 * index : 2 * index + 2]:
            private = {document.words[w].text for e in document.entities for w in e.words}
            private |= {item for item in segments(document) if MONEY.fullmatch(item)}
            assert not words & private


# --- Settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"providers": 0}, "Expected providers=0 in 1..526320."),
        ({"providers": 600_000}, "Expected providers=600000 in 1..526320."),
        (
            {"documents_per_provider": 0},
            "Expected documents_per_provider=0 in 1..41666.",
        ),
        (
            {"page_size": (300, 560)},
            "Expected page_size=(300, 560) to be (width, height), at least (360, 504): "
            "on smaller pages the text cannot be read.",
        ),
        (
            {"page_size": (400,)},
            "Expected page_size=(400,) to be (width, height), at least (360, 504): "
            "on smaller pages the text cannot be read.",
        ),
        (
            {"questions": ("date", "fax")},
            "questions names ['fax']: there are questions on provider, address, email",
        ),
    ],
)
def test_wrong_settings_say_what_works(wrong, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Invoices(**wrong)


def test_a_missing_provider_or_document_says_what_there_is():
    source = Invoices(providers=2, documents_per_provider=3)
    with pytest.raises(ValueError, match=re.escape("Expected provider=2 in 0..1.")):
        source.template(2)
    with pytest.raises(ValueError, match=re.escape("Expected number=-1 in 0..2.")):
        source.document(0, -1)
