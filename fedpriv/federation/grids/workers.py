"""What grids with workers of their own share: chunks out to idle workers, replies in order.

A worker keeps its app (model, data) for the whole run and takes a chunk of clients per call. It
announces each client before it serves it, so the driver knows who was at work when a worker dies
or hangs: that client loses the round, the worker is replaced, and the rest of its chunk is served
again, with the same random numbers and hence the same bits.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedpriv.federation.grids._flwr import readdressed
from fedpriv.federation.grids.base import ClientGrid, Failure, WorkersDied
from fedpriv.federation.grids.inline import announce, error_reply, serve
from fedpriv.federation.messages import Chunk, round_of


class WorkerDied(Exception):
    """A worker has ended by itself.

    Attributes:
        kind: of the end, as in `fedpriv.federation.grids.inline.KNOWN_ERRORS`.
        raised: whether it could not build its app.
    """

    def __init__(self, kind: str, why: str, *, raised: bool = False) -> None:
        super().__init__(why)
        self.kind, self.raised = kind, raised


@dataclass
class Job:
    """A message without its arrays, which travel once for all; `arrays` says where they belong."""

    client: int
    message: Message
    arrays: dict[str, int]


@dataclass
class Task:
    """A chunk on its way: what is left to serve, and who is being served.

    Attributes:
        index: the chunk's place in the cohort.
        jobs: the clients still to be served.
        lost: error replies of clients that took a worker down.
        at_work: position in `jobs` of the client at work; None before the first.
        since: when that client began, on the driver's monotonic clock.
    """

    index: int
    jobs: list[Job]
    lost: list[Message] = field(default_factory=list)
    at_work: int | None = None
    since: float = 0.0


class Deaths:
    """Workers that died before they served anybody: whether to go on, and how long to rest first.

    Whoever kills workers from outside (a node that is taken away, a machine short of memory) often
    kills several at once, and again a little later. So deaths within one rest count once, rests
    grow, and an app that has worked in this run is given `PATIENCE`. One that has not, or that
    raises now, is given `ATTEMPTS`; and none if it has not worked and raises.
    """

    ATTEMPTS = 4
    PATIENCE = 600.0
    LONGEST_REST = 30.0

    def __init__(self) -> None:
        self.works = False
        self.reset()

    def reset(self) -> None:
        """Takes note that a worker serves."""
        self._waves = 0
        self._first = self._rested = -math.inf

    def rest(self, error: Exception) -> float:
        """Counts a death; returns the seconds that the next worker waits before it builds its app.

        Raises:
            WorkersDied: if there is no use in going on.
        """
        now = time.monotonic()
        if now >= self._rested:
            if self._waves == 0:
                self._first = now
            self._waves += 1
            self._rested = now + min(self.LONGEST_REST, 2.0 ** (self._waves - 2))
        raised = getattr(error, "raised", False)
        if raised and not self.works:
            raise WorkersDied(f"a worker could not build its app: {error}") from error
        patient = self.works and not raised
        if now - self._first >= self.PATIENCE if patient else self._waves >= self.ATTEMPTS:
            raise WorkersDied(
                f"workers died before they served anybody, for {now - self._first:.0f} s and "
                f"after {self._waves} rests, the last of this: {error}"
            ) from error
        return self._rested - now


class Worker(ABC):
    """A worker, as the driver sees it.

    Attributes:
        built: whether its app is known to be built.
    """

    built = False

    @abstractmethod
    def ready(self) -> int:
        """Waits until its app is built; returns its process id.

        Raises:
            WorkerDied: if it never will be.
        """

    @abstractmethod
    def serve(self, jobs: list[Job], arrays: Sequence[Any]) -> None:
        """Gives it a chunk."""

    @abstractmethod
    def take(self) -> Any:
        """Returns what it says next: a position in the chunk, or at last replies and failures.

        Raises:
            WorkerDied: if it has ended.
        """

    @abstractmethod
    def end(self) -> None:
        """Ends it, whatever it does."""


def served(
    app: ClientApp, clients: int, jobs: list[Job], arrays: Sequence[ArrayRecord]
) -> Iterator[Any]:
    """Yields the position of each client before it is served, at last replies and failures."""
    chunk = Chunk(jobs[0].message)
    failures: list[Failure] = []
    for job in jobs:
        for name, place in job.arrays.items():
            job.message.content[name] = arrays[place]
    announce(app, [(job.client, job.message) for job in jobs])
    for position, job in enumerate(jobs):
        yield position
        reply, failure = serve(app, job.message, job.client, clients)
        if failure:
            failures.append(failure)
        chunk.add(job.client, reply)
        del reply  # or it would be there while the next client trains
    yield chunk.replies(), failures


class WorkerGrid(ClientGrid):
    """Serves messages on workers.

    Args:
        clients: how many clients there are.
        chunk_size: as in `ClientGrid`.
        client_timeout: seconds that one client may take; None for ever.
    """

    def __init__(self, clients: int, chunk_size: int | None, client_timeout: float | None) -> None:
        super().__init__(clients, chunk_size)
        self.client_timeout = client_timeout
        self._workers: list[Worker] = []
        self._deaths = Deaths()

    @abstractmethod
    def _new_worker(self, place: int, rest: float = 0.0) -> Worker:
        """Starts the worker of a place; it rests for so many seconds first."""

    @abstractmethod
    def _first(self, workers: list[Worker], timeout: float | None) -> list[Worker]:
        """Returns those that have something to say, once one has, or the time is over."""

    @abstractmethod
    def _share(self, record: ArrayRecord) -> Any:
        """Puts arrays where all workers can read them; returns where."""

    def _forget(self, shared: Sequence[Any]) -> None:
        """Removes arrays that nobody will ask for any more."""

    def worker_pids(self) -> list[int]:
        """Returns the process ids of the workers, once they are ready.

        Raises:
            WorkersDied: if the app cannot be built, with the reason, or they die again and again.
        """
        pids: list[int] = []
        while len(pids) < len(self._workers):
            pid = self._pid_once_built(self._workers[len(pids)])
            if pid is not None:
                pids.append(pid)
        return pids

    def _pid_once_built(self, worker: Worker) -> int | None:
        """Waits until a worker is ready; None if it has died, and another takes its place."""
        try:
            pid = worker.ready()
        except WorkerDied as error:
            # The rest raises the error of an app that was never built.
            self._replace(worker, self._deaths.rest(error))
            return None
        worker.built = self._deaths.works = True
        return pid

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            worker.end()
        self._workers = []

    def _replace(self, worker: Worker, rest: float = 0.0) -> Worker:
        """Ends a worker; returns the one that takes its place."""
        worker.end()
        place = self._workers.index(worker)
        self._workers[place] = self._new_worker(place, rest)
        return self._workers[place]

    def _deliver(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        yield from _Round(self, messages, timeout).run()


class _Round:
    """One round: chunks out to idle workers, replies back in the order of the cohort.

    A worker that is still to build its app gets none: it may be waiting for a place on a cluster
    that has lost a node, and others can serve the chunk meanwhile.
    """

    def __init__(self, grid: WorkerGrid, messages: list[Message], timeout: float | None) -> None:
        self.grid = grid
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self.arrays, jobs = _stripped(messages, grid)
        self.waiting = deque(Task(i, c) for i, c in enumerate(grid.chunked(jobs)))
        self.running: dict[Worker, Task] = {}
        self.idle = [worker for worker in grid._workers if worker.built]
        self.coming = [worker for worker in grid._workers if not worker.built]
        self.done: dict[int, list[Message]] = {}
        self.total = len(self.waiting)

    def run(self) -> Iterator[Message]:
        """Yields the replies chunk by chunk."""
        try:
            for index in range(self.total):
                while index not in self.done:
                    self._dispatch(index)
                    # Takes what has arrived; only if nothing has, looks for who overstays.
                    if busy := [*self.running, *self.coming]:
                        ready = self.grid._first(busy, self._patience())
                        for worker in ready:
                            if worker in self.running:
                                self._take(worker)
                            else:
                                self._welcome(worker)
                        if not ready:
                            self._expire()
                yield from self.done.pop(index)
        finally:
            self.grid._forget(self.arrays)

    def _dispatch(self, oldest: int) -> None:
        """Keeps every worker busy, but never runs far ahead of a slow chunk: memory stays flat."""
        ahead = oldest + 2 * len(self.grid._workers)
        while self.idle and self.waiting and self.waiting[0].index <= ahead:
            task = self.waiting.popleft()
            worker = self.idle.pop(0)
            task.at_work, task.since = None, time.monotonic()
            worker.serve(task.jobs, self.arrays)
            self.running[worker] = task

    def _welcome(self, worker: Worker) -> None:
        place = self.grid._workers.index(worker)
        self.coming.remove(worker)
        if self.grid._pid_once_built(worker) is None:
            self.coming.append(self.grid._workers[place])
        else:
            self.idle.append(worker)

    def _take(self, worker: Worker) -> None:
        task = self.running[worker]
        try:
            event = worker.take()
        except WorkerDied as error:
            rest = 0.0
            if task.at_work is None:
                rest = self.grid._deaths.rest(error)
            else:
                job = task.jobs.pop(task.at_work)
                failure = Failure(
                    round_of(job.message), job.client, "failed", error.kind, str(error)
                )
                self.grid._failures.append(failure)
                task.lost.append(error_reply(job.message, failure))
            self._again(worker, task, rest)
            return
        if isinstance(event, int):
            task.at_work, task.since = event, time.monotonic()
            self.grid._deaths.reset()
            return
        replies, failures = event
        self.grid._failures.extend(failures)
        self.done[task.index] = [*replies, *task.lost]
        del self.running[worker]
        self.idle.append(worker)

    def _patience(self) -> float | None:
        """Returns the seconds until the next client overstays, None for ever."""
        ends = [] if self.deadline is None else [self.deadline]
        if self.grid.client_timeout is not None:
            started = [t.since for t in self.running.values() if t.at_work is not None]
            ends += [since + self.grid.client_timeout for since in started]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _expire(self) -> None:
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline:
            self._give_up()
            return
        limit = self.grid.client_timeout
        for worker, task in list(self.running.items()):
            if limit is not None and task.at_work is not None and now - task.since >= limit:
                self._miss(task.jobs.pop(task.at_work), f"ClientTimeout ({limit:g} s)")
                self._again(worker, task)

    def _give_up(self) -> None:
        """The round's time is over: who has not answered is missing."""
        for worker, task in list(self.running.items()):
            self._replace(worker)
            self.waiting.append(task)
        for task in self.waiting:
            for job in task.jobs:
                self._miss(job, "RoundTimeout")
            self.done[task.index] = task.lost
        self.waiting.clear()

    def _again(self, worker: Worker, task: Task, rest: float = 0.0) -> None:
        """Has what is left of a chunk served by another worker, which may be long in coming."""
        self._replace(worker, rest)
        if task.jobs:
            self.waiting.appendleft(task)
        else:
            self.done[task.index] = task.lost

    def _replace(self, worker: Worker, rest: float = 0.0) -> None:
        del self.running[worker]
        self.coming.append(self.grid._replace(worker, rest))

    def _miss(self, job: Job, reason: str) -> None:
        failure = Failure(round_of(job.message), job.client, "missing", reason)
        self.grid._failures.append(failure)


def _stripped(messages: list[Message], grid: WorkerGrid) -> tuple[list[Any], list[Job]]:
    """Shares each distinct array record once; returns where they are, and the jobs."""
    refs: list[Any] = []
    places: dict[int, int] = {}
    jobs: list[Job] = []
    for message in messages:
        arrays: dict[str, int] = {}
        light = RecordDict()
        for name, record in message.content.items():
            if not isinstance(record, ArrayRecord):
                light[name] = record
                continue
            if id(record) not in places:
                places[id(record)] = len(refs)
                refs.append(grid._share(record))
            arrays[name] = places[id(record)]
        client = grid.client_of(message.metadata.dst_node_id)
        jobs.append(Job(client, readdressed(light, message), arrays))
    return refs, jobs
