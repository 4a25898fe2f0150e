"""Counts the contents and the problems of a data set, to be printed or stored."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fedpriv.data.document import Document, DocumentSet, Question
from fedpriv.data.folder.page import FolderPage
from fedpriv.data.folder.reader import first_lines
from fedpriv.data.hub.page import HubPage
from fedpriv.data.same_page import told, twins
from fedpriv.report.wording import counted
from fedpriv.runtime.terminal import visible

REASONS = 50
"""How many skipped files the table names; the others are only counted."""

LARGEST = 5
"""How many providers are named."""

SIZES = (2, 5, 10)
"""Providers are counted that have at least so many documents."""


ORIGINS = {
    "side": "side files",
    "text": "text layers of PDFs",
    "ocr": "Tesseract",
    "given": "the data set",
    "none": "nowhere",
}
"""Names of what words come from."""


def survey(found: DocumentSet) -> dict[str, Any]:
    """Counts documents, providers, words, entities, questions and problems.

    Returns:
        What JSON can hold. Sizes of pages are in pixels; a range is the smallest, the median
        (rounded) and the largest value, or empty. Entities are counted for every label, including
        those that do not occur, the most frequent first.
    """
    documents = found.documents
    twice = first_lines(told(documents, twins(documents)))
    providers = Counter(document.provider for document in documents)
    clients: dict[str, set[str]] = {document.provider: set() for document in documents}
    for document in documents:
        clients[document.provider] |= {document.client} - {""}
    several = {name: sorted(at) for name, at in clients.items() if len(at) > 1}
    words = [len(document.words) for document in documents]
    entities = Counter(entity.label for document in documents for entity in document.entities)
    every = {label: entities[label] for label in (*found.labels, *entities)}
    return {
        "data": found.name,
        "documents": len(documents),
        "splits": dict(Counter(document.split or "(none)" for document in documents)),
        "pages": {
            "width": _range([document.size[0] for document in documents]),
            "height": _range([document.size[1] for document in documents]),
        },
        "providers": {
            "count": len(providers),
            "of_at_least": {
                str(size): {
                    "providers": sum(n >= size for n in providers.values()),
                    "documents": sum(n for n in providers.values() if n >= size),
                }
                for size in SIZES
            },
            "largest": [list(pair) for pair in providers.most_common(LARGEST)],
        },
        "clients": {"count": len(set().union(*clients.values())), "shared_providers": several},
        "words": {"count": sum(words), "per_document": _range(words)},
        "entities": dict(sorted(every.items(), key=lambda pair: -pair[1])),
        "questions": dict(Counter(_key(q) for document in documents for q in document.questions)),
        "problems": _problems(found),
        "words_from": dict(Counter(_origins(documents))),
        "remarks": {topic: list(lines) for topic, lines in found.remarks.items()}
        | ({"pages that are there twice": twice} if twice else {}),
    }


def _origins(documents: Iterable[Document]) -> Iterator[str]:
    """Yields where the words of a page come from, for pages whose reader chooses."""
    for document in documents:
        if isinstance(document.page, FolderPage | HubPage):
            yield ORIGINS[document.page.origin()]


def _range(values: Sequence[int]) -> list[int]:
    return [min(values), round(statistics.median(values)), max(values)] if values else []


def _key(question: Question) -> str:
    return question.key or "without a key"


def _problems(found: DocumentSet) -> dict[str, Any]:
    """Counts skipped files, empty documents, clipped words and answers that are not on the page."""
    edge = 0
    missing: Counter[str] = Counter()
    for document in found.documents:
        width, height = document.size
        for x0, y0, x1, y1 in (word.box for word in document.words):
            # A reader may have clipped a box that ends at the edge of the page.
            edge += x0 <= 0 or y0 <= 0 or x1 >= width or y1 >= height
        page = _plain(word.text for word in document.words) if document.questions else ""
        for question in document.questions:
            if not any(_plain([answer]) in page for answer in question.answers):
                missing[_key(question)] += 1
    with_labels = found.documents if found.labels else ()
    return {
        "skipped": len(found.skipped),
        "reasons": [str(error) for error in found.skipped],
        "documents_without_words": sum(not document.words for document in found.documents),
        "documents_without_entities": sum(not document.entities for document in with_labels),
        "words_at_the_edge": edge,
        "answers_not_on_the_page": dict(missing),
    }


def _plain(texts: Iterable[str]) -> str:
    """Folds case and removes all but letters and digits, unless the text has neither."""
    joined = "".join(texts).casefold()
    letters = "".join(sign for sign in joined if sign.isalnum())
    return letters or re.sub(r"\s", "", joined)


# ------------------------------------------------------------------------------------ the table


def as_table(facts: Mapping[str, Any]) -> str:
    """Formats the result of `survey` as a table."""
    pages, words = "none", "none"
    if facts["pages"]["width"]:
        (w0, w1, w2), (h0, h1, h2) = facts["pages"]["width"], facts["pages"]["height"]
        pages = f"{_span(w0, w2)} × {_span(h0, h2)} pixels, median {w1:,} × {h1:,}"
    if facts["words"]["per_document"]:
        low, middle, high = facts["words"]["per_document"]
        words = f"{facts['words']['count']:,}, in a document {_span(low, high)}, median {middle:,}"
    rows: list[tuple[str, str]] = [
        ("data", facts["data"]),
        *([("taken", facts["taken"])] if "taken" in facts else []),
        ("read by", facts.get("source", "")),
        ("documents", f"{facts['documents']:,}"),
        ("splits", _counts(facts["splits"])),
        ("pages", pages),
        *_provider_rows(facts["providers"]),
        *_client_rows(facts["clients"]),
        ("words", words),
        *([("", f"from {_counts(facts['words_from'])}")] if facts["words_from"] else []),
        *_count_rows("entities", facts["entities"]),
        *_count_rows("questions", facts["questions"]),
        *_problem_rows(facts["problems"]),
        *_remark_rows(facts["remarks"]),
        *_work_rows(facts.get("works", ()), facts.get("works_with", "")),
    ]
    width = max(len(name) for name, _ in rows)
    lines = (f"{name:<{width}}  {text}".rstrip() for name, text in rows if name or text)
    # A line feed in the name of a provider would start a new row.
    return "\n".join(visible(line).replace("\n", "\\n") for line in lines)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items()) or "none"


def _span(low: int, high: int) -> str:
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _provider_rows(providers: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("suppliers", f"{providers['count']:,}")]
    by_size = providers["of_at_least"]
    if not any(group["providers"] for group in by_size.values()):
        alone = ("", "every document has a supplier of its own")
        return [*rows, alone] if providers["count"] else rows
    for size, group in by_size.items():
        documents = f"{group['documents']:,} documents in all"
        rows.append(("", f"{group['providers']:,} with {size} or more ({documents})"))
    largest = ", ".join(f"{name} {count:,}" for name, count in providers["largest"])
    return [*rows, ("", f"largest: {largest}")] if largest else rows


def _client_rows(clients: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not clients["count"]:
        return []
    rows = [("clients", f"{clients['count']:,}, each with the documents that name it")]
    if shared := clients["shared_providers"]:
        lies = (
            f"{counted(len(shared), 'supplier')} at several of them, which mechanisms that protect"
        )
        rows.append(("", f"{lies} suppliers refuse (fl_provider_dp):"))
        lines = first_lines([f"{name}: {', '.join(at)}" for name, at in shared.items()])
        rows += [("", f"  {line}") for line in lines]
    return rows


def _count_rows(name: str, counts: Mapping[str, int]) -> list[tuple[str, str]]:
    if not counts:
        return [(name, "none")]
    width = max(map(len, counts))
    lines = [f"{key:<{width}}  {count:>7,}" for key, count in counts.items()]
    return [(name, f"{sum(counts.values()):,}"), *(("", line) for line in lines)]


def _problem_rows(problems: Mapping[str, Any]) -> list[tuple[str, str]]:
    missing = problems["answers_not_on_the_page"]
    by_key = f", by its letters and digits ({_counts(missing)})" if missing else ""
    reasons = problems["reasons"]
    unnamed = len(reasons) - REASONS
    refused = "a run refuses these; data.source.on_error=skip leaves them out"
    lines = [
        f"{problems['skipped']:,} skipped",
        *(f"  {reason}" for reason in reasons[:REASONS]),
        *([f"  and {unnamed:,} more; --json lists all"] if unnamed > 0 else []),
        *([refused] if problems.get("refused") else []),
        f"{counted(problems['documents_without_words'], 'document')} without words",
        f"{counted(problems['documents_without_entities'], 'document')} without entities",
        f"{counted(problems['words_at_the_edge'], 'word')} whose box ends at the page's edge "
        "(perhaps clipped)",
        f"{counted(sum(missing.values()), 'question')} whose answer is not on the page{by_key}",
    ]
    return [("problems", lines[0]), *(("", line) for line in lines[1:])]


def _remark_rows(remarks: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for topic, lines in remarks.items():
        rows += [("remarks" if not rows else "", f"{topic}:"), *(("", f"  {x}") for x in lines)]
    return rows


def _work_rows(works: Sequence[Mapping[str, Any]], settings: str) -> list[tuple[str, str]]:
    rows = [("good for", f"(numbers are those with {settings})")] if works else []
    for one in works:
        rows.append(("", f"{one['what']}:"))
        rows.append(("", f"  {'' if one['works'] else 'not enough: '}{one['numbers']}"))
    return rows
