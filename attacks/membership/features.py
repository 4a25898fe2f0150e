"""What an adversary measures of each provider (Tito et al. 2023, §5.2.2).

Of each question:

    G1 = (ACC, NLS), G2 = (L, conf)     the answer right or not, its likeness to the right one,
                                        loss and confidence
    G3 = (ΔL, Δconf)                    what training changed: L₀ - L and conf - conf₀, with
                                        index 0 for the public model that it started from
    G4 = (NLS_mem, ΔNLS_mem)            what is answered when the answer is off the page

Members should have the higher values, but for L. The paper gives no signs for G3, and no way to
bring a provider's questions together: here the mean, or the minimum, maximum or median by name.

G4. NLS_mem is the ANLS on one key, with every clue on it cleared: 0 below a likeness of 1/2. The
paper's raw NLS (`memory="nls"`) is above 0 as soon as two texts share a letter, and CLS1's
threshold at 0 lets nearly everybody pass. For ΔNLS_mem the model first says something about the
page unasked (an empty question). That is cleared off the page, and the same is asked again;
ΔNLS_mem is the likeness of the two answers. The paper tells this in three sentences: ΔNLS_mem is
how much the output changes if it is removed from the input, and what stays alike is a sign of
memory. Where it does not stand on the page, there is nothing to remove, and a model that repeats
itself would look like one that remembers: the words most like it are cleared instead, since it may
be a wrong reading of them, and a note says how often. A model that says nothing unasked shows
nothing: the page is left out.

A provider without any test has NLS_mem 0, no sign of memory for its threshold, and the median of
the other providers' ΔNLS_mem, which is on neither side.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rapidfuzz import fuzz

from fedpriv.data.document import Document, Question
from fedpriv.data.redaction.answers import letters
from fedpriv.data.redaction.clues import without_clues
from fedpriv.data.redaction.painting import CannotRemove
from fedpriv.metrics.answers import THRESHOLD, anls, is_exact
from fedpriv.threat.access import BlackBox, GreyBox
from fedpriv.threat.queries import Reply

Aggregate = Literal["mean", "min", "max", "median"]
Memory = Literal["anls", "nls"]

G1 = ("accuracy", "nls")
G2 = ("loss", "confidence")
G3 = ("loss_drop", "confidence_gain")
G4 = ("memory", "memory_change")
LOG_RATIO = "log_ratio"
"""log L₀ - log L, which is not the paper's: losses are skewed, and a difference of their means is
that of the largest alone."""

TINY = 1e-9
"""Added to a loss, which may be 0, before its logarithm is taken."""

UNASKED = Question(key="", text="", answers=())
NEUTRAL = frozenset({"memory_change"})
"""Features of which a provider without a test gets the median of the others, not 0."""

CLEARED_AT_ONCE = 64
"""Redacted pages that are held in memory together."""

Documents = Mapping[str, Sequence[Document]]
Marks = Mapping[str, Mapping[str, Sequence[float]]]
"""Feature → provider → values, one for each question or page."""

MemoryTest = Callable[[BlackBox, Documents, Counter[str]], tuple[dict[str, list[float]], list[str]]]
"""Returns the values of each provider, and notes; counts the questions that it leaves out."""


@dataclass(frozen=True)
class Features:
    """What was measured of n providers.

    Attributes:
        columns: feature → (n,), float64; also of missing ones, where they are no numbers.
        providers: n, those with a question whose answer is known.
        missing: features that could not be measured, and why.
        skipped: reason → how many questions were left out for it.
        notes: what a reader must know.
    """

    columns: Mapping[str, NDArray[np.float64]]
    providers: tuple[str, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def rows(self, providers: Sequence[str], names: Sequence[str]) -> NDArray[np.float64]:
        """Returns some features of some providers, (providers, names)."""
        place = {provider: number for number, provider in enumerate(self.providers)}
        chosen = [place[provider] for provider in providers]
        return np.stack([self.columns[name][chosen] for name in names], axis=1)


def measured(
    documents: Documents,
    final: BlackBox,
    confidence: GreyBox | None = None,
    start: GreyBox | None = None,
    *,
    aggregate: Aggregate = "mean",
    memory_key: str = "provider",
    memory: Memory = "anls",
    log: Callable[[str], None] = lambda line: None,
) -> Features:
    """Asks the models about all documents; returns the features of each provider.

    Args:
        documents: of each provider.
        final: the final model.
        confidence: the final model with confidence and loss; None where they are not granted.
        start: the public model that training started from, likewise.
        aggregate: "mean", "min", "max" or "median" over the provider's questions.
        memory_key: of the questions on which NLS_mem is measured.
        memory: "anls", with a threshold of 1/2, or the paper's "nls" without, for NLS_mem.
        log: shows a line of progress.

    Raises:
        ValueError: if no question has an accepted answer.
    """
    skipped: Counter[str] = Counter()
    pages = _answerable(documents, skipped)
    if not pages:
        raise ValueError("no question of any supplier has an accepted answer: expected some")
    log(f"asking about {sum(map(len, pages.values()))} pages of {len(pages)} suppliers")
    marks = dict(_of_questions(final, confidence, start, pages))
    missing: dict[str, str] = {}
    if confidence is None:
        why = "confidence and loss of the final model's answers are not granted"
        missing |= dict.fromkeys((*G2, *G3, LOG_RATIO), why)
    elif start is None:
        why = "confidence and loss of the model that training started from are not granted"
        missing |= dict.fromkeys((*G3, LOG_RATIO), why)
    log("asking again with the answers cleared off the pages")
    tests: dict[str, MemoryTest] = {
        "memory": partial(
            _memory, key=memory_key, threshold=THRESHOLD if memory == "anls" else 0.0
        ),
        "memory_change": _memory_change,
    }
    notes: list[str] = []
    for name, test in tests.items():
        try:
            marks[name], said = test(final, pages, skipped)
        except _NoTest as error:
            missing[name] = str(error)
        else:
            notes += said
    columns = {name: _column(name, of, pages, aggregate) for name, of in marks.items()}
    for name, column in columns.items():
        if wrong := int((~np.isfinite(column)).sum()):
            whom = f"{wrong} supplier{'s' * (wrong > 1)}"
            missing[name] = f"{name} is not finite for {whom}: has the training diverged?"
    notes += _notes(marks, documents, pages)
    return Features(columns, tuple(pages), missing, dict(skipped), tuple(notes))


def _column(
    name: str, of: Mapping[str, Sequence[float]], pages: Documents, aggregate: Aggregate
) -> NDArray[np.float64]:
    """Brings each provider's values together; only of G4 are there providers without any."""
    found = {provider: getattr(np, aggregate)(own) for provider, own in of.items()}
    instead = np.median(list(found.values())) if name in NEUTRAL else 0.0
    return np.array([found.get(provider, instead) for provider in pages], np.float64)


def _answerable(documents: Documents, skipped: Counter[str]) -> dict[str, list[Document]]:
    """Returns the pages that have questions with accepted answers, and only those questions."""
    kept: dict[str, list[Document]] = defaultdict(list)
    for provider, pages in documents.items():
        for page in pages:
            good = tuple(question for question in page.questions if question.answers)
            if len(good) < len(page.questions):
                skipped["no accepted answer"] += len(page.questions) - len(good)
            if good:
                kept[provider].append(dataclasses.replace(page, questions=good))
    return dict(kept)


def _of_questions(
    final: BlackBox, confidence: GreyBox | None, start: GreyBox | None, pages: Documents
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields G1, G2, G3 and `LOG_RATIO`, as far as granted, with a value for each question."""
    owners = [provider for provider, page in _each(pages) for _ in page.questions]
    asked = [question for _, page in _each(pages) for question in page.questions]
    replies = _replies(confidence, pages) if confidence else []
    every = [page for _, page in _each(pages)]
    texts = [r.text for r in replies] or [text for said in final.answers(every) for text in said]
    both = list(zip(texts, asked, strict=True))
    yield "accuracy", _by(owners, [float(is_exact(text, q.answers)) for text, q in both])
    yield "nls", _by(owners, [anls(text, q.answers, threshold=0) for text, q in both])
    if confidence is None:
        return
    yield "loss", _by(owners, [reply.loss for reply in replies])
    yield "confidence", _by(owners, [reply.confidence for reply in replies])
    if start is None:
        return
    changes = list(zip(_replies(start, pages), replies, strict=True))
    yield "loss_drop", _by(owners, [first.loss - last.loss for first, last in changes])
    drops = [np.log((first.loss + TINY) / (last.loss + TINY)) for first, last in changes]
    yield LOG_RATIO, _by(owners, drops)
    yield "confidence_gain", _by(owners, [b.confidence - a.confidence for a, b in changes])


def _replies(box: GreyBox, pages: Documents) -> list[Reply]:
    """Returns the reply to each question in order."""
    return [reply for said in box.replies([page for _, page in _each(pages)]) for reply in said]


def _by(owners: Sequence[str], values: Sequence[float]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for owner, value in zip(owners, values, strict=True):
        found[owner].append(value)
    return dict(found)


class _NoTest(Exception):
    """A test of memory cannot be made on any page; says why."""


Test = tuple[str, Document, Sequence[str]]
"""Provider, page with its one question, and the answers to be cleared."""

Clear = Callable[[Document, Sequence[str]], Document | None]
"""Returns a page without answers; None where they cannot be cleared."""


def _memory(
    final: BlackBox, pages: Documents, skipped: Counter[str], key: str, threshold: float
) -> tuple[dict[str, list[float]], list[str]]:
    """Returns NLS_mem: NLS on one key where every clue on it is off the page (App. D.1.1)."""
    tests: list[Test] = [
        (provider, dataclasses.replace(page, questions=(question,)), question.answers)
        for provider, page in _each(pages)
        for question in page.questions
        if question.key == key
    ]
    if not tests:
        raise _NoTest(f"no page has a question on {key!r}")
    why = f"the {key} cannot be cleared wholly off the page"
    found: dict[str, list[float]] = defaultdict(list)
    wholly = partial(_without, wholly=True)
    for provider, likeness in _after_clearing(final, tests, wholly, threshold):
        if likeness is None:
            skipped[why] += 1
        else:
            found[provider].append(likeness)
    if not found:
        raise _NoTest(f"on every page, {why}")
    return dict(found), []


def _memory_change(
    final: BlackBox, pages: Documents, skipped: Counter[str]
) -> tuple[dict[str, list[float]], list[str]]:
    """Returns ΔNLS_mem: the likeness of what is said unasked before and after it is cleared."""
    tests = _unasked(final, pages)
    if silent := sum(map(len, pages.values())) - len(tests):
        skipped["nothing is said to an empty question"] += silent
    if not tests:
        raise _NoTest("on every page, nothing is said to an empty question")
    elsewhere = 0

    def without(page: Document, answers: Sequence[str]) -> Document | None:
        nonlocal elsewhere
        if (cleared := _without(page, answers)) is None:
            elsewhere += 1
            cleared = _without(page, [_most_like(page, answers[0])])
        return cleared

    found: dict[str, list[float]] = defaultdict(list)
    for provider, likeness in _after_clearing(final, tests, without, threshold=0):
        if likeness is None:
            skipped["no word is on the page that could be cleared"] += 1
        else:
            found[provider].append(likeness)
    if not found:
        raise _NoTest("no page has a word that could be cleared")
    note = (
        f"on {elsewhere} of {len(tests)} pages, the answer to an empty question does not stand "
        "there: for memory_change, the words most like it are cleared"
    )
    return dict(found), [note] if elsewhere else []


def _most_like(page: Document, answer: str) -> str:
    """Returns as many words in a row as the answer has, those that are most like it."""
    words, length = [word.text for word in page.words], len(answer.split())
    rows = (" ".join(words[n : n + length]) for n in range(max(1, len(words) - length + 1)))
    return max(rows, key=lambda row: fuzz.ratio(letters(row), letters(answer)))


def _unasked(final: BlackBox, pages: Documents) -> list[Test]:
    """Returns what the model says to an empty question, where it has a letter or digit."""
    empty = [(p, dataclasses.replace(page, questions=(UNASKED,))) for p, page in _each(pages)]
    try:
        said = final.answers([page for _, page in empty])
    except ValueError as error:
        raise _NoTest(f"the model does not take an empty question: {error}") from error
    return [
        (provider, page, answers)
        for (provider, page), answers in zip(empty, said, strict=True)
        if any(map(letters, answers))
    ]


def _after_clearing(
    final: BlackBox, tests: Sequence[Test], without: Clear, threshold: float
) -> Iterator[tuple[str, float | None]]:
    """Yields each test's provider, and how like its answers the one to the cleared page is.

    None where nothing can be cleared: then nothing is asked.
    """
    for start in range(0, len(tests), CLEARED_AT_ONCE):
        some = tests[start : start + CLEARED_AT_ONCE]
        shown = [without(page, answers) for _, page, answers in some]
        given = iter(final.answers([page for page in shown if page is not None]))
        for (provider, _, answers), page in zip(some, shown, strict=True):
            yield provider, None if page is None else anls(next(given)[0], answers, threshold)


def _without(page: Document, answers: Sequence[str], *, wholly: bool = False) -> Document | None:
    """Returns a page without its answers; none where they do not stand there.

    With `wholly`, none either where a clue is left, as in a company's web address: a model that
    reads it remembers nothing.
    """
    try:
        found = without_clues(page, page.questions[0], answers)
    except CannotRemove:
        return None
    return None if wholly and found.residual else found.page


def _each(pages: Documents) -> Iterator[tuple[str, Document]]:
    return ((provider, page) for provider, own in pages.items() for page in own)


def _notes(marks: Marks, documents: Documents, pages: Documents) -> list[str]:
    """Says which providers are judged with less than the others, or not at all."""
    notes = [
        f"{len(pages) - len(of)} of {len(pages)} suppliers have no test for {name}, which counts "
        f"as {'the median of the others' if name in NEUTRAL else '0'}"
        for name, of in marks.items()
        if len(of) < len(pages)
    ]
    if len(pages) < len(documents):
        notes.append(
            f"{len(documents) - len(pages)} of {len(documents)} suppliers have no question with "
            "an accepted answer, and are not judged"
        )
    return notes
