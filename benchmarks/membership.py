"""What asking a model costs, and what it costs to judge providers by its answers.

    python benchmarks/membership.py --json membership.json          # a few minutes

asking: questions on generated invoices put to a tiny VT5, against the loop that one writes by hand:
`generate` of transformers on batches of the same size, and the answers as text. Three things are
asked for, in this order: answers with confidence; the loss as well; the loss as well, through
`Oracle`, which encodes the pages and hashes them to remember the replies. In the last, the pages
are encoded by hand too, with all their questions at once.
judging: all classifiers of PMIA for 660 providers, 8100 questions on 2589 pages and 15 splits (as
many as Tito et al. 2023 have), with replies, and the pages without the answers, prepared before;
against the 30 s that it may take.

One thread, CPU time; ratios are formed within a repeat, in which the two sides take turns at being
first.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
import torch
from models import Row, compared, cpu_seconds, report

from fedpriv.attacks.membership import features
from fedpriv.attacks.membership.pmia import judged
from fedpriv.data.document import Document, Question, Word
from fedpriv.data.examples import Examples
from fedpriv.data.generated.invoices import Invoices
from fedpriv.data.redaction.clues import without_clues
from fedpriv.data.redaction.painting import CannotRemove, Redacted
from fedpriv.models.question_answering import EVALUATION_BATCH
from fedpriv.models.vt5 import VT5, vt5
from fedpriv.threat.access import GreyBox, KnownMembershipSplit
from fedpriv.threat.attack import AttackContext
from fedpriv.threat.queries import Oracle, Reply, ask

LEAST_SPEED = 0.9
"""Questions a second, as a share of the bare loop's."""

MOST_SECONDS = 30.0
PROVIDERS, PAGES, QUESTIONS = 660, 2589, 8100
LEAST, REPEATS, KNOWN = (0, 5, 10), 5, 0.15
"""s, splits of each, and the share of providers that are known in a split."""


def bare(model: VT5, examples: Examples) -> list[str]:
    """Returns the answers; the loop that one writes by hand."""
    said: list[str] = []
    for batch in examples.batches(EVALUATION_BATCH):
        ids = model.language_backbone.generate(
            **model.page(batch),
            max_new_tokens=model.reader.answer_length,
            do_sample=False,
            num_beams=1,
            return_dict_in_generate=False,
            output_scores=False,
        )
        said += [model.reader.subwords.text(row) for row in ids[:, 1:].tolist()]
    return said


def asking(options: argparse.Namespace) -> Iterator[Row]:
    """Answers, answers with the loss, and both through an `Oracle`, against bare `generate`."""
    model = vt5(pretrained="shipped").eval()
    documents = Invoices(providers=options.pages, documents_per_provider=1, seed=1).load().documents
    examples = model.encode(documents)
    by_hand = functools.partial(bare, model, examples)
    ways = {
        "answers": (functools.partial(model.answers, examples), by_hand),
        "answers and loss": (functools.partial(ask, model, examples), by_hand),
        "Oracle, pages encoded": (
            lambda: Oracle(model, None).replies(documents),
            lambda: bare(model, model.encode(documents)),
        ),
    }
    with torch.no_grad():
        for name, sides in ways.items():
            sides[0](), sides[1]()
            pairs = compared(sides, options.repeats, cpu_seconds, len(examples))
            speeds = [theirs / mine for mine, theirs in pairs]
            more = {"questions/s": 1 / median(mine for mine, _ in pairs), "speed": median(speeds)}
            more |= {"least": min(speeds), "most": max(speeds)}
            yield Row("asking", f"{name}, {len(examples)} questions", pairs, 1 / LEAST_SPEED, more)


def judging(options: argparse.Namespace) -> Iterator[Row]:
    """Features and classifiers, given the replies."""
    rng = np.random.default_rng(0)
    documents = {f"p{number:03d}": pages for number, pages in enumerate(drawn(rng))}
    final, start = recorded(documents, rng), recorded(documents, rng)
    known = splits(documents, rng)
    context = AttackContext(rng, lambda line: None, Path())
    with mock.patch.object(features, "without_clues", Kept()):
        found = features.measured(documents, final, final, start)
        pairs, shares = [], []
        for _ in range(min(3, options.repeats)):
            first = cpu_seconds(lambda: features.measured(documents, final, final, start))
            pairs.append((first + cpu_seconds(lambda: judged(found, known, context)), MOST_SECONDS))
            shares.append(first)
    more = {"s for the features": median(shares)}
    yield Row("judging", f"{PROVIDERS} providers, 15 splits", pairs, 1.0, more)


class Kept:
    """Clears each page once: that belongs to asking, and depends on the pages' size."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Redacted | CannotRemove] = {}

    def __call__(self, own: Document, question: Question, answers: Sequence[str]) -> Redacted:
        """Returns what `without_clues` does."""
        key = (own.id, question.text)
        if key not in self._known:
            try:
                self._known[key] = without_clues(own, question, answers)
            except CannotRemove as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, CannotRemove):
            raise found
        return found


def drawn(rng: np.random.Generator) -> Iterator[tuple[Document, ...]]:
    """Yields the pages of each provider: few have many, and each has one at least."""
    weights = rng.exponential(size=PROVIDERS)
    counts = 1 + rng.multinomial(PAGES - PROVIDERS, weights / weights.sum())
    keys = np.array_split(np.arange(QUESTIONS), PAGES)
    names = iter(keys)
    for provider, count in enumerate(counts):
        yield tuple(page(provider, n, len(next(names))) for n in range(count))


def page(provider: int, number: int, questions: int) -> Document:
    """Returns a small page; one question is on the provider, the others on numbers."""
    name = f"{_letters(provider)} works"
    texts = [*name.split(), *(f"{provider:03d}{number:03d}{n:02d}" for n in range(8))]
    words = tuple(Word(text, (2.0, 8.0 * n, 78.0, 8.0 * n + 6), n) for n, text in enumerate(texts))
    asked = [Question("provider", "Who?", (name,))]
    asked += [Question("number", f"Number {n}?", (texts[n + 2],)) for n in range(1, questions)]
    pixels = np.full((80, 80), 255, np.uint8)
    return Document(f"{provider}-{number}", name, pixels, (80, 80), words, (), tuple(asked))


def _letters(number: int) -> str:
    return "".join("abcdefghij"[int(digit)] * 2 for digit in f"{number:03d}")


def recorded(documents: dict[str, tuple[Document, ...]], rng: np.random.Generator) -> GreyBox:
    """Returns replies that were drawn before the clock starts, half of them right."""
    known = {
        (own.id, question.text): Reply(
            (*question.answers, own.words[5].text)[0 if rng.random() < 0.5 else -1],
            rng.random(),
            rng.exponential(),
        )
        for pages in documents.values()
        for own in pages
        for question in (*own.questions, features.UNASKED)
    }

    def replies(asked: Sequence[Document]) -> list[tuple[Reply, ...]]:
        return [tuple(known[own.id, question.text] for question in own.questions) for own in asked]

    return GreyBox(replies)


def splits(documents: dict[str, Any], rng: np.random.Generator) -> tuple[KnownMembershipSplit, ...]:
    """Returns the splits; every second provider is a member."""
    found = []
    for least in LEAST:
        enough = [
            provider
            for provider, pages in documents.items()
            if sum(len(own.questions) for own in pages) > least
        ]
        known = int(KNOWN * len(enough))
        for repeat in range(REPEATS):
            order = [enough[place] for place in rng.permutation(len(enough))]
            told = {provider: number % 2 == 0 for number, provider in enumerate(order[:known])}
            found.append(KnownMembershipSplit(least, repeat, told, tuple(order[known:])))
    return tuple(found)


PARTS = {"asking": asking, "judging": judging}


def main() -> None:
    """Runs the parts and prints a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--pages", type=int, default=32, help="to ask about, with ten questions each"
    )
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    report((row for part in options.only for row in PARTS[part](options)), options.json)


if __name__ == "__main__":
    main()
