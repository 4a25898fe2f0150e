"""`fedpriv clean`: removes what runs leave outside their folders.

That is what can be computed again (encoded pages, pretrained weights, an attack's progress) and
the sessions of Ray whose driver was killed together with its watchdog. What a process uses stays,
and so does whatever fedpriv has not made: only names that it gives are touched, of this user's own
files, and no link is followed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from fedpriv.cli.command import Command

CACHES = ("examples", "pretraining", "pages", "attacks", "queries")
"""The folders below `fedpriv.runtime.cache.cache_folder` in which something is kept."""

ENTRY = re.compile(r"[0-9a-f]{24}|^\..*\.part$")
"""In the name of every entry: the hash of what it depends on, or the mark of a half-written one."""


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
    """Remove caches, and what killed runs have left of Ray."""
    removed = 0
    for what, size in [*_sessions(dry_run), *_caches(dry_run)]:
        print(f"{size:>14,} bytes  {what}")
        removed += size
    print(f"{removed:>14,} bytes  {'would be removed' if dry_run else 'removed'}")
    return 0


def _sessions(dry_run: bool) -> Iterator[tuple[str, int]]:
    """Yields the folders of Ray's sessions that nobody drives any more."""
    from fedpriv.runtime.ray_session import DRIVER, PREFIX, in_use, parents
    from fedpriv.runtime.watchdog import clear

    for folder in sorted(path for parent in parents() for path in parent.glob(f"{PREFIX}*")):
        if not _own(folder, stat.S_ISDIR) or not _own(folder / DRIVER, stat.S_ISREG):
            continue  # somebody else's, perhaps one who wants us to remove what a link leads to
        if in_use(folder):
            _say(f"{folder} is left: the Ray of a run that is at work")
            continue
        size = _size(folder)
        if not dry_run:
            clear(folder)
        yield str(folder), size


def _caches(dry_run: bool) -> Iterator[tuple[str, int]]:
    """Yields the folders of the cache, each with all its entries."""
    from fedpriv.runtime.cache import USERS, cache_path

    cache = cache_path().resolve()
    if not _own(cache / USERS, stat.S_ISREG):
        return
    users = os.open(cache / USERS, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        _say(f"{cache} is left: a run or an attack is at work with it")
        return
    else:
        for folder in (cache / name for name in CACHES):
            if not _own(folder, stat.S_ISDIR):
                continue
            entries = [
                path
                for path in folder.iterdir()
                if ENTRY.search(path.name)
                and (_own(path, stat.S_ISREG) or _own(path, stat.S_ISDIR))
            ]
            size = sum(_size(path) for path in entries)
            for path in entries if not dry_run else ():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if entries:
                yield f"{folder}: {len(entries)} entries", size
    finally:
        os.close(users)


def _own(path: Path, kind: Callable[[int], bool]) -> bool:
    """Returns whether a path is of this kind, no link, and this user's."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return kind(found.st_mode) and found.st_uid == os.geteuid()


def _size(path: Path) -> int:
    """Returns the bytes of a file, or of all files of a folder; a link counts as itself."""
    if not path.is_dir():
        return path.lstat().st_size
    return sum(
        (Path(folder) / name).lstat().st_size
        for folder, _, names in os.walk(path)
        for name in names
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr)
