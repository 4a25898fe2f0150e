"""The FUNSD reader on the 50 forms of the pack; expectations come from the raw files.

Research use only: nothing of the release is stored here.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

DATA = os.environ.get("FEDPRIV_DATA")
pytestmark = pytest.mark.skipif(
    not DATA, reason="FEDPRIV_DATA is not set: the folder that holds restricted/funsd"
)
ROOT = Path(DATA or "unset") / "restricted" / "funsd"


@pytest.fixture(scope="module")
def found(funsd):
    return funsd


def raw(document):
    """The document's form items, read without the code under test."""
    path = document.page.parent.parent / "annotations" / f"{document.page.stem}.json"
    return json.loads(path.read_text(encoding="utf-8"))["form"]


def test_the_counts_are_those_of_the_readme(found):
    assert found.skipped == ()
    assert Counter(document.split for document in found.documents) == {"train": 38, "test": 12}
    assert len({document.provider for document in found.documents}) == 50


def test_no_word_is_lost(found):
    for document in found.documents:
        words = [
            (word["text"].strip(), tuple(word["box"]), number)
            for number, item in enumerate(raw(document))
            for word in item["words"]
            if word["text"].strip()
        ]
        assert [(word.text, word.box, word.segment) for word in document.words] == words
    assert sum(len(document.words) for document in found.documents) == 7621


def test_every_box_is_on_its_page(found):
    for document in found.documents:
        with Image.open(document.page) as image:
            assert document.size == image.size
        for word in document.words:
            x0, y0, x1, y1 = word.box
            assert 0 <= x0 < x1 <= document.size[0]
            assert 0 <= y0 < y1 <= document.size[1]


def test_fields_are_entities_save_other_and_empty_ones(found):
    """1085, 989 and 126 items in the files, of which 6, 22 and 3 hold blank words only."""
    count = Counter(entity.label for document in found.documents for entity in document.entities)
    assert count == {"question": 1079, "answer": 967, "header": 123}
    for document in found.documents:
        items = raw(document)
        for entity in document.entities:
            segments = {document.words[place].segment for place in entity.words}
            assert [items[segment]["label"] for segment in segments] == [entity.label]


def test_links_lead_from_questions_to_answers_and_from_headers_to_questions(found):
    """1449 in the files, of which 36 have an end at a field that is "other" or blank."""
    count = Counter(
        (document.entities[first].label, document.entities[second].label)
        for document in found.documents
        for first, second in document.links
    )
    assert count == {
        ("question", "answer"): 1088,
        ("header", "question"): 314,
        ("question", "question"): 9,
        ("question", "header"): 1,
        ("header", "header"): 1,
    }
    for document in found.documents:
        items = raw(document)
        stated = {tuple(pair) for item in items for pair in item["linking"]}
        segments = [document.words[entity.words[0]].segment for entity in document.entities]
        ends = [(items[segments[a]]["id"], items[segments[b]]["id"]) for a, b in document.links]
        assert len(set(ends)) == len(ends)
        assert set(ends) <= stated
