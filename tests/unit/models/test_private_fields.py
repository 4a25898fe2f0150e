"""Private fields: lines of entities, templates, and where models of all kinds see them."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.document import Document, Entity, Question, Word
from fedpriv.data.generated.slips import Slips
from fedpriv.models.donut import donut_tiny
from fedpriv.models.layoutlmv3 import layoutlmv3_tiny
from fedpriv.models.layoutlmv3_answers import layoutlmv3_answers_tiny
from fedpriv.models.private_fields import PrivateField, blanked, in_model_pixels, private_fields
from fedpriv.models.vt5 import vt5_tiny
from fedpriv.runtime.torch_state import seeded_model

SLIPS = Slips(providers=3, documents_per_provider=1).load()


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


@pytest.mark.parametrize("use", [private_fields, blanked])
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
    document, template = letter(), blanked(letter(), ["address"])
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
    template = blanked(document, ["date"])
    assert (template.page[36:, 70:] == (255, 200, 90)).all()


def test_a_page_from_a_file_is_blanked_too(tmp_path):
    from PIL import Image

    document = letter()
    Image.fromarray(document.page).save(tmp_path / "page.png")
    filed = dataclasses.replace(document, page=tmp_path / "page.png")
    assert np.array_equal(blanked(filed, None).page, blanked(document, None).page)


def test_templates_of_a_provider_are_alike():
    """All that tells one slip from another is private, but for the length of its values."""
    one, other = Slips(providers=1, documents_per_provider=2).load().documents
    assert not np.array_equal(one.page, other.page)
    assert np.array_equal(blanked(one, None).page, blanked(other, None).page)


# Where a model sees it

BUILDERS = {
    "layoutlmv3": lambda: layoutlmv3_tiny(SLIPS.labels, image_size=112),
    "layoutlmv3 answers": lambda: layoutlmv3_answers_tiny(image_size=112),
    "vt5": lambda: vt5_tiny(),
    "donut": lambda: donut_tiny(image_size=(128, 96)),
}


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
def test_a_blank_field_changes_the_models_page_there_only(build):
    """The other way to find the place: by the pixels that differ once the field is blank."""
    model = seeded_model(build, 0)
    document = SLIPS.documents[0]
    for key in ("customer", "date", "total"):
        (field,) = private_fields(document, [key])
        ((x0, y0, x1, y1),) = in_model_pixels(model, document, [field.box])
        before, after = (
            model.encode([page]).shared["pixels"][0][0].astype(int)
            for page in (document, blanked(document, [key]))
        )
        rows, columns = np.nonzero((abs(before - after) > 60).any(0))
        found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        assert abs(np.array(found) - (x0, y0, x1, y1)).max() <= 2


def test_boxes_come_in_their_order_and_scale_with_the_page():
    model = seeded_model(lambda: layoutlmv3_answers_tiny(image_size=64), 0)
    document = dataclasses.replace(letter(), page=np.zeros((128, 256), np.uint8), size=(256, 128))
    boxes = [(0, 0, 256, 128), (128, 0, 256, 64), (40, 20, 80, 40), (0, 120, 4, 128)]
    assert in_model_pixels(model, document, boxes) == [
        (0, 0, 64, 64),
        (32, 0, 64, 32),
        (10, 10, 20, 20),
        (0, 60, 1, 64),
    ]
    assert in_model_pixels(model, document, []) == []


def test_what_is_thinner_than_a_pixel_is_still_found():
    model = seeded_model(lambda: layoutlmv3_answers_tiny(image_size=64), 0)
    document = dataclasses.replace(letter(), page=np.zeros((640, 640), np.uint8), size=(640, 640))
    ((x0, y0, x1, y1),) = in_model_pixels(model, document, [(100, 300, 200, 302)])
    assert (x0 <= 10, x1 >= 20, 28 <= y0 < y1 <= 32) == (True, True, True)
    assert in_model_pixels(model, document, [(5, 5, 5, 5)]) == [(0, 0, 0, 0)]


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
    after = blanked(document, None).page
    inside = np.zeros((60, 100), dtype=bool)
    inside[max(0, top - 2) : box[3] + 2, max(0, left - 2) : box[2] + 2] = True
    assert np.array_equal(after[~inside], page[~inside])
    assert len(np.unique(after[inside], axis=0)) == 1
