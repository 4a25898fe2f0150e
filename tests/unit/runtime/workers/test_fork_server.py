"""Forked workers: what they get, how they end, and that none is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from jobs_for_workers import busy, echo, end, loaded, mappings, tell, threads

from fedpriv.runtime.workers import fork_server as module
from fedpriv.runtime.workers.fork_server import (
    Ended,
    ForkServer,
    Shared,
    cpu_seconds,
    fork_server,
)

# A script of a user whose server imports nothing beforehand, which would take seconds.
SCRIPT = (
    "from fedpriv.runtime.workers import fork_server as module\n"
    "from fedpriv.runtime.workers.fork_server import fork_server, send\n"
    "module.PRELOADED = ()\n"
)


@pytest.fixture
def own_server(monkeypatch):
    """A server of this test alone, which imports nothing beforehand."""
    monkeypatch.setattr(module, "PRELOADED", ())
    monkeypatch.setattr(module, "_server", None)
    yield
    fork_server().close()


def told(task, *arguments, shared=()):
    """Returns what a worker says first, and how it has ended."""
    worker = fork_server().start(task, *arguments, shared=shared)
    said = worker.receive()[0]
    return said, worker.end()


def test_a_worker_gets_arguments_and_shared_values():
    value = {"x": np.arange(100_000.0), "y": [np.ones((3, 2), np.int8), "text"]}
    with_arrays = Shared(value)
    try:
        (flag, copied, shared, writable), _ = told(tell, True, value, shared=[with_arrays])
    finally:
        with_arrays.close()
    assert flag is True
    for found in (copied, shared):
        np.testing.assert_array_equal(found["x"], value["x"])
        np.testing.assert_array_equal(found["y"][0], value["y"][0])
        assert found["y"][1] == "text"
    assert writable == (True, False)


def test_an_array_that_is_mapped_from_a_file_is_mapped_from_it_by_workers(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(1_000_000.0).reshape(1000, 1000))
    mapped = np.asarray(np.load(tmp_path / "x.npy", mmap_mode="r"))
    value = {"all": mapped, "rows": mapped[10:20], "columns": mapped[:, :2], "none": mapped[:0]}
    with_arrays = Shared(value)
    assert os.fstat(with_arrays.fileno()).st_size < 100_000
    worker = fork_server().start(mappings, shared=[with_arrays])
    with_arrays.close()
    found, kinds = worker.receive()[0]
    worker.end()
    for name, array in value.items():
        np.testing.assert_array_equal(found[name], array)
    assert kinds == {"all": True, "rows": True, "columns": False, "none": False}


def test_cpu_seconds_are_those_of_ended_workers_too():
    worker = fork_server().start(busy)
    worker.receive()
    time.sleep(0.5)
    before = cpu_seconds()
    worker.end()
    assert cpu_seconds() - before > 0.05


def test_two_workers_answer_for_themselves():
    workers = [fork_server().start(echo) for _ in range(2)]
    for number, worker in enumerate(workers):
        worker.send(number)
    assert [worker.receive()[0][0] for worker in workers] == [0, 1]
    pids = [worker.receive()[0] for worker in workers]
    assert len({*pids, os.getpid(), fork_server().pid}) == 4
    assert [worker.end() for worker in workers] == ["it was ended by SIGKILL"] * 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)  # not even as zombies


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("exit", "it ended with status 3"),
        ("raise", "it ended with status 1"),
        ("kill", "it was ended by SIGKILL"),
        ("abort", "it was ended by SIGABRT"),
    ],
)
def test_how_a_worker_ended_is_told(how, said):
    worker = fork_server().start(end, how)
    with pytest.raises(Ended, match=f"^{said}$"):
        worker.receive()
    assert worker.end() == "it was ended before"


def test_a_worker_sees_what_the_driver_has_changed_since(tmp_path, monkeypatch):
    fork_server()
    (tmp_path / "made_later.py").write_text(
        "import os\ndef where(pipe):\n"
        "    from fedpriv.runtime.workers.fork_server import send\n"
        "    send(pipe, (os.getcwd(), os.environ['FEDPRIV_LATER']))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FEDPRIV_LATER", "7")
    from made_later import where

    assert told(where)[0] == (str(tmp_path), "7")


def test_a_folder_that_is_deleted_breaks_no_import_of_the_server(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    server = ForkServer()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").rmdir()
    try:
        assert server.start(loaded, "torch").receive()[0]
    finally:
        server.close()


def test_a_class_of_the_users_script_travels():
    script = SCRIPT + (
        "class Mine:\n    number = 8\n"
        "def task(pipe, mine):\n    send(pipe, mine.number)\n"
        "print(fork_server().start(task, Mine()).receive()[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "8\n", "")


def test_the_server_has_one_thread_and_so_has_a_worker():
    worker = fork_server().start(threads)
    try:
        assert worker.receive()[0] == 1
        assert len(list(Path(f"/proc/{fork_server().pid}/task").iterdir())) == 1
    finally:
        worker.end()


@pytest.mark.usefixtures("own_server")
def test_a_killed_server_is_replaced_and_takes_its_workers_along():
    server = fork_server()
    worker = server.start(echo)
    worker.send(1)
    worker.receive()
    pid = worker.receive()[0]
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(Ended, match="the process that forks workers has ended"):
        worker.receive()
    gone(pid)
    assert fork_server().pid != server.pid
    assert told(threads)[0] == 1


def test_a_killed_driver_leaves_nothing():
    script = SCRIPT + (
        "from jobs_for_workers import busy\n"
        "worker = fork_server().start(busy)\n"
        "print(fork_server().pid, worker.receive()[0], flush=True)\n"
        "worker.receive()[0]\n"
    )
    path = os.pathsep.join([str(Path(__file__).parents[3]), *filter(None, sys.path)])
    driver = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    pids = [int(pid) for pid in driver.stdout.readline().split()]
    assert len(pids) == 2
    driver.kill()
    driver.wait()
    driver.stdout.close()
    for pid in pids:
        gone(pid)


def gone(pid):
    """Waits until a process has ended."""
    deadline = time.monotonic() + 60
    while (
        Path(f"/proc/{pid}").exists()
        and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
