"""Which examples each message was computed from, noted while a run goes on.

`truth/rows/` in a run folder holds, for each round, a line for every message that was kept. When
the run ends, `KeepTranscript.after` reads the batches behind these rows, writes what could be known
of them (`fedpriv.threat.knowledge`) and the truth (`fedpriv.threat.truth`), and removes the lines.
So a round reads no page, and a run that was killed has lost nothing.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedpriv.runtime.run_folder import RunFolder
from fedpriv.threat.access import MessageKey

ROWS = "truth/rows"


class BatchesUnread(ValueError):
    """The run was ended before the batches of a round were read."""


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
    folder.append(_file(round), [line])


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
    records = folder.records(_file(round))
    with folder.making_sense_of(_file(round)):
        return {
            operator.index(record["client"]): BatchRows(
                np.array(record["rows"], dtype=np.int64), operator.index(record["entropy"])
            )
            for record in records
        }


def forget_rows(folder: RunFolder, round: int) -> None:
    """Removes the notes of a round whose batches have been read."""
    folder.remove(_file(round))


def check_read(folder: RunFolder, round: int) -> None:
    """Checks that what is known of the batches of a round has been written.

    Raises:
        BatchesUnread: if the run has not come to its end; says what to do.
    """
    if folder.has(_file(round)):
        raise BatchesUnread(
            f"{folder.path} has not come to its end, and what an adversary may know of the batches "
            f"of round {round}, and the truth behind them, are written then: run "
            f"`fedpriv resume {folder.path}` first"
        )


def _file(round: int) -> str:
    return f"{ROWS}/round-{round:06d}.jsonl"
