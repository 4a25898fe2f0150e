"""A study trains every variant once, on any number of workers, whatever is killed on the way."""

import json
import os
import signal
import threading
import time
from contextlib import ExitStack

import pytest
from processes import TESTS, finish, run, run_dir, start

from fedpriv.config.experiment import Mistakes
from fedpriv.runtime import run_lock
from fedpriv.runtime.jobs import JobsFailed
from fedpriv.runtime.run_folder import FINAL, RunFolder
from fedpriv.runtime.run_lock import InUse
from fedpriv.threat import studying

pytestmark = pytest.mark.usefixtures("one_ray")

STUDY = str(TESTS / "system" / "study.yaml")
NAMES = ["seed-1", "seed-2", "seed-3"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    runs = tmp_path_factory.mktemp("straight")
    folder, metrics = studying.start(STUDY, [f"runs={runs}"], tell=lambda line: None)
    assert metrics["trained"] == 3
    return folder.path


def finals(folder):
    return {n: (folder / "trainings" / n / "checkpoints" / "final.safetensors") for n in NAMES}


def same(folder, straight):
    ours, theirs = finals(folder), finals(straight)
    for name in NAMES:
        assert ours[name].read_bytes() == theirs[name].read_bytes()
    assert json.loads((folder / "found.json").read_text()) == json.loads(
        (straight / "found.json").read_text()
    )


def test_each_training_is_a_run_of_its_own(straight):
    losses = json.loads((straight / "found.json").read_text())
    assert sorted(losses) == NAMES
    assert len(set(losses.values())) == 3
    configs = [RunFolder.existing(straight / "trainings" / n).config() for n in NAMES]
    assert [c["seed"] for c in configs] == [1, 2, 3]
    assert all((straight / "trainings" / n / "ledger.json").is_file() for n in NAMES)
    assert (straight / "report.html").is_file()


@pytest.mark.slow
def test_a_killed_worker_costs_nothing_but_time(straight, tmp_path):
    lines = []
    dying = ["client._target_=toy_study.Dying", f"client.marker={tmp_path / 'marker'}"]
    folder, _ = studying.start(
        STUDY,
        [f"runs={tmp_path}", "federation.workers=2", "~client.faults", *dying],
        tell=lines.append,
    )
    assert (tmp_path / "marker").is_file()
    same(folder.path, straight)
    assert len([line for line in lines if " done" in line]) == 3


def test_an_error_of_one_training_does_not_keep_the_others_from_their_end(tmp_path):
    dying = ["client._target_=toy_study.Dying", f"client.marker={tmp_path / 'marker'}"]
    refuse = ["client.kind=raise", "federation.min_clients=8", "federation.max_refused=1"]
    with pytest.raises(JobsFailed, match="1 jobs failed") as failed:
        studying.start(STUDY, [f"runs={tmp_path}", "~client.faults", *dying, *refuse])
    assert list(failed.value.reasons) == ["seed-1"]
    (folder,) = tmp_path.glob("toy_study/*")
    assert sorted(path.parts[-3] for path in folder.glob("trainings/*/checkpoints/final*")) == [
        "seed-2",
        "seed-3",
    ]
    metrics = studying.resume(RunFolder.existing(folder))
    assert metrics["trained"] == 3


@pytest.mark.slow
def test_killed_half_way_and_resumed(straight, tmp_path):
    slow = ["client.pause=0.1", "federation.workers=2"]
    process = start("run", STUDY, *slow, cwd=tmp_path)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("runs/toy_study/*/trainings/*/checkpoints/final*")):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    finish(process)
    folder = next(tmp_path.glob("runs/toy_study/*"))
    before = {p: p.stat().st_mtime_ns for p in folder.glob("trainings/*/checkpoints/final*")}
    assert 1 <= len(before) < 3

    status, out, err = run("resume", str(folder), "--trust", cwd=tmp_path)

    assert status == 0, err
    assert (tmp_path / run_dir(out)).samefile(folder)
    assert f"3 trainings, {3 - len(before)} to do" in err
    for path, written in before.items():
        assert path.stat().st_mtime_ns == written
    same(folder, straight)


def test_a_training_waits_for_a_worker_that_a_killed_driver_left_behind(straight, tmp_path):
    """It writes until the watchdog ends it, and a resume that begins at once is not refused."""
    config = RunFolder.existing(straight / "trainings" / "seed-1").config()
    folder = tmp_path / "seed-1"
    folder.mkdir()
    left = ExitStack()
    left.enter_context(run_lock.writing(folder, "run"))
    threading.Timer(0.5, left.close).start()
    with pytest.raises(InUse):
        RunFolder.at(folder).writing("run", {}).__enter__()
    studying.train((config, str(folder)))
    assert (folder / FINAL).read_bytes() == finals(straight)["seed-1"].read_bytes()


def test_mistakes_of_all_trainings_are_found_before_the_first_starts(tmp_path):
    wrong = ["study.wrong=client.faluts", "federation.workers=2", f"runs={tmp_path}"]
    with pytest.raises(Mistakes) as found:
        studying.start(STUDY, wrong)
    assert len(found.value.problems) == 3
    assert "seed-1: client.faluts" in str(found.value)
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_plan_is_refused(straight, tmp_path):
    folder = RunFolder.at(tmp_path)
    folder.write_config(RunFolder.existing(straight).config())
    with pytest.raises(Mistakes, match="it has no plan"):
        studying.resume(folder)


def test_a_study_is_not_swept(tmp_path):
    status, _, err = run("run", "-m", STUDY, "seed=0,1", cwd=tmp_path)
    assert status == 2
    assert "a study is many trainings by itself" in err
