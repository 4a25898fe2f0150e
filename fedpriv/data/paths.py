"""File names that come out of data: they must not lead out of the data's folder."""

from __future__ import annotations

from pathlib import Path

from fedpriv.data.document import DataError
from fedpriv.data.reading import shown
from fedpriv.runtime.file_names import name_problem


def inside(folder: Path, name: str) -> Path:
    """Returns `folder` / `name`, sure to lie in `folder` after every symbolic link is followed.

    The file itself is neither opened nor need it exist. `folder` may be a link: it is the user's.

    Raises:
        DataError: if the name is empty, absolute, leads out by ".." or a link, or is not a valid
            file name.
    """
    why = name_problem(name)
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
