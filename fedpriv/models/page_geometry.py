"""Where a model sees a box of a page."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from PIL import Image

from fedpriv.data.document import Box, Document
from fedpriv.models.base import DocumentModel


def in_model_pixels(
    model: DocumentModel, document: Document, boxes: Sequence[Box]
) -> list[tuple[int, int, int, int]]:
    """Returns where boxes of a page lie in the image that a model makes of it.

    The model encodes one page for each box, white inside the box and black elsewhere. So this
    holds for any model, no matter how it scales or crops a page.

    Args:
        model: reads pages; its examples have shared "pixels".
        document: with the questions that the model needs.
        boxes: in pixels of the page.

    Returns:
        Left, top, right and bottom in the model's pixels, right and bottom exclusive. They enclose
        the pixels that lie at least half in the box, or, without such a pixel, all that touch it.
        All four are 0 if the model sees nothing of the box.
    """
    if not boxes:
        return []
    # The model encodes a page once per question, and the first question is enough.
    bare = dataclasses.replace(
        document, words=(), entities=(), links=(), questions=document.questions[:1]
    )
    pages = []
    for number, (left, top, right, bottom) in enumerate(boxes):
        page = np.zeros((document.size[1], document.size[0]), dtype=np.uint8)
        page[math.floor(top) : math.ceil(bottom), math.floor(left) : math.ceil(right)] = 255
        pages.append(dataclasses.replace(bare, page=page, id=str(number)))
    found = []
    for image in model.encode(pages).shared["pixels"][0].max(1):
        inside = image >= 128 if (image >= 128).any() else image
        found.append(Image.fromarray(inside.astype(np.uint8)).getbbox() or (0, 0, 0, 0))
    return found
