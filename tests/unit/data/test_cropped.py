"""Windows around a field: where they are cut, what they keep, what is left out."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.data.cropped import Cropped
from fedpriv.data.document import DataError, Document, DocumentSet, Entity, Question, Word
from fedpriv.data.generated.invoices import Invoices


@dataclasses.dataclass(frozen=True)
class Given:
    """A data set that is there already."""

    documents: tuple[Document, ...]
    labels: tuple[str, ...] = ("date", "total")
    skipped: tuple[DataError, ...] = ()

    def load(self):
        return DocumentSet("given", self.documents, self.labels, self.skipped)


def receipt(name="r", date=(100, 100, 180, 120), size=(300, 400), noise=0):
    """A noisy page with a date of one word, a total near it, and a line of which it cuts a part."""
    random = np.random.default_rng(noise)
    page = random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    x0, y0, x1, y1 = date
    page[y0:y1, x0:x1] = (255, 0, 0)
    words = (
        Word("FAR", (0, 0, 20, 20), 0),
        Word("1.2.2003", date, 1),
        Word("Total", (x0, y1 + 2, x0 + 30, y1 + 22), 2),
        Word("9.99", (x0 + 40, y1 + 2, x0 + 60, y1 + 22), 2),
        Word("AWAY", (x1 + 40, y0, x1 + 90, y1), 3),
    )
    words = tuple(dataclasses.replace(word, box=_within(word.box, size)) for word in words)
    entities = (Entity("total", (3,)), Entity("date", (1,)), Entity("date", (1, 4)))
    questions = (
        Question("date", "When?", ("1 February",)),
        Question("", "What?", ("x", "total  9.99")),
        Question("far", "Where?", ("far",)),
        Question("part", "Which?", ("otal 9.9",)),
    )
    return Document(name, "Vega", page, size, words, entities, questions, "train")


def _within(box, size):
    """The part of a box that is on the page, or a pixel at its edge."""
    x0, x1, y0, y1 = (
        min(at, size[i // 2]) for i, at in enumerate((box[0], box[2], box[1], box[3]))
    )
    return (min(x0, x1 - 1), min(y0, y1 - 1), x1, y1)


def windows(*documents, **settings):
    return Cropped(Given(documents), **{"size": 64, "key": "date", **settings}).load()


def test_a_window_holds_the_field_in_the_middle_at_the_height_asked_for():
    (window,) = windows(receipt(), word_height=10).documents
    assert window.size == (64, 64)
    assert window.page.shape == (64, 64, 3)
    assert window.page.dtype == np.uint8
    (word,) = (word for word in window.words if word.text == "1.2.2003")
    # Half as large: 20 pixels became 10, and 80 became 40, in the middle of 64.
    assert word.box == pytest.approx((12, 27, 52, 37))
    red = (window.page == (255, 0, 0)).all(-1)
    assert red[30:34, 15:49].all()
    assert not red[:25].any()
    assert not red[39:].any()


def test_what_is_wholly_inside_is_kept():
    (window,) = windows(receipt(), word_height=10).documents
    assert [word.text for word in window.words] == ["1.2.2003", "Total", "9.99"]
    assert [word.segment for word in window.words] == [1, 2, 2]
    # The second date has a word outside.
    assert window.entities == (Entity("total", (2,)), Entity("date", (0,)))
    assert [question.text for question in window.questions] == ["When?", "What?"]
    assert (window.id, window.provider, window.split) == ("r", "Vega", "train")


@pytest.mark.parametrize("date", [(0, 0, 80, 20), (215, 0, 295, 20), (10, 360, 90, 380)])
def test_a_window_stays_on_the_page(date):
    (window,) = windows(receipt(date=date), word_height=10).documents
    (word,) = (word for word in window.words if word.text == "1.2.2003")
    x0, y0, x1, y1 = map(round, word.box)
    assert 0 <= x0 < x1 <= 64
    assert 0 <= y0 < y1 <= 64
    assert (y1 - y0, x1 - x0) == (10, 40)
    assert (window.page[y0 + 2 : y1 - 2, x0 + 2 : x1 - 2] == (255, 0, 0)).all()


def test_a_page_smaller_than_the_window_is_enlarged():
    (window,) = windows(receipt(date=(5, 5, 45, 25), size=(100, 200)), word_height=8).documents
    (word,) = (word for word in window.words if word.text == "1.2.2003")
    # 64 / 8 * 20 would be 160 pixels wide: it is the 100 that there are.
    assert word.box[3] - word.box[1] == pytest.approx(20 * 64 / 100)


def test_documents_without_a_window_are_skipped_with_the_reason(tmp_path):
    without = dataclasses.replace(receipt("without"), entities=())
    large = receipt("large", date=(10, 100, 210, 110))
    (tmp_path / "torn.png").write_bytes(b"torn")
    torn = dataclasses.replace(receipt("torn"), page=tmp_path / "torn.png")
    earlier = DataError("earlier", "why")
    source = Given((without, large, torn, receipt("good")), skipped=(earlier,))
    found = Cropped(source, size=64, key="date", word_height=10).load()
    assert [document.id for document in found.documents] == ["good"]
    assert found.skipped[0] is earlier
    reasons = [str(error) for error in found.skipped[1:]]
    assert reasons[:2] == [
        "without: no date",
        "large: its date does not fit into 64 pixels, 10 a line",
    ]
    assert reasons[2].startswith(f"{tmp_path / 'torn.png'}: not an image that Pillow can read")
    assert found.labels == ("date", "total")
    assert found.name == "given, cut around date"


def test_of_several_entities_the_first_that_fits_is_taken():
    document = receipt()
    swapped = dataclasses.replace(document, entities=document.entities[::-1])
    (window,) = windows(swapped, word_height=10).documents
    assert np.array_equal(window.page, windows(document, word_height=10).documents[0].page)


def test_a_label_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"^key='name': the labels of given are date, total$"):
        windows(receipt(), key="name")


@pytest.mark.parametrize("settings", [{"size": 0}, {"word_height": 0}, {"word_height": 65}])
def test_settings_that_cannot_work_are_refused(settings):
    with pytest.raises(ValueError, match="expected words of more than 0"):
        windows(receipt(), **settings)


INVOICES = Invoices(providers=3, documents_per_provider=1).load()


@given(
    size=st.integers(40, 224),
    word_height=st.floats(5, 20),
    key=st.sampled_from(INVOICES.labels),
)
def test_windows_of_invoices_are_sound(size, word_height, key):
    found = Cropped(Given(INVOICES.documents, INVOICES.labels), size, key, word_height).load()
    assert len(found.documents) + len(found.skipped) == 3
    whole = {document.id: document for document in INVOICES.documents}
    for window in found.documents:
        assert key in {entity.label for entity in window.entities}
        for word in window.words:
            x0, y0, x1, y1 = word.box
            assert -0.1 <= x0 < x1 <= size + 0.1
            assert -0.1 <= y0 < y1 <= size + 0.1
        texts = {
            (e.label, " ".join(whole[window.id].words[w].text for w in e.words))
            for e in whole[window.id].entities
        }
        assert texts >= {
            (e.label, " ".join(window.words[w].text for w in e.words)) for e in window.entities
        }
