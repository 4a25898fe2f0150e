"""`make gpu`: rows are kept as they come, and the next call goes on. All of it takes minutes."""

import contextlib
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
MADE = {"commit": "abc", "date": "2026-01-01", "command": "x", "driver": "", "torch": "2"}
WITHOUT = """
import importlib.abc, runpy, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("flwr", "ray"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
sys.path.insert(0, "benchmarks")
runpy.run_path("benchmarks/gpu.py", run_name="__main__")
"""
CARRIED = """
import runpy, sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec

def there(name, path=None, target=None):
    return None if name in REFUSED else find(name, path, target)

PathFinder.find_spec = there
sys.path.insert(0, "benchmarks")
runpy.run_path("benchmarks/gpu.py", run_name="__main__")
"""


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = importlib.import_module("gpu")
    module.signal.signal(module.signal.SIGALRM, module._end)
    return module


@pytest.fixture
def call(gpu, monkeypatch, tmp_path):
    """A call of the script whose only part has the tasks that it is given; returns the rows."""

    def run(seconds=60.0, **tasks):
        monkeypatch.setattr(gpu, "LEAST_SECONDS", 0.0)
        monkeypatch.setattr(gpu, "tests", lambda options: list(tasks.items()))
        results = gpu.Results(tmp_path / "results.json", {"name": "CPU"}, "tiny")
        options = gpu.Options("tiny", "cpu", tmp_path)
        gpu.run(["tests"], options, results, MADE, time.monotonic() + seconds)
        return json.loads((tmp_path / "results.json").read_text())["rows"]

    return run


def fails():
    raise ValueError("no such luck\nand more")


def test_a_row_has_its_values_and_where_they_come_from(call):
    (row,) = call(one=lambda: {"x": 1.5})
    assert row["values"] == {"x": 1.5}
    assert row["part"], row["name"] == ("tests", "one")
    assert row["seconds"] >= 0
    assert row["peak_mib"] > 10
    assert MADE.items() <= row.items()


def test_the_next_call_keeps_what_is_there_and_tries_what_failed_last(call):
    order = []

    def note(name, values):
        order.append(name)
        return values

    first = call(good=lambda: {"x": 1}, bad=fails)
    assert first[1]["failed"] == "ValueError: no such luck"
    again = call(
        good=lambda: note("good", {"x": 2}),
        bad=lambda: note("bad", {"x": 3}),
        new=lambda: note("new", {"x": 4}),
    )
    assert order == ["new", "bad"]
    assert {row["name"]: row["values"]["x"] for row in again} == {"good": 1, "bad": 3, "new": 4}


def test_a_row_that_outlasts_the_call_says_so_even_where_exceptions_are_caught(call):
    def stubborn():
        while True:
            with contextlib.suppress(Exception):
                time.sleep(10)

    (row,) = call(seconds=0.3, slow=stubborn)
    assert row["failed"].startswith("not done in the 0 s")


def test_what_is_missing_is_named_and_tried_again(gpu, call):
    def here():
        raise gpu.Skipped("there is no GPU")

    def there():
        importlib.import_module("no_such_module")

    rows = call(here=here, there=there)
    assert rows[0]["skipped"] == "there is no GPU"
    assert rows[1]["skipped"].startswith("there is no no_such_module; `make gpu-wheels`")
    (row, _) = call(here=lambda: {"x": 1}, there=there)
    assert row["values"] == {"x": 1}


def test_a_file_of_results_is_a_table_for_each_part(gpu, call, tmp_path):
    device = {"name": "GPU", "transformers": "5.1", "python": "3.12"}
    rows = call(one=lambda: {"examples/s": 1234.5678, "batch": 8}, other=fails)
    rows[0] |= {"seconds": 12.3, "peak_mib": 99}
    text = gpu.markdown({"device": device, "rows": rows})
    assert "### tests" in text
    assert "|  | examples/s | batch | seconds | peak MiB |" in text
    assert "| one | 1235 | 8 | 12 | 99 |" in text
    assert "\n\n- other: failed: ValueError: no such luck\n\n" in text
    assert "Measured by `make gpu` on 2026-01-01, at abc, on GPU, with torch 2," in text


def with_what_they_bring(names):
    """Returns packages, with all that they require, as pip normalises their names."""
    todo, found = list(names), set()
    while todo:
        if (name := canonicalize_name(todo.pop())) in found:
            continue
        found.add(name)
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            for line in importlib.metadata.requires(name) or ():
                needs = Requirement(line)
                if needs.marker is None or needs.marker.evaluate({"extra": ""}):
                    todo.append(needs.name)
    return found


@pytest.fixture
def refused(gpu):
    """What is installed here, but neither carried along nor brought by what that machine has."""
    there = with_what_they_bring(["torch", "transformers", "pytest", "safetensors", "hydra-core"])
    there |= {canonicalize_name(name) for name in (*gpu.NEEDED, "fedpriv")}
    return {
        module
        for module, of in importlib.metadata.packages_distributions().items()
        if not module.startswith("_") and not there & {canonicalize_name(name) for name in of}
    }


def script(*arguments, code=None):
    start = ["-c", code] if code else ["benchmarks/gpu.py"]
    done = subprocess.run(
        [sys.executable, *start, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_everything_runs_on_a_cpu_at_tiny_size(tmp_path, refused):
    path = tmp_path / "cpu.json"
    arguments = ("--size", "tiny", "--device", "cpu", "--json", str(path))
    assert {"flwr", "matplotlib"}.isdisjoint(refused)
    assert {"ray", "mlflow", "opacus"} <= refused
    script(*arguments, code=f"REFUSED = {sorted(refused)!r}\n{CARRIED}")
    content = json.loads(path.read_text())
    rows = content["rows"]
    assert {row["part"] for row in rows} == {
        "tests", "vectors", "training", "clipping", "switches", "files", "cohorts", "workers",
        "inversion", "closed_form", "cdmi",
    }  # fmt: skip
    assert content["device"]["name"].startswith("CPU")
    values = {}
    for row in rows:
        assert row["commit"]
        assert row["torch"]
        assert row["peak_mib"] > 100
        if "skipped" in row:  # torch's attention has no gradient in bf16 by vmap on a CPU
            assert (row["part"], row["name"].endswith("vmap")) == ("clipping", True)
            continue
        values[row["part"], row["name"]] = row["values"]
    for model in ("LayoutLMv3", "VT5", "Donut"):
        for precision in ("fp32", "bf16"):
            for algorithm in ("FedAvg", "FeAm-DP", "FL-PROVIDER-DP"):
                speed = values["training", f"{model}, {precision}, {algorithm}"]
                assert speed["examples/s"] > 0
                assert speed["bare examples/s"] > 0
                assert speed["seconds to bare"] == pytest.approx(
                    speed["bare examples/s"] / speed["examples/s"]
                )
    assert values["closed_form", "LayoutLMv3, one page"]["every pixel exact"]


@pytest.mark.slow
def test_without_flower_and_ray_the_rest_runs_and_the_reason_is_told(tmp_path):
    path = tmp_path / "cpu.json"
    parts = ("--part", "training", "workers", "closed_form")
    arguments = ("--size", "tiny", "--device", "cpu", "--json", str(path), *parts)
    script(*arguments, code=WITHOUT)
    rows = {row["part"]: row for row in json.loads(path.read_text())["rows"]}
    for part in ("training", "workers"):
        assert rows[part]["skipped"] == (
            "there is no flwr; `make gpu-wheels` fetches what is missing"
        )
    assert rows["closed_form"]["values"]["every pixel exact"]
