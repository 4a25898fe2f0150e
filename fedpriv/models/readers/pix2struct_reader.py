"""Pages as Pix2Struct sees them: the question set above the page, cut into flattened patches.

As published (Lee et al. 2023, §2.2, §3), the page keeps its proportions and is scaled so that at
most `max_patches` patches cover it; each patch knows its row and column; grey levels are
standardised over the page with its question.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.data.generated.glyphs import font_file, load_font
from fedpriv.models.generation import target
from fedpriv.models.question_answering import asked, table
from fedpriv.models.readers.reader import PageReader

LINE = 80
"""Characters of the question in a line, as published."""

TEXT_SIZE, MARGIN = 36, 5
"""Size and margin of the question's text in pixels, as published."""


@dataclass(frozen=True)
class Pix2StructReader(PageReader):
    """Turns questions about page images into arrays.

    Args:
        subwords: tokenizer of the answers; the question is read from the image.
        max_patches: P, patches of page and question at most: the resolution of the training.
        patch_size: side of a patch in pixels.
        answer_length: A, tokens of an answer, the end token included.
        font: a TrueType file for the question. None takes the DejaVu Sans that comes with
            matplotlib, because the published Arial would have to be fetched from a hub.
    """

    max_patches: int = 2048
    patch_size: int = 16
    answer_length: int = 48
    font: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_patches", "patch_size", "answer_length"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name}={value}: expected 1 or more")
        if self.font is not None and not Path(self.font).is_file():
            raise ValueError(
                f"font={self.font!r}: there is no such file; expected a TrueType font, or none for "
                "DejaVu Sans"
            )

    def read(self, documents: Sequence[Document]) -> Examples:
        """Returns one row per question.

        Columns (N questions, P = max_patches, A = answer_length): patches (N, P, patch_size² · 3),
        uint8, rows, columns and colours of a patch in this order; places (N, P, 2), its row and
        column counted from 1, and 0 where there is no patch; mean and deviation (N,) of the grey
        levels before the page was scaled; labels (N, A), the first accepted answer; those of
        `Asked`.

        Every question has its own copy of the page, because it is drawn above it: 1.5 MB at the
        published size.

        Raises:
            ValueError: if no document has a question.
        """
        rows: list[dict[str, NDArray[Any]]] = []
        for question in asked(documents):
            title = header(question.question.text, self.font)
            page = under_header(documents[question.document].image(), title)
            patches, places = cut(page, self.max_patches, self.patch_size)
            mean, deviation = moments(page)
            answer = self.subwords.tokens(question.answer)
            row: dict[str, NDArray[Any]] = {
                "patches": patches,
                "places": places,
                "mean": np.array(mean, dtype=np.float32),
                "deviation": np.array(deviation, dtype=np.float32),
                "labels": target(answer, self.answer_length, self.subwords.sep),
            }
            rows.append(row | question.columns())
        return table(rows)


def header(text: str, font: str | None = None) -> Image.Image:
    """Returns a text in black on white, in lines of `LINE` characters at most.

    Args:
        text: the question.
        font: see `Pix2StructReader`.
    """
    lines = "\n".join(textwrap.wrap(text, LINE))
    face = load_font(font or font_file("DejaVuSans"), TEXT_SIZE)
    box = ImageDraw.Draw(Image.new("RGB", (1, 1))).textbbox((0, 0), lines, font=face)
    size = (int(box[2]) + 2 * MARGIN, int(box[3]) + 2 * MARGIN)
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).text((MARGIN, MARGIN), lines, fill="black", font=face)
    return image


def under_header(page: Image.Image, above: Image.Image) -> Image.Image:
    """Returns the page with a header, both scaled to the width of the wider one."""
    width = max(above.width, page.width)
    height = int(page.height * (width / page.width))
    room = int(above.height * (width / above.width))
    both = Image.new("RGB", (width, height + room), "white")
    both.paste(above.resize((width, room)), (0, 0))
    both.paste(page.resize((width, height)), (0, room))
    return both


def grid(size: tuple[int, int], max_patches: int, patch_size: int) -> tuple[int, int]:
    """Returns rows and columns of patches for an image of that width and height.

    The number is the largest that keeps the image's proportions, up to rounding.
    """
    width, height = size
    scale = math.sqrt(max_patches * (patch_size / height) * (patch_size / width))
    rows, columns = (
        max(1, min(int(scale * side / patch_size), max_patches)) for side in (height, width)
    )
    return rows, columns


def cut(
    image: Image.Image, max_patches: int, patch_size: int
) -> tuple[NDArray[np.uint8], NDArray[np.int16]]:
    """Returns an image's patches and their places; see `Pix2StructReader.read`."""
    rows, columns = grid(image.size, max_patches, patch_size)
    size = (columns * patch_size, rows * patch_size)
    pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR), dtype=np.uint8)
    tiles = pixels.reshape(rows, patch_size, columns, patch_size, 3).swapaxes(1, 2)
    patches = np.zeros((max_patches, patch_size * patch_size * 3), dtype=np.uint8)
    patches[: rows * columns] = tiles.reshape(rows * columns, -1)
    places = np.zeros((max_patches, 2), dtype=np.int16)
    places[: rows * columns] = 1 + np.indices((rows, columns)).reshape(2, -1).T
    return patches, places


def moments(image: Image.Image) -> tuple[float, float]:
    """Returns mean and standard deviation of all grey levels of all colours.

    The deviation is never smaller than that of an image with hardly any contrast, as published.
    """
    pixels = np.asarray(image, dtype=np.uint8)
    return float(pixels.mean()), max(float(pixels.std()), 1 / math.sqrt(pixels.size))
