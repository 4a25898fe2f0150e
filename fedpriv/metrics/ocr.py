"""What can be read on cut-out lines of text, and how well it matches.

Two readers: Tesseract, which is a program of the system, and TrOCR (Li et al. 2021), with which
GI-DQA (2025) measures, from a folder of weights.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from rapidfuzz import fuzz

from fedpriv.runtime.outside import PathSetting, ServiceSetting

Crop = NDArray[np.uint8]
"""One line of text, (height, width, 3), dark on light."""


class OCR(Protocol):
    """Reads lines of text."""

    def read(self, crops: Sequence[Crop]) -> list[str]:
        """Returns the text of each crop, in their order; empty where nothing was read."""


@dataclass(frozen=True)
class Tesseract:
    """Reads with the program of that name, all crops in one process; 10 to 20 ms a line.

    Crops are grey, enlarged (bicubic) and set on white: the program is made for 300 dots an inch,
    and needs a quiet border.

    Args:
        enlarge: the factor by which each crop is enlarged before it is read.
        border: the width of the white border around an enlarged crop, in pixels.
        language: the language of the text, one of those that `tesseract --list-langs` prints.
        program: the name or path of the program.

    Raises:
        FileNotFoundError: if there is no such program.
    """

    enlarge: int = 6
    border: int = 20
    language: str = "eng"
    program: ServiceSetting = "tesseract"

    def __post_init__(self) -> None:
        if self.enlarge < 1 or self.border < 0:
            raise ValueError(
                f"enlarge={self.enlarge}, border={self.border}: expected 1 or more, 0 or more"
            )
        if shutil.which(self.program) is None:
            raise FileNotFoundError(
                f"there is no program {self.program}: apt-get install tesseract-ocr, read with "
                "TrOCR, or leave reading out (ocr=null)"
            )

    def read(self, crops: Sequence[Crop]) -> list[str]:
        """Returns the text of each crop.

        Raises:
            RuntimeError: if the program fails.
        """
        if not crops:
            return []
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / f"{place}.png" for place in range(len(crops))]
            for path, crop in zip(paths, crops, strict=True):
                grey = Image.fromarray(crop).convert("L")
                size = (grey.width * self.enlarge, grey.height * self.enlarge)
                large = grey.resize(size, Image.Resampling.BICUBIC)
                ImageOps.expand(large, self.border, fill=255).save(path, dpi=(300, 300))
            names = Path(folder) / "crops.txt"
            names.write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
            # As one line of text (7).
            command = [self.program, str(names), "stdout", "--psm", "7", "-l", self.language]
            done = subprocess.run(  # noqa: S603 - a program that the user names, on files of ours
                command,
                capture_output=True,
                # More threads than one make it slower.
                env={**os.environ, "OMP_THREAD_LIMIT": "1"},
                check=False,
            )
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise RuntimeError(f"{self.program} failed ({done.returncode}): {said}")
        texts = done.stdout.decode("utf-8", "replace").split("\f")
        # The program sets a form feed between two pages, in other versions after each.
        if len(texts) == len(crops) + 1 and not texts[-1].strip():
            texts.pop()
        if len(texts) != len(crops):
            raise RuntimeError(f"{self.program} returned {len(texts)} texts for {len(crops)} crops")
        return [text.strip() for text in texts]


@dataclass(frozen=True)
class TrOCR:
    """Reads with a TrOCR model in a folder as Hugging Face lays it out; nothing is downloaded.

    Args:
        folder: the folder of the model, such as a copy of microsoft/trocr-base-printed.
        batch_size: the number of crops that the model reads at once.
        longest: the largest number of tokens in a line.

    Raises:
        FileNotFoundError: if there is no such folder.
    """

    folder: PathSetting
    batch_size: int = 16
    longest: int = 32

    def __post_init__(self) -> None:
        if not Path(self.folder).is_dir():
            raise FileNotFoundError(
                f"there is no folder {self.folder}: expected one with config.json, weights and "
                "tokenizer of a TrOCR model, such as microsoft/trocr-base-printed"
            )

    def read(self, crops: Sequence[Crop]) -> list[str]:
        """Returns the text of each crop."""
        import torch

        processor, model = _trocr(str(self.folder))
        texts: list[str] = []
        for start in range(0, len(crops), self.batch_size):
            images = [Image.fromarray(c).convert("RGB") for c in crops[start:][: self.batch_size]]
            pixels = processor(images=images, return_tensors="pt").pixel_values
            with torch.no_grad():
                ids = model.generate(pixels, max_new_tokens=self.longest, num_beams=1)
            texts += processor.batch_decode(ids, skip_special_tokens=True)
        return [text.strip() for text in texts]


@lru_cache(maxsize=1)
def _trocr(folder: str) -> tuple[Any, Any]:
    # Imported here because it takes seconds, and only this reader needs it.
    from transformers import TrOCRProcessor, VisionEncoderDecoderModel

    processor = TrOCRProcessor.from_pretrained(folder, local_files_only=True)
    # The format without code in it: a pickle is never loaded.
    model = VisionEncoderDecoderModel.from_pretrained(
        folder, local_files_only=True, use_safetensors=True
    )
    return processor, model.eval()


def normal(text: str) -> str:
    """Returns the text as it is compared: NFKC, case folded, white space as single blanks."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def exact_match(read: str, right: str) -> bool:
    """Says whether two texts are the same but for case, white space and compatible signs."""
    return normal(read) == normal(right)


def fuzz_ratio(read: str, right: str) -> float:
    """Returns 1 - indel distance / both lengths together, in [0, 1], of the normal texts.

    rapidfuzz's `fuzz.ratio` / 100, which GI-DQA (2025) calls fuzz ratio. Two empty texts are equal.
    """
    return fuzz.ratio(normal(read), normal(right)) / 100
