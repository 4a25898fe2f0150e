"""What could be known of the batch behind each message, and how a run notes it.

While a run goes on, `truth/rows/` holds for each round a line for every message that was kept: the
examples that it was computed from. When the run ends, `KeepTranscript.after` reads the batches
behind these rows, writes what could be known of them into `knowledge/` and the truth
(`fedpriv.threat.truth`), and removes the lines. So a round reads no page, and a run that was killed
has lost nothing. `knowledge/` holds, for each message, the template of each page, and the text
under several assumptions. An attack gets of it what `Assumed` grants, and the report prints that.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation
from torch import nn

from fedpriv.data.document import Document, Question
from fedpriv.data.examples import Examples
from fedpriv.data.redaction.fields import private_fields, without_fields
from fedpriv.models.base import DocumentModel
from fedpriv.models.page_geometry import in_model_pixels
from fedpriv.models.question_answering import DOCUMENT, QUESTION
from fedpriv.models.readers.reader import tokens_of
from fedpriv.models.readers.subwords import Subwords
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.seeds import generator
from fedpriv.runtime.tensors import read_tensors, save_tensors
from fedpriv.runtime.vectors import as_tensor
from fedpriv.threat.surfaces.base import PUBLIC, SERVER, AttackedRun, InWords, Surface
from fedpriv.threat.surfaces.transcript import TranscriptSettings, loaded, public, view
from fedpriv.threat.truth import ROWS, Field, MessageKey, Truth, check_read, rows_file

KNOWLEDGE = "knowledge"

Texts = Mapping[str, Mapping[str, NDArray[Any]]]
"""Columns by name, by assumption."""

Text = Literal["none", "given", "question", "answer", "random"]

TEXTS: Mapping[str, str] = {
    "none": "no text is given: what is used was read out of the gradient",
    "given": "the text of the page, the question and the answer are given (the paper's white box)",
    "question": "the text of the page and the question are given, the answer is a random word",
    "answer": "the text of the page and the answer are given, the question is random words",
    "random": "the text of the page is given, question and answer are random words",
}


@dataclass(frozen=True)
class Assumed:
    """What the adversary is taken to know beside what it saw.

    Args:
        template: whether the adversary knows the template of each page, which is the page with its
            private fields blank, and where these fields are (GI-DQA, §3.2). If False, the attack
            starts from a white page.
        text: what the adversary knows of the text: "none", so that the attack reads it out of the
            gradient; "given", the text of the page, the question and the answer; "question" or
            "answer", the text of the page and one of the two; "random", the text of the page alone.
            Unknown questions and answers are replaced by random words. These are rows of GI-DQA,
            Table 3.
    """

    template: bool = True
    text: Text = "none"

    def __post_init__(self) -> None:
        if self.text not in TEXTS:
            raise ValueError(f"text={self.text!r}: expected one of {', '.join(TEXTS)}")

    def in_words(self, *, templates: bool = True) -> tuple[str, ...]:
        """Returns the assumptions as a report says them.

        Args:
            templates: whether the run has any, which models that make no pixels of pages have not.
        """
        known = "the template of each page is known, and where its private fields are"
        if not self.template:
            known = "no template is known"
        elif not templates:
            known = "the run has no templates: its model reads no pages, or not as pixels"
        return (
            "the size of each batch is public",
            known,
            TEXTS[self.text],
        )


class Publisher(Protocol):
    """Makes the templates that are published, and with them what an adversary knows."""

    def publish(
        self,
        model: torch.nn.Module,
        columns: Mapping[str, NDArray[Any]],
        template: NDArray[np.uint8],
        rng: np.random.Generator,
    ) -> NDArray[np.uint8]:
        """Returns the templates to publish, (B, 3, H, W), in place of the blank pages.

        Args:
            model: with the parameters of the round.
            columns: the model's batch without `pixels`, of the documents behind the message.
            template: blank pages, (B, 3, H, W).
            rng: the only source of randomness.
        """


@dataclass(frozen=True, kw_only=True)
class BatchSettings(TranscriptSettings):
    """What is known of the batches behind the messages.

    Args:
        assume: what the adversary knows of the batches behind the messages.
        publisher: a defence that the publisher of the page templates applies to them before the
            adversary sees them. None publishes the templates unchanged.
    """

    assume: Assumed = Assumed()
    publisher: Publisher | None = None


@dataclass(frozen=True)
class Known:
    """What the adversary is taken to know of the batch behind one message, B examples.

    Attributes:
        size: B.
        template: the pages with their private fields blank, (B, 3, H, W), uint8, in the model's
            resolution. None where no template is known, or the model reads no page.
        private: where the private fields are, (B, 1, H, W), bool. None without a template.
        text: the model's columns but `pixels`, each (B, …). None where the text is not given.
    """

    size: int
    template: NDArray[np.uint8] | None = None
    private: NDArray[np.bool_] | None = None
    text: Mapping[str, NDArray[Any]] | None = None


@dataclass(frozen=True)
class BatchKnowledge(Surface, observer=SERVER, keeper="transcript", takes=BatchSettings):
    """What the adversary knows of the batches behind the messages, as the assumptions grant it.

    Attributes:
        of: by message.
    """

    of: Mapping[MessageKey, Known]

    @classmethod
    def granted(cls, run: AttackedRun) -> tuple[BatchKnowledge, InWords]:
        """What the assumptions grant of each message's batch, and of each round's aggregate."""
        settings = run.settings.of(BatchSettings)
        of: dict[MessageKey, Known] = {}
        for seen in run.once(view).rounds:
            keys: list[MessageKey] = [(seen.round, upload.client) for upload in seen.uploads]
            found = {key: load_known(run.folder, key, settings.assume) for key in keys}
            here = {key: known for key, known in found.items() if known is not None}
            of.update(here)
            # What is known of a sum is known of all that is in it.
            if here and {client for _, client in keys} >= set(seen.answered):
                of[seen.round, None] = _together(list(here.values()))
        templates = any(known.template is not None for known in of.values())
        words = settings.assume.in_words(templates=templates)
        if settings.publisher is None:
            return BatchKnowledge(of), words
        return BatchKnowledge(_published(run, settings.publisher, of)), (
            *words,
            f"templates are published through {settings.publisher}, computed with the client's "
            "own text and this round's model, which favours the defence",
        )

    @classmethod
    def check(cls, run: AttackedRun) -> None:
        """Whether messages were kept; an attack may do without the batches behind them."""
        public(run.folder)


def _published(
    run: AttackedRun, publisher: Publisher, of: Mapping[MessageKey, Known]
) -> dict[MessageKey, Known]:
    """Returns the knowledge with the templates as the publisher gives them out."""
    made, transcript = dict(of), run.once(view)
    for seen in transcript.rounds:
        model = loaded(run.models.new(), seen.parameters, transcript.frozen)
        for key in [key for key in made if key[0] == seen.round and key[1] is not None]:
            given, known = load_known(run.folder, key, Assumed(text="given")), made[key]
            if known.template is None or given is None or given.text is None:
                continue
            rng = generator(run.settings.seed, "published template", seen.round, key[1] or 0)
            template = publisher.publish(model, given.text, known.template, rng)
            made[key] = dataclasses.replace(known, template=template)
        if (seen.round, None) in made:
            single = [made[key] for key in made if key[0] == seen.round and key[1] is not None]
            made[seen.round, None] = _together(single)
    return made


def _together(knowns: Sequence[Known]) -> Known:
    """Returns what is known of several messages whose sum was seen, as of one large batch."""
    template = [k.template for k in knowns if k.template is not None]
    private = [k.private for k in knowns if k.private is not None]
    texts = [k.text for k in knowns if k.text is not None]
    whole = len(template) == len(knowns)
    return Known(
        sum(k.size for k in knowns),
        np.concatenate(template) if whole else None,
        np.concatenate(private) if whole else None,
        {name: np.concatenate([t[name] for t in texts]) for name in texts[0]}
        if len(texts) == len(knowns)
        else None,
    )


def save_known(folder: RunFolder, key: MessageKey, known: Known, texts: Texts) -> None:
    """Writes what could be known of one message.

    Args:
        folder: of the run.
        key: the message.
        known: of it `text` is not used.
        texts: the model's columns under each assumption of `TEXTS` but "none".
    """
    tensors = {f"{name}/{c}": as_tensor(a) for name, text in texts.items() for c, a in text.items()}
    if known.template is not None and known.private is not None:
        tensors["template"] = as_tensor(known.template)
        tensors["private"] = as_tensor(known.private)
    save_tensors(folder, _file(key), tensors, {"size": known.size})


def load_known(folder: RunFolder, key: MessageKey, assumed: Assumed) -> Known | None:
    """Reads what the assumptions grant of one message; none of one that holds no example.

    Raises:
        BatchesUnread: if the run was ended before this was written.
        Damaged: if the file cannot be read.
    """
    check_read(folder, key[0])
    name = f"{_file(key)}.safetensors"
    if not folder.has(name):
        return None
    tensors, notes = read_tensors(folder, _file(key))
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    text = {
        name.removeprefix(f"{assumed.text}/"): array
        for name, array in arrays.items()
        if name.startswith(f"{assumed.text}/")
    }
    granted = assumed.template and "template" in arrays
    with folder.making_sense_of(name):
        return Known(
            operator.index(notes["size"]),
            arrays["template"] if granted else None,
            arrays["private"].astype(np.bool_) if granted else None,
            text or None,
        )


def fewest_known(run: AttackedRun) -> int | None:
    """Returns the number of examples behind the smallest message; see `Outline.fewest`."""
    folder = run.folder
    if not folder.has(PUBLIC):
        return None
    files = [
        f"{KNOWLEDGE}/{round}/{name}"
        for round in folder.names(KNOWLEDGE)
        for name in folder.names(f"{KNOWLEDGE}/{round}")
    ]
    return min((folder.tensors(name, only_notes=True)[1]["size"] for name in files), default=0)


def _file(key: MessageKey) -> str:
    round, client = key
    return f"{KNOWLEDGE}/round-{round:06d}/client-{client:04d}"


@dataclass(frozen=True)
class BatchRows:
    """The batch behind one message.

    Attributes:
        rows: positions in the training examples of all clients.
        entropy: 128 bits that key the generator of what an adversary does not know.
    """

    rows: NDArray[np.int64]
    entropy: int


def note_rows(folder: RunFolder, key: MessageKey, batch: BatchRows) -> None:
    """Notes the batch behind one message; of several notes of one message the last counts."""
    round, client = key
    line = {"client": client, "rows": batch.rows.tolist(), "entropy": batch.entropy}
    folder.append(rows_file(round), [line])


def unread_rounds(folder: RunFolder) -> list[int]:
    """Returns the rounds whose batches were noted and have not been read, ascending."""
    names = folder.names(ROWS, "round-*.jsonl")
    numbers = (name.removeprefix("round-").removesuffix(".jsonl") for name in names)
    return [int(number) for number in numbers if number.isascii() and number.isdigit()]


def load_rows(folder: RunFolder, round: int) -> dict[int, BatchRows]:
    """Returns the batches of a round by client.

    Raises:
        Damaged: if the file cannot be read.
    """
    records = folder.records(rows_file(round))
    with folder.making_sense_of(rows_file(round)):
        return {
            operator.index(record["client"]): BatchRows(
                np.array(record["rows"], dtype=np.int64), operator.index(record["entropy"])
            )
            for record in records
        }


def forget_rows(folder: RunFolder, round: int) -> None:
    """Removes the notes of a round whose batches have been read."""
    folder.remove(rows_file(round))


NOWHERE = (0, 0, 0, 0)
MOST_SPREAD = 8
"""Pixels that shrinking a page may carry a field's ink beyond its box."""


class PrivatePages:
    """Reads the documents behind rows of examples.

    Args:
        examples: of which the rows are.
        documents: what their column `document` counts; empty where there are none.
        model: that has encoded them; None where there are no documents.
        private: keys of the private entities; none for all.
    """

    def __init__(
        self,
        examples: Examples,
        documents: Sequence[Document],
        model: nn.Module | None,
        private: Sequence[str] | None,
    ) -> None:
        self.examples, self.documents, self.private = examples, documents, private
        self.model = model if isinstance(model, DocumentModel) else None

    def read(self, rows: NDArray[np.int64], rng: np.random.Generator) -> tuple[Known, Texts, Truth]:
        """Returns what could be known of these rows, the text under each assumption, the truth.

        Args:
            rows: positions in the examples, B of them.
            rng: draws the words that stand for what is not known.
        """
        truth = self.truth(rows)
        if self.model is None:
            return Known(len(rows)), {"given": truth.columns}, truth
        pages = [self._page(int(row)) for row in rows]
        given = {name: array for name, array in truth.columns.items() if name not in self._of_page}
        texts = {
            name: given if name == "given" else self._text(pages, rows, name, rng)
            for name in TEXTS
            if name != "none"
        }
        if truth.pixels is None or truth.template is None:
            return Known(len(rows)), texts, truth
        private = _private(truth.pixels, truth.template, truth.fields)
        return Known(len(rows), truth.template, private), texts, truth

    def truth(self, rows: NDArray[np.int64]) -> Truth:
        """Returns what these rows hold, with the template of their pages."""
        columns = _columns(self.examples.batch(rows))
        pixels = columns.pop("pixels", None)
        if self.model is None:
            names, nothing = tuple(f"row {row}" for row in rows), ("",) * len(rows)
            return Truth(names, columns, pixels, (), nothing, nothing)
        pages = [self._page(int(row)) for row in rows]
        held = Held.of(self.model, columns, len(pages))
        blank = [] if pixels is None else [without_fields(p, self._keys(p)) for p in pages]
        return Truth(
            documents=tuple(page.id for page in pages),
            columns=columns,
            pixels=pixels,
            fields=tuple(
                tuple(
                    dataclasses.replace(field, tokens=held.tokens(row, field.text))
                    for field in self._fields(page)
                )
                for row, page in enumerate(pages)
            ),
            questions=tuple(held.question(row, page) for row, page in enumerate(pages)),
            answers=tuple(held.answer(row, page) for row, page in enumerate(pages)),
            template=np.stack([self._pixels(page) for page in blank]) if blank else None,
        )

    @functools.cached_property
    def _of_page(self) -> frozenset[str]:
        """The columns in which the model has the page itself: no text that could be known.

        They differ between a black page and a white one. So a Pix2Struct's patches are found, and
        whatever a processor makes of an image.
        """
        page = dataclasses.replace(self._page(0), white=())
        black, white = (
            _columns(self._reader.encode([one]).batch(np.array([0])))
            for one in (
                dataclasses.replace(page, page=np.full(page.size[::-1], shade, np.uint8))
                for shade in (0, 255)
            )
        )
        return frozenset(name for name in black if not np.array_equal(black[name], white[name]))

    def _page(self, row: int) -> Document:
        """Returns the document of a row, with that row's question only."""
        document = self.documents[int(self.examples.column(DOCUMENT)[row])]
        if QUESTION not in self.examples.columns:
            return document
        numbers = self.examples.column(QUESTION)
        first = numbers[self.examples.column(DOCUMENT) == self.examples.column(DOCUMENT)[row]].min()
        return dataclasses.replace(
            document, questions=(document.questions[int(numbers[row] - first)],)
        )

    def _window(self, row: int) -> int:
        """Returns which window of its page or question a row is, from 0."""
        by = QUESTION if QUESTION in self.examples.columns else DOCUMENT
        numbers = self.examples.column(by)
        return int((numbers[:row] == numbers[row]).sum())

    def _keys(self, page: Document) -> list[str] | None:
        """Returns the private keys that this page has."""
        if self.private is None:
            return None
        return [key for key in self.private if any(e.label == key for e in page.entities)]

    def _fields(self, page: Document) -> tuple[Field, ...]:
        fields = private_fields(page, self._keys(page))
        places = [field.box for field in fields]
        # A model that makes no `pixels` of a page shows its fields nowhere.
        shows = "pixels" in self.examples.shared
        boxes = in_model_pixels(self._reader, page, places) if shows else [NOWHERE] * len(places)
        return tuple(
            Field(field.key, field.text, box) for field, box in zip(fields, boxes, strict=True)
        )

    def _pixels(self, page: Document) -> NDArray[np.uint8]:
        pixels: NDArray[np.uint8] = self._reader.encode([page]).shared["pixels"][0][0]
        return pixels

    def _text(
        self,
        pages: Sequence[Document],
        rows: NDArray[np.int64],
        name: str,
        rng: np.random.Generator,
    ) -> dict[str, NDArray[Any]]:
        """Returns the columns of the pages with their questions partly made up."""
        read: list[dict[str, NDArray[Any]]] = []
        for page, row in zip(pages, rows, strict=True):
            examples = self._reader.encode([_asking(page, name, rng)])
            # The last window where there are not as many as of the true question.
            window = min(self._window(int(row)), len(examples) - 1)
            read.append(_columns(examples.batch(np.array([window]))))
        names = [column for column in read[0] if column not in self._of_page]
        return {column: np.concatenate([one[column] for one in read]) for column in names}

    @property
    def _reader(self) -> DocumentModel:
        if self.model is None:
            raise TypeError("there are no documents to read")
        return self.model


@dataclass(frozen=True)
class Held:
    """What rows hold of a page, which may be a window of it, and cut.

    Attributes:
        columns: of the rows.
        ids: the tokens of each row.
        subwords: of the model; None where it has none, and all of a page counts as held.
    """

    columns: Mapping[str, NDArray[Any]]
    ids: Sequence[frozenset[int]]
    subwords: Subwords | None

    @classmethod
    def of(cls, model: DocumentModel, columns: Mapping[str, NDArray[Any]], rows: int) -> Held:
        """Returns what these columns hold."""
        subwords = getattr(getattr(model, "reader", None), "subwords", None)
        if not isinstance(subwords, Subwords):
            return cls(columns, (frozenset(),) * rows, None)
        return cls(columns, [frozenset(ids) for ids in tokens_of(columns)], subwords)

    def tokens(self, row: int, text: str) -> tuple[int, ...]:
        """Returns the tokens of those words of a text that the row holds."""
        found = self._words(row, text, self.subwords) if self.subwords else ()
        return tuple(token for _, tokens in found for token in tokens)

    def question(self, row: int, page: Document) -> str:
        """Returns the words of the page's question that the row holds."""
        text = page.questions[0].text if page.questions else ""
        if self.subwords is None or QUESTION not in self.columns:
            return text
        cased = dataclasses.replace(self.subwords, lowercase=False)  # as some readers take it
        ways = [self._words(row, text, subwords) for subwords in (self.subwords, cased)]
        return " ".join(word for word, _ in max(ways, key=len))

    def answer(self, row: int, page: Document) -> str:
        """Returns what the row is labelled with: a span of it, or what is to be written."""
        ids, labels = self.columns.get("input_ids"), self.columns.get("labels")
        if self.subwords is not None and QUESTION in self.columns:
            if ids is not None and "start" in self.columns:
                start, end = int(self.columns["start"][row]), int(self.columns["end"][row])
                return self.subwords.text(ids[row, start : end + 1].tolist()) if start else ""
            if labels is not None:
                return self.subwords.text(labels[row][labels[row] >= 0].tolist())
        return next(iter(page.questions[0].answers), "") if page.questions else ""

    def _words(self, row: int, text: str, subwords: Subwords) -> list[tuple[str, list[int]]]:
        words = text.split()
        pairs = zip(words, subwords.pieces(words) if words else (), strict=True)
        return [(word, tokens) for word, tokens in pairs if self.ids[row].issuperset(tokens)]


def _asking(page: Document, name: str, rng: np.random.Generator) -> Document:
    """Returns the page with what is not known of question and answer made of its words."""
    if not page.questions or not page.words:
        return page
    words = [word.text for word in page.words]
    question = page.questions[0]
    text, answers = question.text, question.answers
    if name != "question":
        text = " ".join(rng.choice(words, size=len(text.split())))
    if name != "answer":
        answers = (str(rng.choice(words)),)
    return dataclasses.replace(page, questions=(Question(question.key, text, answers),))


def _columns(batch: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in batch.items()}


def _private(
    pixels: NDArray[np.uint8], blank: NDArray[np.uint8], fields: Sequence[Sequence[Field]]
) -> NDArray[np.bool_]:
    """Returns where the private fields are, (B, 1, H, W).

    Their boxes, all widened alike until they hold all that blanking changed: shrinking a page
    carries ink across the edge of a box.
    """
    inside = np.zeros((len(pixels), 1, *pixels.shape[2:]), dtype=np.bool_)
    for place, page in enumerate(fields):
        for left, top, right, bottom in (field.box for field in page):
            inside[place, 0, top:bottom, left:right] = True
    changed = (pixels != blank).any(1, keepdims=True)
    square = np.ones((1, 1, 3, 3), dtype=np.bool_)
    for _ in range(MOST_SPREAD):
        if not (changed & ~inside).any():
            break
        inside = binary_dilation(inside, square)
    private: NDArray[np.bool_] = inside | changed
    return private
