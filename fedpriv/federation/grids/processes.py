"""Clients on processes of this machine."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from flwr.app import ArrayRecord
from flwr.clientapp import ClientApp

from fedpriv.federation.grids.workers import Job, Worker, WorkerDied, WorkerGrid, served
from fedpriv.runtime.memory import keep_large_blocks
from fedpriv.runtime.workers.fork_server import (
    Ended,
    Forked,
    Shared,
    fork_server,
    receive,
    send,
)

BUILT, RAISED, SERVED = "built", "raised", "served"
"""What a worker says: its process id, why it has no app, or what `served` yields.

Replies hold vectors as long as the model, which lie in a file that the driver maps. A pipe would
copy them twice, 64 KiB at a time.
"""


def _work(
    pipe: Connection, clients: int, rest: float, gpu: str, factory: Callable[[], ClientApp]
) -> None:
    """Builds the app, then serves chunks until the driver closes the pipe."""
    time.sleep(rest)
    keep_large_blocks()
    if gpu:  # CUDA reads it when it is first used, which it was not yet
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    try:
        app = factory()
    except Exception:
        send(pipe, (RAISED, traceback.format_exc()))
        return
    send(pipe, (BUILT, os.getpid()))
    while True:
        jobs, *arrays = receive(pipe)
        for event in served(app, clients, jobs, arrays):
            if isinstance(event, int):
                send(pipe, (SERVED, event))
                continue
            replies = Shared(event)
            send(pipe, (SERVED, None), replies)
            replies.close()


class ProcessWorker(Worker):
    """A process that serves clients, as the driver sees it.

    Attributes:
        process: it.
        pid: its process id; None before its app is built.
    """

    def __init__(self, process: Forked) -> None:
        self.process = process
        self.pid: int | None = None

    def fileno(self) -> int:
        """Returns the descriptor on which it speaks."""
        return self.process.fileno()

    def ready(self) -> int:
        """Waits until its app is built; returns its process id."""
        while self.pid is None:
            self._hear()
        return self.pid

    def serve(self, jobs: list[Job], arrays: Sequence[Any]) -> None:
        """Gives it a chunk."""
        self.process.send(jobs, *arrays)

    def take(self) -> Any:
        """Returns what it says next."""
        return self._hear()

    def end(self) -> None:
        """Ends it, whatever it does."""
        self.process.end()

    def _hear(self) -> Any:
        try:
            (kind, what), *shared = self.process.receive()
        except Ended as error:
            raise WorkerDied("WorkerDied", str(error)) from error
        if kind == RAISED:
            raise WorkerDied("WorkerDied", what, raised=True)
        if kind == BUILT:
            self.pid = what
        return shared[0] if shared else what


class ProcessGrid(WorkerGrid):
    """Serves messages on processes of this machine.

    Args:
        factory: builds the app in each worker; its NumPy arrays are shared by all of them.
        clients: how many clients there are.
        chunk_size: as in `ClientGrid`.
        workers: how many processes.
        client_timeout: seconds that one client may take; None for ever.
        gpus: by their names in CUDA_VISIBLE_DEVICES; each worker has one of them, in turn. Without
            any, all workers use the device that the factory names.
    """

    def __init__(
        self,
        factory: Callable[[], ClientApp],
        clients: int,
        chunk_size: int | None = None,
        *,
        workers: int = 2,
        client_timeout: float | None = None,
        gpus: Sequence[str] = (),
    ) -> None:
        super().__init__(clients, chunk_size, client_timeout)
        self._factory, self._gpus = Shared(factory), gpus
        fork_server().prepare(self._factory)
        self._workers = [self._new_worker(place) for place in range(workers)]

    def close(self) -> None:
        """Ends the workers."""
        super().close()
        self._factory.close()

    def _new_worker(self, place: int, rest: float = 0.0) -> Worker:
        gpu = self._gpus[place % len(self._gpus)] if self._gpus else ""
        task = _work, self.clients, rest, gpu
        return ProcessWorker(fork_server().start(*task, shared=[self._factory]))

    def _first(self, workers: Sequence[Any], timeout: float | None) -> list[Any]:
        return wait(workers, timeout)

    def _share(self, record: ArrayRecord) -> Shared:
        return Shared(record)

    def _forget(self, shared: Sequence[Shared]) -> None:
        for value in shared:
            value.close()
