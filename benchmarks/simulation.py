"""How fast, and in how much memory, is one simulated round: fedpriv, a bare loop, Flower and pfl.

    python benchmarks/simulation.py                     # all jobs and contenders, 3 repeats
    python benchmarks/simulation.py --quick             # does it run at all
    python benchmarks/simulation.py --jobs mlp --contenders a,b,c --json out.json

See README.md beside this file for what is counted, and what is not.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import meter
import numpy as np
import verdict

from fedpriv.runtime.versions import commit, today

HERE = Path(__file__).resolve().parent
MEMORY_ROUNDS = 2
"""Rounds after the timed ones, in which memory is watched."""

FLAT = 0.05
"""Driver memory counts as flat below so many copies of the model for each further client."""

SAME = 0.02
"""Weights agree within this part of the way from the first to the last round.

Another order of additions rounds differently, and ReLU turns that into a different step now and
then: two correct loops are 1e-6 apart after two rounds, up to 1e-3 after ten. Forgetting a client
or a weight is far more.
"""

PACKAGES = ("torch", "numpy", "flwr", "ray", "pfl", "transformers")


def main() -> int:
    """Measures, prints the tables; returns 1 if contenders that must agree do not."""
    if sys.argv[1:2] == ["--one"]:
        return _one(json.loads(sys.argv[2]))
    options = _options()
    with tempfile.TemporaryDirectory(prefix="fedpriv-benchmark-") as scratch:
        bench = Bench(options, Path(scratch))
        result = bench.measure()
    lines = verdict.judge(result)
    kept = verdict.record(result, lines)
    if options.json:
        Path(options.json).write_text(json.dumps({**result, "verdict": kept["lines"]}, indent=1))
    problems = [p for job in options.jobs for p in disagreements(result, job)]
    print(report(result, problems))
    print(f"\n## Verdict\n\n{verdict.markdown(kept)}")
    if options.verdict and (verdict.is_busy(lines) or problems):
        why = "contenders have not trained the same" if problems else "the machine was busy"
        print(f"{options.verdict} stays as it was: {why}")
    elif options.verdict:
        options.verdict.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(kept, indent=1, ensure_ascii=False)
        options.verdict.write_text(text + "\n", "utf-8")
    return 1 if problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=_names, default=["mlp", "layoutlmv3"])
    known = ["a", "a2", "a3", "b", "c", "c2", "d", "e"]
    parser.add_argument("--contenders", type=_names, default=known)
    parser.add_argument("--rounds", type=int, default=8, help="timed rounds of a run")
    parser.add_argument("--warmup", type=int, default=1, help="rounds before them")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", type=_names, default=["c", "d"], help="contenders, or ''")
    parser.add_argument("--cohorts", type=_names, default=["5", "20", "80"])
    parser.add_argument("--quick", action="store_true", help="2 rounds, 1 repeat, memory of c")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for one run")
    parser.add_argument("--json", help="file for all raw numbers")
    parser.add_argument("--verdict", type=Path, help="file for the last table, if there is one")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.repeats, options.memory = 2, 1, ["c"][: len(options.memory)]
    return options


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


# ------------------------------------------------------------------------ the child: one run


def _one(spec: dict) -> int:
    """Runs one contender in this process and reports to the parent on a pipe."""
    os.set_inheritable(spec["pipe"], False)
    laps = meter.Laps(spec["pipe"])
    import jobs
    from contenders import CONTENDERS

    folder = Path(spec["folder"])
    job = jobs.load(spec["job"], folder, spec["cohort"])
    laps.start()
    model = CONTENDERS[spec["contender"]].run(job, spec["rounds"], laps.lap, Path(spec["scratch"]))
    first, bits = jobs.checksum(model)
    np.save(Path(spec["scratch"]) / "final.npy", jobs.flat(model))
    size = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    laps.say(event="end", checksum=first, bits=bits, model_mib=size / 2**20, steps=job.steps)
    return 0


# ----------------------------------------------------------------------- the parent: many runs


class Failed(RuntimeError):
    """A contender's process ended without a result."""


class Bench:
    """Runs contenders one after the other, each in a process of its own."""

    def __init__(self, options: argparse.Namespace, scratch: Path) -> None:
        from contenders import CONTENDERS

        self.options, self.scratch, self.contenders = options, scratch, CONTENDERS
        self.count = 0
        self.reference: dict[str, tuple[np.ndarray, float]] = {}
        for name in options.contenders + options.memory:
            if name not in CONTENDERS:
                raise SystemExit(f"--contenders {name}: expected some of {','.join(CONTENDERS)}")

    def measure(self) -> dict:
        """Returns everything that the tables are made of."""
        began = {"load": os.getloadavg(), "at": time.strftime("%Y-%m-%d %H:%M:%S")}
        runs, memory, exact, skipped = [], [], {}, {}
        names = self._available(skipped)
        self._prepare()
        for job in self.options.jobs:
            for repeat in range(self.options.repeats):
                # Every second repeat backwards: a slow drift of the machine then cancels out.
                for name in names if repeat % 2 == 0 else names[::-1]:
                    runs.append(self._run(job, name, self.options.rounds) | {"repeat": repeat})
            if {"b", "c", "c2"} & set(names):
                exact[job] = self._run(job, "exact", self.options.rounds)
        if "mlp" in self.options.jobs:
            for name in self.options.memory:
                for cohort in map(int, self.options.cohorts if name not in skipped else []):
                    memory.append(self._run("mlp", name, 1, cohort))
        return {
            "machine": meter.machine() | {"began": began, "load_after": os.getloadavg()},
            "versions": _versions(),
            "made": {
                "command": shlex.join(["python", "benchmarks/simulation.py", *sys.argv[1:]]),
                "commit": commit(),
                "date": today(),
            },
            "settings": {k: v for k, v in vars(self.options).items() if k != "verdict"},
            "names": {name: self.contenders[name].name for name in self.contenders},
            "skipped": skipped,
            "runs": runs,
            "exact": exact,
            "memory": memory,
        }

    def _available(self, skipped: dict[str, str]) -> list[str]:
        for name in dict.fromkeys(self.options.contenders + self.options.memory):
            missing = [m for m in self.contenders[name].needs if not _importable(m)]
            if missing:
                skipped[name] = f"{', '.join(missing)} is not installed"
        return [name for name in self.options.contenders if name not in skipped]

    def _prepare(self) -> None:
        import jobs

        for job in self.options.jobs:
            if job not in jobs.NAMES:
                raise SystemExit(f"--jobs {job}: expected some of {','.join(jobs.NAMES)}")
            _say(f"preparing {job}")
            jobs.prepare(job, self.scratch / "jobs")

    def _run(self, job: str, name: str, rounds: int, cohort: int | None = None) -> dict:
        """Runs one contender once: a first round, the timed ones, those with memory watched."""
        what = f"{job}, {self.contenders[name].name}" + (f", cohort {cohort}" if cohort else "")
        _say(what)
        record = {"job": job, "contender": name, "cohort": cohort, "load": os.getloadavg()}
        try:
            record |= self._spawn(job, name, rounds, cohort)
        except Failed as error:
            _say(f"{what} FAILED: {error}")
            return record | {"error": str(error)}
        _say(f"  {_summary(record)}")
        return record

    def _spawn(self, job: str, name: str, rounds: int, cohort: int | None) -> dict:
        self.count += 1
        folder = self.scratch / f"run-{self.count}"
        folder.mkdir()
        read, write = os.pipe()
        spec = {
            "job": job,
            "contender": name,
            "rounds": self.options.warmup + rounds + MEMORY_ROUNDS,
            "cohort": cohort,
            "folder": str(self.scratch / "jobs"),
            "scratch": str(folder),
            "pipe": write,
        }
        environment = self._environment(name, spec)
        spawned = time.monotonic()
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [sys.executable, str(HERE / "simulation.py"), "--one", json.dumps(spec)],
                env=environment,
                pass_fds=(write,),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
        os.close(write)
        timer = threading.Timer(self.options.timeout, _kill_tree, [process.pid])
        timer.start()
        try:
            laps, end, memory = _listen(read, process.pid, self.options.warmup + rounds)
        finally:
            process.wait()
            timer.cancel()
        if not end:
            tail = (folder / "log").read_text(errors="replace").strip().splitlines()[-3:]
            raise Failed(f"exit {process.returncode} after {len(laps)} rounds: {' | '.join(tail)}")
        start, *laps = laps
        distance = self._distance(job, name, cohort, folder / "final.npy")
        timed = laps[self.options.warmup : self.options.warmup + rounds]
        return {
            "first_round": laps[0]["at"] - spawned,
            "first_round_from_call": laps[0]["at"] - start["at"],
            "wall": statistics.median(lap["wall"] for lap in timed),
            "cpu": _typical(timed, "cpu", "driver", "workers"),
            "cpu_driver": _typical(timed, "cpu", "driver"),
            "cpu_daemons": _typical(timed, "cpu", "daemons"),
            "system": _typical(timed, "system", "driver", "workers"),
            "faults": _typical(timed, "faults", "driver", "workers"),
            "others": sum(lap["others"] for lap in timed) / sum(lap["wall"] for lap in timed),
            "memory": memory,
            "distance": distance,
            "laps": laps,
            **end,
        }

    def _distance(self, job: str, name: str, cohort: int | None, path: Path) -> float | None:
        """Returns how far the final weights are from the bare loop's, relative to its own way."""
        import jobs

        final = np.load(path)
        if cohort:
            return None
        if name == "a" and job not in self.reference:
            started = jobs.flat(jobs.load(job, self.scratch / "jobs").model())
            self.reference[job] = final, float(np.linalg.norm(final - started))
        if job not in self.reference:
            return None
        reference, way = self.reference[job]
        return float(np.linalg.norm(final - reference)) / way

    def _environment(self, name: str, spec: dict) -> dict[str, str]:
        same = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "OMP_"))}
        return same | {
            "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "RAY_worker_niceness": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_HOME": str(self.scratch / "flwr"),
            "FEDPRIV_BENCHMARK_JOB": json.dumps([spec["job"], spec["folder"], spec["cohort"]]),
            **dict(self.contenders[name].environment),
        }


def _listen(pipe: int, pid: int, timed: int) -> tuple[list[dict], dict, dict]:
    """Reads a run's lines; watches its memory from the end of the timed rounds on."""
    laps: list[dict] = []
    end: dict = {}
    peaks: dict = {}
    memory = None
    with os.fdopen(pipe) as lines:
        for line in lines:
            event = json.loads(line)
            if event["event"] == "end":
                end = event
                break
            laps.append(event)
            if len(laps) == 1 + timed:
                memory = meter.Memory(pid)
            elif memory and len(laps) == 1 + timed + MEMORY_ROUNDS:
                peaks = memory.stop()
    if memory and not peaks:
        memory.stop()
    return laps, end, peaks


def _typical(laps: list[dict], what: str, *kinds: str) -> float:
    return statistics.median(sum(lap["spent"][k].get(what, 0) for k in kinds) for lap in laps)


def _kill_tree(pid: int) -> None:
    for each in meter.tree(pid):
        with contextlib.suppress(OSError):
            os.kill(each, signal.SIGKILL)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _summary(run: dict) -> str:
    return (
        f"wall {run['wall']:.3f} s  CPU {run['cpu']:.3f} s a round  "
        f"first round after {run['first_round']:.1f} s  others {run['others']:.2f} cores"
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# ---------------------------------------------------------------------------------- the tables


def report(result: dict, problems: list[str]) -> str:
    """Returns the tables as markdown."""
    machine, settings = result["machine"], result["settings"]
    before, after = machine["began"]["load"][0], machine["load_after"][0]
    lines = [
        "# Simulation benchmark",
        "",
        f"{machine['began']['at']}, {machine['cores']} cores ({machine['cpu']}), "
        f"{machine['memory_gib']} GiB; load average {before:.1f} before, {after:.1f} after",
        ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
        f"{settings['repeats']} repeats of {settings['rounds']} timed rounds after "
        f"{settings['warmup']} of warm-up",
    ]
    for job in settings["jobs"]:
        lines += ["", *_job_table(result, job)]
    if result["memory"]:
        lines += ["", *_memory_table(result)]
    lines += ["", "## Agreement", ""]
    lines += [f"- {line}" for job in settings["jobs"] for line in agreements(result, job)]
    lines += [f"- **{problem}**" for problem in problems]
    return "\n".join(lines)


def _job_table(result: dict, job: str) -> list[str]:
    runs = [run for run in result["runs"] if run["job"] == job]
    good = [run for run in runs if "error" not in run]
    lines = [f"## {job}", ""]
    if good:
        lines += [f"{good[0]['model_mib']:.1f} MiB model, {good[0]['steps']} steps a client", ""]
    rows = [["", *COLUMNS]]
    for name in result["settings"]["contenders"]:
        label = f"({name}) {result['names'][name]}"
        if name in result["skipped"]:
            rows.append([label, f"skipped: {result['skipped'][name]}"])
            continue
        own = [run for run in good if run["contender"] == name]
        if own:
            rows.append([label, *_cells(own, good)])
        failed = sum("error" in run for run in runs if run["contender"] == name)
        if failed:
            rows.append([label, f"{failed} of {result['settings']['repeats']} runs FAILED"])
    return lines + _markdown(rows)


COLUMNS = (
    "wall × a",
    "CPU × a",
    "wall × a2",
    "CPU × a2",
    "wall s/round",
    "CPU s/round",
    "of it system",
    "+ daemons",
    "first round s",
    "driver PSS",
    "workers PSS",
    "daemons PSS",
    "checksum",
    "off a",
)


def _cells(own: list[dict], good: list[dict]) -> list[str]:
    def ratio(key, base):
        bases = {run["repeat"]: run[key] for run in good if run["contender"] == base}
        ratios = [run[key] / bases[run["repeat"]] for run in own if run["repeat"] in bases]
        return _spread(ratios, 2) if ratios else "-"

    def mib(kind):
        values = [run["memory"].get(f"{kind}_pss", 0.0) for run in own]
        return f"{max(values):.0f}" if any(values) else "-"

    def median(key):
        return f"{statistics.median(run[key] for run in own):.3f}"

    off = own[0]["distance"]
    return [
        *(ratio(key, base) for base in ("a", "a2") for key in ("wall", "cpu")),
        *(median(key) for key in ("wall", "cpu", "system", "cpu_daemons")),
        _spread([run["first_round"] for run in own], 1),
        *(mib(kind) for kind in meter.KINDS),
        f"{own[0]['checksum']:.4f}",
        "-" if off is None else f"{off:.0e}",
    ]


def _memory_table(result: dict) -> list[str]:
    rows = [
        ["", "cohort", "driver private", "driver PSS", "driver RSS", "object store", "workers PSS"]
    ]
    verdicts = []
    for name in dict.fromkeys(run["contender"] for run in result["memory"]):
        own = [run for run in result["memory"] if run["contender"] == name and "error" not in run]
        label = f"({name}) {result['names'][name]}"
        keys = ("driver_private", "driver_pss", "driver_hwm", "shared", "workers_pss")
        for run in own:
            values = [f"{run['memory'].get(key, 0):.0f}" for key in keys]
            rows.append([label, str(run["cohort"]), *values])
        if len(own) > 1:
            verdicts.append(f"{label}: {_growth(own[0], own[-1])}")
    lines = ["## Memory against the cohort (mlp, peak MiB)", ""]
    lines += _markdown(rows)
    lines += ["", "Private: resident without shared memory. RSS: the kernel's high-water mark.", ""]
    return lines + verdicts


def _growth(least: dict, most: dict) -> str:
    more = most["memory"]["driver_private"] - least["memory"]["driver_private"]
    clients = most["cohort"] - least["cohort"]
    copies = more / least["model_mib"] / clients
    flat = "flat" if copies < FLAT else "NOT flat"
    return (
        f"driver memory is {flat}: {more:+.0f} MiB from {least['cohort']} to {most['cohort']} "
        f"clients, {copies:+.2f} copies of the model ({least['model_mib']:.1f} MiB) a client"
    )


def _spread(values: list[float], digits: int) -> str:
    middle = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def _markdown(rows: list[list[str]]) -> list[str]:
    columns = len(rows[0])
    rows = [row + [""] * (columns - len(row)) for row in rows]
    # A remark in place of numbers may be wider than its column.
    width = [
        max(len(row[i]) for row in rows if i == 0 or any(row[2:]) or row is rows[0])
        for i in range(columns)
    ]
    padded = [[cell.ljust(width[i]) for i, cell in enumerate(row)] for row in rows]
    padded.insert(1, ["-" * w for w in width])
    return ["| " + " | ".join(row) + " |" for row in padded]


# ---------------------------------------------------------------------- have they trained alike


def agreements(result: dict, job: str) -> list[str]:
    """Returns what agrees, one line each."""
    found = _by_contender(result["runs"], job)
    sums = ", ".join(f"{name} {own[0]['checksum']:.4f}" for name, own in found.items())
    lines = [f"{job}: sum of the first weight matrix after the last round: {sums or 'nothing ran'}"]
    exact = result["exact"].get(job, {}).get("bits")
    same = [n for n in ("b", "b2", "c", "c2") if n in found and found[n][0]["bits"] == exact]
    if same:
        names = ", ".join(same)
        lines.append(f"{job}: {names}: bit for bit {result['names']['exact']}")
    return lines


def disagreements(result: dict, job: str) -> list[str]:
    """Returns what must not be: bits that differ between repeats or grids, other training."""
    found = _by_contender(result["runs"], job)
    exact = result["exact"].get(job, {}).get("bits")
    problems = []
    for name in ("a", "a2", "b", "b2", "c", "c2"):
        bits = {run["bits"] for run in found.get(name, [])}
        if len(bits) > 1:
            problems.append(f"{job}: ({name}) has other bits in each repeat")
        if name in ("b", "b2", "c", "c2") and exact and bits and bits != {exact}:
            problems.append(f"{job}: ({name}) has other bits than {result['names']['exact']}")
    for name, own in found.items():
        if (own[0]["distance"] or 0.0) > SAME:
            far = f"{own[0]['distance']:.1e}"
            problems.append(f"{job}: ({name}) has not trained what (a) has: {far} of its way off")
    return problems


def _by_contender(runs: list[dict], job: str) -> dict[str, list[dict]]:
    found: dict[str, list[dict]] = {}
    for run in runs:
        if run["job"] == job and "error" not in run:
            found.setdefault(run["contender"], []).append(run)
    return found


if __name__ == "__main__":
    sys.exit(main())
