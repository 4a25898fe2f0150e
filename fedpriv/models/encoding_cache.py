"""Encoded examples on disk: a second run on the same pages does not decode them again.

An entry is a folder of one ``.npy`` file per column and a ``table.json`` with their sizes and
hashes. Its name is a hash of everything that the encoding depends on, so an entry is never out of
date. An incomplete entry is written again. Arrays are memory-mapped: their pages are read when they
are used, and shared by all processes of a machine.

The entries hold the content of documents, also of private ones. Only their owner can read them.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedpriv.data import promises
from fedpriv.data.digests import documents_digest
from fedpriv.data.document import Document
from fedpriv.data.examples import Examples
from fedpriv.models.base import DocumentModel
from fedpriv.runtime import run_files
from fedpriv.runtime.cache import files_digest, json_digest
from fedpriv.runtime.versions import versions_of

FORMAT = 1
TABLE = "table.json"

FORGOTTEN = 24 * 3600.0
"""Seconds after which the half-written entry of a killed process is removed."""


def encode_cached(
    model: DocumentModel, documents: Sequence[Document], folder: Path | None
) -> Examples:
    """Returns `model.encode(documents)`, from the cache if possible.

    Args:
        model: has a method ``reading() -> dict`` that returns the settings which its encoding
            depends on, as plain values. Without it nothing is cached.
        documents: in order.
        folder: of the cache; None disables it.

    Raises:
        ValueError: if `reading` returns values that JSON cannot hold.
    """
    reading = getattr(model, "reading", None)
    if folder is None or reading is None:
        return model.encode(promises.Checked(documents))
    kind = type(model)
    key = json_digest(
        {
            "format": FORMAT,
            "model": f"{kind.__module__}.{kind.__qualname__}",
            "reading": reading(),
            "code": code_digest(kind),
            "versions": versions_of("fedpriv", "numpy", "pillow", "tokenizers", "transformers"),
            "documents": documents_digest(documents),
        }
    )
    if (cached := _load(folder / key)) is not None:
        return cached
    examples = model.encode(promises.Checked(documents))
    if any(array.dtype.hasobject for array in _arrays(examples).values()):
        return examples
    try:
        _store(examples, folder / key)
    except OSError as error:
        warnings.warn(f"{folder}: encoded pages could not be kept: {error}", stacklevel=2)
        return examples
    return _load(folder / key) or examples


def code_digest(owner: type) -> str:
    """Returns a hash of the code that reads and computes: fedpriv's models and the owner's file."""
    try:
        source = inspect.getfile(owner)
    except (TypeError, OSError):  # typed into an interpreter
        source = ""
    return _code((*_sources(), source))


def _sources() -> tuple[str, ...]:
    package = Path(__file__).parents[1]
    return tuple(str(path) for path in sorted((package / "models").rglob("*.py")))


@functools.cache
def _code(files: tuple[str, ...]) -> str:
    return files_digest(map(Path, files))


def _arrays(examples: Examples) -> dict[str, NDArray[Any]]:
    """Returns all arrays of the examples by name, shared ones after a slash."""
    columns = {name: examples.column(name) for name in examples.columns}
    return columns | {f"/{name}": array for name, (array, _) in examples.shared.items()}


def _store(examples: Examples, entry: Path) -> None:
    """Writes an entry so that it is complete or missing."""
    folder = entry.parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for forgotten in folder.glob(".*.part"):  # processes that were killed left these half-written
        try:
            if time.time() - forgotten.stat().st_mtime > FORGOTTEN:
                shutil.rmtree(forgotten, ignore_errors=True)
        except OSError:  # another process was quicker
            continue
    part = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=folder))
    try:
        files: dict[str, Any] = {}
        for number, (name, array) in enumerate(_arrays(examples).items()):
            path = part / f"{number}.npy"
            with run_files.output(path) as file:
                np.save(file, array, allow_pickle=False)
            size, digest = path.stat().st_size, _file_hash(path)
            files[name] = {"file": path.name, "bytes": size, "sha256": digest}
        pointers = {name: pointer for name, (_, pointer) in examples.shared.items()}
        table = {"format": FORMAT, "arrays": files, "pointers": pointers}
        run_files.write(part, TABLE, json.dumps(table).encode())
        _publish(part, entry)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _publish(part: Path, entry: Path) -> None:
    """Renames a finished entry to its place, unless another process has put a complete one there.

    Raises:
        OSError: if it cannot be renamed.
    """
    try:
        part.rename(entry)
    except OSError:
        if _load(entry) is not None:
            return
        # A damaged entry is there. Processes that have mapped its files can still read them.
        damaged = Path(tempfile.mkdtemp(prefix=".", suffix=".part", dir=entry.parent))
        entry.rename(damaged / "entry")
        part.rename(entry)
        shutil.rmtree(damaged, ignore_errors=True)


def _load(entry: Path) -> Examples | None:
    """Returns the examples of an entry; None if it is missing or incomplete."""
    try:
        table = json.loads((entry / TABLE).read_text("utf-8"))
        arrays = {}
        for name, file in table["arrays"].items():
            path = entry / Path(file["file"]).name
            if path.stat().st_size != file["bytes"] or _file_hash(path) != file["sha256"]:
                return None
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            # A plain array over the mapping, because NumPy would copy a memmap sent to a worker.
            arrays[name] = np.asarray(mapped)
        shared = {n: (arrays.pop(f"/{n}"), str(p)) for n, p in table["pointers"].items()}
        return Examples.of(arrays, shared) if table["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
