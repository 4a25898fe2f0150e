"""Many jobs on many workers. A killed one costs the time since its job's last checkpoint."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar, cast

from fedpriv.runtime.refusals import Failed
from fedpriv.runtime.workers.fork_server import Ended, Forked, Shared, fork_server, receive, send
from fedpriv.runtime.workers.ray_session import RaySettings, running_ray

J = TypeVar("J")
R = TypeVar("R")

RETRIES = 3
"""How often a job is restarted when its worker has died."""


class JobsFailed(Failed):
    """Jobs that ended with an error, raised after all others have ended.

    Attributes:
        reasons: of those that failed, by name.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        lines = "\n".join(f"  {name}: {reason}" for name, reason in reasons.items())
        jobs = f"{len(reasons)} job{'s' * (len(reasons) != 1)}"
        super().__init__(f"{jobs} failed; all others are done\n{lines}")


@dataclass(frozen=True)
class Pool:
    """Runs jobs in parallel.

    Args:
        workers: jobs at a time, each in its own process; 0 runs them in sequence in this one.
        ray: whether and where the workers run on Ray.
        tell: shows one line of progress.
    """

    workers: int
    ray: RaySettings
    tell: Callable[[str], None]

    def map(
        self,
        function: Callable[[J], R],
        jobs: Mapping[str, J],
        after: Callable[[], None] = lambda: None,
    ) -> dict[str, R]:
        """Returns the result of the function for each job, by its name.

        A job whose worker is killed is restarted, so the function should resume what it has saved.
        A job that raises an error is not: the others are finished, and then all errors are raised.

        Args:
            function: of a module that the workers can import, as the jobs' classes are.
            jobs: by name, in the order in which they begin.
            after: is called in this process whenever a job has ended.

        Raises:
            JobsFailed: if jobs raised, or lost their worker more than `RETRIES` times.
        """
        results: dict[str, R] = {}
        failed: dict[str, str] = {}
        began = time.monotonic()
        for name, result, reason in self._done(function, jobs):
            if reason is None:
                results[name] = result
            else:
                failed[name] = reason
            count = len(results) + len(failed)
            # One worker begins the next job now; those of the others are half done on average.
            done = count + max(0, min(self.workers, len(jobs) - count) - 1) / 2
            left = (time.monotonic() - began) / done * (len(jobs) - done) * (count < len(jobs))
            ended = "done" if reason is None else f"failed: {reason}"
            self.tell(f"{count} of {len(jobs)}: {name} {ended}; about {left:.0f} s left")
            after()
        if failed:
            raise JobsFailed(failed)
        return {name: results[name] for name in jobs}

    def _done(
        self, function: Callable[[J], R], jobs: Mapping[str, J]
    ) -> Iterator[tuple[str, Any, str | None]]:
        """Yields name, result and reason of failure of each job as it ends."""
        if self.workers == 0:
            for name, job in jobs.items():
                try:
                    yield name, function(job), None
                except Exception as error:
                    yield name, None, reason_of(error)
        elif jobs and not self.ray.wanted:
            yield from self._on_processes(function, jobs)
        elif jobs:
            with running_ray(self.workers, self.ray.client_resources, self.ray.address):
                yield from self._on_ray(function, jobs)

    def _on_processes(
        self, function: Callable[[J], R], jobs: Mapping[str, J]
    ) -> Iterator[tuple[str, Any, str | None]]:
        one = Shared((function, next(iter(jobs.values()))))
        fork_server().prepare(one)  # what it imports for one job serves all of them
        one.close()
        waiting, running, idle = deque(jobs), dict[Forked, str](), list[Forked]()
        losses = dict.fromkeys(jobs, 0)
        try:
            while waiting or running:
                while waiting and len(running) < self.workers:
                    worker = idle.pop() if idle else fork_server().start(_serve)
                    running[worker] = name = waiting.popleft()
                    worker.send((function, jobs[name]))
                for ready in wait(cast(Any, list(running))):
                    name = running.pop(worker := cast(Forked, ready))
                    try:
                        (answer,) = worker.receive()
                    except Ended as error:
                        losses[name] += 1
                        if losses[name] > RETRIES:
                            yield name, None, f"its process has ended {losses[name]} times: {error}"
                        else:
                            waiting.appendleft(name)
                        continue
                    idle.append(worker)
                    yield name, *answer
        finally:
            for worker in (*running, *idle):
                worker.end()

    def _on_ray(
        self, function: Callable[[J], R], jobs: Mapping[str, J]
    ) -> Iterator[tuple[str, Any, str | None]]:
        import ray

        resources = {"num_cpus": 1.0, **self.ray.client_resources}
        task = ray.remote(_work).options(**resources, max_retries=RETRIES, retry_exceptions=False)
        # Inside a list, so that they are unpickled in the worker only after its path is set.
        work, waiting, running = [ray.put(function)], list(jobs), dict[Any, str]()
        while waiting or running:
            while waiting and len(running) < self.workers:
                name = waiting.pop(0)
                running[task.remote(sys.path, work, [ray.put(jobs[name])])] = name
            (ready, *_), _ = ray.wait(list(running), num_returns=1)
            name = running.pop(ready)
            try:
                yield name, ray.get(ready), None
            except Exception as error:  # of a job, or of Ray about its worker
                yield name, None, reason_of(error)


def _serve(pipe: Connection) -> None:
    """Does one job after the other, until the driver closes the pipe."""
    while True:
        function, result, reason = None, None, None
        try:
            ((function, job),) = receive(pipe)  # which imports what they need
            result = function(job)
        except Exception as error:
            if function is None and isinstance(error, EOFError):  # the driver needs no more
                raise
            reason = reason_of(error)
        send(pipe, (result, reason))


def _work(search_path: list[str], function: list[Any], job: list[Any]) -> Any:
    import ray

    # Only what the driver can import and this process cannot; appended, so nothing is shadowed.
    sys.path.extend(entry for entry in search_path if entry not in sys.path)
    return ray.get(function[0])(ray.get(job[0]))


def reason_of(error: Exception) -> str:
    """Returns the kind of an error, and the first line of what it says."""
    cause = getattr(error, "cause", None) or error
    text = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {text[0] if text else ''}".rstrip(": ")
