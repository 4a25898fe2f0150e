"""One writer per run folder, by a lock that the operating system releases even after `kill -9`."""

from __future__ import annotations

import fcntl
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedpriv.runtime import run_files
from fedpriv.runtime.refusals import Refused

LOCK = ".lock"


class InUse(Refused):
    """Another process is writing the same part of a run folder."""


def holder(root: Path, what: str = "") -> str:
    """Returns the process that writes the run, or a part of it, in words; "" if there is none."""
    try:
        with run_files.open_file(root, _name(what)) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(200).decode("ascii", "replace") or "another process"
    except FileNotFoundError:
        pass
    return ""


def await_end(root: Path, seconds: float, what: str = "") -> None:
    """Waits, at most so long, until nobody writes the run or a part of it.

    A worker of a driver that was killed may go on for a while.
    """
    deadline = time.monotonic() + seconds
    while holder(root, what) and time.monotonic() < deadline:
        time.sleep(0.1)


@contextmanager
def writing(root: Path, command: str, what: str = "", *, wait: bool = False) -> Iterator[None]:
    """Keeps every other writer out while the block lasts.

    Args:
        root: the run folder.
        command: its name, for the message to another process.
        what: names a part of the folder with a lock of its own, such as the findings of one attack;
            empty for the run.
        wait: whether to wait for another writer to end.

    Raises:
        InUse: without `wait`, if another process or another part of this one writes the same.
    """
    name = _name(what)
    run_files.append(root, name, b"")  # so that it is there, and a regular file
    path = run_files.inside(root, name)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            who = file.read(200).decode("ascii", "replace") or "another process"
            raise InUse(
                f"{root} is being written by {who}: wait for its end, or end it; nothing was "
                "changed"
            ) from None
        with run_files.naming(path):
            file.truncate()
            file.write(f"process {os.getpid()} on {platform.node()} (fedpriv {command})".encode())
            file.flush()
        # The file stays. Removing it might remove one that another process has just locked.
        yield


def _name(what: str) -> str:
    return f"{LOCK}-{what}" if what else LOCK
