"""`fedpriv clean`: removes what runs leave outside their folders.

It removes caches, which can be computed again (encoded pages, pretrained weights, the progress of
attacks), the sessions of Ray whose driver was killed together with its watchdog, and the temporary
folders of audits and estimates that were killed. Files in use stay, and so do files that fedpriv
did not make: only names that fedpriv gives are touched, only files of this user, and no link is
followed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from fedpriv.cli.command import Command

CACHES = ("examples", "pretraining", "pages", "attacks", "queries", "words", "placed", "costs")
"""The folders below `fedpriv.runtime.cache.cache_folder`."""

DAY = 24 * 3600.0

ENTRY = re.compile(r"[0-9a-f]{24}|^\..*\.part$")
"""Found in the name of every entry: the hash of its inputs, or the mark of a half-written file."""


@click.command(
    "clean",
    cls=Command,
    epilog="""
        fedpriv clean --dry-run
        fedpriv clean
    """,
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
def command(dry_run: bool) -> int:
    """Remove caches, and the files that killed runs and audits left behind.

    Files in use stay.
    """
    removed = 0
    for what, size in [*_sessions(dry_run), *_scratch(dry_run), *_caches(dry_run)]:
        print(f"{size:>14,} bytes  {what}")
        removed += size
    print(f"{removed:>14,} bytes  {'would be removed' if dry_run else 'removed'}")
    return 0


def _sessions(dry_run: bool) -> Iterator[tuple[str, int]]:
    """Removes the sessions of Ray whose driver is dead; yields each folder and its bytes."""
    from fedpriv.runtime.workers.ray_session import DRIVER, PREFIX, in_use, parents
    from fedpriv.runtime.workers.watchdog import clear

    for folder in sorted(path for parent in parents() for path in parent.glob(f"{PREFIX}*")):
        if not _is_ours(folder, stat.S_ISDIR) or not _is_ours(folder / DRIVER, stat.S_ISREG):
            continue  # of another user, whose link might lead to files of ours
        if in_use(folder):
            print(f"{folder} is kept: a run is using this session of Ray", file=sys.stderr)
            continue
        size = _size(folder)
        if not dry_run:
            clear(folder)
        yield str(folder), size


def _scratch(dry_run: bool) -> Iterator[tuple[str, int]]:
    """Removes what killed audits and estimates left, untouched for a day; yields each folder."""
    from fedpriv.runtime.cache import AUDIT, PROBE

    temporary = Path(tempfile.gettempdir())
    for folder in sorted(path for name in (AUDIT, PROBE) for path in temporary.glob(f"{name}*")):
        if not _is_ours(folder, stat.S_ISDIR):
            continue
        inside = [Path(place) for place, _, _ in os.walk(folder)]
        if time.time() - max(place.lstat().st_mtime for place in inside) < DAY:
            print(f"{folder} is kept: it is less than a day old", file=sys.stderr)
            continue
        size = _size(folder)
        if not dry_run:
            shutil.rmtree(folder)
        yield str(folder), size


def _caches(dry_run: bool) -> Iterator[tuple[str, int]]:
    """Removes the entries of the cache; yields each of its folders and their bytes."""
    from fedpriv.report.wording import counted
    from fedpriv.runtime.cache import USERS, cache_path

    cache = cache_path().resolve()
    if not _is_ours(cache / USERS, stat.S_ISREG):
        return
    users = os.open(cache / USERS, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print(f"{cache} is kept: a run or an attack is using it", file=sys.stderr)
        return
    else:
        for folder in (cache / name for name in CACHES):
            if not _is_ours(folder, stat.S_ISDIR):
                continue
            entries = [
                path
                for path in folder.iterdir()
                if ENTRY.search(path.name)
                and (_is_ours(path, stat.S_ISREG) or _is_ours(path, stat.S_ISDIR))
            ]
            size = sum(_size(path) for path in entries)
            for path in entries if not dry_run else ():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if entries:
                yield f"{folder}: {counted(len(entries), 'entry')}", size
    finally:
        os.close(users)


def _is_ours(path: Path, kind: Callable[[int], bool]) -> bool:
    """Returns whether a path is of this kind, belongs to this user, and is no link."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return kind(found.st_mode) and found.st_uid == os.geteuid()


def _size(path: Path) -> int:
    """Returns the bytes of a file, or of all files in a folder, without following links."""
    if not path.is_dir():
        return path.lstat().st_size
    return sum(
        (Path(folder) / name).lstat().st_size
        for folder, _, names in os.walk(path)
        for name in names
    )
