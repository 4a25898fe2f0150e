"""Runs pytest as on somebody else's machine: `python tests/stranger/run.py [arguments of pytest]`.

fedpriv and its tests are a copy of this checkout that cannot be written, temporary files have a
folder of their own, and the locale is C. If root starts this, the tests run as another user.
`stranger.py` does the rest.
"""

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534
INSIDE = "--inside"
"""Begins the arguments of the process that becomes the other user; a folder follows."""


def copy(target):
    """Copies what is in the checkout, changed or not, as files that nobody can write."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.rstrip("\0").split("\0"):
        if not os.path.lexists(ROOT / name):  # deleted, and not committed
            continue
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, path, follow_symlinks=False)
    compileall.compile_dir(target, quiet=1, workers=2)
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() or os.access(path, os.X_OK) else 0o444)


def closed(folder):
    """Returns the outermost folder on the way to this one that others may not enter, if any."""
    way = [*reversed(folder.parents), folder]
    return next((above for above in way if not above.stat().st_mode & 0o001), None)


def shut(place):
    """Returns the folders that the other user needs and could not read."""
    needed = {place, Path(sys.prefix), Path(sys.base_prefix)}
    if data := os.environ.get("FEDPRIV_DATA"):
        needed.add(Path(data))
    needed |= {folder.resolve() for folder in needed}
    return sorted(folder for folder in needed if closed(folder))


def open_up(folders):
    """Lets others into folders that lie in a closed one, such as a Python in /root.

    An empty folder is mounted over the closed one, and these into it, through descriptors that
    were opened before they were hidden. Only this process and those that it starts see that.
    """
    opened = {folder: os.open(folder, os.O_PATH) for folder in folders}
    for above in {closed(folder) for folder in folders}:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "stranger", above], check=True)
    for folder, descriptor in opened.items():
        folder.mkdir(parents=True, exist_ok=True)
        source = f"/proc/{os.getpid()}/fd/{descriptor}"
        subprocess.run(["mount", "--no-canonicalize", "--bind", source, folder], check=True)
        os.close(descriptor)


def run(place, arguments):
    """Becomes pytest, as another user if this is root."""
    if os.geteuid() == 0:
        if folders := shut(place):
            open_up(folders)
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    os.chdir(place / "checkout")
    environment = {
        **os.environ,
        "HYPOTHESIS_STORAGE_DIRECTORY": str(place / "tmp"),
        "LC_ALL": "C",
        "PYTHONPATH": str(place / "checkout/tests/stranger"),
        "TMPDIR": str(place / "tmp"),
    }
    command = [sys.executable, "-m", "pytest", "-p", "stranger", "-p", "no:cacheprovider"]
    os.execve(sys.executable, [*command, *arguments], environment)  # noqa: S606


def main(arguments):
    if arguments[:1] == [INSIDE]:
        run(Path(arguments[1]), arguments[2:])
    place = Path(tempfile.mkdtemp(prefix="stranger-"))
    try:
        copy(place / "checkout")
        (place / "tmp").mkdir()
        command = [sys.executable, __file__, INSIDE, str(place), *arguments]
        if os.geteuid() == 0:
            place.chmod(0o755)
            os.chown(place / "tmp", NOBODY, NOBODY)
            if shut(place):
                command = ["unshare", "--mount", *command]
        else:
            print("The tests run as you are: only root can start them as another user.", flush=True)
        return subprocess.run(command).returncode
    finally:
        subprocess.run(["chmod", "-R", "u+w", place])
        shutil.rmtree(place)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
