"""Clients on Ray actors: one machine, or a Ray cluster."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from flwr.app import ArrayRecord
from flwr.clientapp import ClientApp
from ray.exceptions import OutOfMemoryError, RayActorError

from fedpriv.federation.grids.workers import Job, Worker, WorkerDied, WorkerGrid, served
from fedpriv.runtime.memory import keep_large_blocks
from fedpriv.runtime.workers.ray_session import start_ray, stop_ray


class Actor:
    """Builds the app once, then serves chunks.

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
        """Yields what `served` does."""
        yield from served(self.app, self.clients, jobs, arrays)


class RayWorker(Worker):
    """An actor, as the driver sees it."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.awaited: Any = actor.ready.remote()  # what `ray.wait` is to wait for

    def ready(self) -> int:
        """Waits until its app is built; returns its process id."""
        return int(_told(lambda: ray.get(self.actor.ready.remote())))

    def serve(self, jobs: list[Job], arrays: Sequence[Any]) -> None:
        """Gives it a chunk."""
        method = self.actor.serve.options(num_returns="streaming")
        self.awaited = method.remote(jobs, *arrays)

    def take(self) -> Any:
        """Returns what it says next."""
        return _told(lambda: ray.get(next(self.awaited)))

    def end(self) -> None:
        """Ends it, whatever it does."""
        ray.kill(self.actor)


def _told(ask: Callable[[], Any]) -> Any:
    """Returns what is asked of an actor."""
    try:
        return ask()
    except (RayActorError, OutOfMemoryError) as error:
        raised = bool(getattr(error, "actor_init_failed", False))
        raise WorkerDied(type(error).__name__, str(error), raised=raised) from error


class RayGrid(WorkerGrid):
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
        super().__init__(clients, chunk_size, client_timeout)
        self._resources = {"num_cpus": 1.0, **(client_resources or {})}
        self._owns_ray = start_ray(workers, self._resources, address)
        self._factory = [ray.put(factory)]
        self._workers = [self._new_worker(place) for place in range(workers)]

    def close(self) -> None:
        """Ends the workers, and Ray if this grid started it."""
        super().close()
        if self._owns_ray:
            stop_ray()

    def _new_worker(self, place: int, rest: float = 0.0) -> Worker:
        actor = ray.remote(Actor).options(**self._resources, max_restarts=0)
        return RayWorker(actor.remote(sys.path, self._factory, self.clients, rest))

    def _first(self, workers: list[Worker], timeout: float | None) -> list[Worker]:
        awaited = {worker.awaited: worker for worker in workers if isinstance(worker, RayWorker)}
        ready, _ = ray.wait(list(awaited), timeout=timeout)
        return [awaited[one] for one in ready]

    def _share(self, record: ArrayRecord) -> Any:
        return ray.put(record)
