"""Clients on Ray actors: one machine, or a Ray cluster.

A worker keeps its app (model, data) for the whole run and takes a chunk of clients per call. It
announces each client before it serves it, so the driver knows who was at work when a worker dies
or hangs: that client loses the round, the worker is replaced, and the rest of its chunk is served
again, with the same random numbers and hence the same bits.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ray
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from ray.exceptions import OutOfMemoryError, RayActorError

from fedpriv.federation.grids._flwr import readdressed
from fedpriv.federation.grids.base import ClientGrid, Failure, WorkersDied
from fedpriv.federation.grids.inline import error_reply, serve
from fedpriv.federation.messages import Chunk, round_of
from fedpriv.runtime.memory import keep_large_blocks
from fedpriv.runtime.ray_session import start_ray, stop_ray


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
        worker: the actor that has the chunk.
    """

    index: int
    jobs: list[Job]
    lost: list[Message] = field(default_factory=list)
    at_work: int | None = None
    since: float = 0.0
    worker: Any = None


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
        raised = getattr(error, "actor_init_failed", False)
        if raised and not self.works:
            raise WorkersDied(f"a worker could not build its app: {error}") from error
        patient = self.works and not raised
        if now - self._first >= self.PATIENCE if patient else self._waves >= self.ATTEMPTS:
            raise WorkersDied(
                f"workers died before they served anybody, for {now - self._first:.0f} s and "
                f"after {self._waves} rests, the last of this: {error}"
            ) from error
        return self._rested - now


class Worker:
    """The actor: builds the app once, then serves chunks.

    It rests first in its own process, so the driver goes on with the others meanwhile.
    """

    def __init__(
        self, search_path: list[str], factory: list[Any], clients: int, rest: float
    ) -> None:
        time.sleep(rest)
        keep_large_blocks()
        # Only what the driver can import and this process cannot; appended, so nothing is shadowed.
        sys.path.extend(entry for entry in search_path if entry not in sys.path)
        self.app: ClientApp = ray.get(factory[0])()
        self.clients = clients

    def ready(self) -> int:
        """Returns the process id once the app is built."""
        return os.getpid()

    def serve(self, jobs: list[Job], *arrays: ArrayRecord) -> Iterator[Any]:
        """Yields the position of each client before it is served, at last replies and failures."""
        chunk = Chunk(jobs[0].message)
        failures: list[Failure] = []
        for position, job in enumerate(jobs):
            yield position
            for name, place in job.arrays.items():
                job.message.content[name] = arrays[place]
            reply, failure = serve(self.app, job.message, job.client, self.clients)
            if failure:
                failures.append(failure)
            chunk.add(job.client, reply)
            del reply  # or it would be there while the next client trains
        yield chunk.replies(), failures


class RayGrid(ClientGrid):
    """Serves messages on Ray actors.

    Args:
        factory: builds the app in each worker; everything it refers to travels once, and its NumPy
            arrays are shared by the workers of a machine.
        clients: how many clients there are.
        chunk_size: as in `ClientGrid`.
        workers: how many actors.
        client_timeout: seconds that one client may take; None for ever.
        address: of an existing Ray cluster; None starts Ray on this machine.
        client_resources: of one worker, such as ``{"num_cpus": 1, "num_gpus": 0.5}``.

    Raises:
        ValueError: if the cluster can never give the workers what they ask for.
    """

    def __init__(
        self,
        factory: Callable[[], ClientApp],
        clients: int,
        chunk_size: int | None = None,
        *,
        workers: int = 2,
        client_timeout: float | None = None,
        address: str | None = None,
        client_resources: dict[str, float] | None = None,
    ) -> None:
        super().__init__(clients, chunk_size)
        self.client_timeout = client_timeout
        self._resources = {"num_cpus": 1.0, **(client_resources or {})}
        self._owns_ray = start_ray(workers, self._resources, address)
        self._factory = [ray.put(factory)]
        self._workers = [self._new_worker() for _ in range(workers)]
        self._deaths = Deaths()

    def worker_pids(self) -> list[int]:
        """Returns the process ids of the workers, once they are ready.

        Raises:
            WorkersDied: if the app cannot be built, with the reason, or they die again and again.
        """
        pids: list[int] = []
        while len(pids) < len(self._workers):
            worker = self._workers[len(pids)]
            try:
                pids.append(int(ray.get(worker.ready.remote())))
                self._deaths.works = True
            except (RayActorError, OutOfMemoryError) as error:
                self._replace(worker, self._deaths.rest(error))
        return pids

    def close(self) -> None:
        """Ends the workers, and Ray if this grid started it."""
        for worker in self._workers:
            ray.kill(worker)
        self._workers = []
        if self._owns_ray:
            stop_ray()

    def _new_worker(self, rest: float = 0.0) -> Any:
        actor = ray.remote(Worker).options(**self._resources, max_restarts=0)
        return actor.remote(sys.path, self._factory, self.clients, rest)

    def _replace(self, worker: Any, rest: float = 0.0) -> Any:
        """Ends a worker; returns the one that takes its place."""
        ray.kill(worker)
        fresh = self._new_worker(rest)
        self._workers[self._workers.index(worker)] = fresh
        return fresh

    def _deliver(self, messages: list[Message], timeout: float | None) -> Iterator[Message]:
        if not self._deaths.works:
            self.worker_pids()  # an app that cannot be built fails here, with its own error
        yield from _Round(self, messages, timeout).run()


class _Round:
    """One round: chunks out to idle workers, replies back in the order of the cohort."""

    def __init__(self, grid: RayGrid, messages: list[Message], timeout: float | None) -> None:
        self.grid = grid
        self.deadline = None if timeout is None else time.monotonic() + timeout
        self.arrays, jobs = _stripped(messages, grid)
        self.waiting = deque(Task(i, c) for i, c in enumerate(grid.chunked(jobs)))
        self.running: dict[Any, Task] = {}
        self.idle = list(grid._workers)
        self.done: dict[int, list[Message]] = {}
        self.total = len(self.waiting)

    def run(self) -> Iterator[Message]:
        """Yields the replies chunk by chunk."""
        for index in range(self.total):
            while index not in self.done:
                self._dispatch(index)
                # Takes whatever has arrived; only if nothing has, looks for clients that overstay.
                if self.running:
                    ready, _ = ray.wait(list(self.running), timeout=self._patience())
                    for stream in ready:
                        self._take(stream)
                    if not ready:
                        self._expire()
            yield from self.done.pop(index)

    def _dispatch(self, oldest: int) -> None:
        """Keeps every worker busy, but never runs far ahead of a slow chunk: memory stays flat."""
        ahead = oldest + 2 * len(self.grid._workers)
        while self.idle and self.waiting and self.waiting[0].index <= ahead:
            task = self.waiting.popleft()
            if not task.jobs:
                self.done[task.index] = task.lost
                continue
            task.worker, task.at_work, task.since = self.idle.pop(0), None, time.monotonic()
            method = task.worker.serve.options(num_returns="streaming")
            self.running[method.remote(task.jobs, *self.arrays)] = task

    def _take(self, stream: Any) -> None:
        task = self.running[stream]
        try:
            event = ray.get(next(stream))
        except (RayActorError, OutOfMemoryError) as error:
            rest = 0.0
            if task.at_work is None:
                rest = self.grid._deaths.rest(error)
            else:
                job, kind = task.jobs.pop(task.at_work), type(error).__name__
                failure = Failure(round_of(job.message), job.client, "failed", kind, str(error))
                self.grid._failures.append(failure)
                task.lost.append(error_reply(job.message, failure))
            self._again(stream, task, rest)
            return
        if isinstance(event, int):
            task.at_work, task.since = event, time.monotonic()
            self.grid._deaths.reset()
            return
        replies, failures = event
        self.grid._failures.extend(failures)
        self.done[task.index] = [*replies, *task.lost]
        del self.running[stream]
        self.idle.append(task.worker)

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
        for stream, task in list(self.running.items()):
            if limit is not None and task.at_work is not None and now - task.since >= limit:
                self._miss(task.jobs.pop(task.at_work), f"ClientTimeout ({limit:g} s)")
                self._again(stream, task)

    def _give_up(self) -> None:
        """The round's time is over: who has not answered is missing."""
        for stream, task in list(self.running.items()):
            self._replace(stream, task)
            self.waiting.append(task)
        for task in self.waiting:
            for job in task.jobs:
                self._miss(job, "RoundTimeout")
            self.done[task.index] = task.lost
        self.waiting.clear()

    def _again(self, stream: Any, task: Task, rest: float = 0.0) -> None:
        """Has what is left of a chunk served by another worker."""
        self._replace(stream, task, rest)
        self.waiting.appendleft(task)

    def _replace(self, stream: Any, task: Task, rest: float = 0.0) -> None:
        del self.running[stream]
        self.idle.append(self.grid._replace(task.worker, rest))

    def _miss(self, job: Job, reason: str) -> None:
        failure = Failure(round_of(job.message), job.client, "missing", reason)
        self.grid._failures.append(failure)


def _stripped(messages: list[Message], grid: RayGrid) -> tuple[list[Any], list[Job]]:
    """Puts each distinct array record into the object store once; returns the refs and the jobs."""
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
                refs.append(ray.put(record))
            arrays[name] = places[id(record)]
        client = grid.client_of(message.metadata.dst_node_id)
        jobs.append(Job(client, readdressed(light, message), arrays))
    return refs, jobs
