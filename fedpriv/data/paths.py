"""File names that come out of data: they must not lead out of the data's folder."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath

from fedpriv.data.document import DataError
from fedpriv.data.reading import shown

_LONGEST = 255
"""Bytes in one part of a path: the limit of the usual file systems."""


def inside(folder: Path, name: str) -> Path:
    """Returns `folder` / `name`, sure to lie in `folder` after every symbolic link is followed.

    The file itself is neither opened nor need it exist. `folder` may be a link: it is the user's.

    Raises:
        DataError: if the name is empty, absolute, climbs out by ".." or a link, or is none that
            a file system takes.
    """
    why = _problem(name)
    if why:
        raise DataError(
            folder, f"the file name {shown(name)} {why}; expected a name in this folder"
        )
    path = folder / name
    try:
        home, real = folder.resolve(), path.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a ring of links, in Python 3.11
        raise DataError(path, f"cannot be followed: {error}") from error
    if home not in real.parents:
        raise DataError(path, "a link that leads out of the data's folder; nothing was read")
    return path


def _problem(name: str) -> str | None:
    if "\0" in name:
        return "holds a NUL character"
    try:
        parts = [os.fsencode(part) for part in PurePosixPath(name).parts]
    except UnicodeEncodeError:
        return "is not text that a file name can hold"
    if not parts:
        return "is empty"
    # Windows' reading too, so that a data set means the same everywhere.
    kinds = (PurePosixPath(name), PureWindowsPath(name))
    if any(path.is_absolute() or path.drive or path.root for path in kinds):
        return "is absolute"
    if any(".." in path.parts for path in kinds):
        return 'climbs out by ".."'
    if any(len(part) > _LONGEST for part in parts):
        return f"has a part of more than {_LONGEST} bytes"
    return None
