"""Links between entities follow when words, and entities with them, are left out of a page."""

import dataclasses

import numpy as np
import pytest

from fedpriv.data.cropped import Cropped
from fedpriv.data.document import Document, DocumentSet, Entity, Question, Word
from fedpriv.data.links import kept_entities
from fedpriv.data.redaction.clues import without_clues
from fedpriv.data.redaction.fields import without_fields

SELLER, DATE, DAY, TOTAL = range(4)
ENTITIES = (
    Entity("seller", (0, 1)),
    Entity("date", (2,)),
    Entity("day", (3,)),
    Entity("total", (4,)),
)
LINKS = ((TOTAL, DAY), (SELLER, DATE), (DATE, DAY), (DAY, SELLER), (DATE, TOTAL))


@pytest.fixture
def page():
    """Five words in a column, 20 pixels each."""
    texts = ("Vega", "Builders", "Invoiced", "1.2.2003", "9.99")
    words = tuple(Word(t, (10, 20 * n + 2, 90, 20 * n + 18), n) for n, t in enumerate(texts))
    pixels = np.full((100, 100, 3), 255, np.uint8)
    question = Question("seller", "Who?", ("Vega Builders",))
    return Document("a", "v", pixels, (100, 100), words, ENTITIES, (question,), links=LINKS)


@dataclasses.dataclass(frozen=True)
class Given:
    document: Document

    def load(self):
        return DocumentSet("given", (self.document,), ("seller", "date", "day", "total"))


def test_entities_keep_all_their_words_or_go_with_their_links(page):
    entities, links = kept_entities(page, {1: 0, 3: 1, 4: 2})
    assert entities == (Entity("day", (1,)), Entity("total", (2,)))
    assert links == ((1, 0),)


def test_links_follow_on_templates(page):
    template = without_fields(page, ["date"])
    assert [entity.label for entity in template.entities] == ["seller", "day", "total"]
    assert template.links == ((2, 1), (1, 0))


def test_links_follow_on_cleared_pages(page):
    shown = without_clues(page, page.questions[0], ["Vega Builders"]).page
    assert [entity.label for entity in shown.entities] == ["date", "day", "total"]
    assert shown.links == ((2, 1), (0, 1), (0, 2))


def test_links_follow_into_windows(page):
    # A date at the top: the window, 80 pixels high, ends above the total.
    higher = dataclasses.replace(
        page,
        words=tuple(dataclasses.replace(w, box=(30, w.box[1], 70, w.box[3])) for w in page.words),
    )
    (window,) = Cropped(Given(higher), size=80, key="date", word_height=16).load().documents
    assert [entity.label for entity in window.entities] == ["date", "day"]
    assert window.links == ((0, 1),)
