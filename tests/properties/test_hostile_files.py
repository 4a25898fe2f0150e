"""Folders in which one file is hostile: each is read, refused with a path, or skipped and counted.

No reader waits for a pipe, runs what a file says, opens a file outside of its folder, or raises
anything else; and what it accepts is whole: each page can be looked at.

FEDPRIV_HOSTILE_FILES is how many folders are tried, 9 kinds of them in turn.
"""

import dataclasses
import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hostile import LAYOUTS, mutate

from fedpriv.data import apart
from fedpriv.data.document import DataError

COUNT = int(os.environ.get("FEDPRIV_HOSTILE_FILES", "240"))
SECONDS = 20
"""In which a folder of two small documents must be read, on a busy machine too."""

CODE = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn",
        "pty.spawn", "pickle.find_class", "socket.connect", "marshal.loads", "compile")  # fmt: skip

_watching, _events = [], []


def _watch(event, arguments):
    if _watching and (event in CODE or event == "open"):
        _events.append((event, arguments[0]))


sys.addaudithook(_watch)


def called_here(function, path, *arguments, content=None):
    value = function(path, *arguments, *([] if content is None else [content]))
    if isinstance(value, np.ndarray):
        return value
    return json.loads(json.dumps(value, default=dataclasses.astuple))


class Hang(Exception):
    pass


@contextmanager
def watched():
    """Notes what is opened and started; raises `Hang` after `SECONDS`."""

    def stop(*_):
        raise Hang

    _events.clear()
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    _watching.append(True)
    try:
        yield
    finally:
        _watching.clear()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outside(root):
    """Returns what was opened that is neither the folder's, nor Python's, nor the cache's."""
    ours = [
        *(root, sys.prefix, sys.base_prefix, Path(__file__).parents[2]),
        *(f"{os.environ['FEDPRIV_CACHE']}/{name}" for name in ("pages", "words", "placed")),
    ]
    opened = [os.fsdecode(what) for event, what in _events if event == "open" if what is not None
              and not isinstance(what, int)]  # fmt: skip
    real = [os.path.realpath(path) for path in opened]
    return [path for path in real if not any(path.startswith(str(home)) for home in ours)]


def tried(layout, root, on_error):
    """Returns what became of a folder: "accepted", "skipped", "refused", or what went wrong."""
    with watched():
        try:
            found = layout.load(root, on_error=on_error).load()
            for document in found.documents:
                document.image()
        except DataError as error:
            named = root == error.path or root in error.path.parents
            outcome = "refused" if named and error.why else f"no path: {error}"
        except Hang:
            outcome = "hang"
        except BaseException as error:
            outcome = f"crash: {error!r}"
        else:
            outcome = "skipped" if found.skipped else "accepted"
    started = [event for event, _ in _events if event in CODE]
    return f"started {started}" if started else outcome


@pytest.mark.parametrize("name", LAYOUTS)
def test_one_hostile_file_never_does_more_than_be_refused(name, tmp_path, capsys, monkeypatch):
    # The watch is on this process, so the decoders run here.
    monkeypatch.setattr(apart, "call", called_here)
    layout, counts, wrong = LAYOUTS[name], Counter(), []
    layout.write(tmp_path / "sound")
    tried(layout, tmp_path / "sound", "raise")  # imports what is imported late, which is code too
    assert tried(layout, tmp_path / "sound", "raise") == "accepted"
    for number in range(COUNT // len(LAYOUTS)):
        root, draw = tmp_path / str(number), random.Random(f"{name} {number}")
        shutil.copytree(tmp_path / "sound", root)
        done = mutate(root, draw)
        strict, lenient = (tried(layout, root, on_error) for on_error in ("raise", "skip"))
        counts[strict, lenient] += 1
        # A broken list of documents is refused in either way; nothing else is taken strictly.
        usual = {("accepted",) * 2, ("refused", "skipped"), ("refused",) * 2}
        if (strict, lenient) not in usual or outside(root):
            wrong.append((number, *done, strict, lenient, outside(root)))
        shutil.rmtree(root)
    with capsys.disabled():
        if "FEDPRIV_HOSTILE_FILES" in os.environ:
            print(f"\n{name}: {dict(counts)}")
    assert wrong == []
    assert counts["refused", "skipped"] > 0


def test_the_watch_sees_a_hang_a_process_and_a_crash(tmp_path, monkeypatch):
    """Otherwise the test above would prove nothing."""

    class Bad:
        def __init__(self, do):
            self.do = do

        def load(self, root, on_error):
            self.do(root)

    monkeypatch.setattr(sys.modules[__name__], "SECONDS", 1)
    os.mkfifo(tmp_path / "pipe")
    assert tried(Bad(lambda root: (root / "pipe").read_bytes()), tmp_path, "skip") == "hang"
    run = Bad(lambda root: os.system("true"))  # noqa: S605
    assert "os.system" in tried(run, tmp_path, "skip")
    assert "KeyError" in tried(Bad(lambda root: {}["x"]), tmp_path, "skip")
    elsewhere = Bad(lambda root: Path("/etc/hostname").read_bytes())
    tried(elsewhere, tmp_path, "skip")
    assert outside(tmp_path) == ["/etc/hostname"]
