"""Generated pages are drawn when they are read, and are what they always were."""

import dataclasses
import hashlib
import pickle

import numpy as np
import pytest

from fedpriv.data import drawn_page
from fedpriv.data.digests import document_digest, documents_digest
from fedpriv.data.document import Document, Question, Word
from fedpriv.data.drawn_page import Drawing, DrawnPage, PageText
from fedpriv.data.generated.cards import Cards
from fedpriv.data.generated.identities import Identities
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.generated.slips import Slips

# Drawn with Pillow 12 and the DejaVu typefaces of matplotlib 3.10, when pages were arrays.
GOLDEN = {
    "95b87b3781d79574": Invoices(4, 5, seed=3),
    "38bece58da44df5c": Invoices(2, 2, page_size=(800, 1120), questions=("total", "date")),
    "b4ae9c1201a3a034": Slips((64, 64), 4, 4, 7, ("provider",)),
    "3b7107844a35dcf5": Slips((224, 224), 4, 4, 7),
    "ab4e1e368041b874": Cards(cards_per_customer=(1, 2, 4, 8)),
    "25db95391c0b0ff9": Cards((224, 224), 4, 4, 2, inks=(30, 90)),
    "0669ea88eecebaee": Identities(),
    "579c7c4cca164a61": Identities((1, 3), 4, 9, (160, 112), 5, ("account", "person")),
}


def content(document):
    """Returns a hash of the pixels and of what stands there."""
    hashed = hashlib.sha256(document.pixels().tobytes())
    text = (document.words, document.entities, document.questions)
    hashed.update(repr((document.id, document.provider, document.size, *text)).encode())
    return hashed.hexdigest()[:16]


@pytest.mark.parametrize("golden", GOLDEN)
def test_pages_are_what_they_were_in_memory(golden):
    pages = GOLDEN[golden].load().documents
    assert hashlib.sha256("".join(map(content, pages)).encode()).hexdigest()[:16] == golden


def test_templates_and_single_documents_are_what_they_were():
    assert content(Invoices().template(2)) == "1422e9845c5444db"
    assert content(Invoices().document(3, 4)) == "13794f35f223d3a1"


# --- A page of three grey levels, and how often it is drawn ---------------------------------------

drawn = []


def grey(level):
    drawn.append(level)
    words = (Word(f"grey {level}", (0.0, 0.0, 2.0, 1.0), 0),)
    pixels = np.full((2, 3, 3), level % 256, np.uint8)
    return Drawing(pixels, PageText(words, (), (Question("level", "How grey?", (str(level),)),)))


def other_grey(level):
    return grey(level)


def page(level=7, draw=grey):
    return Document.drawn(f"page {level}", "Vega", DrawnPage(draw, (level,)), (3, 2))


def pickled(document):
    return pickle.loads(pickle.dumps(document))  # noqa: S301 - our own


@pytest.fixture(autouse=True)
def nothing_drawn():
    drawn.clear()
    drawn_page._drawn.cache_clear()
    drawn_page._text.cache_clear()


def test_a_page_is_drawn_once_however_often_it_is_read():
    document = page()
    assert not drawn
    assert document.image().getpixel((2, 1)) == (7, 7, 7)
    assert document.words[0].text == "grey 7"
    assert document.pixels().shape == (2, 3, 3)
    assert document.questions[0].answers == ("7",)
    assert drawn == [7]


def test_words_that_were_read_stay_and_pixels_do_not():
    pages = [page(level) for level in range(2 * drawn_page.LAST_DRAWN)]
    for _ in range(3):
        assert [p.words[0].text for p in pages] == [f"grey {n}" for n in range(len(pages))]
    assert drawn == list(range(len(pages)))
    pages[0].image()
    assert drawn[-1] == 0


def test_only_the_last_pages_that_were_read_keep_their_words():
    pages = [page(level) for level in range(drawn_page.LAST_READ + 1)]
    assert [p.words[0].text for p in pages] == [f"grey {n}" for n in range(len(pages))]
    drawn.clear()
    assert pages[-1].words[0].text == f"grey {len(pages) - 1}"
    assert not drawn
    assert pages[0].words[0].text == "grey 0"
    assert drawn == [0]


def test_no_reader_changes_the_page_of_the_next():
    document = page()
    document.pixels()[:] = 0
    document.image().paste((0, 0, 0), (0, 0, 3, 2))
    assert (document.pixels() == 7).all()
    with pytest.raises(ValueError, match="read-only"):
        document.page.pixels()[:] = 0


def test_equality_asks_who_draws_from_what():
    assert page() == page()
    assert page() == dataclasses.replace(page())
    assert page() != dataclasses.replace(page(), page=page(8).page)
    assert page() != page(draw=other_grey)
    assert page() != dataclasses.replace(page(), words=())
    assert page() != dataclasses.replace(page(), page=page().pixels())


def test_a_pickled_page_is_its_recipe():
    (document,) = Slips((64, 64), 1, 1).load().documents
    unread = pickle.dumps(document)
    assert document.words
    assert len(pickle.dumps(document)) == len(unread) < 600
    assert pickled(document) == document
    changed = dataclasses.replace(document, words=document.words[:1])
    assert pickled(changed).words == document.words[:1]


def test_an_attribute_that_no_document_has_is_an_error():
    with pytest.raises(AttributeError, match="'Document' object has no attribute 'colour'"):
        _ = page().colour
    with pytest.raises(AttributeError, match="words"):
        _ = Document.__new__(Document).words


# --- Digests --------------------------------------------------------------------------------------


def test_a_digest_draws_nothing_and_equal_documents_have_equal_digests():
    document = page()
    digest = document_digest(document)
    assert not drawn
    assert document.words
    assert document_digest(document) == digest
    assert document_digest(dataclasses.replace(document)) == digest
    assert document_digest(pickled(document)) == digest


@pytest.mark.parametrize(
    "other",
    [
        lambda: page(8),
        lambda: page(draw=other_grey),
        lambda: dataclasses.replace(page(), id="another"),
        lambda: dataclasses.replace(page(), words=()),
        lambda: dataclasses.replace(page(), questions=()),
        lambda: dataclasses.replace(page(), white=((0.0, 0.0, 1.0, 1.0),)),
        lambda: dataclasses.replace(page(), page=page().pixels()),
    ],
)
def test_other_documents_have_other_digests(other):
    assert documents_digest([other()]) != documents_digest([page()])


def test_a_cache_notices_edited_drawing_code_and_a_ledger_does_not(monkeypatch):
    cached, private = documents_digest([page()]), document_digest(page(), here=False)
    monkeypatch.setattr(DrawnPage, "code", lambda self: "edited")
    assert documents_digest([page()]) != cached
    assert document_digest(page(), here=False) == private


def test_the_code_of_a_page_covers_its_own_file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for text in ("def draw(): pass", "def draw(): return 0"):
        (tmp_path / "drawn_here.py").write_text(text)
        drawn_page._code.cache_clear()
        found.append(DrawnPage(__import__("drawn_here").draw, ()).code())
    assert found[0] != found[1]
