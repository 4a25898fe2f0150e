"""How a command ends early: by an error, by a signal, or because nobody reads its output."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO, cast

from fedpriv.runtime.refusals import Explained, Failed, Mistakes, Refused, Unfit

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
UNREAD = 128 + signal.SIGPIPE
"""Exit statuses, as shells report them for processes that a signal has ended."""


class Terminated(KeyboardInterrupt):
    """SIGTERM has arrived; the process ends as it does after Ctrl-C."""


@contextmanager
def raise_on_sigterm() -> Iterator[None]:
    """Turns SIGTERM into `Terminated`, if entered in the main thread, which receives signals."""

    def end(number: int, frame: object) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def interruption_status(end: BaseException) -> int | None:
    """Returns the exit status of an interruption, or None for any other exception."""
    if isinstance(end, KeyboardInterrupt):
        return TERMINATED if isinstance(end, Terminated) else INTERRUPTED
    # While Ray runs, the signal handler is Ray's, which exits with the signal's number.
    ray_exited = isinstance(end, SystemExit) and end.code == signal.SIGTERM
    return TERMINATED if ray_exited else None


def explanation(error: Exception, run_dir: Path | None) -> tuple[int, str] | None:
    """Returns the exit status and message of an error, or None if it deserves a traceback.

    Args:
        error: the error that ended a command.
        run_dir: the run folder that the command worked on, if any. If it was changed by hand, the
            message lists the changes, because any error may come from them.
    """
    from fedpriv.runtime.verify import check

    if isinstance(error, Unfit):
        told = str(Mistakes("the experiment", error.problems))
        return 2, "\n  ".join(filter(None, [told, error.hint]))
    if isinstance(error, Refused):
        return 2, str(error)
    message = f"{type(error).__name__}: {error}"
    if type(error) is ValueError or isinstance(error, Explained):
        message = str(error)
    elif isinstance(error, OSError) and error.filename and error.strerror:
        message = f"{error.filename}: {error.strerror}"
    if isinstance(error, ValueError | OSError | Failed | Explained):
        return 1, message
    problems = check(run_dir).problems() if run_dir is not None and run_dir.is_dir() else []
    if not problems:
        return None
    lines = "\n".join(f"  {problem}" for problem in problems)
    return 1, f"{message}\n{run_dir} is not as fedpriv wrote it, which may be why\n{lines}"


def advice(error: BaseException) -> str:
    """Returns the last note added to an error, formatted to end a line; empty if it has none."""
    notes: list[str] = getattr(error, "__notes__", [])
    return f"; {notes[-1]}" if notes else ""


@contextmanager
def tolerate_broken_pipes() -> Iterator[TolerantStream]:
    """Keeps a command running after the reader of its standard output or error has gone.

    Whatever is written after that is dropped, so that `fedpriv run … | head` runs to its end.

    Yields:
        The stream that replaces standard output.
    """
    out, error = TolerantStream(sys.stdout), TolerantStream(sys.stderr)
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, error)):
        try:
            yield out
        finally:
            out.flush()
            error.flush()


class TolerantStream:
    """A stream that does not fail when its reader has gone.

    Attributes:
        lost: whether something was written that nobody will read.
    """

    def __init__(self, stream: TextIO | None) -> None:
        # The stream is None if the process was started with a closed one.
        self.stream = stream or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        self.lost = False

    def write(self, text: str) -> int:
        """Writes a text, or drops it if nobody reads it."""
        with self._tolerated():
            self.stream.write(text)
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Writes lines, or drops them if nobody reads them."""
        with self._tolerated():
            self.stream.writelines(lines)

    def flush(self) -> None:
        """Flushes the stream, unless nobody reads it."""
        with self._tolerated():
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    @contextmanager
    def _tolerated(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self.lost = True
            # The buffer may hold more text, and the interpreter flushes it at its end.
            with suppress(OSError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self.stream.fileno())
                os.close(null)
