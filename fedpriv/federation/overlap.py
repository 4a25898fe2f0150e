"""Data that lie in more than one place: public and private documents, and the data of several runs.

Pretraining documents are public because the user says so. Where one of them is also trained on in
private, the model has learnt it without any noise, and ε says nothing of it.

What several runs were trained on adds up. So each private run notes of whom its data were: traces
of documents and providers, keyed by a secret of the user, so that nobody else can tell from a run
folder whether a document is in it (`fedpriv.privacy.joint` reads them).
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedpriv.data.document import Document, providers
from fedpriv.data.documents_on_disk import page_digest
from fedpriv.data.same_page import ALIKE, FEW, difference, picture_digest, plain, words_digest
from fedpriv.federation.dataset import FederatedDataset
from fedpriv.runtime.cache import user_secret

NAMED = 5
"""So many documents are named; of the others, their number is told."""


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
            by_words.setdefault(words_digest(page), []).append(page)
    same = []
    for page in private:
        others = by_words.get(words_digest(page), []) if page.words else []
        known = bool(others) and len(page.words) >= FEW
        same.append(known or any(difference(page, other) <= ALIKE for other in others))
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
    words = [words_digest(page)] if len(page.words) >= FEW else []
    return [f"{page.whole} of {page.provider}", picture_digest(page), *words]


def _pixels_digest(page: Document) -> str:
    """Returns a hash of the page's pixels; "" if they are all the same, as on a blank page."""
    return "" if plain(page) else page_digest(page)
