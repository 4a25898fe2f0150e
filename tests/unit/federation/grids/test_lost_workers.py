"""Rounds that lose workers for whom no others come, as on a cluster that has lost a node."""

import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedpriv.federation.grids.workers import Worker, WorkerDied, WorkerGrid, served


class Scripted(Worker):
    """A worker in this process that dies at the clients that it is told, or never is ready."""

    def __init__(self, app, deadly, comes=True):
        self.app, self.deadly, self.comes = app, deadly, comes
        self.jobs, self.stream, self.at_work = [], None, None

    def ready(self):
        return 1

    def serve(self, jobs, arrays):
        self.jobs, self.at_work = jobs, None
        self.stream = served(self.app, 8, jobs, arrays)

    def take(self):
        if self.at_work in self.deadly:
            raise WorkerDied("ActorDiedError", "its node is gone")
        event = next(self.stream)
        self.at_work = self.jobs[event].client if isinstance(event, int) else None
        return event

    def end(self):
        pass


class Node(WorkerGrid):
    """Four workers; whoever dies is heard of last, and none comes in its place."""

    def __init__(self, app, deadly, chunk_size):
        super().__init__(8, chunk_size, None)
        self.app, self.deadly = app, deadly
        self._workers = [Scripted(app, deadly) for _ in range(4)]
        self.worker_pids()

    def _new_worker(self, place, rest=0.0):
        return Scripted(self.app, self.deadly, comes=False)

    def _first(self, workers, timeout):
        living = [worker for worker in workers if worker.comes]
        if not living:
            pytest.fail("waits for workers that never come")
        return [min(living, key=lambda worker: worker.at_work in worker.deadly)]

    def _share(self, record):
        return record


def answers(deadly, chunk_size):
    """Returns who answered a round of eight clients, and who failed."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        return Message(RecordDict({"told": ConfigRecord({"ok": True})}), reply_to=message)

    grid = Node(app, deadly, chunk_size)
    content = {"arrays": ArrayRecord(), "config": ConfigRecord({"server-round": 1})}
    messages = [
        grid.create_message(RecordDict(content), "train", node, "1") for node in grid.get_node_ids()
    ]
    replies = grid.send_and_receive(messages)
    return [not reply.has_error() for reply in replies], [one.client for one in grid._failures]


@pytest.mark.parametrize("chunk_size", [1, 2])
@pytest.mark.parametrize("deadly", [{1}, {0, 1}, {6, 7}, {0, 3}])
def test_a_round_ends_without_the_clients_that_took_their_workers_down(deadly, chunk_size):
    answered, failed = answers(deadly, chunk_size)
    assert sorted(failed) == sorted(deadly)
    assert answered.count(True) == 8 - len(deadly)
