"""Which GPU a worker has, without one: the name that CUDA would read in each process."""

import os
import signal
from collections import Counter

import torch
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from fedpriv.federation.grids.processes import ProcessGrid
from fedpriv.runtime.torch_state import gpus_of


def app_that_tells():
    app = ClientApp()

    @app.train()
    def train(message, context):
        told = {"pid": os.getpid(), "gpu": os.environ.get("CUDA_VISIBLE_DEVICES", "")}
        return Message(RecordDict({"told": ConfigRecord(told)}), reply_to=message)

    return app


def told(grid):
    """Returns the GPU of each worker by process id, as far as workers answer a round of clients."""
    content = {"config": ConfigRecord({"server-round": 1})}
    messages = [
        grid.create_message(RecordDict(content), "train", node, "1") for node in grid.get_node_ids()
    ]
    found = [reply.content["told"] for reply in grid.send_and_receive(messages)]
    return {one["pid"]: one["gpu"] for one in found}


def test_each_worker_has_one_gpu_in_turn_and_so_has_whoever_takes_its_place():
    grid = ProcessGrid(app_that_tells, 60, 1, workers=3, gpus=["GPU-a", "GPU-b"])
    try:
        first, second, third = grid.worker_pids()
        assert told(grid) == {first: "GPU-a", second: "GPU-b", third: "GPU-a"}
        os.kill(second, signal.SIGKILL)
        told(grid)  # which finds that it is gone
        grid.worker_pids()
        assert Counter(told(grid).values()) == {"GPU-a": 2, "GPU-b": 1}
    finally:
        grid.close()


def test_without_several_gpus_all_workers_have_the_same_device(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert gpus_of("cuda") == ["0", "1"]
    assert gpus_of("cuda:1") == gpus_of("cpu") == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5f, GPU-6a,-1,GPU-7b")
    assert gpus_of("cuda") == ["GPU-5f", "GPU-6a"]
