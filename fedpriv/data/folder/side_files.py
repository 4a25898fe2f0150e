"""Words that lie beside a page: our JSON, docTR's, AWS Textract's, hOCR or ALTO.

The format is told by the content. All of them become pages of words in the file's order, with
boxes in the units that the file states.

- Ours: ``{"size": [width, height], "words": [{"text": "RM", "box": [l, t, r, b], "line": 0}, …]}``,
  or ``{"pages": [that, …]}``. Boxes are pixels of the page; of another size, if `size` says so,
  shares of its sides with ``[1, 1]``, and thousandths with ``[1000, 1000]``.
- docTR: ``Document.export()``, https://mindee.github.io/doctr.
- Textract: the answer of DetectDocumentText or AnalyzeDocument.
- hOCR 1.2: ``ocr_page``, ``ocr_line`` and ``ocrx_word``, well-formed as XML.
- ALTO 2 to 4: ``Page``, ``TextLine`` and ``String``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.data.document import Box, DataError, Word, check_file
from fedpriv.data.folder.markup import read_markup
from fedpriv.data.paths import inside
from fedpriv.data.readers.annotation import (
    around,
    at,
    box_of,
    encodable,
    fitted,
    member,
    numbers,
    scale_to,
    text_of,
)
from fedpriv.data.reading import parse_json, shown

MOST_BYTES = 200_000_000
"""Largest side file that is read."""

UNIT = (1.0, 1.0)
"""The size of a page whose boxes are shares of its sides."""
THOUSAND = (1000.0, 1000.0)
"""The size of a page whose boxes are thousandths of its sides, as LayoutLM takes them."""

TEXTS = ("text", "Text", "content", "full_text", "fulltext", "lines", "value")
"""Keys under which JSON has what stands on a page, as a text or a list of texts."""

EXPECTED = "our JSON, docTR's, Textract's, hOCR or ALTO"


@dataclass(frozen=True, slots=True)
class SidePage:
    """The words of one page.

    Attributes:
        size: width and height that the boxes refer to; None if they are pixels of the page.
        words: text, box and number of the line.
    """

    size: tuple[float, float] | None
    words: list[tuple[str, Box, int]]


def read_side_file(root: Path, name: str) -> list[SidePage]:
    """Returns the pages of a side file.

    Raises:
        DataError: if it is of no known format, or malformed.
    """
    path = inside(root, name)
    check_file(path)
    if path.stat().st_size > MOST_BYTES:
        raise DataError(path, f"{path.stat().st_size:,} bytes: expected at most {MOST_BYTES:,}")
    return parse_side_file(path, path.read_bytes())


def parse_side_file(path: Path, content: bytes) -> list[SidePage]:
    """Returns the pages of a side file's content; `path` is for errors."""
    start = content.lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n")[:1]
    if start == b"<":
        with at(path, ""):
            return [SidePage(size, words) for size, words in read_markup(content)]
    if start not in (b"{", b"["):
        raise DataError(path, f"words beside a page: expected {EXPECTED}, found other content")
    value = parse_json(path, _decoded(path, content))
    with at(path, ""):
        return _pages(value)


def _pages(value: Any) -> list[SidePage]:
    """Returns the pages of a JSON side file."""
    answers = value if isinstance(value, list) else [value]
    if answers and all(isinstance(one, dict) and "Blocks" in one for one in answers):
        # Textract answers in parts, each with a token that asks for the next.
        if answers[-1].get("NextToken"):
            raise ValueError("a part of Textract's answer: NextToken says that there is more")
        for status in (one.get("JobStatus", "SUCCEEDED") for one in answers):
            if status != "SUCCEEDED":
                raise ValueError(f"Textract's answer is not whole: JobStatus {shown(status)}")
        return _textract([block for one in answers for block in member(one, "Blocks", list)])
    if isinstance(value, dict):
        if "words" in value:
            return [_with_text(_ours(value), value)]
        pages = member(value, "pages", list) if "pages" in value else []
        if pages and all(isinstance(page, dict) and "blocks" in page for page in pages):
            return [_with_text(_doctr(page), page) for page in pages]
        if pages and all(isinstance(page, dict) and "words" in page for page in pages):
            return [_with_text(_ours(page), page) for page in pages]
    keys = ", ".join(shown(key) for key in list(value)[:8]) if isinstance(value, dict) else "a list"
    raise ValueError(f"words beside a page: expected {EXPECTED}; found JSON with {keys}")


def _with_text(page: SidePage, value: Any) -> SidePage:
    """Returns a page as it is.

    Raises:
        ValueError: if it has no words, and text that is read as none.
    """
    if not page.words and (text := _text_in(value)):
        raise ValueError(f"it holds text, such as {shown(text)}, and no word was found in it")
    return page


def _text_in(value: Any) -> str:
    """Returns the first text under a key that holds text of pages; empty if there is none."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            texts = [v for k, v in one.items() if k in TEXTS]
            texts += [v for many in texts if isinstance(many, list) for v in many]
            found = (text.strip() for text in texts if isinstance(text, str))
            if text := next(filter(None, found), ""):
                return text
            left += one.values()
        elif isinstance(one, list):
            left += one
    return ""


def words_on(page: SidePage, size: tuple[int, int]) -> tuple[Word, ...]:
    """Returns the words with boxes in the pixels of a page of `size`; blank words are left out.

    Raises:
        ValueError: if a box does not fit the page, or the stated size is of another shape.
    """
    if page.size is None:
        scale = (1.0, 1.0)
    elif page.size in (UNIT, THOUSAND):
        scale = (size[0] / page.size[0], size[1] / page.size[1])
    else:
        width, height = page.size
        if not (0 < width < 1e9 and 0 < height < 1e9):
            raise ValueError(f"a page of {width:g} × {height:g}: expected two positive numbers")
        scale = _scale(size, (width, height))
    return tuple(
        Word(encodable(text).strip(), fitted(box, scale, size), line)
        for text, box, line in page.words
        if text.strip()
    )


def _scale(size: tuple[int, int], stated: tuple[float, float]) -> tuple[float, float]:
    # Fractions of a unit do not matter to the shape, and `scale_to` takes whole numbers.
    fine = 1000
    try:
        scale_to(size, (max(1, round(stated[0] * fine)), max(1, round(stated[1] * fine))))
    except ValueError:
        turned = " It is turned by its EXIF orientation?" if size[::-1] == stated else ""
        raise ValueError(
            f"the image has {size[0]} × {size[1]} pixels, which is no scaled form of the stated "
            f"{stated[0]:g} × {stated[1]:g}.{turned}"
        ) from None
    return size[0] / stated[0], size[1] / stated[1]


def _decoded(path: Path, content: bytes) -> str:
    try:
        # As JSON is written: UTF-8, -16 or -32, with or without a mark.
        return content.decode(json.detect_encoding(content))
    except UnicodeDecodeError as error:
        raise DataError(path, f"not text: {error}") from error


def _ours(page: Any) -> SidePage:
    size: tuple[float, float] | None = None
    if page.get("size") is not None:
        width, height = numbers(page["size"], 2)
        size = (width, height)
    words: list[tuple[str, Box, int]] = []
    for number, word in enumerate(member(page, "words", list)):
        try:
            line = member(word, "line", int) if "line" in word else number
            words.append((text_of(word), box_of(word.get("box")), line))
        except (TypeError, ValueError) as error:
            raise ValueError(f"words[{number}]: {error}") from error
    return SidePage(size, words)


def _doctr(page: Any) -> SidePage:
    words: list[tuple[str, Box, int]] = []
    lines = (
        line for block in member(page, "blocks", list) for line in member(block, "lines", list)
    )
    for number, line in enumerate(lines):
        words_of_line = member(line, "words", list)
        if not words_of_line and (text := _text_in(line)):
            raise ValueError(f"a line of text, {shown(text)}, without words")
        for word in words_of_line:
            corners = member(word, "geometry", list)
            flat = [side for corner in corners for side in numbers(corner, 2)]
            if len(corners) < 2:
                raise ValueError(f"expected two corners or more, found {shown(corners)}")
            words.append((text_of(word, "value"), around(flat), number))
    return SidePage(UNIT, words)


def _textract(blocks: list[Any]) -> list[SidePage]:
    """Returns the pages; words in the order of their lines, others after them."""
    by_id: dict[str, Any] = {}
    pages: dict[int, SidePage] = {}
    for block in blocks:
        kind, number = member(block, "BlockType", str), block.get("Page", 1)
        if type(number) is not int or number < 1:
            raise ValueError(f"expected a page from 1 on, found {shown(number)}")
        if kind in ("PAGE", "WORD", "LINE"):
            pages.setdefault(number, SidePage(UNIT, []))
        if kind == "WORD":
            by_id[member(block, "Id", str)] = block
    used: set[str] = set()
    rows = [(block, _children(block)) for block in blocks if block["BlockType"] == "LINE"]
    lines = [[one for one in children if one in by_id] for _, children in rows]
    read = {word for one in by_id.values() for word in text_of(one, "Text").split()}
    for (block, _), own in zip(rows, lines, strict=True):
        text = _text_in(block)
        if not own and not set(text.split()) <= read:
            raise ValueError(f"a LINE of text, {shown(text)}, without its WORDs")
    lines += [[one] for one in by_id.keys() - {one for line in lines for one in line}]
    place = {one: at for at, one in enumerate(by_id)}
    ordered = lines[: len(rows)] + sorted(lines[len(rows) :], key=lambda line: place[line[0]])
    for number, line in enumerate(ordered):
        for one in line:
            if one not in used:
                used.add(one)
                block = by_id[one]
                box = member(member(block, "Geometry", dict), "BoundingBox", dict)
                sides = [box.get(key) for key in ("Left", "Top", "Width", "Height")]
                left, top, width, height = numbers(sides, 4)
                corners = (left, top, left + width, top + height)
                pages[block.get("Page", 1)].words.append((text_of(block, "Text"), corners, number))
    if not pages:
        raise ValueError("expected blocks of the type PAGE, LINE or WORD, found none")
    if set(pages) != set(range(1, len(pages) + 1)):
        raise ValueError(f"expected pages from 1 to {len(pages)}, found {shown(sorted(pages))}")
    return [pages[number] for number in sorted(pages)]


def _children(block: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    relations = block.get("Relationships") or []
    if not isinstance(relations, list):
        raise ValueError(f"expected a list of relationships, found {shown(relations)}")
    for relation in relations:
        if member(relation, "Type", str) == "CHILD":
            found += [one for one in member(relation, "Ids", list) if isinstance(one, str)]
    return found
