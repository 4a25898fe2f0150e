"""Clears up the Ray session of a killed driver: daemons, workers, and their folder.

Ray's raylet and its server die with the driver. The agents of the raylet do not: they wait minutes
for a server that will never answer. So a small process watches the driver and clears up after it.
It is started as a script and imports only the standard library, so it starts within milliseconds
and takes 10 MB.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

SECONDS = 0.5
"""Between two looks at the driver."""

PATIENCE = 30.0
"""Seconds to spend on ending processes that still write."""


def watch(folder: Path) -> subprocess.Popen[bytes]:
    """Starts a process that clears up the folder of a Ray session when this process has ended."""
    # In its own session, so that Ctrl-C and a kill of the driver's process group do not reach it.
    # It needs neither the user's site-packages nor the variables.
    return subprocess.Popen(  # noqa: S603 - this file, by this Python
        [sys.executable, "-I", "-S", __file__, str(folder), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
        env={},
    )


def clear(folder: Path) -> None:
    """Ends the processes of a Ray session and removes its folder.

    Only Linux tells which processes write into a folder. Elsewhere only the folder is removed.
    """
    end = time.monotonic() + PATIENCE
    quiet = 0
    while quiet < 2 and time.monotonic() < end:  # twice: one may be starting another
        processes = writers(folder)
        for pid in processes:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        quiet = 0 if processes else quiet + 1
        time.sleep(0.1)
    remove(folder)


def remove(folder: Path) -> None:
    """Removes a folder into which an ending process may still write."""
    for _ in range(10):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.2)


def writers(folder: Path) -> list[int]:
    """Returns the process ids of this user's other processes that write into files of a folder.

    Every process of a Ray session has its log there. Neither names nor environments would do: Ray's
    agents overwrite both.
    """
    inside = f"{folder}{os.sep}"
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == os.getpid():
            continue
        try:
            if process.stat().st_uid == os.geteuid() and any(
                os.readlink(file).startswith(inside) and _writes(process, file.name)
                for file in (process / "fd").iterdir()
            ):
                found.append(int(process.name))
        except OSError:  # it has ended meanwhile, or is not ours to look at
            continue
    return found


def _writes(process: Path, descriptor: str) -> bool:
    lines = (process / "fdinfo" / descriptor).read_text().splitlines()
    flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
    return flags & os.O_ACCMODE != os.O_RDONLY


def main() -> None:
    """Waits for the end of the driver, which is the parent, then clears its folder."""
    folder, driver = Path(sys.argv[1]), int(sys.argv[2])
    # A parent that is gone is replaced by another, even while it is still a zombie.
    while os.getppid() == driver:
        time.sleep(SECONDS)
    clear(folder)


if __name__ == "__main__":
    main()
