"""Running fedpriv as a user does: in this process, or as a process that can be killed."""

import contextlib
import functools
import io
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing.connection import wait
from pathlib import Path

import pytest

from fedpriv.cli.main import main
from fedpriv.config import experiment
from fedpriv.report.build import write_report
from fedpriv.runtime.workers.fork_server import Shared, fork_server, send
from fedpriv.studies import trials

TESTS = Path(__file__).parents[1]
TOY = str(TESTS / "system" / "toy.yaml")


def environment(**extra):
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **extra}


def start(*arguments, cwd, **extra):
    """Starts `fedpriv …` in a process group of its own."""
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("fedpriv")), *arguments],
        cwd=cwd,
        env=environment(**extra),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process, timeout=300):
    """Returns status, standard output and standard error."""
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out, err


class Forked:
    """`fedpriv …` in a process group of its own, to be killed: `start` without seconds of imports.

    It is forked from the process that forks workers.
    """

    def __init__(self, *arguments, cwd, **extra):
        self._folder = tempfile.TemporaryDirectory(prefix="forked-")
        self._said = Path(self._folder.name) / "said"
        _import_beforehand()
        task = (arguments, str(cwd), environment(**extra), str(self._said))
        self._worker = fork_server().start(_run_forked, *task)
        self._pid, self._end = self._worker.receive()[0], None

    def poll(self):
        """Returns how it has ended; None if it has not."""
        if self._end is None and wait([self._worker], 0):
            self._end = self._worker.end()
        return self._end

    def said(self):
        """Returns what it has written on both streams."""
        return self._said.read_text()

    def kill(self):
        """Kills its process group."""
        if self.poll() is None:
            os.killpg(self._pid, signal.SIGKILL)
            self._end = self._worker.end()


@functools.cache
def _import_beforehand():
    fork_server().prepare(Shared([experiment.load, trials.start, write_report]))


def _run_forked(pipe, arguments, cwd, variables, said):
    os.setsid()
    os.chdir(cwd)
    os.environ.update(variables)
    file = os.open(said, os.O_WRONLY | os.O_CREAT)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    send(pipe, os.getpid())
    status = main(list(arguments))
    sys.stdout.flush()
    os._exit(status)


def run(*arguments, cwd):
    """Runs `fedpriv …` in this process, which spares the seconds of an import; as `finish`."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.chdir(cwd)
        patch.setattr(sys, "path", [*sys.path])
        status = main(list(arguments))
    return status, out.getvalue(), err.getvalue()


def run_dir(out):
    """The run folder: the last line of standard output."""
    return Path(out.strip().splitlines()[-1])
