"""A run killed with `kill -9` and resumed ends with the bits of a run left alone."""

import functools
import json
import random
import time

import pytest
from processes import TOY, Forked, run, run_dir

ROUNDS = 8
BANDED = TOY.replace("toy.yaml", "banded.yaml")


@pytest.fixture(scope="module")
def straight_of(tmp_path_factory):
    """Runs an experiment from end to end, once; returns its folder."""

    @functools.cache
    def ran(experiment):
        cwd = tmp_path_factory.mktemp("straight")
        status, out, err = run("run", experiment, f"rounds={ROUNDS}", cwd=cwd)
        assert status == 0, err
        return cwd / run_dir(out)

    return ran


@pytest.fixture
def straight(straight_of):
    return straight_of(TOY)


@pytest.mark.slow
def test_killed_after_four_rounds_and_resumed_with_two_workers(straight_of, tmp_path):
    slow = ["client.pause=0.15", "federation.workers=2"]
    process = Forked("run", BANDED, f"rounds={ROUNDS}", *slow, cwd=tmp_path)
    folder = _killed(process, tmp_path, lambda folder: len(_metrics(folder)) >= 4)
    assert 4 <= len(_metrics(folder)) < ROUNDS

    status, out, err = run("resume", str(folder), "--trust", cwd=tmp_path)

    assert status == 0, err
    assert (tmp_path / run_dir(out)).samefile(folder)
    _same(folder, straight_of(BANDED))


@pytest.mark.slow
@pytest.mark.parametrize("experiment", [TOY, BANDED], ids=["plain", "remembering"])
def test_killed_again_and_again_at_random_moments(experiment, straight_of, tmp_path):
    random.seed(time.time_ns())
    process = Forked("run", experiment, f"rounds={ROUNDS}", "client.pause=0.02", cwd=tmp_path)
    kills = 0
    folder = _killed(process, tmp_path, lambda folder: (folder / "config.yaml").exists())
    while kills < 5:
        process = Forked("resume", str(folder), "--trust", cwd=tmp_path)
        _until_it_writes(process, folder)
        time.sleep(random.uniform(0, 0.15))
        kills += process.poll() is None
        process.kill()
        if len(_metrics(folder)) == ROUNDS:
            break
    status, _, err = run("resume", str(folder), "--trust", cwd=tmp_path)
    assert status == 0, err
    _same(folder, straight_of(experiment))


@pytest.mark.slow
def test_half_written_files_are_ignored(straight, tmp_path):
    status, out, err = run("run", TOY, "rounds=5", "federation.keep_checkpoints=0", cwd=tmp_path)
    assert status == 0, err
    folder = tmp_path / run_dir(out)
    newest = sorted((folder / "checkpoints").glob("round-*"))[-1]
    newest.write_bytes(newest.read_bytes()[:-7])
    (folder / "checkpoints" / ".round-000006.safetensors.part").write_bytes(b"half")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 6, "lo')

    status, _, err = run("resume", str(folder), f"rounds={ROUNDS}", "--trust", cwd=tmp_path)

    assert status == 0, err
    _same(folder, straight)


def test_a_folder_without_a_run_is_refused(tmp_path):
    status, _, err = run("resume", str(tmp_path), cwd=tmp_path)
    assert status == 2
    assert "is not a run folder: it has no config.yaml" in err


def test_a_resumed_run_computes_what_it_computed_before(straight, tmp_path):
    status, _, err = run(
        "resume", str(straight), "seed=1", "client.inner.epochs=2", "--trust", cwd=tmp_path
    )
    assert status == 2
    assert "seed=1: a resumed run takes rounds=, federation., ray." in err


def _killed(process, cwd, when):
    """Waits until `when(run folder)`, kills the process group, returns the run folder."""

    def ready():
        folders = [path.parent for path in cwd.glob("runs/*/*/config.yaml")]
        return bool(folders) and when(folders[0])

    _wait(ready, process)
    process.kill()
    return next(cwd.glob("runs/*/*/config.yaml")).parent


def _until_it_writes(process, folder):
    begun = len(_metrics(folder))
    _wait(lambda: process.poll() is not None or len(_metrics(folder)) != begun, process)


def _wait(condition, process, seconds=600):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        assert process.poll() is None or condition(), process.said()
        time.sleep(0.01)


def _metrics(folder):
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line for line in lines if line.endswith("}")]


def _same(folder, straight):
    for name in ("checkpoints/final.safetensors", "checkpoints/round-000008.safetensors"):
        assert (folder / name).read_bytes() == (straight / name).read_bytes()
    ours, theirs = (
        [json.loads(line) for line in (f / "metrics.jsonl").read_text().splitlines()]
        for f in (folder, straight)
    )
    assert [m["round"] for m in ours] == list(range(1, ROUNDS + 1))
    assert [m["loss"] for m in ours] == [m["loss"] for m in theirs]
