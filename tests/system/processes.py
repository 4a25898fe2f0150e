"""Starting fedpriv as a process, as a user does."""

import os
import subprocess
import sys
from pathlib import Path

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


def run(*arguments, cwd, timeout=300, **extra):
    return finish(start(*arguments, cwd=cwd, **extra), timeout)


def run_dir(out):
    """The run folder: the last line of standard output."""
    return Path(out.strip().splitlines()[-1])
