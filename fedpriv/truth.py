"""The ground truth of the messages that a server saw, in a store that only scoring opens.

The simulated clients' documents, as the model read them. No attack gets a handle: an attack's
arguments are a `Transcript` and `Knowledge`, loaded into memory without a path to here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.adversary import MessageKey
from fedpriv.checkpoint import RunFolder
from fedpriv.parameters import as_tensor
from fedpriv.transcript import read_tensors, save_tensors

TRUTH = "truth"


@dataclass(frozen=True)
class Field:
    """One private text segment of a page, one line at most.

    Attributes:
        key: of the entity, such as "total".
        text: what stands there.
        box: left, top, right, bottom in the model's pixels, end exclusive; empty (all 0) where the
            model's page does not show it.
    """

    key: str
    text: str
    box: tuple[int, int, int, int]


@dataclass(frozen=True)
class Truth:
    """The batch of B examples behind one message.

    Attributes:
        documents: ids, B.
        columns: the model's batch without `pixels`, numeric, each (B, …).
        pixels: (B, 3, H, W), uint8; none for models that read no page.
        fields: the private segments of each page.
        questions: of each example; empty strings where there are none.
        answers: the first accepted answer of each example.
    """

    documents: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]]
    pixels: NDArray[np.uint8] | None
    fields: tuple[tuple[Field, ...], ...]
    questions: tuple[str, ...]
    answers: tuple[str, ...]


def save_truth(folder: RunFolder, key: MessageKey, truth: Truth) -> None:
    """Writes the truth behind one message."""
    tensors = {f"columns/{name}": as_tensor(array) for name, array in truth.columns.items()}
    if truth.pixels is not None:
        tensors["pixels"] = as_tensor(truth.pixels)
    notes = {
        "documents": truth.documents,
        "fields": [[asdict(field) for field in page] for page in truth.fields],
        "questions": truth.questions,
        "answers": truth.answers,
    }
    save_tensors(folder, _file(key), tensors, notes)


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
            ValueError: if the file cannot be read.
        """
        path = self._folder.path / f"{_file(key)}.safetensors"
        if not path.is_file():
            return None
        tensors, notes = read_tensors(path)
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        columns = {n.removeprefix("columns/"): a for n, a in arrays.items() if n != "pixels"}
        fields = tuple(
            tuple(Field(f["key"], f["text"], _box(f["box"])) for f in page)
            for page in notes["fields"]
        )
        return Truth(
            tuple(notes["documents"]),
            columns,
            arrays.get("pixels"),
            fields,
            tuple(notes["questions"]),
            tuple(notes["answers"]),
        )


def _box(sides: list[int]) -> tuple[int, int, int, int]:
    left, top, right, bottom = sides
    return left, top, right, bottom


def _file(key: MessageKey) -> str:
    round, client = key
    return f"{TRUTH}/round-{round:06d}/client-{client:04d}"
