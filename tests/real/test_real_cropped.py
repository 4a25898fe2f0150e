"""Windows of the 269 receipts of the SROIE pack: a field of each, at a legible size."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedpriv.data.cropped import Cropped
from fedpriv.data.readers.sroie import Sroie

DATA = os.environ.get("FEDPRIV_DATA")
pytestmark = pytest.mark.skipif(
    not DATA, reason="FEDPRIV_DATA is not set: the folder that holds open/sroie"
)
SROIE = Sroie(Path(DATA or "unset") / "open" / "sroie")


@pytest.fixture(scope="module")
def receipts(sroie):
    return {document.id: document for document in sroie.documents}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "kept"), [("date", 265), pytest.param("total", 264, marks=pytest.mark.slow)]
)
def test_nearly_every_receipt_gives_a_window(receipts, key, kept):
    found = Cropped(SROIE, 112, key, word_height=16).load()
    assert len(found.documents) == kept
    assert len(found.documents) + len(found.skipped) == len(receipts) == 269
    for window in found.documents:
        (entity,) = (entity for entity in window.entities if entity.label == key)
        words = [window.words[place] for place in entity.words]
        heights = [word.box[3] - word.box[1] for word in words]
        assert np.median(heights) >= 16 - 1e-6
        assert key in {question.key for question in window.questions}
        # There is print in the field: its darkest pixels are far from its lightest.
        x0, y0, x1, y1 = (round(side) for side in words[0].box)
        shades = window.page[max(y0, 0) : y1, max(x0, 0) : x1]
        assert np.ptp(shades) > 60


@pytest.mark.slow
def test_a_window_shows_what_the_receipt_shows(receipts):
    """The grey value of a field is that of the same field on the whole page."""
    for window in Cropped(SROIE, 112, "date", word_height=16).load().documents[:40]:
        whole = receipts[window.id]
        (large,) = (entity for entity in whole.entities if entity.label == "date")
        (small,) = (entity for entity in window.entities if entity.label == "date")
        shades = []
        for document, entity in ((whole, large), (window, small)):
            x0, y0, x1, y1 = (int(side) for side in document.words[entity.words[0]].box)
            shades.append(np.asarray(document.image().convert("L"))[y0:y1, x0:x1].mean())
        assert shades[0] == pytest.approx(shades[1], abs=8)
