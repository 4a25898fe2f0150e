"""Words of a page by Tesseract, a program of the system: https://tesseract-ocr.github.io."""

from __future__ import annotations

import functools
import io
import os
import shutil
import subprocess

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fedpriv.data.document import Word, box_on_page

LEGIBLE = 2000
"""Pages whose longer side has fewer pixels are enlarged to it: Tesseract is made for 300 dots an
inch, and a letter should be some 20 pixels high."""

SECONDS = 300
"""After which the reading of a page is given up."""

_WORD = "5"
"""The level of a word in Tesseract's table."""


class NoTesseractError(RuntimeError):
    """Tesseract, or a language of it, is not installed."""


@functools.cache
def version(program: str = "tesseract") -> str:
    """Returns the version of the program, by which the words that it reads may differ.

    Raises:
        NoTesseractError: if there is no such program.
    """
    if shutil.which(program) is None:
        raise NoTesseractError(
            "Tesseract is not installed: apt-get install tesseract-ocr (Debian, Ubuntu) or "
            "brew install tesseract (macOS)"
        )
    return _output([program, "--version"]).partition("\n")[0].strip()


@functools.cache
def check_language(language: str) -> None:
    """Checks that all languages are installed, such as "eng" or "deu+fra".

    Raises:
        NoTesseractError: if one is not, with what would install it.
    """
    version()
    installed = _output(["tesseract", "--list-langs"]).split()[1:]
    if missing := [one for one in language.split("+") if one not in installed]:
        packages = " ".join(f"tesseract-ocr-{one.replace('_', '-')}" for one in missing)
        raise NoTesseractError(
            f"Tesseract has no language {', '.join(missing)}, of data.source.language={language}: "
            f"apt-get install {packages}, or choose one of "
            f"{', '.join(one for one in installed if one != 'osd')}"
        )


def recognise(pixels: NDArray[np.uint8], language: str, layout: int) -> tuple[Word, ...]:
    """Returns the words that Tesseract reads on a page, in its order; a line is a segment.

    Args:
        pixels: of the page (height × width × 3).
        language: of the text, see `check_language`.
        layout: Tesseract's page segmentation mode.

    Raises:
        NoTesseractError: if there is no such program.
        ValueError: if the program fails on this page, or takes more than `SECONDS`.
    """
    version()
    page = Image.fromarray(pixels).convert("L")
    factor = max(1.0, LEGIBLE / max(page.size))
    large = page
    if factor > 1:
        sides = (max(1, round(side * factor)) for side in page.size)
        large = page.resize((next(sides), next(sides)), Image.Resampling.BICUBIC)
    picture = io.BytesIO()
    large.save(picture, "PPM")  # without compression, which would take longer than it saves
    command = ["tesseract", "stdin", "stdout", "--psm", str(layout), "-l", language, "tsv"]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed program, on pixels of ours
            command,
            input=picture.getvalue(),
            capture_output=True,
            # One thread for each page, because all cores read pages.
            env={**os.environ, "OMP_THREAD_LIMIT": "1"},
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"Tesseract took more than {SECONDS} s for the page") from error
    if done.returncode:
        reason = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise ValueError(f"Tesseract failed ({done.returncode}): {' '.join(reason)}")
    scale = (page.width / large.width, page.height / large.height)
    return _words(done.stdout.decode("utf-8", "replace"), scale, page.size)


def _words(table: str, scale: tuple[float, float], size: tuple[int, int]) -> tuple[Word, ...]:
    words: list[Word] = []
    lines: dict[tuple[str, ...], int] = {}
    for row in table.split("\n")[1:]:
        cells = row.split("\t", 11)
        if len(cells) < 12 or cells[0] != _WORD or not (text := cells[11].strip()):
            continue
        left, top, width, height = (int(cell) for cell in cells[6:10])
        across, down = scale
        box = (left * across, top * down, (left + width) * across, (top + height) * down)
        line = lines.setdefault(tuple(cells[1:5]), len(lines))
        words.append(Word(text, box_on_page(box, size), line))
    return tuple(words)


def _output(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - fixed commands
    return (done.stdout + done.stderr).decode("utf-8", "replace")
