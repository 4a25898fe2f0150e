"""Everything that needs a GPU, in parts of a few minutes, into benchmarks/results/<device>.json.

    python benchmarks/gpu.py                          # all parts, for 9 minutes; call it again
    python benchmarks/gpu.py --part training          # one part
    python benchmarks/gpu.py --size tiny              # the same code on small models, on a CPU too

Each row is written as soon as it is measured. The next call leaves out what is there and goes on
with the rest, so a machine that is lent for minutes at a time gets through all of it. A row that
failed, or that did not fit into its call, is tried again after those that were never tried.

It runs where there are torch, transformers and this repository, without a network. What a part
needs and the machine has not is named, and the part skipped. `--download` fetches the missing
wheels on a machine with a network, and the next calls find them. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS, SCRATCH = HERE / "results", ROOT / "build"
WHEELS = SCRATCH / "wheels"

PARTS = {
    "tests": "gpu",
    "vectors": "gpu_vectors",
    "training": "gpu_training",
    "clipping": "gpu_training",
    "switches": "gpu_training",
    "files": "gpu_training",
    "workers": "gpu_training",
    "cohorts": "gpu_training",
    "inversion": "gpu_attacks",
    "closed_form": "gpu_attacks",
    "cdmi": "gpu_attacks",
}
"""The module of each part; it is imported when the part runs, and not before."""

NEEDED = (
    "absl-py", "accelerate", "annotated-types", "attrs", "cffi", "charset-normalizer",
    "cloudpickle", "cryptography", "cycler", "dm-tree", "dp-accounting", "flwr", "grpcio",
    "grpcio-health-checking", "httpx", "iterators", "kiwisolver", "lazy-loader", "matplotlib",
    "opt-einsum", "peft", "pillow", "protobuf", "prv-accountant", "psutil", "pycryptodome",
    "pydantic", "pydantic-core", "pyparsing", "python-dateutil", "rapidfuzz", "scipy",
    "tensorboard", "typing-inspection",
)  # fmt: skip
"""What fedpriv imports to train and attack, beside torch, transformers and what they bring."""

MOST_MIB = 64
"""Of wheels; more is said."""

LEAST_SECONDS = 10.0
"""Of a call that must be left for another row to begin."""

Values = dict[str, Any]
Task = tuple[str, Callable[[], Values]]
"""The name of a row, and what measures it."""


class Skipped(Exception):
    """A row cannot be measured here; says why."""


class OutOfTime(BaseException):
    """The call is over. No `except Exception` on the way may take it for a client's failure."""


@dataclass(frozen=True)
class Options:
    """What a part must know.

    Attributes:
        size: "base", the published sizes, or "tiny".
        device: "cuda" or "cpu".
        scratch: a folder for states of long rows, which the next call goes on with.
    """

    size: str
    device: str
    scratch: Path


class Peak:
    """The most memory since it was made, in MiB: of torch's tensors on a GPU, or of this process.

    Attributes:
        highest: what all watches of a row have seen; a new one starts from zero.

    Args:
        device: "cuda" or "cpu".
    """

    highest: ClassVar[float] = 0.0

    def __init__(self, device: str) -> None:
        import torch

        self._cuda = torch.cuda if device == "cuda" else None
        self.mib()
        gc.collect()
        if self._cuda:
            self._cuda.empty_cache()
            self._cuda.reset_peak_memory_stats()
        else:
            with contextlib.suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM

    def mib(self) -> int:
        """Returns the peak."""
        if self._cuda:
            found = self._cuda.max_memory_allocated() / 2**20
        else:
            status = Path("/proc/self/status").read_text()
            found = float(status.partition("VmHWM:")[2].split()[0]) / 1024
        Peak.highest = max(Peak.highest, found)
        return round(found)


def tests(options: Options) -> Iterator[Task]:
    """The tests that need a GPU, by pytest; on a CPU they are skipped, and the row says so."""

    def run() -> Values:
        if importlib.util.find_spec("pytest") is None:
            raise Skipped("there is no pytest")
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.xml"
            # Without the conftest, which needs hypothesis for the other tests.
            command = ["-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider"]
            command += [f"--junitxml={report}", f"--basetemp={Path(folder) / 'runs'}"]
            done = subprocess.run(
                [sys.executable, *command, "tests/system/test_cuda.py"],
                cwd=ROOT,
                env=os.environ | {"FEDPRIV_CACHE": folder},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            tail = " | ".join(done.stdout.strip().splitlines()[-3:])
            if not report.exists():
                raise RuntimeError(f"pytest ended with {done.returncode}: {tail}")
            suite = ET.parse(report).getroot()[0]  # noqa: S314 - pytest has written it just now
        count = {k: int(suite.get(k, 0)) for k in ("tests", "failures", "errors", "skipped")}
        if count["failures"] or count["errors"] or done.returncode:
            raise RuntimeError(f"{count}: {tail}")
        return {"passed": count["tests"] - count["skipped"], "skipped": count["skipped"]}

    yield "tests/system/test_cuda.py", run


class Results:
    """The rows of one device in a file, which is written anew with each.

    Args:
        path: of the file; rows that it has are kept.
        device: what a reader must know of the machine.
        size: of the models.
        fresh: whether to forget the rows that are there.
    """

    def __init__(self, path: Path, device: Values, size: str, *, fresh: bool = False) -> None:
        self._path, self._head = path, {"device": device, "size": size}
        self.rows: list[Values] = []
        if path.exists() and not fresh:
            self.rows = json.loads(path.read_text("utf-8"))["rows"]

    def state(self, part: str, name: str) -> str:
        """Returns "done", "failed" or, of a row that was not tried or was skipped, "new"."""
        for row in self.rows:
            if (row["part"], row["name"]) == (part, name):
                return "done" if "values" in row else "failed" if "failed" in row else "new"
        return "new"

    def forget(self, parts: list[str], names: set[tuple[str, str]]) -> None:
        """Drops rows without values that these parts no longer have."""
        self.rows = [
            row
            for row in self.rows
            if "values" in row or row["part"] not in parts or (row["part"], row["name"]) in names
        ]

    def add(self, row: Values) -> None:
        """Puts a row in the place of the one of that name, and writes the file."""
        same = (row["part"], row["name"])
        every = {(one["part"], one["name"]): one for one in self.rows} | {same: row}
        self.rows = list(every.values())
        self.rows.sort(key=lambda one: list(PARTS).index(one["part"]))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        half = self._path.with_suffix(".part")
        text = json.dumps({**self._head, "rows": self.rows}, indent=1, ensure_ascii=False)
        half.write_text(text + "\n", "utf-8")
        half.replace(self._path)


def measure(measuring: Callable[[], Values], device: str, left: float) -> Values:
    """Returns what a row came to: its values, or why there are none, seconds and peak memory."""
    began, peak = time.monotonic(), Peak(device)
    Peak.highest = 0.0
    found: Values
    try:
        signal.setitimer(signal.ITIMER_REAL, left)
        try:
            found = {"values": measuring()}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except OutOfTime:
        found = {"failed": f"not done in the {left:.0f} s that were left of the call"}
    except (Skipped, ImportError) as reason:
        found = {"skipped": _missing(reason) if isinstance(reason, ImportError) else str(reason)}
    except Exception as error:
        traceback.print_exc()
        found = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
    peak.mib()
    seconds = round(time.monotonic() - began, 2)
    return {**found, "seconds": seconds, "peak_mib": round(Peak.highest)}


def _missing(error: ImportError) -> str:
    what = f"there is no {error.name}" if error.name else str(error).splitlines()[0]
    return f"{what}; `make gpu-wheels` fetches what is missing"


def tasks_of(part: str, options: Options) -> list[Task]:
    """Returns the rows of a part; a single one that says why, where it cannot be imported."""
    try:
        return list(getattr(importlib.import_module(PARTS[part]), part)(options))
    except ImportError as error:
        why = _missing(error)

    def refuse() -> Values:
        raise Skipped(why)

    return [(f"all of {part}", refuse)]


def run(chosen: list[str], options: Options, results: Results, made: Values, end: float) -> bool:
    """Measures what is not there yet, those that failed before at last; returns whether all is."""
    every = [(part, *task) for part in chosen for task in tasks_of(part, options)]
    results.forget(chosen, {(part, name) for part, name, _ in every})
    todo = [one for state in ("new", "failed") for one in every if results.state(*one[:2]) == state]
    if kept := len(every) - len(todo):
        print(f"{kept} rows were measured before and are kept", flush=True)
    for place, (part, name, measuring) in enumerate(todo):
        left = end - time.monotonic()
        if left < LEAST_SECONDS:
            print(
                f"the time of this call is over; {len(todo) - place} rows are left: call it again"
            )
            return False
        row = {"part": part, "name": name, **measure(measuring, options.device, left), **made}
        results.add(row)
        print(line(row), flush=True)
    return True


def line(row: Values) -> str:
    """Returns a row as a line of text."""
    if "values" in row:
        told = ", ".join(f"{name} {_short(value)}" for name, value in row["values"].items())
    else:
        told = "; ".join(f"{kind}: {row[kind]}" for kind in ("skipped", "failed") if kind in row)
    return (
        f"{row['part']:12}{row['name']:44}{row['seconds']:7.1f} s {row['peak_mib']:7} MiB  {told}"
    )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def markdown(content: Values) -> str:
    """Returns a file of results as Markdown: a table for each part, and where it comes from."""
    device, text = content["device"], ""
    for part in PARTS:
        rows = [row for row in content["rows"] if row["part"] == part]
        measured = [row for row in rows if "values" in row]
        names = list(dict.fromkeys(name for row in measured for name in row["values"]))
        table = [["", *names, "seconds", "peak MiB"], ["---"] * (len(names) + 3)]
        for row in measured:
            told = [_short(row["values"].get(name, "")) for name in names]
            table.append([row["name"], *told, f"{row['seconds']:.0f}", str(row["peak_mib"])])
        lines = [f"| {' | '.join(cells)} |" for cells in table if measured]
        lines += ["" for _ in lines[:1]]
        for row in rows:
            lines += [f"- {row['name']}: {k}: {row[k]}" for k in ("skipped", "failed") if k in row]
        text += f"### {part}\n\n" + "\n".join(lines).rstrip() + "\n\n" if rows else ""
    days, commits, drivers, versions = (
        " and ".join(dict.fromkeys(row[name] for row in content["rows"] if row[name]))
        for name in ("date", "commit", "driver", "torch")
    )
    driver = f", driver {drivers}" if drivers else ""
    return (
        f"{text}Measured by `make gpu` on {days}, at {commits}, on {device['name']}{driver}, with "
        f"torch {versions}, transformers {device['transformers']}, Python {device['python']}.\n"
    )


def device_of(kind: str) -> Values:
    """Returns what a reader must know of the machine: the GPU, its driver, the versions."""
    import torch
    import transformers

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    told: Values = {"name": f"CPU, {platform.machine()}", "driver": "", "cores": cores}
    if kind == "cuda":
        told["name"] = torch.cuda.get_device_name()
        told["memory_mib"] = torch.cuda.get_device_properties(0).total_memory >> 20
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            told["driver"] = subprocess.run(
                ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                capture_output=True, text=True, check=True,
            ).stdout.split()[0]  # fmt: skip
    told |= {"python": platform.python_version(), "torch": torch.__version__}
    return told | {"cuda": torch.version.cuda or "", "transformers": transformers.__version__}


def use_wheels(folder: Path) -> None:
    """Unpacks wheels and puts them behind what is installed, for child processes too."""
    site = folder / "unpacked"
    for wheel in sorted(folder.glob("*.whl")):
        place = site / wheel.stem
        if not place.exists():
            half = place.with_suffix(".part")
            shutil.rmtree(half, ignore_errors=True)
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(half)
            half.rename(place)
        sys.path.append(str(place))
    own = [str(ROOT), str(HERE)]
    sys.path[:0] = own
    behind = [entry for entry in sys.path if entry.startswith(str(site))]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*own, *given, *behind]))


def download(folder: Path, python: str, have: list[str]) -> None:
    """Fetches the wheels of what is needed, in the versions of this environment.

    Args:
        folder: for the wheels; what is in it goes.
        python: version of Python on the GPU's machine, a Linux on x86-64.
        have: packages that are there.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    wanted = [f"{n}=={importlib.metadata.version(n)}" for n in NEEDED if n not in have]
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (34, 31, 28, 27, 24, 17)]
    platforms += [f"--platform=manylinux{name}_x86_64" for name in ("2014", "2010", "1")]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
    subprocess.run([*command, *platforms, f"--dest={folder}", *wanted], check=True)
    mib = sum(wheel.stat().st_size for wheel in folder.glob("*.whl")) / 2**20
    print(f"{len(wanted)} wheels for Python {python}, {mib:.0f} MiB, in {folder}")
    if mib > MOST_MIB:
        print(f"that is more than {MOST_MIB} MiB: name what the machine has already by --have")


def main() -> int:
    """Runs the parts; returns 1 if a row failed."""
    options = _options()
    if options.download:
        download(options.wheels, options.download, options.have)
        return 0
    use_wheels(options.wheels)
    import torch

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda: torch finds no CUDA GPU here")
    if device == "cpu" and options.size == "base" and options.part != ["vectors"]:
        raise SystemExit(
            "there is no CUDA GPU here: --size tiny runs the same code on a CPU, and "
            "--part vectors its published size"
        )
    try:
        from fedpriv.runtime import versions
    except ImportError as error:
        raise SystemExit(f"fedpriv cannot be imported: {_missing(error)}") from error
    told = device_of(device)
    slug = re.sub(r"[^a-z0-9]+", "-", told["name"].lower()).strip("-")
    tiny = SCRATCH / "gpu" / f"{slug}-tiny.json"
    path = options.json or (RESULTS / f"{slug}.json" if options.size == "base" else tiny)
    results = Results(path, told, options.size, fresh=options.fresh)
    made = {
        "commit": options.commit or versions.commit(),
        "date": versions.today(),
        "command": shlex.join(["python", "benchmarks/gpu.py", *sys.argv[1:]]),
        **{name: told[name] for name in ("driver", "torch")},
    }
    signal.signal(signal.SIGALRM, _end)
    end = time.monotonic() + 60 * options.minutes
    chosen = Options(options.size, device, SCRATCH / "gpu")
    print(", ".join(f"{name} {value}" for name, value in told.items() if value), flush=True)
    run(options.part, chosen, results, made, end)
    print(f"{len(results.rows)} rows in {path}")
    mine = [row for row in results.rows if row["part"] in options.part]
    return 1 if any("failed" in row for row in mine) else 0


def _end(*_: object) -> None:
    raise OutOfTime


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--size", choices=["base", "tiny"], default="base")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="cuda where there is one")
    parser.add_argument("--minutes", type=float, default=9.0, help="of this call")
    parser.add_argument(
        "--json", type=Path, help="benchmarks/results/<device>.json; of tiny, build/gpu/"
    )
    parser.add_argument("--fresh", action="store_true", help="measure all rows anew")
    parser.add_argument("--commit", help="where the machine has no git")
    parser.add_argument("--wheels", type=Path, default=WHEELS, help="folder of wheels")
    parser.add_argument("--download", metavar="PYTHON", help="fetch wheels for, say, Python 3.12")
    parser.add_argument("--have", nargs="*", default=[], help="packages not to fetch")
    return parser.parse_args()


if __name__ == "__main__":
    import gpu  # the parts import it by this name, and must find the same exceptions

    sys.exit(gpu.main())
