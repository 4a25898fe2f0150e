"""The table that `make benchmark` ends with: goals by repeat, and no verdict on a busy machine."""

import importlib
import json
import os
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = {"a2": "bare", "a3": "bare pair", "b": "inline", "c": "Ray", "d": "Flower", "e": "pfl"}


@pytest.fixture
def verdict(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("verdict")


def run(contender, repeat, cpu, wall=1.0, others=0.02, **more):
    return {
        "job": "mlp",
        "contender": contender,
        "repeat": repeat,
        "cpu": cpu,
        "wall": wall,
        "first_round": 9.0,
        "memory": {"workers_pss": 600.0},
        "others": others,
        **more,
    }


def result(*runs):
    return {
        "machine": {"cores": 2, "cpu": "a CPU", "memory_gib": 8.0},
        "versions": {"torch": "2.9"},
        "made": {"command": "make benchmark", "commit": "abc", "date": "2026-01-01"},
        "settings": {"jobs": ["mlp"], "repeats": 3},
        "names": NAMES,
        "runs": list(runs),
    }


def lines(verdict, *runs):
    return {line.name.partition(",")[0]: line for line in verdict.judge(result(*runs))}


def test_a_ratio_is_formed_within_each_repeat(verdict):
    runs = [run("a2", n, cpu) for n, cpu in enumerate((1.0, 2.0, 4.0))]
    runs += [run("b", n, cpu) for n, cpu in enumerate((0.9, 1.9, 4.4))]
    line = lines(verdict, *runs, run("e", 0, 1.3))["one process: CPU"]
    assert line.reached == pytest.approx(0.95)
    assert line.spread == (pytest.approx(0.9), pytest.approx(1.1))
    assert line.peers == {"pfl": pytest.approx(1.3)}
    assert line.verdict == "reached"


def test_a_goal_is_missed_above_its_limit_and_what_did_not_run_is_not_judged(verdict):
    runs = (run("a3", 0, 1.0, wall=1.0), run("c", 0, 1.11, wall=1.11))
    found = lines(verdict, *runs)
    assert found["2 workers: CPU"].verdict == "reached"
    assert found["2 workers: wall"].verdict == "missed"
    assert found["2 workers: memory of one (PSS)"].reached == pytest.approx(300 * 1.048576)
    assert found["2 workers: memory of one (PSS)"].verdict == "reached"
    assert found["one process: CPU"].verdict == "not measured"


@pytest.mark.parametrize("others", [(0.2, 0.2), (0.0, 0.26)])
def test_a_busy_machine_gets_no_verdict(verdict, others):
    runs = [run(who, 0, 1.0, others=load) for who, load in zip(("a2", "b"), others, strict=True)]
    judged = verdict.judge(result(*runs, run("c", 0, 1.0)))
    given = {line.verdict for line in judged if line.reached is not None}
    assert given == {"busy: no verdict"}
    assert verdict.is_busy(judged)


def test_a_failed_run_counts_for_nothing(verdict):
    broken = {"job": "mlp", "contender": "b", "repeat": 0, "error": "exit 1"}
    line = lines(verdict, run("a2", 0, 1.0), broken)["one process: CPU"]
    assert line.verdict == "not measured"


def test_the_table_says_goal_figure_spread_peers_load_and_where_it_comes_from(verdict):
    measured = result(run("a2", 0, 1.0), run("b", 0, 1.04), run("e", 0, 1.2))
    kept = json.loads(json.dumps(verdict.record(measured, verdict.judge(measured))))
    text = verdict.markdown(kept)
    assert (
        "| mlp | one process: CPU, to the bare loop (a2) | ≤\N{NO-BREAK SPACE}1 | 1.04 | 1.04–1.04 "
        "| pfl 1.2 | 0.02 (most 0.02) | missed |" in text
    )
    assert "Measured by `make benchmark` on 2026-01-01, at abc, on 2 cores (a CPU)" in text


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs /proc/stat")
def test_others_have_what_the_machine_did_and_the_contender_did_not(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    meter = importlib.import_module("meter")

    def compute(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    before = meter.busy_seconds()
    compute(0.4)
    assert meter.busy_seconds() - before > 0.2  # the kernel counts in ticks of 10 ms

    read, write = os.pipe()
    laps = meter.Laps(write)
    clock = iter((100.0, 105.0, 105.0))
    monkeypatch.setattr(meter, "busy_seconds", lambda: next(clock))
    laps.start()
    compute(0.2)
    laps.lap()
    os.close(write)
    with os.fdopen(read) as pipe:
        lap = json.loads(pipe.readlines()[-1])
    own = sum(used.get("cpu", 0.0) for used in lap["spent"].values())
    assert own >= 0.2
    assert lap["others"] == pytest.approx(5.0 - own)
