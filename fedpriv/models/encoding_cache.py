"""Encoded examples on disk: a second run on the same pages decodes none of them again.

An entry is a folder of one ``.npy`` file per column and a ``table.json`` with their sizes and
hashes. Its name is a hash of all that the encoding depends on, so an entry is never out of date; an
entry that is not whole is written again. Arrays come back memory-mapped: pages of the file are read
when they are used, and shared by all processes of a machine.

The entries hold the documents' content, private ones too, readable by their owner only.
`fedpriv clean` removes them.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import shutil
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.data.digests import documents_digest
from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.models.base import DocumentModel
from fedpriv.runtime.cache import json_digest
from fedpriv.runtime.versions import versions_of

FORMAT = 1
TABLE = "table.json"

FORGOTTEN = 24 * 3600.0
"""Seconds after which the half-written entry of a process that was killed is removed."""


def encode_cached(
    model: DocumentModel, documents: Sequence[Document], folder: Path | None
) -> Examples:
    """Returns `model.encode(documents)`, from the cache where it is.

    Args:
        model: is asked for the settings that its encoding depends on, by a method
            ``reading() -> dict`` of plain values; without one, nothing is cached.
        documents: in order.
        folder: of the cache; None uses none.

    Raises:
        ValueError: if `reading` returns what JSON cannot hold.
    """
    reading = getattr(model, "reading", None)
    if folder is None or reading is None:
        return model.encode(documents)
    entry = folder / _key(model, reading(), documents)
    found = _load(entry)
    if found is not None:
        return found
    examples = model.encode(documents)
    if any(array.dtype.hasobject for array in _arrays(examples).values()):
        return examples
    try:
        _store(examples, entry)
    except OSError as error:
        warnings.warn(f"{folder}: encoded pages could not be kept: {error}", stacklevel=2)
        return examples
    return _load(entry) or examples


def code_digest(owner: type) -> str:
    """Returns a hash of the code that reads and computes: fedpriv's models and the owner's file."""
    return _code((*_sources(), _source_of(owner)))


def _key(model: DocumentModel, reading: Mapping[str, Any], documents: Sequence[Document]) -> str:
    kind = type(model)
    return json_digest(
        {
            "format": FORMAT,
            "model": f"{kind.__module__}.{kind.__qualname__}",
            "reading": reading,
            "code": code_digest(kind),
            "versions": versions_of("fedpriv", "numpy", "pillow", "tokenizers", "transformers"),
            "documents": documents_digest(documents),
        }
    )


def _sources() -> tuple[str, ...]:
    package = Path(__file__).parents[1]
    return tuple(str(path) for path in sorted((package / "models").rglob("*.py")))


def _source_of(owner: type) -> str:
    try:
        return inspect.getfile(owner)
    except (TypeError, OSError):  # typed into an interpreter
        return ""


@functools.cache
def _code(files: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for name in files:
        path = Path(name)
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def _arrays(examples: Examples) -> dict[str, NDArray[Any]]:
    """Returns all arrays of the examples by name, shared ones after a slash."""
    columns = {name: examples.column(name) for name in examples.columns}
    return columns | {f"/{name}": array for name, (array, _) in examples.shared.items()}


def _store(examples: Examples, entry: Path) -> None:
    """Writes an entry so that it is there whole or not at all."""
    entry.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _tidy(entry.parent)
    part = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=entry.parent))
    try:
        _write(examples, part)
        _publish(part, entry)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write(examples: Examples, folder: Path) -> None:
    table: dict[str, Any] = {"format": FORMAT, "arrays": {}}
    for number, (name, array) in enumerate(_arrays(examples).items()):
        path = folder / f"{number}.npy"
        np.save(path, array, allow_pickle=False)
        table["arrays"][name] = {"file": path.name, "bytes": path.stat().st_size}
        table["arrays"][name]["sha256"] = _file_hash(path)
    table["pointers"] = {name: pointer for name, (_, pointer) in examples.shared.items()}
    (folder / TABLE).write_text(json.dumps(table), "utf-8")


def _publish(part: Path, entry: Path) -> None:
    """Renames a finished entry to its place; leaves it to whoever was first, if that one is whole.

    Raises:
        OSError: if it cannot be renamed.
    """
    try:
        part.rename(entry)
    except OSError:
        if _load(entry) is not None:
            return
        # A damaged one stands there. Whoever has mapped its files goes on reading them.
        damaged = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=entry.parent))
        entry.rename(damaged / "entry")
        part.rename(entry)
        shutil.rmtree(damaged, ignore_errors=True)


def _load(entry: Path) -> Examples | None:
    """Returns the examples of an entry; None if there is none, or it is not whole."""
    try:
        table = json.loads((entry / TABLE).read_text("utf-8"))
        arrays = {name: _open(entry, file) for name, file in table["arrays"].items()}
        shared = {n: (arrays.pop(f"/{n}"), str(p)) for n, p in table["pointers"].items()}
        return Examples.of(arrays, shared) if table["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _open(entry: Path, file: Mapping[str, Any]) -> NDArray[Any]:
    """Maps a file into memory.

    Raises:
        ValueError: if it is not the file that was written.
    """
    path = entry / Path(file["file"]).name
    if path.stat().st_size != file["bytes"] or _file_hash(path) != file["sha256"]:
        raise ValueError(f"{path} is damaged")
    mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    # A plain array over the mapping: NumPy would copy a memmap where it is sent to a worker.
    return np.asarray(mapped)


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tidy(folder: Path) -> None:
    """Removes what killed processes have left half-written."""
    for path in folder.glob(".*.part"):
        try:
            if time.time() - path.stat().st_mtime > FORGOTTEN:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:  # another process was quicker
            continue
