"""What readers promise of their documents, checked whoever wrote the reader.

A box that is not on its page, or width and height the wrong way round, end in no error: the model
learns from other places than those of the words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.data.document import DataError, DataErrors, Document, DocumentSet, DocumentSource
from fedpriv.data.drawn_page import LazyPage
from fedpriv.data.folder.progress import tell
from fedpriv.data.hub.boxes import Unit, fitting, inked, mean_of
from fedpriv.data.page_files import image_size
from fedpriv.data.readers.annotation import encodable

LOOKED_AT = 5
"""Pages whose ink is looked at."""
MISSED = 0.02
"""The share of the ink in boxes, times that of boxes with ink, below which something is wrong."""

Look = Callable[[Document, tuple[str, ...] | None], Iterator[str]]


def load(source: DocumentSource) -> DocumentSet:
    """Returns what a source reads, once it is as `Document` and `DocumentSet` say.

    Pages that are drawn when somebody looks at them are checked then, by `Checked`.

    Raises:
        DataError: if the source cannot read a file.
        DataErrors: with one message for each document that is not as it should be.
        TypeError: if the source returns no `DocumentSet`.
    """
    found = source.load()
    kind = type(source)
    if not isinstance(found, DocumentSet):
        raise TypeError(f"{kind.__qualname__}.load() returned no DocumentSet, but {found!r:.80}")
    seen = Counter(document.id for document in found.documents)
    twice = [f"{n} documents have the id {name!r}" for name, n in seen.items() if n > 1]
    errors = [DataError(found.name, f"{line}: each needs its own") for line in twice]
    for document in found.documents:
        lazy = isinstance(document.page, LazyPage)
        errors += _errors(document, _of_names if lazy else _of_all, found.name, found.labels)
    errors += [] if errors else _off_the_ink(found)
    if errors:
        raise DataErrors(f"{found.name}, read by {kind.__module__}.{kind.__qualname__}", errors)
    return found


def _off_the_ink(found: DocumentSet) -> list[DataError]:
    """Returns why boxes cannot be pixels, if they miss what is on the pages and would meet it else.

    If they merely miss it, that is told: a page may have words that are not printed.
    """
    eager = [d for d in found.documents if not isinstance(d.page, LazyPage) and d.words]
    scores: list[dict[Unit, float]] = []
    for document in eager[:: len(eager) // LOOKED_AT + 1]:
        pixels = document.pixels()
        if (pixels == pixels[0, 0]).all():  # nothing is printed
            continue
        boxes = [word.box for word in document.words]
        scores.append(inked(boxes, pixels, fitting(boxes, document.size)))
    own = mean_of("pixel", scores)
    others: tuple[Unit, ...] = ("share", "thousandth")
    for unit in others:
        if scores and mean_of(unit, scores) > 2 * max(own, 0.01):
            why = f"its boxes lie on what is printed as {unit}s of the page, and miss it as pixels"
            return [DataError(found.name, f"{why}; `Word.box` is in pixels of the page")]
    if scores and own < MISSED:
        tell(
            f"{found.name}: on {len(scores)} pages that were looked at, boxes of words hold hardly "
            "any of what is printed: are they left, top, right, bottom, in pixels of the page?"
        )
    return []


def check(document: Document, found: DocumentSet) -> None:
    """Checks one document, its drawing too.

    Raises:
        DataError: if it is not as it should be.
    """
    for error in _errors(document, _of_all, found.name, found.labels):
        raise error


class Checked(Sequence[Document]):
    """Documents whose pages are checked as they are read, if code that is none of ours draws them.

    Their drawings are then in memory for whoever reads them next. Raises `DataError`.

    Args:
        documents: in order.
    """

    def __init__(self, documents: Sequence[Document]) -> None:
        self._documents = documents

    def __len__(self) -> int:
        """Returns how many there are."""
        return len(self._documents)

    def __getitem__(self, place: Any) -> Any:
        """Returns a document, or several, as they are."""
        found = self._documents[place]
        page = getattr(found, "page", None)
        if isinstance(page, LazyPage):
            by = getattr(page, "draw", type(page))
            if not by.__module__.startswith("fedpriv."):
                for error in _errors(found, _of_all, by.__module__, None):
                    raise error
        return found


def _errors(
    document: Document, look: Look, source: str, labels: tuple[str, ...] | None
) -> list[DataError]:
    """Returns the first thing that is wrong with a document."""
    try:
        why = next(look(document, labels), None)
    except DataError as error:
        return [error]
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        why = f"is not as fedpriv.data.document.Document says ({type(error).__name__}: {error})"
    return [DataError(f"{source}, {document.id}", why)] if why else []


def _of_names(page: Document, labels: tuple[str, ...] | None) -> Iterator[str]:
    """Yields what is wrong with a document before it is drawn."""
    for name in ("id", "provider"):
        value = getattr(page, name)
        if not isinstance(value, str) or not encodable(value):
            yield f"{name}={value!r}: expected text that is not empty"
    if len(page.size) != 2 or not all(isinstance(n, int | np.integer) and n > 0 for n in page.size):
        yield f"size={page.size}: expected width and height in whole pixels"


def _of_all(page: Document, labels: tuple[str, ...] | None) -> Iterator[str]:
    """Yields what is wrong with a document."""
    yield from _of_names(page, labels)
    width, height = page.size
    yield from _of_pixels(page, width, height)
    boxes = np.array([word.box for word in page.words], np.float64).reshape(-1, 4)
    low, high = boxes[:, :2], boxes[:, 2:]
    off = ~((low >= -0.5) & (low <= high) & (high <= np.array([width, height]) + 0.5)).all(axis=1)
    for at in np.flatnonzero(off)[:1]:
        word = page.words[at]
        yield (
            f"word {at}, {word.text!r:.40}: its box {tuple(map(float, word.box))} is not left, "
            f"top, right, bottom on a page of {width} × {height} pixels "
            "(fedpriv.data.document.box_on_page clips what sticks out a little)"
        )
    for at, word in enumerate(page.words):
        if not encodable(word.text).strip():
            yield f"word {at} is blank"
        if not all(isinstance(side, int | float | np.number) for side in word.box):
            yield f"word {at}: its box {word.box} is not of numbers"
        if not isinstance(word.segment, int | np.integer):
            yield f"word {at}: segment={word.segment!r}: expected a whole number"
    for entity in page.entities:
        places = entity.words
        if labels is not None and entity.label not in labels:
            yield f"its entity {entity.label!r} is not among the labels {', '.join(sorted(labels))}"
        if not places or list(places) != sorted(set(places)):
            yield f"entity {entity.label!r}: words={places}: expected ascending places of words"
        if places and not 0 <= places[0] <= places[-1] < len(page.words):
            yield f"entity {entity.label!r}: words={places}: the page has {len(page.words)} words"
    for question in page.questions:
        if isinstance(question.answers, str) or not all(
            isinstance(one, str) for one in (question.text, *question.answers)
        ):
            yield f"question {question.text!r:.60}: expected texts, got {question.answers!r:.60}"
    for one, other in page.links:
        if not (0 <= one < len(page.entities) and 0 <= other < len(page.entities)):
            yield f"link {one, other}: the page has {len(page.entities)} entities"


def _of_pixels(page: Document, width: int, height: int) -> Iterator[str]:
    """Yields what is wrong with a page as a picture, or with its size."""
    if isinstance(page.page, Path):
        there = image_size(page.page)
    else:
        pixels = page.page.pixels() if isinstance(page.page, LazyPage) else page.page
        if not isinstance(pixels, np.ndarray):
            yield f"page: {type(pixels).__name__}: expected a Path, an array or a LazyPage"
        if pixels.dtype != np.uint8 or pixels.shape[2:] not in ((), (3,)) or pixels.ndim < 2:
            yield (
                f"page: {pixels.dtype} of shape {pixels.shape}: expected uint8 of shape "
                "(height, width) or (height, width, 3)"
            )
        there = (pixels.shape[1], pixels.shape[0])
    if (width, height) != there:
        turned = ", the other way round" if (height, width) == there else ""
        yield (
            f"size {width} × {height}, but the page has {there[0]} × {there[1]} pixels{turned} "
            "(width comes first)"
        )
