"""Questions put to a model from outside: its answers, or its answers with confidence and loss.

A black box and a grey box are different types: what the one does not give cannot be asked of it.
Replies are kept on disk by (model, page, question), so that ten attacks cost one pass. Their last
digits are those of the batch in which they were asked first.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedpriv.data.digests import document_digest
from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.models.base import Answer
from fedpriv.models.encoding_cache import code_digest
from fedpriv.models.question_answering import (
    EVALUATION_BATCH,
    QUESTION,
    QuestionAnswerer,
    most_confident,
)
from fedpriv.runtime import run_files
from fedpriv.runtime.cache import json_digest
from fedpriv.runtime.versions import versions_of

PAGES_AT_ONCE = 64
"""Documents that are encoded together, which bounds the memory."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a grey box says to one question.

    Attributes:
        text: of the answer; empty where the model finds none.
        confidence: the model's probability of its answer, in [0, 1]; see `Answer`.
        loss: of the first accepted answer, the mean of -log p over its tokens; the mean over the
            windows of a page that is read in several.
    """

    text: str
    confidence: float
    loss: float


class Oracle:
    """A model and all it has been asked; `replies` asks it only what is new.

    Args:
        model: in evaluation mode; it must not change any more.
        folder: where replies are kept for later runs; None keeps them in memory only.
    """

    def __init__(self, model: QuestionAnswerer, folder: Path | None) -> None:
        self._model = model.eval()
        self._known: dict[str, Reply] = {}
        self._file = folder / f"{_digest(model)}.jsonl" if folder else None
        if self._file is not None and self._file.is_file():
            self._known = _read(self._file)

    def replies(self, documents: Sequence[Document]) -> list[tuple[Reply, ...]]:
        """Returns, for each document, a reply to each of its questions, in their order."""
        keys = [_keys(document) for document in documents]
        new = list(self._new(documents, keys))
        for start in range(0, len(new), PAGES_AT_ONCE):
            self._ask(new[start : start + PAGES_AT_ONCE])
        return [tuple(self._known[key] for key in own) for own in keys]

    def losses(self, documents: Sequence[Document]) -> list[tuple[float, ...]]:
        """Returns, for each document, the loss of each of its questions, in their order.

        What `replies` says of them, but nothing is written or kept: for comparing a page's answer
        with a thousand others, which are drawn anew every time.
        """
        found: list[float] = []
        with torch.no_grad():
            for start in range(0, len(documents), PAGES_AT_ONCE):
                pages = documents[start : start + PAGES_AT_ONCE]
                if any(page.questions for page in pages):
                    found += losses(self._model, self._model.encode(pages))
        of_all = iter(found)
        return [tuple(itertools.islice(of_all, len(page.questions))) for page in documents]

    def _new(
        self, documents: Sequence[Document], keys: Sequence[Sequence[str]]
    ) -> Iterator[tuple[Document, list[str]]]:
        """Yields the documents with their questions that were not asked yet, and these keys."""
        asked = set(self._known)
        for document, own in zip(documents, keys, strict=True):
            questions = dict(zip(own, document.questions, strict=True))
            fresh = {key: question for key, question in questions.items() if key not in asked}
            asked |= fresh.keys()
            if fresh:
                yield dataclasses.replace(document, questions=tuple(fresh.values())), list(fresh)

    def _ask(self, new: Sequence[tuple[Document, list[str]]]) -> None:
        with torch.no_grad():
            found = ask(self._model, self._model.encode([document for document, _ in new]))
        fresh = dict(zip((key for _, own in new for key in own), found, strict=True))
        self._known |= fresh
        if self._file is not None:
            # The line's end comes first: what a killed process left behind spoils nothing.
            lines = ["\n" + json.dumps([key, *dataclasses.astuple(r)]) for key, r in fresh.items()]
            with run_files.output(self._file, more=True) as file:
                file.write("".join(lines).encode("ascii"))


def ask(model: QuestionAnswerer, examples: Examples) -> list[Reply]:
    """Returns the model's reply to each question of its examples, in the order of their numbers."""
    said: list[Answer] = []
    costs: list[Tensor] = []
    for batch in examples.batches(EVALUATION_BATCH, device=model.device):
        answers, of_batch = model.reply_batch(batch)
        said += answers
        costs.append(of_batch)
    return [
        Reply(answer.text, answer.confidence, loss)
        for answer, loss in zip(
            most_confident(examples, said), _by_question(examples, costs), strict=True
        )
    ]


def losses(model: QuestionAnswerer, examples: Examples) -> list[float]:
    """Returns the loss of each question of the examples, in the order of their numbers."""
    batches = examples.batches(EVALUATION_BATCH, device=model.device)
    return _by_question(examples, [model.losses(batch) for batch in batches])


def _by_question(examples: Examples, costs: Sequence[Tensor]) -> list[float]:
    """Returns the mean over the rows of each question."""
    numbers = np.unique(examples.column(QUESTION), return_inverse=True)[1]
    of_rows = torch.cat([one.double().cpu() for one in costs]).numpy()
    means: list[float] = (np.bincount(numbers, of_rows) / np.bincount(numbers)).tolist()
    return means


def _keys(document: Document) -> list[str]:
    """Returns a name for each question of a document: a hash of the page and the question."""
    page = document_digest(dataclasses.replace(document, id="", provider="", questions=()))
    return [json_digest([page, q.text, q.answers]) for q in document.questions]


def _digest(model: QuestionAnswerer) -> str:
    """Returns a hash of all that the replies of a model depend on."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    reading = getattr(model, "reading", None)
    made = [code_digest(type(model)), versions_of("torch", "transformers", "tokenizers")]
    made += [device.type] if (device := model.device).type != "cpu" else []  # other last digits
    digest.update(json_digest([made, reading() if reading else None]).encode())
    return digest.hexdigest()


def _read(file: Path) -> dict[str, Reply]:
    """Reads what was asked before; a line that was cut off is asked again."""
    known: dict[str, Reply] = {}
    for line in file.read_text("ascii", "replace").splitlines():
        try:
            key, text, confidence, loss = json.loads(line)
            known[key] = Reply(str(text), float(confidence), float(loss))
        except (ValueError, TypeError):
            continue
    return known
