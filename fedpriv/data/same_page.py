"""Which pages are there twice, as far as their file, their pixels or their words tell.

Words in the same places tell of another format or resolution. They cannot tell two forms apart
that differ in handwriting alone, so whoever is told of twins should look at them. A page that is
there twice may be held out and trained on, or lie under two providers. Then scores on held-out
pages, and what is protected of a provider, are not what they seem.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from fedpriv.data.document import Document
from fedpriv.data.drawn_page import DrawnPage, LazyPage
from fedpriv.data.page_files import image_digest
from fedpriv.runtime.cache import json_digest

FEW = 10
"""Fewer words than these may be the same by chance, such as a name on a card."""

MOST = 20
"""With so many pages of the same few words a further one is compared."""

ALIKE = 8.0
"""Mean difference of two small grey pictures, of 255, up to which they are of one page. Pages that
were saved as JPEG, or made a third smaller, differ by up to 4; cards with the same name but other
marks by 10 and more, other receipts by 9 and more."""


def twins(documents: Sequence[Document]) -> list[list[int]]:
    """Returns the places of pages that are the same, group by group.

    Two pages are the same if they are one file or picture, or have the same words in the same
    places; where there are few words, the pictures must be alike. Pages of one document are its
    own affair, pages that are drawn from settings are only compared by those, and pages of one
    colour are no pictures of anything.
    """
    seen: dict[tuple[str, str], list[int]] = defaultdict(list)
    group = list(range(len(documents)))
    for place, page in enumerate(documents):
        for mark in _marks(page):
            others = (at for at in seen[mark][:MOST] if _same(mark[0], page, documents[at]))
            if group[place] == place and (other := next(others, None)) is not None:
                group[place] = group[other]
            seen[mark].append(place)
    members = defaultdict(list)
    for place, leader in enumerate(group):
        members[leader].append(place)
    return [m for m in members.values() if len({documents[place].whole for place in m}) > 1]


def _marks(page: Document) -> Iterator[tuple[str, str]]:
    """Yields what a page may have in common with its twin."""
    yield "picture", picture_digest(page)
    if not isinstance(page.page, DrawnPage) and page.words:
        yield "words" if len(page.words) >= FEW else "few", words_digest(page)


def _same(kind: str, page: Document, other: Document) -> bool:
    """Returns whether two pages that have a mark in common are the same."""
    if kind == "few":
        return difference(page, other) <= ALIKE
    return kind == "words" or not plain(page)


def plain(page: Document) -> bool:
    """Returns whether all pixels of a page are the same, as on a blank page."""
    pixels = np.asarray(page.image())
    return bool((pixels == pixels[0, 0]).all())


def picture_digest(page: Document) -> str:
    """Returns a hash of the file with the page, of its pixels, or of what draws it."""
    if isinstance(page.page, Path):
        return image_digest(page.page)
    if isinstance(page.page, LazyPage):
        return json_digest(page.page.picture_key())
    pixels = np.ascontiguousarray(page.page)
    return hashlib.sha256(str(pixels.shape).encode() + pixels.data).hexdigest()


def words_digest(page: Document) -> str:
    """Returns a hash of the words and their places, in thousandths of the page."""
    width, height = page.size
    sides = (width, height, width, height)
    said = [
        (word.text, [round(1000 * at / side) for at, side in zip(word.box, sides, strict=True)])
        for word in page.words
    ]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def difference(one: Document, other: Document) -> float:
    """Returns the mean difference of two pages, made grey and small, of 255."""
    first, second = (
        np.asarray(page.image().convert("L").resize((32, 32), Image.Resampling.BOX), np.float64)
        for page in (one, other)
    )
    return float(np.abs(first - second).mean())


def told(documents: Sequence[Document], groups: Sequence[Sequence[int]]) -> list[str]:
    """Returns a line for each group of the same pages, with their names."""
    return [" = ".join(documents[place].id for place in members) for members in groups]


def warning(
    documents: Sequence[Document], trained: Iterable[int], held: Iterable[int], most: int = 3
) -> str:
    """Returns what a run has to say of pages that are there twice; empty if there are none.

    Args:
        documents: of the run.
        trained: places of those that are trained on.
        held: places of those that are held out.
        most: pairs that are named.
    """
    if not (groups := twins(documents)):
        return ""
    on, out = set(trained), set(held)
    both = [m for group in groups if on & {*group} for m in group if m in out]
    several = [group for group in groups if len({documents[m].provider for m in group}) > 1]
    names = told(documents, groups)
    more = ", …" if len(names) > most else ""
    count = sum(map(len, groups)) - len(groups)
    return (
        f"{'1 page is' if count == 1 else f'{count} pages are'} there twice "
        f"({', '.join(names[:most])}{more}): {len(both)} of {len(out)} held-out pages are trained "
        f"on too, and {len(several)} are under two providers. Scores on held-out pages, "
        "membership, and privacy for providers do not hold for these. Look at them: of a page that "
        "is really there twice, remove one"
    )
