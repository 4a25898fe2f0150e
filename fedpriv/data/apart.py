"""Calls that parse a stranger's bytes in C, in a process apart with limits of memory and time.

A PDF of 588 bytes can take all memory there is, and a picture can end the process that decodes it.
Here that is a `DataError` with the file's name. The other process is asked and answers in JSON and
plain arrays, of which nothing is unpickled. It is used again for the next file.
"""

from __future__ import annotations

import atexit
import dataclasses
import importlib
import json
import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.data.document import DataError
from fedpriv.runtime.versions import cores

MEMORY = 3 * 2**30
"""Bytes that a call may take. A page of the most pixels that are admitted takes 2 · 10⁹."""
SECONDS = 60
"""Seconds of the processor for a call, and one more for each MB of the file."""
WAIT = 5
"""How many times that long a call may take on a busy machine."""
CALLS = 200
"""After so many calls a process is replaced, with what pdfium has not given back."""

_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from fedpriv.data import apart
apart.serve()
"""


def call(
    function: Callable[..., Any], path: Path, *arguments: Any, content: bytes | None = None
) -> Any:
    """Calls `function(path, *arguments, content)` in another process.

    Args:
        function: of a module.
        path: of the file that is read.
        arguments: that JSON can hold.
        content: of the file, if the function takes it in place of reading the file; None leaves
            it out.

    Returns:
        What it returned: an array of bytes, or what JSON makes of it.

    Raises:
        DataError: as the function does; and if it takes more than it may, or ends its process.
    """
    size = path.stat().st_size if content is None else len(content)
    seconds = SECONDS + size // 10**6
    asked = {
        "function": [function.__module__, function.__name__],
        "arguments": [str(path.absolute()), *arguments],
        "content": None if content is None else size,
        "seconds": seconds,
        "memory": MEMORY,
    }
    with _turns:
        with _lock:
            reader = _idle.pop() if _idle else _Reader()
        header, data = reader.ask(asked, content, seconds * WAIT)
        if reader.calls < CALLS and not header.get("spent"):
            with _lock:
                _idle.append(reader)
        else:
            reader.end()
    if "why" in header:
        raise DataError(path, header["why"])
    if data is None:
        return header["value"]
    return np.frombuffer(data, np.uint8).reshape(header["shape"])


class _Reader:
    """A process that reads for this one."""

    def __init__(self) -> None:
        self.calls = 0
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _START, json.dumps([os.path.abspath(p) for p in sys.path])],
            cwd="/",  # in a folder that is removed meanwhile, libraries fail to import
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what libraries say of a damaged file
        )

    def ask(
        self, asked: dict[str, Any], content: bytes | None, wait: float
    ) -> tuple[dict[str, Any], bytearray | None]:
        """Returns the answer and, where it has one, the array's bytes."""
        self.calls += 1
        began = time.monotonic()
        timer = threading.Timer(wait, self._process.kill)
        timer.start()
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the process has no pipes")
        try:
            with suppress(BrokenPipeError):  # its end is found below
                stdin.write(json.dumps(asked).encode() + b"\n" + (content or b""))
                stdin.flush()
            header = json.loads(stdout.readline() or "null")
            if header is None:
                return self._ended(asked, late=time.monotonic() - began >= wait), None
            if "shape" not in header:
                return header, None
            data = bytearray(math.prod(header["shape"]))
            if stdout.readinto(data) != len(data):  # type: ignore[attr-defined]
                return self._ended(asked, late=time.monotonic() - began >= wait), None
            return header, data
        except BaseException:  # such as Ctrl-C, after which an answer is under way
            self.end()
            raise
        finally:
            timer.cancel()

    def _ended(self, asked: dict[str, Any], *, late: bool) -> dict[str, Any]:
        """Returns the answer of a process that gave none."""
        status = self._process.wait()
        if status == -signal.SIGXCPU or (status == -signal.SIGKILL and late):
            why = f"reading it takes more than {asked['seconds']} seconds, and was ended"
        else:
            how = signal.Signals(-status).name if status < 0 else f"status {status}"
            why = (
                f"reading it ended the process that read it ({how}), which had "
                f"{asked['memory'] / 2**30:g} GiB of memory: the file is damaged, or takes more"
            )
        return {"why": why, "spent": True}

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()


_idle: list[_Reader] = []
_lock = threading.Lock()
_turns: threading.BoundedSemaphore


def _begin() -> None:
    """Forgets the processes of the one that this was forked from."""
    global _idle, _lock, _turns
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fit = max(1, min(cores(), pages // 2 // MEMORY))
    _idle, _lock, _turns = [], threading.Lock(), threading.BoundedSemaphore(fit)


_begin()
os.register_at_fork(after_in_child=_begin)


@atexit.register
def _end_all() -> None:
    while _idle:
        _idle.pop().end()


def serve() -> None:
    """Answers what is asked on standard input until it ends: the other process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints shall not answer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while line := sys.stdin.buffer.readline():
        asked = json.loads(line)
        path, *arguments = asked["arguments"]
        if asked["content"] is not None:
            arguments.append(sys.stdin.buffer.read(asked["content"]))
        data = b""
        try:
            module, name = asked["function"]
            function = getattr(importlib.import_module(module), name)
            _limit(asked["memory"], asked["seconds"])
            value = function(Path(path), *arguments)
            if isinstance(value, np.ndarray):
                header, data = {"shape": value.shape}, value.tobytes()
            else:
                header = {"value": value}
            answer = json.dumps(header, default=dataclasses.astuple).encode()
        except DataError as error:
            answer = json.dumps({"why": error.why}).encode()
        except MemoryError:
            why = f"reading it takes more than {asked['memory'] / 2**30:g} GiB of memory"
            # It may leave this process without any for the next file.
            answer = json.dumps({"why": why, "spent": True}).encode()
        except Exception as error:  # a file that has gone, or what no decoder should raise
            answer = json.dumps({"why": f"{type(error).__name__}: {error}"}).encode()
        answers.write(answer + b"\n" + data)
        answers.flush()


def _limit(memory: int, seconds: int) -> None:
    """Limits this process to so much more memory and time of the processor than it has taken."""
    pages = 0
    with suppress(OSError):  # /proc is Linux's
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    spent = resource.getrusage(resource.RUSAGE_SELF)
    limits = {
        resource.RLIMIT_AS: pages * resource.getpagesize() + memory,
        resource.RLIMIT_CPU: math.ceil(spent.ru_utime + spent.ru_stime) + seconds,
    }
    for kind, value in limits.items():
        _, hard = resource.getrlimit(kind)
        with suppress(ValueError, OSError):  # a hard limit that is lower already; macOS has fewer
            resource.setrlimit(kind, (value, hard))
