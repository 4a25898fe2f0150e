"""The ground truth of a run, in a store that only scoring opens.

The simulated clients' documents behind the messages that a server saw, as the model read them; and
which providers were trained on. No attack gets a handle: an attack's arguments are in memory,
without a path to here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from fedpriv.federation.membership_table import TrainingMembership
from fedpriv.runtime.run_folder import RunFolder
from fedpriv.runtime.tensors import read_tensors, save_tensors
from fedpriv.runtime.vectors import as_tensor

TRUTH = "truth"
PROVIDERS = f"{TRUTH}/providers.json"
FIELDS = f"{TRUTH}/fields.json"
CONTROLS = f"{TRUTH}/held-out"
ROWS = f"{TRUTH}/rows"

MessageKey = tuple[int, int | None]
"""Round and client of a message. The client is None for the aggregate of a round."""


@dataclass(frozen=True)
class Field:
    """One private text segment of a page, one line at most.

    Attributes:
        key: of the entity, such as "total".
        text: what stands there.
        box: left, top, right, bottom in the model's pixels, end exclusive; empty (all 0) where the
            model's page does not show it, or it reads none as `pixels`.
        tokens: ids of those of its words that the row holds: it may be a window of the page, or be
            cut. Empty where it holds none, or the model has no tokens.
    """

    key: str
    text: str
    box: tuple[int, int, int, int]
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True)
class TrueField:
    """What stood in a scrubbed field.

    Attributes:
        tokens: (k,), ids.
        text: as the document has it.
        occurrences: documents of the training set with an entity of that text (lower-cased).
        public: public documents with such a one: the adversary can know it without the model.
        trained: whether its document was trained on; the others are for control.
    """

    tokens: tuple[int, ...]
    text: str
    occurrences: int = 1
    public: int = 0
    trained: bool = True


@dataclass(frozen=True)
class Truth:
    """The batch of B examples behind one message.

    Attributes:
        documents: ids, B.
        columns: the model's batch without `pixels`, numeric, each (B, …).
        pixels: (B, 3, H, W), uint8; none for models that read no page, and for those that have it
            in columns of their own (Pix2Struct's patches).
        fields: the private segments of each page.
        questions: of each example, as far as the row holds it; empty where there is none.
        answers: of each example, what the row is labelled with; empty where the row, such as a
            window without the answer, is labelled with none.
        template: (B, 3, H, W), uint8, the pages with their fields blank. Of messages it is kept
            with what could be known of them, and none here.
    """

    documents: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]]
    pixels: NDArray[np.uint8] | None
    fields: tuple[tuple[Field, ...], ...]
    questions: tuple[str, ...]
    answers: tuple[str, ...]
    template: NDArray[np.uint8] | None = None


_FIELDS_OF_PAGES = TypeAdapter(tuple[tuple[Field, ...], ...])
_PARTS = TypeAdapter(dict[str, TrainingMembership])
_TRUE_FIELDS = TypeAdapter(list[TrueField])


def save_parts(folder: RunFolder, parts: Mapping[str, TrainingMembership]) -> None:
    """Writes each provider's part in the training."""
    folder.write_json(PROVIDERS, {provider: asdict(part) for provider, part in parts.items()})


def save_fields(folder: RunFolder, fields: Sequence[TrueField]) -> None:
    """Writes what stood in each scrubbed field, in the order of their numbers."""
    folder.write_json(FIELDS, [asdict(field) for field in fields])


def save_truth(folder: RunFolder, key: MessageKey, truth: Truth) -> None:
    """Writes the truth behind one message."""
    _save(folder, _file(key), truth)


def save_controls(folder: RunFolder, truths: Sequence[Truth]) -> None:
    """Writes what messages of held-out documents would have held, each of one example."""
    for number, truth in enumerate(truths):
        _save(folder, f"{CONTROLS}/{number:04d}", truth)


def _save(folder: RunFolder, file: str, truth: Truth) -> None:
    tensors = {f"columns/{name}": as_tensor(array) for name, array in truth.columns.items()}
    for name in ("pixels", "template"):
        if (array := getattr(truth, name)) is not None:
            tensors[name] = as_tensor(array)
    notes = {
        "documents": truth.documents,
        "fields": [[asdict(field) for field in page] for page in truth.fields],
        "questions": truth.questions,
        "answers": truth.answers,
    }
    save_tensors(folder, file, tensors, notes)


class TruthStore:
    """Opens the truth of a run; only the scoring of findings holds one.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def of(self, key: MessageKey) -> Truth | None:
        """Returns the truth behind one message; none where the simulation kept none.

        Raises:
            BatchesUnread: if the run was ended before this was written.
            Damaged: if the file cannot be read.
        """
        check_read(self._folder, key[0])
        return self._load(_file(key)) if self._folder.has(f"{_file(key)}.safetensors") else None

    def controls(self) -> list[Truth]:
        """Returns what a message of held-out documents would have held, each of one example.

        Raises:
            Damaged: if a file cannot be read.
        """
        names = self._folder.names(CONTROLS, "*.safetensors")
        return [self._load(f"{CONTROLS}/{name.removesuffix('.safetensors')}") for name in names]

    def _load(self, file: str) -> Truth:
        tensors, notes = read_tensors(self._folder, file)
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        prefix = "columns/"
        columns = {
            name.removeprefix(prefix): array
            for name, array in arrays.items()
            if name.startswith(prefix)
        }
        with self._folder.making_sense_of(f"{file}.safetensors"):
            return Truth(
                tuple(notes["documents"]),
                columns,
                arrays.get("pixels"),
                _FIELDS_OF_PAGES.validate_python(notes["fields"]),
                tuple(notes["questions"]),
                tuple(notes["answers"]),
                arrays.get("template"),
            )

    def parts(self) -> dict[str, TrainingMembership]:
        """Returns each provider's part in the training; empty where the simulation kept none."""
        found = self._folder.read_json(PROVIDERS) or {}
        with self._folder.making_sense_of(PROVIDERS):
            return _PARTS.validate_python(found)

    def fields(self) -> dict[int, TrueField]:
        """Returns what stood in each scrubbed field, by number; empty where none were kept."""
        found = self._folder.read_json(FIELDS, list) or []
        with self._folder.making_sense_of(FIELDS):
            return dict(enumerate(_TRUE_FIELDS.validate_python(found)))


def _file(key: MessageKey) -> str:
    round, client = key
    return f"{TRUTH}/round-{round:06d}/client-{client:04d}"


class BatchesUnread(ValueError):
    """The run was ended before the batches of a round were read."""


def check_read(folder: RunFolder, round: int) -> None:
    """Checks that what is known of the batches of a round has been written.

    Raises:
        BatchesUnread: if the run has not come to its end; says what to do.
    """
    if folder.has(rows_file(round)):
        raise BatchesUnread(
            f"{folder.path} has not come to its end, and what an adversary may know of the batches "
            f"of round {round}, and the truth behind them, are written then: run "
            f"`fedpriv resume {folder.path}` first"
        )


def rows_file(round: int) -> str:
    """Returns the file that notes which examples the messages of a round were computed from."""
    return f"{ROWS}/round-{round:06d}.jsonl"
