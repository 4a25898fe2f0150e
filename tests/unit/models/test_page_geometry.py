"""Where models of all kinds see the boxes of a page."""

import numpy as np
import pytest

from fedpriv.data.document import Document, Question
from fedpriv.data.generated.slips import Slips
from fedpriv.data.redaction.fields import private_fields, without_fields
from fedpriv.models.donut import donut
from fedpriv.models.layoutlmv3 import layoutlmv3
from fedpriv.models.page_geometry import in_model_pixels
from fedpriv.models.vt5 import vt5
from fedpriv.runtime.torch_state import seeded_model

SLIPS = Slips(providers=3, documents_per_provider=1).load()

BUILDERS = {
    "layoutlmv3": lambda: layoutlmv3(SLIPS.labels, image_size=112),
    "layoutlmv3 answers": lambda: layoutlmv3(task="answers", image_size=112),
    "vt5": lambda: vt5(),
    "donut": lambda: donut(image_size=(128, 96)),
}


def black(width, height):
    """A black page with one question, which a model needs to encode it."""
    page, asked = np.zeros((height, width), np.uint8), Question("date", "When?", ("1999",))
    return Document("black", "Vega", page, (width, height), (), questions=(asked,))


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
            for page in (document, without_fields(document, [key]))
        )
        rows, columns = np.nonzero((abs(before - after) > 60).any(0))
        found = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
        assert abs(np.array(found) - (x0, y0, x1, y1)).max() <= 2


def test_boxes_come_in_their_order_and_scale_with_the_page():
    model = seeded_model(lambda: layoutlmv3(task="answers", image_size=64), 0)
    document = black(256, 128)
    boxes = [(0, 0, 256, 128), (128, 0, 256, 64), (40, 20, 80, 40), (0, 120, 4, 128)]
    assert in_model_pixels(model, document, boxes) == [
        (0, 0, 64, 64),
        (32, 0, 64, 32),
        (10, 10, 20, 20),
        (0, 60, 1, 64),
    ]
    assert in_model_pixels(model, document, []) == []


def test_what_is_thinner_than_a_pixel_is_still_found():
    model = seeded_model(lambda: layoutlmv3(task="answers", image_size=64), 0)
    document = black(640, 640)
    ((x0, y0, x1, y1),) = in_model_pixels(model, document, [(100, 300, 200, 302)])
    assert (x0 <= 10, x1 >= 20, 28 <= y0 < y1 <= 32) == (True, True, True)
    assert in_model_pixels(model, document, [(5, 5, 5, 5)]) == [(0, 0, 0, 0)]
