"""What an attack trains anew is trained once, to the same bits, whatever is killed on the way."""

import json
import re
import shutil
import threading
import time
from contextlib import ExitStack

import pytest
import yaml
from experiments_run import ran, result_of
from processes import TESTS, TOY, Forked
from toy import Net, federation
from toy_attacks import Seeds

from fedpriv import run_attack
from fedpriv.config import trust
from fedpriv.runtime import run_lock
from fedpriv.runtime.run_folder import FINAL, RunFolder
from fedpriv.runtime.run_lock import InUse
from fedpriv.runtime.run_log import LOG
from fedpriv.studies.trials import TRAINING, Store, Trial, carry_out

EXPERIMENT = str(TESTS / "system" / "retraining.yaml")
NAMES = ["seed-1", "seed-2", "seed-3"]
OVERRIDES = "attack.overrides=[{}]"
ATTACK = ["attack=toy_attacks.Seeds", "retrain=true"]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run with its attack, all in one process."""
    status, folder, said = ran("run", EXPERIMENT, f"runs={tmp_path_factory.mktemp('straight')}")
    assert status == 0, said
    return folder.path


@pytest.fixture
def copy(straight, tmp_path):
    return shutil.copytree(straight, tmp_path / "run")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run that nothing was trained beside; tests that attack it take a copy."""
    return ran("run", TOY, f"runs={tmp_path_factory.mktemp('alone')}")[1].path


def final(folder, name):
    return folder / "retrained" / name / FINAL


def losses(folder, attack="seeds"):
    return result_of(RunFolder.existing(folder), attack)["details"]["losses"]


def same(folder, straight):
    for name in NAMES:
        assert final(folder, name).read_bytes() == final(straight, name).read_bytes()


def touched(folder):
    """Every file of the trainings with its content and the time when it was written."""
    files = (path for path in (folder / "retrained").rglob("*") if path.is_file())
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def attacked(folder, *more, trust=True):
    return ran("attack", folder, *ATTACK, *more, *["--trust"] * trust)


# The same bits


def test_each_training_is_a_run_of_its_own_beside_the_run(straight):
    assert sorted(losses(straight)) == NAMES
    assert len(set(losses(straight).values())) == 3
    runs = [RunFolder.existing(straight / "retrained" / name) for name in NAMES]
    assert [run.config()["seed"] for run in runs] == [1, 2, 3]
    assert [len(run.records("metrics.jsonl")) for run in runs] == [3, 3, 3]
    assert all(run.has("ledger.json") for run in runs)
    assert len(RunFolder.existing(straight).records("metrics.jsonl")) == 4
    page = (straight / "report.html").read_text("utf-8")
    assert all(name in page for name in NAMES)


def test_a_finished_run_is_attacked_to_the_same_bits(alone, straight, tmp_path):
    folder = shutil.copytree(alone, tmp_path / "run")
    status, _, said = attacked(folder)
    assert status == 0, said
    same(folder, straight)
    assert losses(folder, "Seeds") == losses(straight)


@pytest.mark.slow
def test_two_workers_train_the_same_bits(alone, straight, tmp_path):
    folder = shutil.copytree(alone, tmp_path / "run")
    status, _, said = attacked(folder, "workers=2")
    assert status == 0, said
    same(folder, straight)
    assert losses(folder, "Seeds") == losses(straight)


@pytest.mark.parametrize("ray", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_killed_worker_costs_nothing_but_time(ray, straight, tmp_path, request):
    marker = tmp_path / "marker"
    two = ["federation.workers=2", f"attack.marker='{marker}'"]
    if ray:
        request.getfixturevalue("one_ray")
        two.append("ray.client_resources.num_cpus=1")
    status, folder, said = ran("run", EXPERIMENT, f"runs={tmp_path}", *two)
    assert status == 0, said
    assert marker.is_file()
    same(folder.path, straight)
    assert losses(folder.path) == losses(straight)
    assert all(said.count(f"{name} done") == 2 for name in NAMES)  # trained, and measured


@pytest.mark.slow
def test_a_failed_training_does_not_keep_the_others_from_their_end(alone, tmp_path):
    folder = shutil.copytree(alone, tmp_path / "run")
    failing = [
        OVERRIDES.format('"rounds=3","federation.min_clients=8","federation.max_refused=1"'),
        f"attack.marker='{tmp_path}/marker'",
        "attack.kind=raise",
    ]
    status, _, said = attacked(folder, *failing)
    assert status == 1
    assert "1 job failed; all others are done" in said
    assert "Traceback" not in said
    assert not final(folder, "seed-1").exists()
    before = {name: final(folder, name).stat().st_mtime_ns for name in NAMES[1:]}

    status, _, said = attacked(folder, *failing)

    assert status == 0, said
    assert "3 trainings, 1 to do" in said
    assert {name: final(folder, name).stat().st_mtime_ns for name in NAMES[1:]} == before
    # The refused round was tried again, with other batches, so these are other bits.
    assert sorted(losses(folder, "Seeds")) == NAMES


def killed_after_the_first(process, folder):
    """Kills a driver when a training has come to its end; returns those that have.

    Workers outlive their driver by a moment, in which another training may come to its end: what is
    returned is a lower bound.
    """
    deadline = time.monotonic() + 600
    while not (found := list(folder().glob("retrained/*/checkpoints/final*"))):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.said()
        time.sleep(0.05)
    process.kill()
    found = list(folder().glob("retrained/*/checkpoints/final*"))
    assert 1 <= len(found) < 3
    return {path.parents[1].name: touched(path.parents[3]) for path in found}


def to_do(said):
    return int(re.search(r"3 trainings, (\d) to do", said).group(1))


def rewritten(folder, name, before):
    """Files of a training that are not as they were."""
    place, now = folder / "retrained" / name, touched(folder)
    # What it took is written and logged behind its end, by a worker that outlives its driver.
    late = ("cost.json", LOG)
    ours = (p for p in before | now if p.is_relative_to(place) and p.name not in late)
    return [path for path in ours if now.get(path) != before.get(path)]


@pytest.mark.slow
def test_a_killed_run_is_resumed_and_trains_only_what_is_missing(straight, tmp_path):
    slow = [OVERRIDES.format('"rounds=3","client.pause=0.1"'), "federation.workers=2"]
    process = Forked("run", EXPERIMENT, *slow, cwd=tmp_path)
    folders = lambda: next(tmp_path.glob("runs/toy_retraining/*"), tmp_path)  # noqa: E731
    done = killed_after_the_first(process, folders)

    status, folder, said = ran("resume", folders(), "--trust")

    assert status == 0, said
    assert 1 <= to_do(said) <= 3 - len(done)
    assert not any(rewritten(folder.path, name, before) for name, before in done.items())
    same(folder.path, straight)
    assert losses(folder.path) == losses(straight)


def test_a_training_waits_for_a_worker_that_a_killed_driver_left_behind(straight, tmp_path):
    """It writes until the watchdog ends it, and what begins at once is not refused."""
    config = RunFolder.existing(straight / "retrained" / "seed-1").config()
    folder = tmp_path / "seed-1"
    folder.mkdir(mode=0o700)
    left = ExitStack()
    left.enter_context(run_lock.writing(folder, "run"))
    threading.Timer(0.5, left.close).start()
    with pytest.raises(InUse):
        RunFolder.made(folder).writing("run", {}).__enter__()
    carry_out((Store(tmp_path), Trial(config, named="seed-1"), TRAINING))
    assert (folder / FINAL).read_bytes() == final(straight, "seed-1").read_bytes()


# What is refused


def test_mistakes_of_all_trainings_are_told_before_there_is_a_folder(tmp_path):
    status, _, said = ran(
        "run", EXPERIMENT, f"runs={tmp_path}", OVERRIDES.format('"client.faluts=1"')
    )
    assert status == 2
    assert "3 mistakes, nothing was started" in said
    for name in NAMES:
        assert (
            f"{name}: client.faluts: toy.Faulty takes no 'faluts'; did you mean 'faults'?" in said
        )
    assert not list(tmp_path.iterdir())


def test_a_wrong_variant_of_a_finished_run_is_refused_before_any_is_trained(copy):
    before = touched(copy)
    wrong = OVERRIDES.format('"strategy=median"')
    status, _, said = attacked(copy, "attack.seeds=[4,5]", wrong)
    assert status == 2
    assert "nothing was started" in said
    assert "strategy=median: expected one of " in said
    wrong = OVERRIDES.format('"client.faluts=1"')
    status, _, said = attacked(copy, "attack.seeds=[4,5]", wrong)
    assert status == 2
    assert "2 mistakes, nothing was started" in said
    assert "seed-4: client.faluts: toy.Faulty takes no 'faluts'; did you mean 'faults'?" in said
    assert touched(copy) == before


def test_what_is_trained_is_not_trained_again(copy):
    before = touched(copy)
    status, _, said = attacked(copy, "attack.seeds=[1,2,3,4]")
    assert status == 0, said
    assert "4 trainings, 1 to do" in said
    assert not any(rewritten(copy, name, before) for name in NAMES)
    assert sorted(json.loads((copy / "retrained" / "plan.json").read_text())) == [*NAMES, "seed-4"]


@pytest.mark.slow
def test_a_training_of_other_settings_is_not_taken_but_told(copy, straight):
    before = touched(copy)
    (copy / "retrained" / "plan.json").unlink()  # each folder says itself what it is
    status, _, said = attacked(copy, OVERRIDES.format('"rounds=2"'))
    assert status == 2
    for name in NAMES:
        place = copy / "retrained" / name
        assert (
            f"{name}: it was trained with other settings, rounds=3, where it is 2 now; remove "
            f"{place} to train it anew" in said
        )
        assert not rewritten(copy, name, before)
    shutil.rmtree(copy / "retrained")
    status, _, said = attacked(copy, OVERRIDES.format('"rounds=2"'))
    assert status == 0, said
    assert losses(copy, "Seeds") != losses(straight)


@pytest.mark.slow
def test_changed_settings_of_a_training_are_told_even_where_the_folder_is_trusted(copy, straight):
    path = copy / "retrained" / "seed-2" / "config.yaml"
    path.write_text(path.read_text().replace("seed: 2", "seed: 7"))
    status, _, said = attacked(copy)
    assert status == 2
    assert "seed-2: it was trained with other settings, seed=7, where it is 2 now" in said
    assert "seed-1: " not in said
    path.unlink()
    status, _, said = attacked(copy)
    assert status == 2
    assert f"{path.parent} is not a run folder: it has no config.yaml" in said
    shutil.rmtree(path.parent)
    status, _, said = attacked(copy)
    assert status == 0, said
    assert "3 trainings, 1 to do" in said
    same(copy, straight)


@pytest.fixture
def toys_are_ours(monkeypatch):
    """The parts of the toy pass for such as fedpriv brings along."""
    ours = trust._is_part
    monkeypatch.setattr(trust, "_is_part", lambda path: str(path).startswith("toy") or ours(path))


@pytest.mark.slow
@pytest.mark.usefixtures("toys_are_ours")
@pytest.mark.parametrize("name", [FINAL, "checkpoints/round-000003.safetensors", "metrics.jsonl"])
def test_a_changed_file_of_a_training_is_refused_until_it_is_trusted(copy, name):
    assert attacked(copy, trust=False)[0] == 0
    path = copy / "retrained" / "seed-2" / name
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    before = touched(copy)
    status, _, said = attacked(copy, trust=False)
    assert status == 2
    assert f"{copy / 'retrained' / 'seed-2'} is not used as it is" in said
    assert f"changed: {name} (other bytes of the same number)" in said
    assert "add --trust" in said
    assert touched(copy) == before
    assert ran("verify", copy)[0] == 1


@pytest.mark.usefixtures("toys_are_ours")
def test_a_training_that_names_a_command_runs_nothing(copy, tmp_path):
    """Its log is in order, as that of a folder that somebody else made."""
    training = RunFolder.existing(copy / "retrained" / "seed-2")
    evil = {"_target_": "os.system", "command": f"touch {tmp_path}/witness"}
    training.write_config({**training.config(), "model": evil})
    status, _, said = attacked(copy, trust=False)
    assert status == 2
    assert "model._target_: 'os.system' is not among the parts of fedpriv" in said
    assert attacked(copy)[0] == 2  # other settings than the attack asks for
    assert not (tmp_path / "witness").exists()


def test_a_run_with_trainings_beside_it_is_untouched(straight):
    status, _, said = ran("verify", straight)
    assert status == 0, said
    assert said.count(": untouched; ") == 4


def test_an_experiment_that_was_changed_since_is_told(tmp_path):
    for name in ("toy", "retraining"):
        shutil.copyfile(TESTS / "system" / f"{name}.yaml", tmp_path / f"{name}.yaml")
    experiment = tmp_path / "toy.yaml"
    _, folder, _ = ran("run", experiment, f"runs={tmp_path}/runs")
    settings = yaml.safe_load(experiment.read_text())
    settings["client"]["pause"] = 0.001
    experiment.write_text(yaml.safe_dump(settings))
    status, _, said = attacked(folder.path)
    assert status == 2
    assert (
        f"{experiment} is another experiment than the one that was run: client.pause=None, where "
        "it is 0.001 now" in said
    )
    assert not (folder.path / "retrained").exists()


@pytest.mark.slow
def test_trainings_have_the_rounds_that_a_resume_has_added(tmp_path):
    _, folder, _ = ran("run", TOY, f"runs={tmp_path}", "rounds=1")
    assert ran("resume", folder.path, "rounds=2", "--trust")[0] == 0
    status, _, said = attacked(folder.path, "attack.overrides=[]", "attack.seeds=[0]")
    assert status == 0, said
    again = folder.path / "retrained" / "seed-0" / FINAL
    assert again.read_bytes() == (folder.path / FINAL).read_bytes()


# What is not granted


def test_it_is_told_what_would_grant_a_training(alone, tmp_path):
    folder = shutil.copytree(alone, tmp_path / "run")
    status, _, said = ran("attack", folder, ATTACK[0], "--trust")
    assert status == 3
    assert (
        "Retrain: retrain=false: no variant of the run is trained; granted by retrain=true" in said
    )
    assert not (folder / "retrained").exists()


def test_a_run_from_python_cannot_be_rebuilt_and_says_so(tmp_path):
    federation(clients=2).run(1, run_dir=tmp_path / "run")
    result = run_attack(tmp_path / "run", Seeds(), model=Net, retrain=True)
    assert result.status == "not granted"
    assert "its folder does not say how it was composed" in result.headline
    assert "granted by a run that was started by `fedpriv run`" in result.headline
