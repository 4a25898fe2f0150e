"""log.jsonl of a run folder: all commands on it, and the hash of every file that fedpriv wrote.

Lines are only ever appended. Each holds the hash of the line before and of itself (`chain`), so
that changing, removing or inserting a line breaks the chain after it; and a signature of that hash
(`signed`) by a secret of the user, by which the user's own folders are told from those of others.
There are three kinds:

- `command`: a command began, with its user, machine, settings and versions.
- `files`: these files are about to get this content (None: to be removed). The line is on disk
  before the file is, so that a file never lacks its line. `kill -9` between the two leaves the
  earlier content, which `states` lists, too.
- `ended`, `failed`: the command ended, or failed with an error.

The log shows accidents and clumsy changes. Anybody who can write into the folder can also write a
whole new log, unsigned, which for others than the user only a copy of the last `chain`, kept
elsewhere, reveals.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import hmac
import json
import os
import platform
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from fedpriv.runtime import run_files
from fedpriv.runtime.cache import user_secret
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.versions import versions

LOG = "log.jsonl"
_START = "0" * 64


TAKEN_OVER = "taken over"
"""Among a command's settings in the log: changes by others that the command has accepted."""


@dataclass(frozen=True)
class State:
    """The content of a file, as its hash.

    Attributes:
        sha256: in hexadecimal digits.
        size: in bytes.
        appended_to: the state that was appended to; None where the file was written as a whole.
    """

    sha256: str
    size: int
    appended_to: State | None = None

    @classmethod
    def of(cls, data: bytes) -> State:
        """Returns the state of a file with this content."""
        return cls(hashlib.sha256(data).hexdigest(), len(data))


@dataclass
class Log:
    """The content of log.jsonl.

    Attributes:
        commands: the lines of commands, in order.
        states: by file, the content that it may have; the first is what it should be, the others
            are possible because a write was cut off. None means that it does not exist.
        problems: where the chain is broken, in words.
        head: `chain` of the last line.
        own: whether this user's fedpriv has written every line.
    """

    commands: list[Mapping[str, Any]] = field(default_factory=list)
    states: dict[str, list[State | None]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    head: str = _START
    own: bool = True


def has_log(root: Path) -> bool:
    """Returns whether the folder has a log, in which all writes are noted."""
    path = root / LOG
    return path.is_file() and not path.is_symlink()


def begin(root: Path, command: str, settings: Mapping[str, Any]) -> None:
    """Notes the beginning of a command; creates the log if there is none."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in a container
        user = str(os.getuid())
    who = {"by": f"{user}@{platform.node()}", "settings": settings, "versions": versions()}
    _append(root, {"command": command, **who})


def end(root: Path, command: str, error: BaseException | None = None) -> None:
    """Notes the end of a command, or the error that ended it."""
    _append(
        root, {"failed": command, "error": type(error).__name__} if error else {"ended": command}
    )


def write(root: Path, name: str, data: bytes) -> None:
    """Writes a file in one piece, after noting it."""
    _note(root, {name: State.of(data)})
    run_files.write(root, name, data)


def append(root: Path, name: str, data: bytes, *, sync: bool = False) -> None:
    """Appends to a file, after noting it; creates it if there is none."""
    path = root / name
    if not data and path.is_file():
        return
    if not has_log(root):
        run_files.append(root, name, data, sync=sync)
        return
    # What this process has appended last it need not read: files grow with the run.
    known, summed = _appended.get(path.absolute(), (None, hashlib.sha256()))
    if known is None or known != _as_it_is(path):
        summed = hashlib.sha256(run_files.read(root, name) or b"")
    size = path.stat().st_size if path.is_file() else 0
    after = summed.copy()
    after.update(data)
    was, now = (State(s.hexdigest(), n) for s, n in ((summed, size), (after, size + len(data))))
    _note(root, {name: replace(now, appended_to=was)}, sync=sync)
    run_files.append(root, name, data, sync=sync)
    _appended[path.absolute()] = _as_it_is(path), after


def _as_it_is(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


_appended: dict[Path, tuple[tuple[int, int, int] | None, Any]] = {}
"""What the files that this process has appended to were like then, and their SHA-256."""


def remove(root: Path, names: list[str]) -> None:
    """Removes files, after noting it."""
    _note(root, dict.fromkeys(names))
    for name in names:
        run_files.inside(root, name).unlink(missing_ok=True)


def _note(root: Path, files: Mapping[str, State | None], *, sync: bool = True) -> None:
    if files and has_log(root):
        states = {name: _to_json(state) for name, state in files.items()}
        _append(root, {"files": states}, sync=sync)


def _to_json(state: State | None) -> dict[str, Any] | None:
    if state is None:
        return None
    values = {"sha256": state.sha256, "bytes": state.size}
    return values | ({"appended_to": _to_json(state.appended_to)} if state.appended_to else {})


def _from_json(values: Mapping[str, Any] | None) -> State | None:
    if values is None:
        return None
    return State(values["sha256"], values["bytes"], _from_json(values.get("appended_to")))


def _append(root: Path, entry: Mapping[str, Any], *, sync: bool = True) -> None:
    """Appends one line; several processes wait for each other.

    A line about what is not on the disk itself when its writer goes on need not be there either:
    the next one that must takes it along, such as a checkpoint's.
    """
    run_files.append(root, LOG, b"")  # so that it is there, and a regular file
    path = run_files.inside(root, LOG)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW)
    with run_files.naming(path), os.fdopen(handle, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before, whole = _last_chain(file)
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        who: dict[str, Any] = {"at": now, "pid": os.getpid()}
        if threading.current_thread() is not threading.main_thread():
            who["thread"] = threading.current_thread().name
        line = json.loads(json.dumps({**who, **entry}, default=str))
        line["chain"] = _chain(before, line)
        line["signed"] = _signature(line["chain"])
        # What a killed process has left of a line stays, as a line of its own.
        file.write(b"" if whole else b"\n")
        file.write(json.dumps(line).encode("ascii") + b"\n")
        file.flush()
        if sync:
            os.fsync(file.fileno())


def _last_chain(file: BinaryIO) -> tuple[str, bool]:
    """Returns `chain` of the last whole line, and whether the file ends with a line's end."""
    size = file.seek(0, os.SEEK_END)
    whole, block = True, 1 << 16
    while size:
        start = max(0, size - block)
        file.seek(start)
        data = file.read()
        whole = data.endswith(b"\n")
        # A first line that begins before the block is no line.
        for raw in reversed(data.split(b"\n")[bool(start) :]):
            line = _parsed(raw)
            if line is not None:
                return line["chain"], whole
        if start == 0:
            break
        block *= 4
    return _START, whole


def _chain(before: str, line: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in line.items() if key not in ("chain", "signed")}
    return hashlib.sha256((before + json.dumps(rest, sort_keys=True)).encode()).hexdigest()


def _signature(chain: str) -> str:
    return hmac.digest(user_secret(), f"log {chain}".encode(), "sha256").hex()


def _parsed(raw: bytes) -> dict[str, Any] | None:
    """Returns a line, or None if it was cut off or is not fedpriv's."""
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    ours = isinstance(line, dict) and isinstance(line.get("chain"), str)
    return line if ours and isinstance(line.get("pid"), int) else None


def read_log(root: Path) -> Log:
    """Reads and checks the log of a run folder.

    Raises:
        Damaged: if there is none, or it is no regular file.
    """
    data = run_files.read(root, LOG)
    if data is None:
        raise Damaged(f"{root / LOG} is missing: what fedpriv wrote here cannot be told")
    log = Log()
    # By process and thread, what it was about to write.
    unsure: dict[tuple[int, str], dict[str, State | None]] = {}
    for number, raw in enumerate(data.split(b"\n"), 1):
        line = _parsed(raw)
        if line is None:  # cut off; if it was changed instead, the next line's chain tells
            continue
        if line["chain"] != _chain(log.head, line):
            log.problems.append(f"line {number} does not follow from the lines before it")
        log.head = line["chain"]
        log.own &= line.get("signed") == _signature(log.head)
        who = line["pid"], str(line.get("thread", ""))
        # A command begins and ends for all threads of its process.
        alike = [w for w in unsure if w == who or (w[0] == who[0] and "files" not in line)]
        begun = [unsure.pop(w) for w in alike]
        if "command" in line:
            log.commands.append(line)
        elif "failed" not in line:
            # Whoever writes a further line has done what the one before announced.
            for name, state in (item for files in begun for item in files.items()):
                if log.states[name][0] is state:
                    log.states[name] = [state]
        try:
            files = {str(n): _from_json(s) for n, s in line.get("files", {}).items()}
        except (AttributeError, KeyError, TypeError):
            log.problems.append(f"line {number} is none of fedpriv's")
            continue
        for name, state in files.items():
            log.states[name] = [state, *log.states.get(name, [None])]
        if files:
            unsure[who] = files
    return log
