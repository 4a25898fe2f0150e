"""What forked workers do in tests."""

import importlib
import os
import signal
import time
from pathlib import Path

import numpy as np

from fedpriv.runtime.workers.fork_server import receive, send


def tell(pipe, flag, value, shared):
    send(pipe, (flag, value, shared, (value["x"].flags.writeable, shared["x"].flags.writeable)))


def mappings(pipe, value):
    kinds = {name: isinstance(array.base, np.memmap) for name, array in value.items()}
    send(pipe, ({name: array.copy() for name, array in value.items()}, kinds))


def echo(pipe):
    send(pipe, receive(pipe))
    send(pipe, os.getpid())
    time.sleep(3600)


def busy(pipe):
    send(pipe, os.getpid())
    while True:
        pass


def threads(pipe):
    send(pipe, len(list(Path("/proc/self/task").iterdir())))


def loaded(pipe, module):
    send(pipe, importlib.import_module(module).__name__ == module)


def end(pipe, how):
    if how == "exit":
        os._exit(3)
    if how == "raise":
        raise RuntimeError("on purpose")
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "abort": signal.SIGABRT}[how])


def square(job):
    """Returns the square of the number; with a folder, it kills its process the first two times."""
    number, folder = job
    if number < 0:
        raise ValueError(f"{number} is negative\nand more")
    if folder:
        starts = Path(folder) / str(number)
        starts.touch()
        with starts.open("a") as file:
            file.write("x")
        if starts.stat().st_size <= 2:
            os.kill(os.getpid(), signal.SIGKILL)
    return number**2, os.getpid()


class Unreadable:
    """A job whose class needs what a worker cannot import."""

    def __reduce__(self):
        return importlib.import_module, ("no_such_module",)


def hopeless(job):
    os._exit(1)
