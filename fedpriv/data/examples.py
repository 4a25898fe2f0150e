"""Encoded examples as columns of NumPy arrays: shared between processes, read in batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Batch = dict[str, Tensor]

A = TypeVar("A")
B = TypeVar("B")

PROVIDER = "provider"
"""The column with each example's provider, as an integer; of documents, `provider_number`."""


def provider_number(name: str) -> int:
    """Returns the number of a provider: 52 bits of a digest of its name, which a float holds, too.

    What a provider's turn or randomness depends on may depend on no other provider. A rank among
    all would: with one provider less, others have other ranks.
    """
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 12


@dataclass(frozen=True)
class Examples:
    """Some rows of a table. The columns are shared, and copied only into batches.

    Attributes:
        columns: name → array of shape (rows, …), all of the same length. A column of texts is for
            scoring, and is left out of batches.
        rows: positions of these examples in the columns, in order; `of` takes all.
        shared: name → (array, name of the column with positions in it), for arrays that several
            rows share, such as page images of which each document has several windows.
    """

    columns: Mapping[str, NDArray[Any]]
    rows: NDArray[np.int64]
    shared: Mapping[str, tuple[NDArray[Any], str]]

    @classmethod
    def of(
        cls,
        columns: Mapping[str, NDArray[Any]],
        shared: Mapping[str, tuple[NDArray[Any], str]] | None = None,
    ) -> Examples:
        """Returns all rows of the columns.

        Raises:
            ValueError: if the columns differ in length, or `columns` is empty.
        """
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"columns must be of one length, got {lengths}")
        # Read-only, because all clients of a process look at the same arrays.
        fixed = {name: _read_only(column) for name, column in columns.items()}
        pages = {name: (_read_only(a), pointer) for name, (a, pointer) in (shared or {}).items()}
        return cls(fixed, np.arange(next(iter(lengths.values()))), pages)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, positions: Sequence[int] | NDArray[np.int64]) -> Examples:
        """Returns the examples at these positions (of this table, not of the columns)."""
        return Examples(self.columns, self.rows[np.asarray(positions, dtype=np.int64)], self.shared)

    def column(self, name: str) -> NDArray[Any]:
        """Returns one column of these examples, copied."""
        return self.columns[name][self.rows]

    def with_column(self, name: str, column: NDArray[Any]) -> Examples:
        """Returns these examples with one more column, given for all rows of the table."""
        return Examples.of({**self.columns, name: column}, self.shared)

    def batch(self, positions: NDArray[np.int64], device: torch.device | str = "cpu") -> Batch:
        """Returns the examples at these positions as tensors, each of shape (positions, …).

        Positions of shape (batches, size) give tensors of shape (batches, size, …).
        """
        rows = self.rows[positions]
        arrays = {name: c[rows] for name, c in self.columns.items() if c.dtype.kind != "U"}
        for name, (array, pointer) in self.shared.items():
            arrays[name] = array[self.columns[pointer][rows]]
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if torch.device(device).type != "cuda":
            return {name: tensor.to(device) for name, tensor in tensors.items()}
        # Out of pinned memory a GPU copies by itself, while the CPU goes on.
        return {n: t.pin_memory().to(device, non_blocking=True) for n, t in tensors.items()}

    def batches(
        self,
        size: int,
        *,
        shuffle: np.random.Generator | None = None,
        device: torch.device | str = "cpu",
    ) -> Iterator[Batch]:
        """Yields batches of `size` (the last may be smaller), shuffled if a generator is given.

        For a CUDA device, a thread makes the next batch while this one is in use.
        """
        order = np.arange(len(self)) if shuffle is None else shuffle.permutation(len(self))
        parts = (order[start : start + size] for start in range(0, len(order), size))
        return self.batches_at(parts, device)

    def batches_at(
        self, positions: Iterator[NDArray[np.int64]], device: torch.device | str = "cpu"
    ) -> Iterator[Batch]:
        """Yields the batch of each array of positions; see `batch` and `batches`."""

        def batch(rows: NDArray[np.int64]) -> Batch:
            return self.batch(rows, device)

        on_gpu = torch.device(device).type == "cuda"
        return ahead(batch, positions) if on_gpu else map(batch, positions)


def ahead(function: Callable[[A], B], arguments: Iterator[A]) -> Iterator[B]:
    """Yields what a function makes of each argument; a thread works one argument ahead."""
    with ThreadPoolExecutor(1) as thread:
        before: Future[B] | None = None
        for argument in arguments:
            now = thread.submit(function, argument)
            if before is not None:
                yield before.result()
            before = now
        if before is not None:
            yield before.result()


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
