"""Settings that reach beyond a run: marked in their types, so that nobody keeps a list of them.

A run folder that somebody else has made could name any path, address or account in its settings.
What is marked here is taken from it only if the user says so (`fedpriv.config.trust`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated


@dataclass(frozen=True)
class Outside:
    """What the type of a setting says, if fedpriv reads, writes or connects where it names.

    Attributes:
        path: whether it may name a file or folder.
        read: whether that is read. A run stores such a path whole, so that it means the same
            wherever the run is resumed.
    """

    path: bool
    read: bool = True


PathSetting = Annotated[str | Path, Outside(path=True)]
"""A file or folder, or a name on the hub."""

OutputSetting = Annotated[str | Path, Outside(path=True, read=False)]
"""A folder that is made where it is not there."""

PathText = Annotated[str, Outside(path=True)]
"""The same, for what takes text alone."""

ServiceSetting = Annotated[str, Outside(path=False)]
"""A program, a cluster, or a service that one has an account with."""
