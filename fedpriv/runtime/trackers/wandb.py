"""Weights & Biases: a run in the folder `wandb` of the run folder.

It stays on this machine unless the user sets WANDB_MODE=online; `wandb sync` sends it later.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedpriv.runtime import run_files
from fedpriv.runtime.cache import json_digest
from fedpriv.runtime.trackers.base import PATIENCE, Tracked, flat, numbers, online

if TYPE_CHECKING:
    import wandb


@contextmanager
def follow(run: Tracked) -> Iterator[Logged]:
    """Writes settings and rounds; a resumed run writes on under the same identifier.

    Raises:
        Damaged: if the folder is a link.
    """
    # A privacy tool must not phone home: W&B reports on itself even while a run stays offline.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    # Or it says to which address it sends, with the password in it.
    os.environ.setdefault("WANDB_SILENT", "true")
    import wandb

    run_files.make_folder(run.run_dir, "wandb")
    entry = wandb.init(
        project=run.name,
        name=run.run_dir.name,
        id=json_digest(str(run.run_dir.absolute()))[:16],
        resume="allow",
        dir=str(run.run_dir),
        mode="online" if online() else "offline",
        config=dict(flat(run.settings)),
        # Neither the working directory's code nor its Git remote belongs to the run.
        settings=wandb.Settings(
            disable_git=True, save_code=False, console="off", silent=True, init_timeout=PATIENCE
        ),
    )
    status = 1
    try:
        yield Logged(entry)
        status = 0
    finally:
        entry.finish(exit_code=status)


class Logged:
    """Writes every number of a round's record, nested ones as `group/name`."""

    def __init__(self, entry: wandb.Run) -> None:
        self._entry = entry

    def round(self, record: Mapping[str, Any]) -> None:
        """Writes one round."""
        self._entry.log(dict(numbers(record)), step=record["round"], commit=True)
