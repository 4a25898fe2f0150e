"""What a data set holds, and what is wrong with it: counts that can be printed or stored."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedpriv.data.document import Document, DocumentSet, Question, Word
from fedpriv.runtime.terminal import visible

REASONS = 5
"""Skipped files that are named; the others are counted."""

LARGEST = 5
"""Providers that are named."""

SIZES = (2, 5, 10)
"""Documents of a provider, at least; for each, how many providers and documents there are."""


def survey(found: DocumentSet) -> dict[str, Any]:
    """Counts documents, providers, words, entities, questions and problems.

    Returns:
        What JSON can hold; sizes of pages are in pixels.
    """
    documents = found.documents
    return {
        "data": found.name,
        "documents": len(documents),
        "splits": dict(Counter(document.split or "(none)" for document in documents)),
        "pages": _pages(documents),
        "providers": _providers(documents),
        "words": _words(documents),
        "entities": _entities(found),
        "questions": dict(Counter(_key(q) for document in documents for q in document.questions)),
        "problems": _problems(found),
    }


def _pages(documents: Sequence[Document]) -> dict[str, list[int]]:
    widths = [document.size[0] for document in documents]
    heights = [document.size[1] for document in documents]
    return {"width": _range(widths), "height": _range(heights)}


def _range(values: Sequence[int]) -> list[int]:
    """Returns smallest, median (rounded) and largest; nothing of nothing."""
    return [min(values), round(statistics.median(values)), max(values)] if values else []


def _providers(documents: Sequence[Document]) -> dict[str, Any]:
    count = Counter(document.provider for document in documents)
    return {
        "count": len(count),
        "of_at_least": {
            str(size): {
                "providers": sum(n >= size for n in count.values()),
                "documents": sum(n for n in count.values() if n >= size),
            }
            for size in SIZES
        },
        "largest": [list(pair) for pair in count.most_common(LARGEST)],
    }


def _words(documents: Sequence[Document]) -> dict[str, Any]:
    counts = [len(document.words) for document in documents]
    return {"count": sum(counts), "per_document": _range(counts)}


def _entities(found: DocumentSet) -> dict[str, int]:
    """Returns the count of every label, also of those that do not occur, most frequent first."""
    count = Counter(entity.label for document in found.documents for entity in document.entities)
    every = {label: count[label] for label in (*found.labels, *count)}
    return dict(sorted(every.items(), key=lambda pair: -pair[1]))


# ------------------------------------------------------------------------------------- problems


def _problems(found: DocumentSet) -> dict[str, Any]:
    documents = found.documents
    with_labels = documents if found.labels else ()
    missing = Counter(_key(q) for document in documents for q in _unanswerable(document))
    return {
        "skipped": len(found.skipped),
        "reasons": [str(error) for error in found.skipped[:REASONS]],
        "documents_without_words": sum(not document.words for document in documents),
        "documents_without_entities": sum(not document.entities for document in with_labels),
        "words_at_the_edge": sum(
            _at_edge(word, document.size) for document in documents for word in document.words
        ),
        "answers_not_on_the_page": dict(missing),
    }


def _key(question: Question) -> str:
    return question.key or "without a key"


def _at_edge(word: Word, size: tuple[int, int]) -> bool:
    """Whether the box ends at the page's edge: a reader may have clipped it."""
    x0, y0, x1, y1 = word.box
    return x0 <= 0 or y0 <= 0 or x1 >= size[0] or y1 >= size[1]


def _unanswerable(document: Document) -> list[Question]:
    if not document.questions:
        return []
    page = _plain(word.text for word in document.words)
    return [
        question
        for question in document.questions
        if not any(_plain([answer]) in page for answer in question.answers)
    ]


def _plain(texts: Iterable[str]) -> str:
    """Returns letters and digits only, or every sign of a text that has neither, case folded."""
    joined = "".join(texts).casefold()
    kept = "".join(sign for sign in joined if sign.isalnum())
    return kept or re.sub(r"\s", "", joined)


# ------------------------------------------------------------------------------------ the table


def as_table(facts: Mapping[str, Any]) -> str:
    """Returns what `survey` found as lines for people."""
    rows: list[tuple[str, str]] = [
        ("data", facts["data"]),
        ("read by", facts.get("source", "")),
        ("documents", f"{facts['documents']:,}"),
        ("splits", _counts(facts["splits"])),
        ("pages", _page_line(facts["pages"])),
        *_provider_rows(facts["providers"]),
        ("words", _word_line(facts["words"])),
        *_count_rows("entities", facts["entities"]),
        *_count_rows("questions", facts["questions"]),
        *_problem_rows(facts["problems"]),
    ]
    names = [name for name, _ in rows]
    width = max(map(len, names))
    lines = (f"{name:<{width}}  {text}".rstrip() for name, text in rows if name or text)
    # A line feed in a provider's name would begin a row of its own.
    return "\n".join(visible(line).replace("\n", "\\n") for line in lines)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"


def _page_line(pages: Mapping[str, Sequence[int]]) -> str:
    if not pages["width"]:
        return "none"
    (w0, w1, w2), (h0, h1, h2) = pages["width"], pages["height"]
    return f"{_span(w0, w2)} × {_span(h0, h2)} pixels, median {w1:,} × {h1:,}"


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _word_line(words: Mapping[str, Any]) -> str:
    if not words["per_document"]:
        return "none"
    low, middle, high = words["per_document"]
    return f"{words['count']:,}, in a document {_span(low, high)}, median {middle:,}"


def _provider_rows(providers: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("providers", f"{providers['count']:,}")]
    if not any(those["providers"] for those in providers["of_at_least"].values()):
        return (
            [*rows, ("", "every document has a provider of its own")]
            if providers["count"]
            else rows
        )
    for size, those in providers["of_at_least"].items():
        together = f"{those['documents']:,} documents in all"
        rows.append(("", f"{those['providers']:,} with {size} or more ({together})"))
    largest = ", ".join(f"{name} {count:,}" for name, count in providers["largest"])
    return [*rows, ("", f"largest: {largest}")] if largest else rows


def _count_rows(name: str, counts: Mapping[str, int]) -> list[tuple[str, str]]:
    if not counts:
        return [(name, "none")]
    width = max(map(len, counts))
    lines = [f"{key:<{width}}  {count:>7,}" for key, count in counts.items()]
    return [(name, f"{sum(counts.values()):,}"), *(("", line) for line in lines)]


def _problem_rows(problems: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = [f"{problems['skipped']:,} skipped"]
    lines += [f"  {reason}" for reason in problems["reasons"]]
    unnamed = problems["skipped"] - len(problems["reasons"])
    if unnamed:
        lines.append(f"  and {unnamed:,} more")
    lines.append(f"{problems['documents_without_words']:,} documents without words")
    lines.append(f"{problems['documents_without_entities']:,} documents without entities")
    edge = problems["words_at_the_edge"]
    lines.append(f"{edge:,} words whose box ends at the page's edge (perhaps clipped)")
    missing = problems["answers_not_on_the_page"]
    by_key = f" ({_counts(missing)})" if missing else ""
    lines.append(f"{sum(missing.values()):,} questions whose answer is not on the page{by_key}")
    return [("problems", lines[0]), *(("", line) for line in lines[1:])]
