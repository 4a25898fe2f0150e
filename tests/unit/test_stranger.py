"""What `make test-hostile` refuses is refused, and the test that does it fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

STRANGER = Path(__file__).parents[1] / "stranger"

TRIED = """
import asyncio, multiprocessing, os, pickle, socket, subprocess, sys, types
from contextlib import suppress
from pathlib import Path

torch = types.SimpleNamespace(load=lambda path: path, serialization=types.SimpleNamespace())
sys.modules["torch"] = torch

def test_address():
    socket.getaddrinfo("192.0.2.1", 9)

def test_address_that_somebody_catches():
    with suppress(Exception):
        socket.getaddrinfo("192.0.2.1", 9)

def test_socket():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

def test_pickle():
    pickle.loads(pickle.dumps(1))

def test_unpickler():
    pickle.Unpickler(open(os.devnull, "rb"))

def test_weights():
    torch.load("weights")

def test_pickle_of_a_process():
    subprocess.run([sys.executable, "-c", "import pickle; pickle.loads(pickle.dumps(1))"])

def test_address_of_a_process():
    subprocess.run([sys.executable, "-c", "import socket; socket.gethostbyname('192.0.2.1')"])

def test_home():
    assert list(Path.home().iterdir()) == []
    assert Path.home().stat().st_mode & 0o222 == 0

def test_files_are_open_to_everybody(tmp_path):
    (tmp_path / "new").touch()
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o666

def test_pipe_and_loop():
    here, there = multiprocessing.Pipe()
    here.send([1])
    assert there.recv() == [1]
    asyncio.run(asyncio.sleep(0))
"""

ALLOWED = ["files_are_open_to_everybody", "home", "pipe_and_loop"]
UNSEEN = ["address_of_a_process", "address_that_somebody_catches", "pickle_of_a_process"]
"""They would pass by themselves, but end in an error."""


def test_what_must_not_be_done_fails_even_where_it_is_caught(tmp_path):
    (tmp_path / "test_tried.py").write_text(TRIED)
    command = [sys.executable, "-m", "pytest", "-p", "stranger", "-rA", "--rootdir", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(STRANGER)}
    done = subprocess.run(
        [*command, tmp_path], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    told = re.findall(r"^(PASSED|FAILED|ERROR) \S+::test_(\w+)", done.stdout, re.MULTILINE)
    passed = {name for word, name in told if word == "PASSED"}
    wrong = {name for word, name in told if word != "PASSED"}
    assert sorted(passed - wrong) == ALLOWED, done.stdout
    assert sorted(passed & wrong) == UNSEEN, done.stdout
    assert len(wrong - passed) == 5
