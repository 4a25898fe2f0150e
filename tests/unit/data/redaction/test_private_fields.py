"""Private fields: lines of entities, and templates without them."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.document import Document, Entity, Question, Word
from fedpriv.data.generated.slips import Slips
from fedpriv.data.redaction.fields import PrivateField, private_fields, without_fields


def letter():
    """A grey page with an address of two lines, a name within the first of them, and a date."""
    page = np.full((60, 100, 3), 200, np.uint8)
    words = (
        Word("Dear", (5, 2, 20, 8), 0),
        Word("Vega", (10, 20, 30, 28), 1),
        Word("Road", (34, 21, 50, 29), 1),
        Word("Upwell", (10, 40, 44, 49.5), 2),
        Word("1999", (80, 40, 99, 48), 3),
    )
    for word in words:
        x0, y0, x1, y1 = (round(side) for side in word.box)
        page[y0:y1, x0:x1] = 7
    entities = (Entity("address", (1, 2, 3)), Entity("name", (1,)), Entity("date", (4,)))
    questions = (Question("date", "When?", ("1999",)),)
    return Document("letter", "Vega", page, (100, 60), words, entities, questions)


def test_an_entity_gives_a_field_per_line():
    assert private_fields(letter(), ["address"]) == (
        PrivateField("address", "Vega Road", (10, 20, 50, 29)),
        PrivateField("address", "Upwell", (10, 40, 44, 49.5)),
    )


def test_all_entities_are_private_by_default():
    keys = [field.key for field in private_fields(letter(), None)]
    assert keys == ["address", "address", "name", "date"]
    assert private_fields(letter(), []) == ()


def test_the_order_is_the_documents():
    fields = private_fields(letter(), ["date", "name"])
    assert [field.key for field in fields] == ["name", "date"]


@pytest.mark.parametrize("use", [private_fields, without_fields])
def test_labels_that_a_document_has_not_are_refused(use):
    with pytest.raises(
        ValueError, match=r"^document letter has no tax, total: it has address, name, date$"
    ):
        use(letter(), ["total", "date", "tax"])
    bare = dataclasses.replace(letter(), entities=())
    with pytest.raises(ValueError, match="it has no entities"):
        use(bare, ["date"])
    assert private_fields(bare, None) == ()


def test_a_template_shows_and_says_nothing_of_its_fields():
    document, template = letter(), without_fields(letter(), ["address"])
    assert [word.text for word in template.words] == ["Dear", "1999"]
    # "name" goes with the word that it shares; "date" points at the same word as before.
    assert template.entities == (Entity("date", (1,)),)
    assert template.questions == document.questions
    changed = (template.page != document.page).any(-1)
    assert changed[20:28, 10:30].all()
    assert changed[21:29, 34:50].all()
    assert changed[40:49, 10:44].all()
    assert (template.page[18:31, 8:52] == 200).all()
    assert np.array_equal(template.page[:18], document.page[:18])
    assert np.array_equal(template.page[:, 54:], document.page[:, 54:])
    assert (document.page[22:27, 12:28] == 7).all(), "the document itself stays"


def test_a_template_keeps_the_colour_of_the_ground():
    document = letter()
    document.page[36:, 70:] = (255, 200, 90)
    document.page[40:48, 80:99] = 0
    template = without_fields(document, ["date"])
    assert (template.page[36:, 70:] == (255, 200, 90)).all()


def test_a_page_from_a_file_is_blanked_too(tmp_path):
    from PIL import Image

    document = letter()
    Image.fromarray(document.page).save(tmp_path / "page.png")
    filed = dataclasses.replace(document, page=tmp_path / "page.png")
    assert np.array_equal(without_fields(filed, None).page, without_fields(document, None).page)


def test_templates_of_a_provider_are_alike():
    """All that tells one slip from another is private, but for the length of its values."""
    one, other = Slips(providers=1, documents_per_provider=2).load().documents
    assert not np.array_equal(one.page, other.page)
    assert np.array_equal(without_fields(one, None).page, without_fields(other, None).page)


@given(
    left=st.integers(0, 90),
    top=st.integers(0, 50),
    width=st.integers(1, 40),
    height=st.integers(1, 40),
)
def test_blanking_touches_nothing_beyond_the_margin(left, top, width, height):
    page = np.random.default_rng(0).integers(0, 256, (60, 100, 3), dtype=np.uint8)
    box = (left, top, min(left + width, 100), min(top + height, 60))
    document = Document("d", "p", page, (100, 60), (Word("w", box, 0),), (Entity("e", (0,)),))
    after = without_fields(document, None).page
    inside = np.zeros((60, 100), dtype=bool)
    inside[max(0, top - 2) : box[3] + 2, max(0, left - 2) : box[2] + 2] = True
    assert np.array_equal(after[~inside], page[~inside])
    assert len(np.unique(after[inside], axis=0)) == 1
