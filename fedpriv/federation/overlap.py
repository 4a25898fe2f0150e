"""Data that lie in more than one place: public and private documents, and the data of several runs.

Pretraining documents are public because the user says so. Where one of them is also trained on in
private, the model has learnt it without any noise, and ε says nothing of it.

What several runs were trained on adds up. So each private run notes of whom its data were: traces
of documents and providers, keyed by a secret of the user, so that nobody else can tell from a run
folder whether a document is in it (`fedpriv.privacy.joint` reads them).
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedpriv.data.document import Document, providers
from fedpriv.data.documents_on_disk import page_digest
from fedpriv.data.drawn_page import LazyPage
from fedpriv.federation.dataset import FederatedDataset
from fedpriv.runtime.cache import files_digest, json_digest, user_secret

NAMED = 5
"""So many documents are named; of the others, their number is told."""

FEW = 10
"""Fewer words than these may be the same by chance, such as a name on a card."""

ALIKE = 8.0
"""Mean difference of two small grey pictures, of 255, up to which they are of one page. Pages that
were saved as JPEG, or made a third smaller, differ by up to 4; cards with the same name but other
marks by 10 and more, other receipts by 9 and more."""


def published(private: Sequence[Document], public: Sequence[Document]) -> list[str]:
    """Returns the private documents of which a page is public too, by `Document.whole`.

    Two pages are the same if they have the same words in the same places, whatever became of the
    image (another format, another resolution), or the same pixels, whatever was read there. Where
    there are few words, the images must be alike. Pages of one colour are no pictures of anything,
    and the same only if their words are.
    """
    by_words: dict[str, list[Document]] = {}
    for page in public:
        if page.words:
            by_words.setdefault(_words_digest(page), []).append(page)
    same = []
    for page in private:
        others = by_words.get(_words_digest(page), []) if page.words else []
        known = bool(others) and len(page.words) >= FEW
        same.append(known or any(_difference(page, other) <= ALIKE for other in others))
    # Images are decoded only where they could tell: another one of that size is public.
    left = {page.size for page, known in zip(private, same, strict=True) if not known}
    sizes = left & {page.size for page in public}
    pixels = {_pixels_digest(page) for page in public if page.size in sizes} - {""}
    found = [
        page.whole
        for page, known in zip(private, same, strict=True)
        if known or (page.size in sizes and _pixels_digest(page) in pixels)
    ]
    return list(dict.fromkeys(found))


def published_problems(private: Sequence[Document], public: Sequence[Document]) -> list[str]:
    """Returns what `published` finds as a sentence for the ledger; empty if it finds nothing."""
    names = published(private, public)
    if not names:
        return []
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    total = len({page.whole for page in private})
    were = "was" if len(names) == 1 else "were"
    return [
        f"{len(names)} of {total} training documents {were} read in pretraining, as public ones "
        f"and without noise: {', '.join(names[:NAMED])}{more}"
    ]


def traces(bound: FederatedDataset, data: str) -> dict[str, Any]:
    """Returns the content of `units.json`: traces of what a run is trained on.

    A document is known by its words and their places, whatever the image's format, path or
    resolution; by its file, or what draws it; and by its name, with its provider's. One of them is
    enough, so that a page that was read otherwise is known again. A provider is known by its name,
    and a client by what it holds.

    Args:
        bound: the data.
        data: their digest, which is the only trace of plain arrays.
    """
    secret = user_secret()

    def trace(kind: str, what: object) -> str:
        return hmac.digest(secret, f"{kind} {what}".encode(), "sha256").hex()[:20]

    pages = [[trace("document", one) for one in _known_by(page)] for page in bound.documents]
    columns = bound.train.columns
    held = [
        sorted(pages[i][-1] for i in np.unique(columns["document"][rows])) if pages else data
        for rows in bound.rows
    ]
    encoded = [(name, str(c.dtype), c.shape[1:]) for name, c in sorted(columns.items())]
    return {
        "secret": trace("", "its own"),
        "data": [trace("data", data)] if data else [],
        "documents": sorted({one for page in pages for one in page}),
        "providers": sorted(trace("provider", name) for name in providers(bound.documents)),
        "clients": sorted(trace("client", own) for own in held if own),
        "encoding": [trace("encoding", encoded)],
    }


def _known_by(page: Document) -> list[str]:
    if isinstance(page.page, Path):
        drawn = files_digest([page.page])
    elif isinstance(page.page, LazyPage):
        drawn = json_digest(page.page.key())
    else:
        drawn = page_digest(page)
    words = [_words_digest(page)] if len(page.words) >= FEW else []
    return [f"{page.whole} of {page.provider}", drawn, *words]


def _difference(one: Document, other: Document) -> float:
    """Returns the mean difference of two pages, made grey and small, of 255."""
    first, second = (
        np.asarray(page.image().convert("L").resize((32, 32), Image.Resampling.BOX), np.float64)
        for page in (one, other)
    )
    return float(np.abs(first - second).mean())


def _pixels_digest(page: Document) -> str:
    """Returns a hash of the page's pixels; "" if they are all the same, as on a blank page."""
    pixels = np.asarray(page.image())
    return "" if (pixels == pixels[0, 0]).all() else page_digest(page)


def _words_digest(page: Document) -> str:
    """Returns a hash of the words and their places, in thousandths of the page."""
    width, height = page.size
    sides = (width, height, width, height)
    said = [
        (word.text, [round(1000 * at / side) for at, side in zip(word.box, sides, strict=True)])
        for word in page.words
    ]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()
