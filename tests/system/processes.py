"""Running fedpriv as a user does: in this process, or as a process that can be killed."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedpriv.cli.main import main

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
