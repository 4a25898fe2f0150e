"""Words of hOCR and ALTO: both are XML, read by expat, which resolves no entity here."""

from __future__ import annotations

import re
from typing import Any
from xml.parsers import expat

from fedpriv.data.document import Box, DataError
from fedpriv.data.readers.annotation import numbers
from fedpriv.data.reading import shown

Page = tuple[tuple[float, float] | None, list[tuple[str, Box, int]]]
"""Size of the page, if stated, and text, box and line of each word."""

WORDS = {"ocrx_word", "ocr_word"}
LINES = {"ocr_line", "ocrx_line", "ocr_header", "ocr_footer", "ocr_caption", "ocr_textfloat"}


def read_markup(content: bytes) -> list[Page]:
    """Returns the pages of an hOCR or ALTO file.

    Raises:
        ValueError: if it is neither, not well-formed, or declares entities.
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    reader = _Reader()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.EntityDeclHandler = _refuse
    parser.buffer_text = True
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise ValueError(f"line {error.lineno}: not well-formed XML: {error}") from error
    except (LookupError, UnicodeError) as error:  # an encoding that Python does not know
        raise ValueError(f"not text: {error}") from error
    except DataError:
        raise
    except ValueError as error:
        raise ValueError(f"line {parser.CurrentLineNumber}: {error}") from error
    if not reader.pages:
        raise ValueError(
            f"XML without pages, {shown(reader.root)}: expected hOCR (ocr_page) or ALTO (Page)"
        )
    if reader.lost:
        some = any(words for _, words in reader.pages)
        known = {"PcGts": "PAGE XML", "html": "hOCR with text outside of ocrx_word"}
        none = "in no" if some else "and no"
        raise ValueError(
            f"{known.get(reader.root, reader.root)} is not read: it holds text, such as "
            f"{shown(reader.lost)}, {none} word of hOCR (ocrx_word) or ALTO (String)"
        )
    return reader.pages


def _refuse(*_: Any) -> None:
    # Entities of entities would fill the memory, and one may name a file to be read.
    raise ValueError("declares entities of its own, which are not read")


class _Reader:
    """Gathers words while expat goes through a file."""

    def __init__(self) -> None:
        self.pages: list[Page] = []
        self.line = -1
        self.unit = ""
        self.in_unit = False
        self.depth = 0
        self.root = ""
        self.page_depth = 0
        """Depth of the element of the page that is open; 0 outside of pages."""
        self.lost = ""
        """The first text of a page that stands in no word."""
        self.word: tuple[int, list[str], Box] | None = None
        """Depth, text so far and box of the hOCR word that is open."""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        classes = set(attributes.get("class", "").split())
        name = tag.rpartition(" ")[2]
        self.root = self.root or name
        if "ocr_page" in classes:
            left, top, right, bottom = _title_box(attributes)
            # Boxes are pixels of a page that begins at 0, 0.
            self.pages.append(((right - left, bottom - top), []))
            self.page_depth = self.depth
        elif classes & LINES:
            self.line += 1
        elif classes & WORDS and self.word is None:
            self._page()
            self.word = (self.depth, [], _title_box(attributes))
        elif name == "Page" and not classes:
            self.pages.append((self._size(attributes), []))
            self.page_depth = self.depth
        elif name == "TextLine":
            self.line += 1
        elif name == "String":
            if "CONTENT" not in attributes:
                raise ValueError("a String without CONTENT, the text of its word")
            keys = ("HPOS", "VPOS", "WIDTH", "HEIGHT")
            left, top, width, height = _sides([attributes.get(key) for key in keys])
            box = (left, top, left + width, top + height)
            self._page()[1].append((attributes["CONTENT"], box, self.line))
        self.in_unit = name == "MeasurementUnit"

    def end(self, tag: str) -> None:
        if self.word is not None and self.word[0] == self.depth:
            _, text, box = self.word
            self._page()[1].append(("".join(text).strip(), box, self.line))
            self.word = None
        if self.depth == self.page_depth:
            self.page_depth = 0
        self.in_unit = False
        self.depth -= 1

    def characters(self, text: str) -> None:
        if self.word is not None:
            self.word[1].append(text)
        elif self.in_unit:
            self.unit += text.strip()
        elif self.page_depth:
            self.lost = self.lost or text.strip()

    def _page(self) -> Page:
        if not self.pages:
            raise ValueError("a word outside of any page")
        return self.pages[-1]

    def _size(self, attributes: dict[str, str]) -> tuple[float, float] | None:
        if "WIDTH" in attributes and "HEIGHT" in attributes:
            width, height = _sides([attributes["WIDTH"], attributes["HEIGHT"]])
            return width, height
        if self.unit not in ("", "pixel"):
            raise ValueError(f"boxes in {shown(self.unit)} on a page without WIDTH and HEIGHT")
        return None


def _title_box(attributes: dict[str, str]) -> Box:
    title = attributes.get("title", "")
    match = re.search(r"\bbbox((?:\s+-?\d+(?:\.\d+)?){4})(?![\d.])", title)
    if not match:
        raise ValueError(f"expected a title with bbox and four numbers, found {shown(title)}")
    left, top, right, bottom = _sides(match[1].split())
    return left, top, right, bottom


def _sides(values: list[Any]) -> tuple[float, ...]:
    try:
        sides = [float(value) for value in values]
    except (TypeError, ValueError):
        raise ValueError(f"expected {len(values)} numbers, found {shown(values)}") from None
    return numbers(sides, len(values))
