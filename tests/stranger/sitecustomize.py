"""Refuses sockets and pickles in every Python process of `make test-hostile`.

Python imports this file when it starts, since its folder stands in PYTHONPATH. What is refused
raises, and is noted in a file, because somebody may catch the error: then the test fails all the
same, in `stranger.py` beside this file. What is not refused is listed here with a reason.
"""

import functools
import ipaddress
import os
import pickle
import socket
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
LOG = "STRANGER_LOG"
"""The variable that names the file of what was refused."""

MAY_UNPICKLE = {
    "fedpriv.runtime.workers.fork_server": "the driver and its workers, through pipes of their own",
    "fedpriv.data.readers.restricted_pickle": "PFL-DocVQA's records; nothing in them is called",
    "multiprocessing": "what a process is sent by the one that started it",
    "ray": "what its workers are sent and answer",
}
"""Modules and packages that may unpickle, and what. Tests may, too: the bytes are their own."""

MAY_OPEN = {
    "asyncio": "a pair of sockets, by which a loop wakes itself",
    "multiprocessing": "a pair of sockets, as the two ends of a pipe",
    "hostile": "makes a socket where a document is expected",
    "urllib3.util.connection": "asks, when imported, whether the machine has IPv6",
}
"""Modules and packages that may open sockets inside the machine in any test, and why."""

LOOPBACK = {
    "tests/unit/runtime/test_trackers.py": "MLflow's and W&B's clients, and W&B's own process",
}
"""Files of tests in which anybody may open sockets inside the machine, and for what."""

ASKED = {
    "169.254.169.254": "Ray's process for usage asks in which cloud it runs, and reports nothing",
    "metadata.google.internal": "the same",
}
"""Addresses outside the machine that a process started by a test may ask, and why."""

running = ""
"""The file of the test that runs; empty in a process that a test has started."""


class Refused(RuntimeError):
    """A test did what it must not do on the machine of a stranger."""


def refuse(what):
    if log := os.environ.get(LOG):
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{what}\n")
    raise Refused(what)


def callers():
    """Yields the module and the file of each function at work, the innermost first."""
    frame = sys._getframe()
    while frame := frame.f_back:
        if frame.f_globals is not globals():
            spec = frame.f_globals.get("__spec__")
            name = spec.name if spec else frame.f_globals.get("__name__", "")
            yield name, Path(frame.f_code.co_filename)


def among(name, packages):
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


# ----------------------------------------------------------------------------------------- pickles


def check_unpickling():
    """Refuses, unless whoever unpickles is listed; the innermost function of ours decides."""
    chain = []
    for name, file in callers():
        if among(name, MAY_UNPICKLE) or TESTS in file.parents:
            return
        chain.append(name)
        if among(name, ["fedpriv"]):
            break
    refuse(f"unpickling by {' < '.join(dict.fromkeys(chain))}")


def unpickles(function):
    """Wraps a function that unpickles, so that only those may call it who are listed."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        check_unpickling()
        return function(*args, **kwargs)

    return wrapped


class Unpickler(pickle.Unpickler):
    def __init__(self, *args, **kwargs):
        # A restricted one may forbid to look at its callers while it reads.
        if not among(type(self).__module__, MAY_UNPICKLE):
            check_unpickling()
        super().__init__(*args, **kwargs)


Unpickler.__module__ = "pickle"
pickle.Unpickler = Unpickler
pickle.load, pickle.loads = unpickles(pickle.load), unpickles(pickle.loads)

# ----------------------------------------------------------------------------------------- sockets

ADDRESSED = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg")
NAMED = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
"""Events that Python tells to `audit`: with a socket and an address, and with a name."""


def audit(event, arguments):
    if not event.startswith("socket."):
        return
    if event == "socket.__new__":
        opens = [name for name, _ in callers() if name != "socket"]
        if running and running not in LOOPBACK and not among(opens[0], MAY_OPEN):
            refuse(f"a socket by {' < '.join(dict.fromkeys(opens))}")
    elif event in ADDRESSED and isinstance(arguments[1], tuple):  # of Unix sockets it is a path
        check_host(event, arguments[1][0])
    elif event in NAMED:
        check_host(event, arguments[0])


def check_host(event, host):
    host = host.decode() if isinstance(host, bytes) else host
    if host in (None, "localhost", socket.gethostname()) or (host in ASKED and not running):
        return
    try:
        inside = ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = False
    if not inside:
        refuse(f"{event} {host}")


sys.addaudithook(audit)
