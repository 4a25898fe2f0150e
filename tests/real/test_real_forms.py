"""The readers of CORD, XFUND and DocILE on the packs; expectations come from the raw files.

XFUND is for research only and not for sale; nothing of the releases is stored here.
"""

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedpriv.data.readers.cord import Cord
from fedpriv.data.readers.docile import Docile
from fedpriv.data.readers.xfund import Xfund

DATA = os.environ.get("FEDPRIV_DATA")
pytestmark = pytest.mark.skipif(
    not DATA, reason="FEDPRIV_DATA is not set: the folder that holds open/ and restricted/"
)
ROOT = Path(DATA or "unset")
CORD = ROOT / "open" / "cord_v2_annotations"
XFUND = ROOT / "restricted" / "xfund_zh"
DOCILE = ROOT / "open" / "docile_sample"


def on_their_pages(documents):
    for document in documents:
        for word in document.words:
            x0, y0, x1, y1 = word.box
            assert 0 <= x0 < x1 <= document.size[0]
            assert 0 <= y0 < y1 <= document.size[1]
    return True


# ----------------------------------------------------------------------------------------- CORD


@pytest.fixture(scope="module")
def cord():
    return Cord(CORD, images="blank").load()


def test_cord_counts(cord):
    assert cord.skipped == ()
    assert len(cord.documents) == 50
    assert sum(len(document.words) for document in cord.documents) == 978
    count = Counter(entity.label for document in cord.documents for entity in document.entities)
    assert sum(count.values()) == 556
    assert (count["menu.nm"], count["menu.sub.nm"], count["total.total_price"]) == (96, 19, 50)
    assert len(cord.labels) == 23
    assert on_their_pages(cord.documents)


def test_cord_words_and_boxes_are_those_of_the_files(cord):
    for document in cord.documents:
        path = CORD / f"{document.id.replace('/', '/json/')}.json"
        raw = json.loads(path.read_text(encoding="utf-8"))
        size = raw["meta"]["image_size"]
        assert document.size == (size["width"], size["height"])
        words = [word for line in raw["valid_line"] for word in line["words"]]
        assert [word.text for word in document.words] == [word["text"] for word in words]
        for ours, theirs in zip(document.words, words, strict=True):
            xs, ys = ([theirs["quad"][f"{axis}{n}"] for n in range(1, 5)] for axis in "xy")
            assert ours.box == pytest.approx((min(xs), min(ys), max(xs), max(ys)), abs=1)


# ---------------------------------------------------------------------------------------- XFUND


@pytest.fixture(scope="module")
def xfund():
    return Xfund(XFUND).load()


def test_xfund_counts(xfund):
    assert xfund.skipped == ()
    assert Counter(document.split for document in xfund.documents) == {"train": 20, "test": 6}
    words = Counter()
    for document in xfund.documents:
        words[document.split] += len(document.words)
    assert words == {"train": 11310, "test": 3421}
    count = Counter(entity.label for document in xfund.documents for entity in document.entities)
    assert count == {"answer": 824, "question": 688, "header": 42}
    assert on_their_pages(xfund.documents)


def test_xfund_boxes_are_scaled_to_the_images(xfund):
    raw = {}
    for half in ("train", "val"):
        content = json.loads((XFUND / f"zh.{half}.json").read_text(encoding="utf-8"))
        raw |= {form["id"]: form for form in content["documents"]}
    shrunk = 0
    for document in xfund.documents:
        with Image.open(document.page) as image:
            assert document.size == image.size
        form = raw[document.id]
        across = document.size[0] / form["img"]["width"]
        down = document.size[1] / form["img"]["height"]
        shrunk += across < 0.9
        words = [word for item in form["document"] for word in item["words"]]
        assert [word.text for word in document.words] == [word["text"] for word in words]
        for ours, theirs in zip(document.words, words, strict=True):
            x0, y0, x1, y1 = theirs["box"]
            scaled = (x0 * across, y0 * down, x1 * across, y1 * down)
            assert ours.box == pytest.approx(scaled, abs=1)
    assert shrunk == 26


def ink(page, boxes):
    """The mean darkness inside the boxes, 0 is paper."""
    pixels = 255.0 - np.asarray(page.convert("L"))
    return np.mean(
        [pixels[int(y0) : int(y1) + 1, int(x0) : int(x1) + 1].mean() for x0, y0, x1, y1 in boxes]
    )


def test_xfund_words_stand_on_ink(xfund):
    """Boxes where the words are: there is more ink in them than a line's height below.

    Not in two of the forms, where black bars and rules lie below the words.
    """
    inked = 0
    for document in xfund.documents:
        page, boxes = document.image(), [word.box for word in document.words]
        height = float(np.median([y1 - y0 for _, y0, _, y1 in boxes]))
        below = [(x0, y0 + height, x1, y1 + height) for x0, y0, x1, y1 in boxes]
        below = [box for box in below if box[3] < document.size[1]]
        inked += ink(page, boxes) > 1.2 * ink(page, below)
    assert inked == 24


# --------------------------------------------------------------------------------------- DocILE


def test_docile_sample():
    found = Docile(DOCILE, splits=("dev",)).load()
    (document,) = found.documents
    assert document.size == (609, 808)
    assert len(document.words) == 256
    assert document.provider == "PHILIPMORRISINCORPORATED"
    texts = {
        entity.label: " ".join(document.words[place].text for place in entity.words)
        for entity in document.entities
        if not entity.label.startswith("line_item")
    }
    assert texts["customer_id"] == "99999"
    assert texts["date_due"] == "1/02/02"
    assert texts["customer_billing_name"] == "Philip Morris Valued Customer"
    assert texts["customer_billing_address"] == "999 Ninety Ninth Street Anywhere, USA, 99999"
    assert on_their_pages(found.documents)
    assert document.page.min() < 50 < 200 < document.page.mean()


def test_docile_blank_pages_have_the_rendered_size():
    (rendered,) = Docile(DOCILE, splits=("dev",), dpi=200).load().documents
    (blank,) = Docile(DOCILE, splits=("dev",), dpi=200, pages="blank").load().documents
    assert rendered.size == blank.size == (1692, 2245)
    assert rendered.entities == blank.entities


# ---------------------------------------------------------------------------------------- SROIE


def test_sroie_questions_are_the_values_of_the_key_files(sroie):
    documents = sroie.documents
    count = Counter(q.key for document in documents for q in document.questions)
    assert count == {"company": 269, "date": 269, "address": 269, "total": 269}
    for document in documents:
        path = document.page.parent.parent / "entities" / f"{document.page.stem}.txt"
        raw = json.loads(path.read_bytes().decode("utf-8", "replace"))
        answers = {question.key: question.answers for question in document.questions}
        assert answers == {key: (value.strip(),) for key, value in raw.items() if value.strip()}
    wordings = Counter(q.text for document in documents for q in document.questions)
    assert len(wordings) == 24
    assert min(wordings.values()) > 20
