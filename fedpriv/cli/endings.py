"""How a command ends before its own end: by an error, a signal, or output that nobody reads."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO, cast

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
UNHEARD = 128 + signal.SIGPIPE
"""Exit statuses, as shells give them to processes that a signal has ended."""


class Terminated(KeyboardInterrupt):
    """Somebody has asked this process to end (SIGTERM): it ends as after Ctrl-C."""


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """While entered, SIGTERM raises `Terminated`; in the main thread only, which gets signals."""

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


def status_of(end: BaseException) -> int | None:
    """Returns the exit status of an interruption; None if it is none."""
    if isinstance(end, KeyboardInterrupt):
        return TERMINATED if isinstance(end, Terminated) else INTERRUPTED
    # While Ray runs, the signal handler is Ray's, which exits with the signal's number.
    ray_was_told = isinstance(end, SystemExit) and end.code == signal.SIGTERM
    return TERMINATED if ray_was_told else None


def explanation(error: Exception, run_dir: Path | None) -> tuple[int, str] | None:
    """Returns exit status and message of an error that needs no traceback; None of any other.

    Args:
        error: that ended a command.
        run_dir: of the run that the command was about, if any. Where it was changed, any error may
            come from that.
    """
    from fedpriv.config.experiment import Mistakes
    from fedpriv.config.trust import Untrusted
    from fedpriv.federation.grids.base import WorkersDied
    from fedpriv.federation.loop import Unworkable
    from fedpriv.federation.round_statistics import TooFewClients
    from fedpriv.privacy.ledger import LedgerMissing
    from fedpriv.runtime.jobs import JobsFailed
    from fedpriv.runtime.ray_session import RayDidNotStart
    from fedpriv.runtime.run_files import Damaged
    from fedpriv.runtime.run_folder import NotARunFolder
    from fedpriv.runtime.run_lock import InUse
    from fedpriv.runtime.verify import check

    if isinstance(error, Mistakes | NotARunFolder | Untrusted | InUse | LedgerMissing):
        return 2, str(error)
    if isinstance(error, Damaged):
        return 1, str(error)
    if isinstance(error, Unworkable):
        return 2, str(Mistakes("the experiment", error.problems))
    message = f"{type(error).__name__}: {error}"
    if isinstance(
        error, ValueError | TooFewClients | RayDidNotStart | WorkersDied | JobsFailed | OSError
    ):
        return 1, message
    problems = check(run_dir).problems() if run_dir is not None and run_dir.is_dir() else []
    if not problems:
        return None
    lines = "\n".join(f"  {problem}" for problem in problems)
    return 1, f"{message}\n{run_dir} is not as fedpriv wrote it, which may be why\n{lines}"


def advice_with(error: BaseException) -> str:
    """Returns the advice of whoever was outermost, as the end of a line; empty if there is none."""
    notes: list[str] = getattr(error, "__notes__", [])
    return f"; {notes[-1]}" if notes else ""


@contextmanager
def unbroken_output() -> Iterator[Heard]:
    """While entered, nothing fails because nobody reads standard output or error any more.

    What is written after that is dropped: `fedpriv run … | head` runs to its end.
    """
    out, error = Heard(sys.stdout), Heard(sys.stderr)
    with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, error)):
        try:
            yield out
        finally:
            out.flush()
            error.flush()


class Heard:
    """A stream that tells whether somebody still reads it, instead of failing if nobody does.

    Attributes:
        lost: something was written that nobody will read.
    """

    def __init__(self, stream: TextIO | None) -> None:
        # Python has no stream where a process is started with a closed one.
        self.stream = stream or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        self.lost = False

    def write(self, text: str) -> int:
        """Writes a text if somebody reads it."""
        with self._unbroken():
            self.stream.write(text)
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Writes lines if somebody reads them."""
        with self._unbroken():
            self.stream.writelines(lines)

    def flush(self) -> None:
        """Hands on what was written."""
        with self._unbroken():
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self.lost = True
            # For whatever is still in a buffer, and for the interpreter, which flushes at its end.
            with suppress(OSError):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self.stream.fileno())
                os.close(null)
