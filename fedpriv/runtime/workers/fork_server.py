"""Worker processes, forked from one that has imported already what they need.

Importing torch and transformers takes a process five seconds and 300 MB. The server of this file
does it once, while the driver reads its data, and then forks a worker in milliseconds. All workers
share what was imported. The driver itself is not forked, because it has computed already, and the
threads of torch and OpenMP do not survive a fork; the server has a single thread and never
computes. `multiprocessing` has such a server too, but its workers run the user's script once more.

Values travel by pickle, through a pipe for each worker. What several workers need lies in an
anonymous file that all of them map. So there is no port, no folder and nothing to clear up: when
the driver ends, however it ends, the server reads the end of its pipe and ends too, and the kernel
ends the workers with it.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import io
import mmap
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

PRELOADED = ("torch._dynamo", "transformers", "flwr.clientapp")
"""Modules that every worker needs; torch's compiler is imported by an optimiser's first step."""

ALIGNMENT = 64
"""Bytes; where the buffers of a shared value begin, as NumPy and torch like it."""

FORK, PREPARE, END = "fork", "prepare", "end"
"""What the driver asks the server for."""

COUNT = struct.Struct("<q")
"""Begins a message: how many shared values follow it."""

PR_SET_PDEATHSIG = 1
"""From Linux's prctl.h: the signal that a process gets when its parent ends."""


class Ended(Exception):
    """A worker has ended by itself; the message says how."""


class Shared:
    """A value in an anonymous file, which workers map instead of copying it.

    Args:
        value: what cloudpickle can pickle. Workers get its arrays as read-only views. An array that
            is mapped from a file already, such as encoded pages, is mapped from that file.
    """

    def __init__(self, value: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        head = io.BytesIO()
        _SharingPickler(head, protocol=5, buffer_callback=buffers.append).dump(value)
        parts = [head.getbuffer(), *(buffer.raw() for buffer in buffers)]
        if hasattr(os, "memfd_create"):
            self._file: Any = os.fdopen(os.memfd_create("fedpriv"), "w+b")
        else:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        sizes = [len(parts), *(len(part) for part in parts)]
        self._file.write(struct.pack(f"<{len(sizes)}q", *sizes))
        for part in parts:
            self._file.write(b"\0" * (-self._file.tell() % ALIGNMENT))
            self._file.write(part)
        self._file.flush()

    def fileno(self) -> int:
        """Returns the descriptor of its file."""
        return int(self._file.fileno())

    def close(self) -> None:
        """Closes the file; a worker that has mapped it keeps the value."""
        self._file.close()


class _SharingPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and value.flags.c_contiguous and value.size:
            whole = value
            while isinstance(whole.base, np.ndarray):
                whole = whole.base
            if isinstance(whole, np.memmap) and isinstance(whole.filename, str | os.PathLike):
                offset = whole.offset + value.ctypes.data - whole.ctypes.data
                return _mapped, (os.fspath(whole.filename), value.dtype, offset, value.shape)
        return super().reducer_override(value)


def _mapped(path: str, dtype: np.dtype[Any], offset: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """Maps an array of a file, read-only."""
    return np.asarray(np.memmap(path, dtype, "r", offset, shape))


class Forked:
    """A worker, as the driver sees it. `multiprocessing.connection.wait` takes it.

    Args:
        server: which has forked it.
        number: by which the server knows it.
        pipe: the driver's end.
    """

    def __init__(self, server: ForkServer, number: int, pipe: Connection) -> None:
        self._server, self._number, self._pipe = server, number, pipe

    def fileno(self) -> int:
        """Returns the descriptor of the driver's end of the pipe."""
        return self._pipe.fileno()

    def send(self, value: Any, *shared: Shared) -> None:
        """Sends a message. If the worker has ended, `receive` will say so."""
        with suppress(OSError):
            send(self._pipe, value, *shared)

    def receive(self) -> list[Any]:
        """Waits for the worker's next message; returns its value and those that are shared.

        Raises:
            Ended: if it has ended.
        """
        try:
            return receive(self._pipe)
        except (EOFError, OSError) as error:
            raise Ended(self.end()) from error

    def end(self) -> str:
        """Ends the worker, whatever it does; returns how it has ended."""
        if self._pipe.closed:
            return "it was ended before"
        self._pipe.close()
        status = self._server.end(self._number)
        if status is None:
            return "the process that forks workers has ended, and all workers with it"
        if status < 0:
            return f"it was ended by {signal.Signals(-status).name}"
        return f"it ended with status {status}"


class ForkServer:
    """The process from which workers are forked.

    Attributes:
        pid: its process id.
    """

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        self._driver, self._count = os.getpid(), 0
        code = (
            f"import sys; sys.path[:] = {[*map(os.path.abspath, sys.path)]!r}; "
            f"from {__name__} import _serve; _serve({theirs.fileno()}, {PRELOADED!r})"
        )
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this file, by this Python
                [sys.executable, "-c", code],
                pass_fds=[theirs.fileno()],
                # The server has no threads that a fork would tear away, and asks for the number of
                # GPUs in a way that leaves them to its workers.
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",  # a folder that is deleted meanwhile would break the imports
                start_new_session=True,  # Ctrl-C is the driver's to handle
            )
        self.pid = self._process.pid

    def serves(self) -> bool:
        """Returns whether it runs, and this process has started it."""
        return os.getpid() == self._driver and self._process.poll() is None

    def prepare(self, value: Shared) -> None:
        """Has the server import what a value refers to, before it forks the next worker."""
        with suppress(OSError):  # its end is noticed when it is asked for a worker
            send(self._pipe, (PREPARE, _surroundings()), value)

    def start(
        self, task: Callable[..., None], *arguments: Any, shared: Sequence[Shared] = ()
    ) -> Forked:
        """Forks a worker, which runs a task and ends.

        Args:
            task: called with the worker's end of the pipe, the arguments and the shared values.
            arguments: of the task.
            shared: further arguments.
        """
        self._count += 1
        ours, theirs = Pipe()
        worker = Forked(self, self._count, ours)
        with theirs, suppress(OSError):
            send(self._pipe, (FORK, self._count))
            send_handle(self._pipe, theirs.fileno(), self.pid)
        worker.send(_surroundings())
        worker.send((task, arguments), *shared)
        return worker

    def end(self, number: int) -> int | None:
        """Kills a worker; returns its exit status, as `os.waitstatus_to_exitcode` has it."""
        global _seconds
        try:
            send(self._pipe, (END, number))
            status, seconds = receive(self._pipe)[0]
        except (EOFError, OSError):
            return None
        _seconds += seconds
        return int(status)

    def close(self) -> None:
        """Ends the server, and with it all workers."""
        self._pipe.close()
        if self.serves():
            self._process.kill()
            self._process.wait()


_server: ForkServer | None = None
_seconds = 0.0


def cpu_seconds() -> float:
    """Returns the CPU seconds of this process and of its workers that have ended."""
    return time.process_time() + _seconds


def fork_server() -> ForkServer:
    """Returns the server of this process; starts it, unless it runs.

    Call this early where workers will be needed: the server takes seconds to import what they need.
    """
    global _server
    if _server is None or not _server.serves():
        _server = ForkServer()
        atexit.register(_server.close)
    return _server


def _surroundings() -> tuple[str, list[str], dict[str, str]]:
    """Returns what a script may have changed since the server has been started."""
    return os.getcwd(), sys.path, dict(os.environ)


def _enter(folder: str, path: list[str], environment: dict[str, str]) -> None:
    os.chdir(folder)
    sys.path[:] = path
    os.environ.update(environment)


def _serve(descriptor: int, preloaded: Sequence[str]) -> None:
    """Imports, then does what the driver asks for until it is gone."""
    for name in preloaded:
        with suppress(Exception):  # a worker that needs it will say why it is not there
            importlib.import_module(name)
    pipe = Connection(descriptor)
    workers: dict[int, int] = {}
    with suppress(EOFError, OSError):
        while True:
            (request, what), *files = receive(pipe, mapped=False)
            if request == PREPARE:
                with suppress(Exception):  # a worker will say so
                    _enter(*what)
                    _value(files[0])
                gc.collect()
                gc.freeze()  # or the collector would touch, and so copy, every page of the modules
            elif request == FORK:
                handle = recv_handle(pipe)
                if (pid := os.fork()) == 0:
                    pipe.close()
                    _work(Connection(handle))
                os.close(handle)
                workers[what] = pid
            elif request == END:
                pid = workers.pop(what)
                os.kill(pid, signal.SIGKILL)  # nobody has waited for it, so the id is still its own
                _, status, used = os.wait4(pid, 0)
                send(pipe, (os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime))
    os._exit(0)


def _work(pipe: Connection) -> None:
    """Does what the driver asks for, then ends the process."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    status = 1
    try:
        _enter(*receive(pipe)[0])
        (task, arguments), *shared = receive(pipe)
        task(pipe, *arguments, *shared)
        status = 0
    except (EOFError, OSError):
        status = 0  # the driver needs no more
    finally:
        os._exit(status)


def send(pipe: Connection, value: Any, *shared: Shared) -> None:
    """Sends a value, and values that are shared, through a pipe."""
    message = io.BytesIO()
    message.write(COUNT.pack(len(shared)))
    cloudpickle.Pickler(message, protocol=5).dump(value)
    pipe.send_bytes(message.getbuffer())
    for each in shared:
        send_handle(pipe, each.fileno(), 0)


def receive(pipe: Connection, *, mapped: bool = True) -> list[Any]:
    """Returns the next value of a pipe and those that are shared.

    Args:
        pipe: to read from.
        mapped: whether to return shared values; otherwise the descriptors of their files.

    Raises:
        EOFError: if the other end is closed.
    """
    message = memoryview(pipe.recv_bytes())
    files = [recv_handle(pipe) for _ in range(*COUNT.unpack_from(message))]
    value = pickle.loads(message[COUNT.size :])  # noqa: S301 - our own
    return [value, *(map(_value, files) if mapped else files)]


def _value(descriptor: int) -> Any:
    """Returns what lies in the file of a shared value, and closes the descriptor."""
    try:
        view = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(descriptor)
    (count,) = struct.unpack_from("<q", view)
    sizes = struct.unpack_from(f"<{count}q", view, 8)
    parts, end = [], 8 * (count + 1)
    for size in sizes:
        end += -end % ALIGNMENT
        parts.append(view[end : end + size])
        end += size
    return pickle.loads(parts[0], buffers=parts[1:])  # noqa: S301 - written by our driver
