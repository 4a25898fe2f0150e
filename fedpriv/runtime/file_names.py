"""Checks of file names that come from data or from a run folder."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

_LONGEST = 255
"""Bytes in one part of a path: the limit of the usual file systems."""


def is_utf8(text: str) -> bool:
    """Returns whether a text can be written: a file name of other bytes cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def name_problem(name: str) -> str | None:
    """Returns why a name cannot be that of a file in a folder; None where it can."""
    if "\0" in name:
        return "holds a NUL character"
    if not is_utf8(name):  # as a zip of another system leaves it
        return "is not UTF-8: rename the file"
    parts = [part.encode() for part in PurePosixPath(name).parts]
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
