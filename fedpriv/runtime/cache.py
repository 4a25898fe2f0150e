"""The folder of results that can be computed again, and the names of its entries.

The entries may hold private documents, readable by their owner only. `fedpriv clean` removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedpriv.runtime import run_files

VARIABLE = "FEDPRIV_CACHE"
"""The environment variable that names the folder; ~/.cache/fedpriv without it."""

USERS = "users"
"""The file on which every process that uses the folder holds a shared lock."""

SECRET = "secret"  # noqa: S105 - a file's name
"""The file with what only this user knows. `fedpriv clean` leaves it."""

_FALLBACK = secrets.token_bytes(32)


def cache_folder() -> Path:
    """Returns the folder of the cache, and marks it as used.

    `fedpriv clean` leaves it alone while this process lives.
    """
    _use(cache_path())
    return cache_path()


def cache_path() -> Path:
    """Returns the same folder without marking it as used."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path.home() / ".cache" / "fedpriv"


@functools.cache
def _use(folder: Path) -> None:
    """Locks the file of users, shared with others, until the process ends."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        users = os.open(folder / USERS, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(users, fcntl.LOCK_SH)
    except OSError:  # a home that cannot be written, or locks nothing: there is no cache to clean
        return


AUDIT, PROBE = "fedpriv-audit-", "fedpriv-probe-"
"""What names of temporary folders begin with, so that `fedpriv clean` finds those of the killed."""


def user_secret() -> bytes:
    """Returns 32 bytes that this user keeps in the cache, and in no run folder.

    Where nothing can be kept, they last as long as this process.
    """
    folder = cache_folder()
    with contextlib.suppress(OSError):
        if not (folder / SECRET).exists():
            with tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=folder) as place:
                run_files.write(Path(place), SECRET, secrets.token_bytes(32))
                with contextlib.suppress(FileExistsError):  # another process was first
                    os.link(Path(place) / SECRET, folder / SECRET)
        found = run_files.read(folder, SECRET) or b""
        if len(found) == 32:
            return found
    return _FALLBACK


def private_folder(name: str) -> Path:
    """Returns a folder of the cache, made if need be, that only its owner can read."""
    folder = cache_folder() / name
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def write_entry(folder: Path, name: str, data: bytes) -> None:
    """Writes an entry that is whole or missing, no matter who else writes it at the same time.

    What a killed process leaves of it has the name by which `fedpriv clean` knows it.
    """
    with tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=folder) as place:
        run_files.write(Path(place), name, data)
        (Path(place) / name).replace(folder / name)


def file_stamp(path: Path) -> list[Any]:
    """Returns a file's path, size and time, which tell whether it is still the same."""
    found = path.stat()
    return [str(path.resolve()), found.st_size, found.st_mtime_ns]


def files_digest(files: Iterable[Path], *more: Any) -> str:
    """Returns a hash of the contents of files, missing ones as empty, and of plain values."""
    digest = hashlib.sha256(hash_of(more).encode())
    for path in files:
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def json_digest(value: Any) -> str:
    """Returns a hash of plain values.

    Raises:
        ValueError: if JSON cannot hold them.
    """
    try:
        return hash_of(value)
    except TypeError as error:
        raise ValueError(f"{error}: only plain values can name an entry of the cache") from error


def hash_of(value: Any) -> str:
    """Returns a hash of plain values; a TypeError names what JSON cannot hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
