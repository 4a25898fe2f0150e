"""Wall time, CPU time and memory of a process and of all that it has started, from /proc.

Processes are told apart as driver (the contender's own), workers (what trains, and what Ray keeps
idle to train) and daemons (Ray's raylet, GCS, dashboard and agents). Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

KINDS = ("driver", "workers", "daemons")
RAY_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """What one process has used since it began: seconds, and page faults without disk."""

    kind: str
    cpu: float
    system: float
    faults: int


def tree(root: int) -> dict[int, str]:
    """Returns the live processes that `root` and its descendants have started, with their kinds."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = {root: "driver"}
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), []):
            found[pid] = _kind(pid)
            todo.append(pid)
    return found


class Laps:
    """The contender's own clock: one JSON line per round on a pipe to the parent.

    What the bookkeeping itself costs lies between two laps and belongs to neither.
    """

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._wall, self._usage = 0.0, {}
        self._busy = 0.0

    def start(self) -> None:
        """Notes the moment of the contender's run call."""
        self.say(event="start", at=time.monotonic())
        self._wall, self._usage = _now(os.getpid(), wall_first=False)
        self._busy = busy_seconds()

    def lap(self) -> None:
        """Notes the end of a round."""
        busy = busy_seconds() - self._busy
        wall, usage = _now(os.getpid(), wall_first=True)
        spent: dict[str, Counter] = {kind: Counter() for kind in KINDS}
        for pid, now in usage.items():
            before = self._usage.get(pid, Usage(now.kind, 0.0, 0.0, 0))
            spent[now.kind]["cpu"] += now.cpu - before.cpu
            spent[now.kind]["system"] += now.system - before.system
            spent[now.kind]["faults"] += now.faults - before.faults
        vanished = len(self._usage.keys() - usage.keys())
        others = busy - sum(used["cpu"] for used in spent.values())
        took = wall - self._wall
        self.say(event="lap", at=wall, wall=took, spent=spent, vanished=vanished, others=others)
        self._wall, self._usage = _now(os.getpid(), wall_first=False)
        self._busy = busy_seconds()

    def say(self, **what) -> None:
        """Sends the parent one line."""
        os.write(self._pipe, (json.dumps(what) + "\n").encode())


class Memory:
    """Watches the memory of a tree of processes from outside, in a thread, until stopped.

    Only the rounds after the timed ones are watched: reading /proc/…/smaps_rollup walks the page
    tables, and would slow down whatever it watches.

    Attributes:
        peak: MiB. For each kind its highest `pss` (shared pages divided among those who map them)
            and `private` (resident without shared memory), summed over the kind's processes at one
            moment; `shared`, the shared memory of all of them together, which is Ray's object
            store as far as it has been touched; and for the driver `hwm`, the kernel's own
            high-water mark of its resident memory, shared included.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self.peak: dict[str, float] = {}
        self._stop = threading.Event()
        self._processes = tree(root)
        for pid in self._processes:
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets VmHWM
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> dict[str, float]:
        """Ends the watch; returns the peaks."""
        self._stop.set()
        self._thread.join()
        status = _mebibytes(Path(f"/proc/{self.root}/status"))
        self._note("driver_hwm", status.get("VmHWM", 0.0))
        return {name: round(value, 1) for name, value in self.peak.items()}

    def _watch(self) -> None:
        turn = 0
        while not self._stop.is_set():
            self._residents()
            if turn % 10 == 0:
                self._processes = tree(self.root)
                self._proportional()
            turn += 1
            self._stop.wait(0.005)

    def _residents(self) -> None:
        private: Counter = Counter()
        for pid, kind in self._processes.items():
            status = _mebibytes(Path(f"/proc/{pid}/status"))
            private[kind] += status.get("RssAnon", 0.0) + status.get("RssFile", 0.0)
        for kind, value in private.items():
            self._note(f"{kind}_private", value)

    def _proportional(self) -> None:
        pss: Counter = Counter()
        shared = 0.0
        for pid, kind in self._processes.items():
            rollup = _mebibytes(Path(f"/proc/{pid}/smaps_rollup"))
            pss[kind] += rollup.get("Pss", 0.0)
            shared += rollup.get("Pss_Shmem", 0.0)
        self._note("shared", shared)
        for kind, value in pss.items():
            self._note(f"{kind}_pss", value)

    def _note(self, name: str, value: float) -> None:
        self.peak[name] = max(self.peak.get(name, 0.0), value)


def busy_seconds() -> float:
    """Returns the seconds that all cores together were busy since the machine started.

    Those that another machine on the same hardware has taken (steal) count too.
    """
    user, nice, system, _idle, _wait, irq, softirq, steal, *_ = (
        int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / _TICK


def machine() -> dict[str, object]:
    """Returns what a reader of the numbers must know of the machine."""
    info = Path("/proc/cpuinfo").read_text()
    model = next((x.split(":")[1].strip() for x in info.splitlines() if "model name" in x), "?")
    total = int(Path("/proc/meminfo").read_text().split()[1])
    cores = len(os.sched_getaffinity(0))
    return {"cores": cores, "cpu": model, "memory_gib": round(total / 2**20, 1)}


def _now(root: int, *, wall_first: bool) -> tuple[float, dict[int, Usage]]:
    """Reads the clocks; the driver's own ones last or first, next to the interval they bound."""
    wall, own = time.monotonic(), time.process_time()
    usage = {}
    for pid, kind in tree(root).items():
        fields = _stat(pid)
        if not fields:
            continue
        cpu = (int(fields[11]) + int(fields[12])) / _TICK
        with contextlib.suppress(OSError):
            # The kernel's CPU clock of another process, in ns where stat has ticks of 10 ms.
            cpu = time.clock_gettime((~pid << 3) | 2)
        usage[pid] = Usage(kind, cpu, int(fields[12]) / _TICK, int(fields[7]))
    if not wall_first:
        wall, own = time.monotonic(), time.process_time()
    usage[root] = Usage("driver", own, usage[root].system, usage[root].faults)
    return wall, usage


def _stat(pid: int) -> list[str]:
    """Returns the fields of a process's stat file after its name, from state and ppid on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _mebibytes(path: Path) -> dict[str, float]:
    """Returns the lines of a file of /proc that give kB, in MiB."""
    values = {}
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, rest = line.partition(":")
            if rest.endswith(" kB"):
                values[name] = int(rest.split()[0]) / 1024
    return values


def _kind(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return "workers"
    if "ray::" not in command and "/ray/" not in command:
        return "workers"
    serving = command.startswith("ray::") or "default_worker.py" in command
    return "workers" if serving and not command.startswith(RAY_AGENTS) else "daemons"
