"""TensorBoard: events in the run folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from fedpriv.runtime import run_files
from fedpriv.runtime.trackers.base import Tracked, numbers


@contextmanager
def follow(run: Tracked) -> Iterator[Events]:
    """Writes the events of rounds after `done`; those of a killed run after it are overwritten.

    Raises:
        Damaged: if their folder is a link.
    """
    place = run_files.make_folder(run.run_dir, "tensorboard")
    writer = SummaryWriter(str(place), purge_step=run.done + 1)
    writer.flush()  # which makes the file
    for path in place.iterdir():
        if not path.is_symlink():
            path.chmod(0o600)
    try:
        yield Events(writer)
    finally:
        writer.close()


class Events:
    """Writes every number of a round's record, nested ones as `group/name`."""

    def __init__(self, writer: SummaryWriter) -> None:
        self._writer = writer

    def round(self, record: Mapping[str, Any]) -> None:
        """Writes one round."""
        for name, value in numbers(record):
            self._writer.add_scalar(name, value, record["round"])
        self._writer.flush()
