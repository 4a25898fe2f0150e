"""Experiments run as the command line runs them, in this process."""

import contextlib
import io
from pathlib import Path

from fedpriv.cli.main import main
from fedpriv.runtime.run_folder import RunFolder


def ran(*arguments):
    """Runs `fedpriv` with these arguments; returns status, run folder, and what it said."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([str(one) for one in arguments])
    lines = out.getvalue().splitlines()
    folder = Path(lines[-1]) if lines else Path()
    return status, RunFolder(folder), err.getvalue() + out.getvalue()


def result_of(folder, name="extraction"):
    """Returns the result of an attack on a run."""
    return folder.read_json(f"findings/{name}/result.json")
