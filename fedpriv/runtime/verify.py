"""Compares a run folder with its log: is every file as fedpriv wrote it?"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpriv.runtime import run_files
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_lock import LOCK
from fedpriv.runtime.run_log import LOG, TAKEN_OVER, State, has_log, read_log

CONFIG = "config.yaml"
RETRAINED = "retrained"
"""Folder of the variants that attacks trained, each a run folder with a log of its own."""
UNPUBLISHED = ("salt", "units.json", "data.json")
"""Files that whoever publishes a run leaves out."""
NOT_ENTERED = ("tensorboard", "wandb", "clients")
"""Folders that other libraries write, and only repeat metrics.jsonl; and what simulated clients
remember, in processes of their own: a checkpoint holds a digest of what a run goes on with."""
BLOCK = 1 << 20


@dataclass
class Check:
    """How a run folder differs from its log.

    Attributes:
        changed: file → in which way.
        missing: files that fedpriv wrote and that are gone.
        added: files that fedpriv did not write.
        log: what is wrong with the log itself.
        notes: leftovers of a killed process, which are no changes.
        files: number of files that are as they should be.
        history: one line for each command.
        head: of the log's chain. If all files match the log, it identifies the whole folder.
        own: whether this user's fedpriv has written every line of the log.
    """

    changed: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: int = 0
    history: list[str] = field(default_factory=list)
    head: str = ""
    own: bool = False

    def problems(self) -> list[str]:
        """Returns one line for each difference; empty where the folder is untouched."""
        return [
            *(f"changed: {name} ({how})" for name, how in self.changed.items()),
            *(f"missing: {name}" for name in self.missing),
            *(f"added: {name}" for name in self.added),
            *(f"changed: {LOG}: {problem}" for problem in self.log),
        ]


def check(root: Path, wanted: Callable[[str], bool] = lambda name: True) -> Check:
    """Compares the files of a run folder with its log.

    Args:
        root: the run folder.
        wanted: selects the names to compare.
    """
    result = Check()
    try:
        log = read_log(root)
    except Damaged as error:
        result.log.append(str(error))
        return result
    result.log += log.problems
    result.head, result.own = log.head, log.own
    for one in log.commands:
        settings = one.get("settings")
        taken = settings.get(TAKEN_OVER) if isinstance(settings, dict) else None
        over = f", which took over {'; '.join(map(str, taken))}" if isinstance(taken, list) else ""
        result.history.append(f"{one['at']}  {one['command']} by {one.get('by')}{over}")
    for name in sorted(filter(wanted, log.states)):
        _compare(root, name, log.states[name], result)
    known = {name for name, states in log.states.items() if states != [None]}
    result.added += [n for n in run_files.walk(root) if wanted(n) and n not in known and _ours(n)]
    return result


def altered(root: Path, *names: str) -> list[str]:
    """Returns how some files are not as fedpriv wrote them; nothing where there is no log."""
    return check(root, names.__contains__).problems() if has_log(root) else []


def _ours(name: str) -> bool:
    """Returns whether a file without a line in the log was added by somebody else."""
    first, *rest = Path(name).parts
    written_by_others = first in NOT_ENTERED or (first == RETRAINED and len(rest) > 1)
    own = name == LOG or (not rest and first.startswith(LOCK))
    half = Path(name).name.startswith(".") and name.endswith(run_files.PART)
    return not (written_by_others or own or half)


def _compare(root: Path, name: str, states: list[State | None], result: Check) -> None:
    expected, *before = states
    try:
        with run_files.open_file(root, name) as file:
            found: State | None = State(
                hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size
            )
            cut_off = bool(before) and _is_part(file, found, expected)
    except FileNotFoundError:
        found, cut_off = None, False
    except Damaged as error:
        result.changed[name] = str(error).removeprefix(f"{root / name} ")
        return
    same = [found == (state and State(state.sha256, state.size)) for state in states]
    if same[0]:
        result.files += found is not None
    elif any(same) or cut_off:
        held = "holds what it held before" if found else "is not there"
        held = "is there in part" if cut_off else held
        result.notes.append(f"{name}: a write was cut off; the file {held}")
    elif found is None:
        if name in UNPUBLISHED:
            result.notes.append(f"left out, and not to be published: {name}")
        else:
            result.missing.append(name)
    elif expected is None:
        result.added.append(name)
    elif found.size != expected.size:
        result.changed[name] = f"{found.size} bytes, not {expected.size}"
    else:
        result.changed[name] = "other bytes of the same number"


def _is_part(file: Any, found: State | None, expected: State | None) -> bool:
    """Returns whether a file holds the earlier content and a part of the appended one."""
    if found is None or expected is None or expected.appended_to is None:
        return False
    start = expected.appended_to
    if not start.size <= found.size <= expected.size:
        return False
    file.seek(0)
    return hashlib.sha256(file.read(start.size)).hexdigest() == start.sha256
