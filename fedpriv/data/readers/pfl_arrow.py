"""One file of PFL-DocVQA's records as Parquet: its columns, and the process that writes it.

``python -m fedpriv.data.readers.pfl_arrow SOURCE.npy TARGET.parquet BYTES SECONDS`` unpickles in a
process that has little memory, little time, and nothing to reach; `fedpriv.cli.data.convert` starts
it.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedpriv.data.document import DataError, check_file
from fedpriv.data.readers.restricted_pickle import Array, load_objects
from fedpriv.data.reading import shown

SCHEMA = pa.schema(
    [
        # In the array, where the header stands at 0: what data_points.json counts.
        pa.field("position", pa.int32(), nullable=False),
        pa.field("question", pa.string(), nullable=False),
        pa.field("answers", pa.list_(pa.string()), nullable=False),
        pa.field("words", pa.list_(pa.string()), nullable=False),
        # Left, top, right, bottom, as parts of the page's width and height.
        pa.field("boxes", pa.list_(pa.list_(pa.float32(), 4)), nullable=False),
        pa.field("image_name", pa.string(), nullable=False),
        pa.field("set_name", pa.string(), nullable=False),
        pa.field("question_id", pa.string(), nullable=False),
        pa.field("provider", pa.string()),
        pa.field("document", pa.string()),
        pa.field("label", pa.int32()),
    ]
)

LENGTH = b"fedpriv.length"
"""Key of the file's metadata: how many items the array had, header and broken records included."""

_BATCH = 256
_REASONS = 5


@dataclass
class Outcome:
    """The outcome of converting one array.

    Attributes:
        records: written.
        skipped: malformed records, left out.
        reasons: for the first few of them.
    """

    records: int = 0
    skipped: int = 0
    reasons: list[str] = field(default_factory=list)

    def skip(self, position: int, why: object) -> None:
        """Counts a malformed record."""
        self.skipped += 1
        if len(self.reasons) < _REASONS:
            self.reasons.append(f"record {position}: {why}")


def write_records(
    source: Path, target: Path, guard: contextlib.AbstractContextManager[Any] | None = None
) -> Outcome:
    """Writes the records of an array of PFL-DocVQA as Parquet.

    Its first item may be a header, which has no ``image_name``. A record without question_id gets
    ``set_name-index``, counted from 0 after the header, as in the official reader.

    Args:
        source: a ``.npy`` file.
        target: the file to write.
        guard: entered while the pickle is read.

    Raises:
        DataError: if the array cannot be read safely, holds no usable record, or takes far more
            space written out than its size (records that share one list of words over and over).
    """
    items = load_objects(source, guard)
    outcome = Outcome()
    budget = _Budget(source)
    schema = SCHEMA.with_metadata({LENGTH: str(len(items)).encode()})
    with pq.ParquetWriter(target, schema, compression="zstd", write_page_checksum=True) as writer:
        for rows in _batches(items, outcome, budget):
            boxes = [row["boxes"] for row in rows]
            flat = pa.array(np.concatenate(boxes).ravel(), pa.float32())
            ends = pa.array(np.cumsum([0, *map(len, boxes)]), pa.int32())
            quads = pa.ListArray.from_arrays(ends, pa.FixedSizeListArray.from_arrays(flat, 4))
            columns = [
                quads
                if column.name == "boxes"
                else pa.array([row[column.name] for row in rows], column.type)
                for column in schema
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    if not outcome.records:
        why = f"; {outcome.reasons[0]}" if outcome.reasons else ""
        raise DataError(source, f"none of its {len(items)} items is a record{why}")
    return outcome


def _batches(
    items: Sequence[Any], outcome: Outcome, budget: _Budget
) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    first = 1 if items and isinstance(items[0], dict) and "image_name" not in items[0] else 0
    for position, item in enumerate(items[first:], first):
        try:
            rows.append(_row(item, position, position - first, budget))
            outcome.records += 1
        except (ValueError, OverflowError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            outcome.skip(position, error)
        if len(rows) == _BATCH:
            yield rows
            rows = []
    if rows:
        yield rows


class _Budget:
    """Limits the characters and boxes of all records of a file together, once written out.

    Records that share a list of words, such as the few dozen questions of a page, store it once.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.left = 2**26 + 64 * source.stat().st_size

    def spend(self, amount: int) -> None:
        self.left -= amount
        if self.left < 0:
            raise DataError(self.source, "its records spell out to far more than its size")


def _row(item: Any, position: int, index: int, budget: _Budget) -> dict[str, Any]:
    """Returns the columns of the record at `index` after the header; `ValueError` if malformed."""
    if not isinstance(item, dict):
        raise ValueError(f"expected a record, found {shown(item)}")
    set_name = _text(item.get("set_name", ""), "set_name")
    words = _texts(item.get("ocr_tokens"), "ocr_tokens", budget)
    boxes = _boxes(item.get("ocr_normalized_boxes"), len(words), budget)
    # In PFL-DocVQA one text of lines, elsewhere a list.
    answers = item.get("answers", "")
    answers = answers.split("\n") if isinstance(answers, str) else answers
    answers = [text.strip() for text in _texts(answers, "answers", budget)]
    identifier, label = item.get("question_id"), item.get("label")
    if identifier is None:
        identifier = f"{set_name}-{index}"
    if type(identifier) is not int:
        identifier = _text(identifier, "question_id")
    if not isinstance(label, int | None) or not -(2**31) <= (label or 0) < 2**31:
        raise ValueError(f"label: expected a whole number, found {shown(label)}")
    return {
        "position": position,
        "question": _text(item.get("question"), "question"),
        "answers": [text for text in answers if text],
        "words": words,
        "boxes": boxes,
        "image_name": _text(item.get("image_name"), "image_name"),
        "set_name": set_name,
        "question_id": str(identifier),
        "provider": _optional(item, "provider"),
        "document": _optional(item, "document"),
        "label": None if label is None else int(label),
    }


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected a text, found {shown(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: {shown(value)} holds half a character") from None
    return value


def _texts(value: object, name: str, budget: _Budget) -> list[str]:
    items = value.items() if isinstance(value, Array) else value
    if not isinstance(items, list | tuple):
        raise ValueError(f"{name}: expected a list of texts, found {shown(value)}")
    budget.spend(len(items))
    texts = [_text(item, name) for item in items]
    budget.spend(sum(map(len, texts)))
    return texts


def _boxes(value: object, count: int, budget: _Budget) -> NDArray[np.float32]:
    """Returns `count` boxes, count × 4."""
    budget.spend(4 * count)
    # An array of numbers, or a list of lists or arrays of numbers.
    items = _plain(value)
    rows = [_plain(item) for item in items] if isinstance(items, list | tuple) else items
    if not isinstance(rows, np.ndarray):
        for row in rows:
            numbers = isinstance(row, list | tuple) and all(type(x) in (int, float) for x in row)
            if not (isinstance(row, np.ndarray) or numbers) or len(row) != 4:
                raise ValueError(f"ocr_normalized_boxes: expected 4 numbers, found {shown(row)}")
    found = np.array(rows, dtype=np.float64)
    if found.size == 0 and count == 0:
        return np.zeros((0, 4), np.float32)
    if found.shape != (count, 4):
        raise ValueError(
            f"ocr_normalized_boxes: expected 4 numbers for each of {count} ocr_tokens, "
            f"found an array of shape {found.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # the reader refuses what is off the page
        return found.astype(np.float32)


def _plain(value: object) -> Any:
    """Returns an array's numbers, or its items if it is of objects; lists as they are."""
    if isinstance(value, Array):
        return value.items() if value.of_objects and len(value.shape) == 1 else value.numbers()
    if not isinstance(value, list | tuple):
        raise ValueError(f"ocr_normalized_boxes: expected boxes, found {shown(value)}")
    return value


def _optional(item: dict[str, Any], name: str) -> str | None:
    return None if item.get(name) is None else _text(item[name], name)


def length_of(path: Path) -> int:
    """Returns how many items the array of a converted file had, its header included.

    Raises:
        DataError: if `write_records` did not write the file.
    """
    with _opened(path) as file:
        return int(file.schema_arrow.metadata[LENGTH])


def read_records(path: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yields the records of a converted file, with the columns of `SCHEMA` or some of them.

    Raises:
        DataError: if `write_records` did not write the file, or it is damaged.
    """
    with _opened(path) as file:
        try:
            for batch in file.iter_batches(_BATCH, columns=columns):
                batch.validate(full=True)
                yield from batch.to_pylist()
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(path, f"damaged: {error}; {_AGAIN}") from error


_AGAIN = "`fedpriv data convert` writes it again"


def _opened(path: Path) -> pq.ParquetFile:
    check_file(path)
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise DataError(path, f"not Parquet: {error}; {_AGAIN}") from error
    found = file.schema_arrow
    length = (found.metadata or {}).get(LENGTH, b"")
    if not found.equals(SCHEMA) or not length.isdigit() or len(length) > 10:
        file.close()
        raise DataError(path, f"not a file of `fedpriv data convert`: {_AGAIN}")
    return file


class _Shut:
    """While entered, refuses every event that Python audits, such as opening a file."""

    def __init__(self) -> None:
        self.shut = False

        def refuse(event: str, _: tuple[Any, ...]) -> None:
            if self.shut and event != "pickle.find_class":
                raise RuntimeError(f"it tries {event}")

        sys.addaudithook(refuse)

    def __enter__(self) -> None:
        self.shut = True

    def __exit__(self, *_: object) -> None:
        self.shut = False


def _limit(memory: int, seconds: int) -> None:
    """Limits this process, where the system can: `memory` bytes more than now, `seconds` of CPU."""
    try:
        import resource
    except ImportError:  # Windows
        return
    taken = 0
    with contextlib.suppress(OSError):  # /proc is Linux's
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
        taken = pages * os.sysconf("SC_PAGE_SIZE")
    limits = (
        (resource.RLIMIT_AS, taken + memory),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, memory),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, value in limits:
        # macOS refuses some of them; a hard limit may be lower already.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, value))


class _NoPandas(MetaPathFinder):
    """Pyarrow asks whether a list is one of pandas, which takes as long to import as all else."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main(arguments: Sequence[str]) -> int:
    """Converts one file and prints the outcome as JSON; returns the exit status."""
    source, target = Path(arguments[0]), Path(arguments[1])
    _limit(int(arguments[2]), int(arguments[3]))
    sys.meta_path.insert(0, _NoPandas())
    try:
        outcome = write_records(source, target, _Shut())
    except DataError as error:
        print(json.dumps({"why": error.why}))
        return 1
    except MemoryError:
        print(json.dumps({"why": "takes more memory than its size explains; not read"}))
        return 1
    except (OSError, pa.ArrowException) as error:
        print(json.dumps({"why": f"cannot be written to {target.parent}: {error}"}))
        return 1
    print(json.dumps(vars(outcome)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
