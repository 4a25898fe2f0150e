"""A page as it was, without the clues on an answer, and with what the model answers all the same.

After Fig. 10 and 11 of Tito et al. 2023. The tint is for the reader: the model sees none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from fedpriv.data.document import Document, Question
from fedpriv.data.redaction.clues import without_clues
from fedpriv.data.redaction.painting import Redacted
from fedpriv.metrics.answers import anls, is_exact
from fedpriv.threat.claims import MemorisationProbe

BLUE, INK = (40, 90, 255), (24, 24, 24)
TINT = 0.45
"""Share of blue in a blurred box."""

SIZE = 1 / 28
"""Of the letters below the page, of its width."""


def telling(probes: Iterable[MemorisationProbe], count: int) -> list[MemorisationProbe]:
    """Returns the probes of the final model to be shown, at most one a provider and key.

    Those that the model answered come first, without a residual clue before with one; then those
    that it nearly answered.
    """
    shown = [p for p in probes if p.test == "removed" and p.model == "final"]
    shown.sort(
        key=lambda p: (
            not is_exact(p.answer, p.accepted),
            p.residual,
            -anls(p.answer, p.accepted, threshold=0),
        )
    )
    first: dict[tuple[str, str], MemorisationProbe] = {}
    for probe in shown:
        first.setdefault((probe.provider, probe.key), probe)
    return list(first.values())[:count]


def pictures(
    probes: Sequence[MemorisationProbe],
    documents: Iterable[Document],
    *,
    radius: float,
    likeness: float,
) -> dict[str, NDArray[np.uint8]]:
    """Returns three pictures for each probe, (H, W, 3): "…-page", "…-cleared" and "…-answer".

    Args:
        probes: of the removed test; their pages are cleared once more.
        documents: among which their pages are.
        radius: of the blur, as of `without_clues`.
        likeness: as of `without_clues`.
    """
    pages = {(document.provider, document.id): document for document in documents}
    drawn: dict[str, NDArray[np.uint8]] = {}
    for number, probe in enumerate(probes):
        page = pages[probe.provider, probe.document]
        question = Question(probe.key, probe.question, probe.accepted)
        found = without_clues(page, question, probe.accepted, radius=radius, likeness=likeness)
        name, shown = f"removed-{probe.key}-{number:02}", tinted(found)
        drawn[f"{name}-page"] = np.array(page.image(), dtype=np.uint8)
        drawn[f"{name}-cleared"] = np.array(shown, dtype=np.uint8)
        drawn[f"{name}-answer"] = np.array(captioned(shown, _caption(probe)), dtype=np.uint8)
    return drawn


def tinted(found: Redacted) -> Image.Image:
    """Returns the cleared page with blue on the blurred boxes."""
    page = found.page.image()
    for left, top, right, bottom in found.boxes:
        box = (int(left), int(top), int(right), int(bottom))
        part = page.crop(box)
        page.paste(Image.blend(part, Image.new("RGB", part.size, BLUE), TINT), box)
    return page


def captioned(page: Image.Image, lines: Sequence[str]) -> Image.Image:
    """Returns the page with lines of text below it, broken where they are too long."""
    # Imported here because matplotlib takes a quarter of a second, and only drawing needs it.
    from matplotlib import get_data_path

    size = max(8, round(page.width * SIZE))
    font = ImageFont.truetype(f"{get_data_path()}/fonts/ttf/DejaVuSans.ttf", size)
    broken = [part for line in lines for part in _broken(line, font, page.width - 2 * size)]
    pitch = math.ceil(1.4 * size)
    whole = Image.new("RGB", (page.width, page.height + pitch * len(broken) + size), "white")
    whole.paste(page)
    pen = ImageDraw.Draw(whole)
    pen.line((0, page.height, page.width, page.height), fill=INK)
    for place, line in enumerate(broken):
        pen.text((size, page.height + size // 2 + place * pitch), line, fill=INK, font=font)
    return whole


def _caption(probe: MemorisationProbe) -> list[str]:
    sure = "" if math.isnan(probe.confidence) else f" (confidence {probe.confidence:.2f})"
    return [
        f"Question: {probe.question}",
        f"The model: {probe.answer or 'no answer'}{sure}",
        f"Removed: {probe.accepted[0]}{', with clues left' if probe.residual else ''}",
    ]


def _broken(text: str, font: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Breaks a text at blanks, and words that are too long anywhere."""
    lines = [""]
    for word in text.split():
        if lines[-1] and font.getlength(f"{lines[-1]} {word}") > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
        while len(lines[-1]) > 1 and font.getlength(lines[-1]) > width:
            fits = next(
                n
                for n in range(len(lines[-1]) - 1, 0, -1)
                if n == 1 or font.getlength(lines[-1][:n]) <= width
            )
            lines[-1:] = [lines[-1][:fits], lines[-1][fits:]]
    return lines
