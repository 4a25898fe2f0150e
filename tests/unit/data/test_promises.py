"""Documents of anybody's reader are as `Document` says, or are refused with what is wrong."""

import copy
import dataclasses

import numpy as np
import pytest
from PIL import Image

from fedpriv.data import promises
from fedpriv.data.document import (
    DataError,
    DataErrors,
    Document,
    DocumentSet,
    Entity,
    Question,
    Word,
)
from fedpriv.data.drawn_page import Drawing, DrawnPage, PageText
from fedpriv.data.partition import Iid
from fedpriv.federation.dataset import DocumentData, UnfitData
from fedpriv.models.layoutlmv3 import layoutlmv3

WORDS = (Word("Total", (10.0, 10.0, 40.0, 20.0), 0), Word("5.00", (50.0, 10.0, 80.0, 20.0), 0))


def page(number=0, **changes):
    values = {
        "id": f"d{number}",
        "provider": f"P{number % 2}",
        "page": np.full((60, 120, 3), number, np.uint8),
        "size": (120, 60),
        "words": WORDS,
        "entities": (Entity("total", (1,)),),
        "questions": (Question("total", "How much?", ("5.00",)),),
    }
    return Document(**{**values, **changes})


@dataclasses.dataclass(frozen=True)
class Mine:
    documents: tuple
    labels: tuple = ("total",)

    def load(self):
        return DocumentSet("mine", self.documents, self.labels)


def word(text="5.00", box=(50.0, 10.0, 80.0, 20.0), segment=0):
    return (WORDS[0], Word(text, box, segment))


WRONG = {
    "turned": ({"size": (60, 120)}, "size 60 × 120, but the page has 120 × 60 pixels, the other"),
    "scaled": ({"size": (240, 120)}, "size 240 × 120, but the page has 120 × 60 pixels"),
    "no size": ({"size": (120.5, 60)}, "size=(120.5, 60): expected width and height in whole"),
    "floats": ({"page": np.ones((60, 120, 3))}, "page: float64 of shape (60, 120, 3): expected"),
    "channels first": ({"page": np.zeros((3, 60, 120), np.uint8)}, "page: uint8 of shape (3, 60, "),
    "alpha": ({"page": np.zeros((60, 120, 4), np.uint8)}, "page: uint8 of shape (60, 120, 4)"),
    "no picture": ({"page": "d0.png"}, "page: str: expected a Path, an array or a LazyPage"),
    "off": ({"words": word(box=(50, 10, 180, 20))}, "word 1, '5.00': its box (50.0, 10.0, 180.0"),
    "in thousandths": ({"words": word(box=(400, 300, 700, 500))}, "word 1, '5.00': its box"),
    "reversed": ({"words": word(box=(80, 10, 50, 20))}, "its box (80.0, 10.0, 50.0, 20.0) is not"),
    "x, y, width, height": ({"words": word(box=(50, 10, 30, 10))}, "its box (50.0, 10.0, 30.0"),
    "nan": ({"words": word(box=(50, 10, float("nan"), 20))}, "its box (50.0, 10.0, nan, 20.0)"),
    "texts": ({"words": word(box=("50", "10", "80", "20"))}, "is not of numbers"),
    "blank": ({"words": word(text="  ")}, "word 1 is blank"),
    "half a pair": ({"words": word(text="\ud800")}, "is not text: it holds half a surrogate pair"),
    "no segment": ({"words": word(segment=None)}, "word 1: segment=None: expected a whole number"),
    "beyond": ({"entities": (Entity("total", (2,)),)}, "words=(2,): the page has 2 words"),
    "from behind": ({"entities": (Entity("total", (-1,)),)}, "words=(-1,): the page has 2 words"),
    "descending": ({"entities": (Entity("total", (1, 0)),)}, "words=(1, 0): expected ascending"),
    "no words": ({"entities": (Entity("total", ()),)}, "words=(): expected ascending places"),
    "no label": ({"entities": (Entity("date", (0,)),)}, "'date' is not among the labels total"),
    "answer": ({"questions": (Question("t", "?", "5.00"),)}, "question '?': expected texts, got"),
    "link": ({"links": ((0, 1),)}, "link (0, 1): the page has 1 entities"),
    "no id": ({"id": ""}, "id='': expected text that is not empty"),
    "no provider": ({"provider": None}, "provider=None: expected text that is not empty"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_said_of_each_document_before_anything_is_encoded(kind):
    changes, why = WRONG[kind]
    source = Mine((page(0), page(1, **changes), page(2), page(3, **{**changes, "id": "d3"})))
    with pytest.raises(DataErrors) as caught:
        promises.load(source)
    assert len(caught.value.errors) >= 1
    assert why in str(caught.value)
    assert "mine, read by test_promises.Mine" in str(caught.value)
    with pytest.raises(UnfitData):
        DocumentData(source, Iid(2), cache="off").bind(layoutlmv3, seed=0)


def test_what_is_right_stays_as_it_is(tmp_path):
    Image.new("RGB", (120, 60)).save(tmp_path / "a.png")
    grey = np.zeros((60, 120), np.uint8)
    documents = (page(0), page(1, page=grey), page(2, page=tmp_path / "a.png"))
    assert promises.load(Mine(copy.deepcopy(documents))).documents == documents
    at_the_edge = page(0, words=word(box=(0, 0, 120, 60)))
    assert promises.load(Mine((at_the_edge,))).documents == (at_the_edge,)


def test_one_id_is_given_once():
    with pytest.raises(DataErrors, match="2 documents have the id 'd0': each needs its own"):
        promises.load(Mine((page(0), page(0), page(1))))


def test_a_file_of_another_size_is_named(tmp_path):
    Image.new("RGB", (60, 120)).save(tmp_path / "a.png")
    with pytest.raises(DataErrors, match="size 120 × 60, but the page has 60 × 120 pixels"):
        promises.load(Mine((page(0, page=tmp_path / "a.png"),)))


def test_what_is_no_data_set_is_refused():
    @dataclasses.dataclass
    class Nothing:
        def load(self):
            return [page()]

    with pytest.raises(TypeError, match=r"Nothing\.load\(\) returned no DocumentSet, but \["):
        promises.load(Nothing())


def printed(number, boxes):
    pixels = np.full((2000, 1400, 3), 255, np.uint8)
    for x0, y0, x1, y1 in PRINTED:
        pixels[y0:y1, x0:x1] = 0
    words = tuple(Word("word", tuple(map(float, box)), 0) for box in boxes)
    return page(number, page=pixels, size=(1400, 2000), words=words)


PRINTED = [(90, 80, 400, 120), (500, 80, 960, 120), (90, 880, 400, 920), (600, 880, 960, 920)]


def test_boxes_in_another_unit_are_refused_and_boxes_off_the_ink_are_told(capsys):
    to = np.array([1400, 2000, 1400, 2000])
    right = Mine(tuple(printed(n, PRINTED) for n in range(4)))
    assert promises.load(right).documents == right.documents
    assert capsys.readouterr().err == ""
    for unit, boxes in (("shares", PRINTED / to), ("thousandths", 1000 * (PRINTED / to))):
        wrong = Mine(tuple(printed(n, boxes.tolist()) for n in range(4)))
        with pytest.raises(DataErrors, match=f"printed as {unit} of the page, and miss it"):
            promises.load(wrong)
    nowhere = Mine(tuple(printed(n, [(0, 0, 0, 0), (600, 1500, 650, 1520)]) for n in range(4)))
    promises.load(nowhere)
    assert "hold hardly any of what is printed" in capsys.readouterr().err


drawn = []


def draw(number, width):
    drawn.append(number)
    text = PageText(WORDS, (Entity("total", (1,)),), ())
    return Drawing(np.full((60, width, 3), number, np.uint8), text)


def lazily(width):
    pages = [DrawnPage(draw, (number, width)) for number in range(4)]
    made = [Document.drawn(f"d{n}", f"P{n}", one, (120, 60)) for n, one in enumerate(pages)]
    return DocumentData(Mine(tuple(made)), Iid(2), cache="off")


def test_a_page_that_others_draw_is_checked_when_it_is_drawn():
    loaded = promises.load(lazily(100).source)
    assert drawn == []
    with pytest.raises(DataError, match="size 120 × 60, but the page has 100 × 60 pixels"):
        list(promises.Checked(loaded.documents))
    with pytest.raises(UnfitData, match="but the page has 100 × 60 pixels"):
        lazily(100).bind(layoutlmv3, seed=0)
    drawn.clear()
    lazily(120).bind(layoutlmv3, seed=0)
    assert sorted(drawn) == [0, 1, 2, 3]  # none of them twice


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"words": (), "entities": ()}, "has a word"), ({"entities": ()}, "has an entity")],
)
def test_a_tagger_is_given_something_to_tag(changes, why):
    data = DocumentData(Mine(tuple(page(n, **changes) for n in range(6))), Iid(2), cache="off")
    with pytest.raises(UnfitData, match=f"none of the training documents of mine {why}"):
        data.bind(layoutlmv3, seed=0)
    data = DocumentData(Mine((*data.source.documents, page(6), page(7))), Iid(2), cache="off")
    data.bind(layoutlmv3, seed=1)
