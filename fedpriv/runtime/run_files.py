"""Files in a run folder, which are never accessed through links, and which only the owner can read.

A run folder may come from somebody else, and it holds private pages. So no name leads out of it, a
link, pipe or device is an error, and new folders and files have the modes 0700 and 0600 whatever
the umask. The run folder itself may be a link, which is the user's own choice.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import shlex
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import TypeVar

from fedpriv.runtime.file_names import name_problem
from fedpriv.runtime.refusals import Explained

T = TypeVar("T")

PART = ".part"
"""Ending of a file that is being written; its name also begins with a dot."""

_SENSELESS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
_LINK = "is a symbolic link, which is not followed: put the file itself there"


class Damaged(Explained, ValueError):
    """A file of a run folder that cannot be used; the message says which and why."""


@contextmanager
def making_sense_of(path: Path) -> Iterator[None]:
    """Turns any error of the block into one that names the file with the unexpected content.

    Raises:
        Damaged: in place of the error.
    """
    try:
        yield
    except Damaged:
        raise
    except _SENSELESS as error:
        raise Damaged(
            f"{path} does not hold what fedpriv writes there ({type(error).__name__}: {error})"
        ) from error


def inside(root: Path, name: str) -> Path:
    """Returns the path of a name in a run folder; the file itself need not exist.

    Raises:
        Damaged: if the name is absolute or climbs out, or leads through a link.
    """
    if problem := name_problem(name):
        raise Damaged(f"{root}: the file name {name!r:.100} {problem}")
    path = root
    for part in Path(name).parent.parts:
        path = path / part
        if path.is_symlink():
            raise Damaged(f"{path} {_LINK}")
    return root / name


def folder_inside(root: Path, name: str) -> Path:
    """Returns the path of a folder in a run folder, as `inside` does."""
    return inside(root, f"{name}/file").parent


def open_file(root: Path, name: str) -> BufferedReader:
    """Opens a file of a run folder for reading.

    Raises:
        FileNotFoundError: if there is none.
        Damaged: if it is a link or no regular file, or lies outside.
    """
    path = inside(root, name)
    try:
        # Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = _LINK if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}"
        raise Damaged(f"{path} {why}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Damaged(f"{path} is no regular file")
    return os.fdopen(handle, "rb")


def read(root: Path, name: str) -> bytes | None:
    """Returns the content of a file, None where there is none."""
    try:
        with open_file(root, name) as file:
            return file.read()
    except FileNotFoundError:
        return None


def unchanged(path: Path, read: Callable[[], T]) -> T:
    """Calls a function that reads a file and others, again if somebody replaces it meanwhile."""
    while True:
        before, found = _identity(path), read()
        if _identity(path) == before:
            return found


def _identity(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns
    return None


def names(root: Path, place: str, pattern: str = "*") -> list[str]:
    """Returns the names in a folder of the run folder, sorted; empty where it does not exist.

    Raises:
        Damaged: if it is a link or no folder.
    """
    path = folder_inside(root, place)
    try:
        return sorted(fnmatch.filter(os.listdir(path), pattern))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Damaged(f"{path} cannot be listed: {error.strerror}") from error


def walk(root: Path, place: str = "") -> Iterator[str]:
    """Yields the name of everything in a run folder that is no folder, links included."""
    with os.scandir(root / place) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = f"{place}/{entry.name}" if place else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from walk(root, name)
            else:
                yield name


def make_root(root: Path) -> None:
    """Makes a folder that only its owner can read; one that is there already keeps its mode.

    Somebody may need that folder open, so that others can read it is only told.
    """
    try:
        root.mkdir(parents=True)
    except FileExistsError:
        mode = stat.S_IMODE(root.stat().st_mode)
        if root.is_dir() and mode & 0o077:
            warnings.warn(
                f"other users of this machine can look into {root} (mode {mode:o}), where private "
                f"data is written: `chmod 700 {shlex.quote(str(root))}` keeps them out",
                stacklevel=3,
            )
    else:
        root.chmod(0o700)


def make_folder(root: Path, name: str) -> Path:
    """Makes a folder in the run folder, with all above it, and returns its path."""
    path = root
    for part in folder_inside(root, name).relative_to(root).parts:
        path = path / part
        try:
            path.mkdir()
        except FileExistsError:
            continue
        path.chmod(0o700)
    return path


def write(root: Path, name: str, data: bytes) -> None:
    """Writes a file so that it is there whole or not at all, after `kill -9` too."""
    folder = make_folder(root, str(Path(name).parent))
    path = inside(root, name)
    temporary = path.with_name(f".{path.name}{PART}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)  # of a process that was killed
    try:
        with naming(path), _created(temporary, os.O_EXCL) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # a full disk shall not be filled with halves
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append(root: Path, name: str, data: bytes, *, sync: bool = False) -> None:
    """Appends to a file, which is made where there is none; with `sync` it is on the disk then."""
    make_folder(root, str(Path(name).parent))
    path = inside(root, name)
    new = not path.exists()
    with naming(path), _created(path, os.O_APPEND | os.O_NONBLOCK) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Damaged(f"{root / name} is no regular file")
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    if sync and new:
        _sync_folder(path.parent)


@contextmanager
def output(path: Path, *, more: bool = False) -> Iterator[BufferedWriter]:
    """Opens a file for a result outside of a run folder, which only its owner can read.

    One that was there keeps its mode, and its folder too.

    Args:
        path: of the file; folders that are missing are made.
        more: append to what is there.

    Raises:
        OSError: with the path in it.
    """
    if not path.parent.is_dir():
        make_root(path.parent)
    with naming(path):
        handle = os.open(
            path, os.O_WRONLY | os.O_CREAT | (os.O_APPEND if more else os.O_TRUNC), 0o600
        )
        with os.fdopen(handle, "wb") as file:
            yield file


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Puts the path into an error that has none, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def _created(path: Path, flags: int) -> BufferedWriter:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | flags, 0o600)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):  # a link, or a pipe that nobody reads
            raise Damaged(f"{path} is no regular file; nothing was written") from error
        raise
    os.fchmod(handle, 0o600)
    return os.fdopen(handle, "wb")
