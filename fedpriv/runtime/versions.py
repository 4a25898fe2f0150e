"""Where a result comes from: the versions of what computed it, the commit, the day, the machine."""

from __future__ import annotations

import datetime
import functools
import hashlib
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import fedpriv

PACKAGES = ("fedpriv", "torch", "transformers", "peft", "flwr", "ray", "numpy")


# It takes milliseconds for each package, and every command of a run asks again.
@functools.cache
def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return fedpriv.__version__ if package == "fedpriv" else ""


def versions_of(*packages: str) -> dict[str, str]:
    """Returns the versions of installed packages.

    Packages that are missing are left out, except fedpriv: it may run from a folder without being
    installed, and then says its own version.
    """
    return {name: version for name in packages if (version := _version(name))}


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that compute."""
    return {"python": platform.python_version(), **versions_of(*PACKAGES)}


# Looked at once: the process goes on with the code that it has begun with.
@functools.cache
def commit() -> str:
    """Returns the commit of the code, marked where files differ from it; else the version."""
    root = Path(fedpriv.__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return f"fedpriv {fedpriv.__version__}"

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=10", "HEAD").strip() + " with changes" * bool(changed)
    except (OSError, subprocess.CalledProcessError):  # no git here, or a folder of someone else's
        return f"fedpriv {fedpriv.__version__}"


@functools.cache
def code() -> str:
    """Returns a hash of fedpriv's code, which tells whether it is still the same.

    Of the commit nobody knows it: files may differ from it, and a package has none.
    """
    hashed = hashlib.sha256()
    for folder, folders, files in os.walk(Path(fedpriv.__file__).parent, followlinks=True):
        folders.sort()  # the order in which they are walked
        for name in sorted(files):
            if name.endswith((".py", ".j2")):
                hashed.update((Path(folder) / name).read_bytes())
    return hashed.hexdigest()


def cores() -> int:
    """Returns how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> str:
    """Returns the kind of machine and its accelerator, without its name."""
    import torch

    # Which instructions torch uses decides over the last bits, and so over a training's course.
    processor = f"{platform.machine()} ({torch.backends.cpu.get_cpu_capability()})"
    cores = f"{platform.system()} on {processor} with {os.cpu_count()} cores"
    return f"{cores} and {torch.cuda.get_device_name()}" if torch.cuda.is_available() else cores


def today() -> str:
    """Returns the date, in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()
