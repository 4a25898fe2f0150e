"""Ray that does not start, and workers that die before they serve: what is said, and when."""

import os
import stat
import time

import pytest
import ray
from toy import federation

from fedpriv.cli import main
from fedpriv.federation.grids.base import WorkersDied
from fedpriv.federation.grids.workers import Deaths, WorkerDied
from fedpriv.runtime.workers import ray_session
from fedpriv.runtime.workers.ray_session import RayDidNotStart, RaySettings

ON_RAY = "ray.client_resources.num_cpus=1"
SLOW = "The current node timed out during startup. This could happen because some of the raylet"


@pytest.fixture
def starts(monkeypatch, tmp_path):
    """Ray that never comes up; yields the settings of each start."""
    calls = []

    def init(**settings):
        calls.append({**settings, **{k: v for k, v in os.environ.items() if k.startswith("RAY_")}})
        raise Exception(f"{SLOW}\nmore of it")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray_session, "parents", lambda: [tmp_path.parent])
    monkeypatch.setattr(ray_session, "LONGEST", 1000)
    return calls


def test_a_slow_start_is_waited_for_and_tried_twice(starts, tmp_path):
    before = dict(os.environ)
    toy = federation(runs=tmp_path, workers=2, ray=RaySettings(client_resources={"num_cpus": 1.0}))

    with pytest.raises(
        RayDidNotStart, match=r"twice: The current node .*workers on this machine need no Ray"
    ):
        toy.run(1)

    assert [call["RAY_raylet_start_wait_time_s"] for call in starts] == ["120", "120"]
    assert len({call["_temp_dir"] for call in starts}) == 2
    assert list(tmp_path.iterdir()) == []  # no run folder
    assert list(tmp_path.parent.glob(f"{ray_session.PREFIX}*")) == []
    changed = {
        name for name in before | dict(os.environ) if before.get(name) != os.environ.get(name)
    }
    assert changed <= {"RAY_worker_niceness", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"}
    assert ray_session._session is None


def test_the_command_line_explains_it_in_one_line(starts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    toy = os.path.join(os.path.dirname(__file__), *[".."] * 3, "system", "toy.yaml")
    assert main.main(["run", toy, "federation.workers=1", ON_RAY]) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("RayDidNotStart: Ray did not start, twice")
    assert "\n" not in error
    assert not (tmp_path / "runs").exists()


def test_one_slow_start_is_not_the_end_and_files_are_this_users_alone(starts, monkeypatch):
    failing, context = ray.init, type("Context", (), {"gcs_address": "127.0.0.1:1"})

    def init(**settings):
        if not starts:
            failing(**settings)

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    assert ray_session.start_ray(2, {"num_cpus": 1.0}, None)
    folder = ray_session._session.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert len((folder / "token").read_bytes()) == 64  # 256 bits, in hexadecimal
    assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(folder / "token")
    assert os.environ["RAY_AUTH_MODE"] == "token"
    ray_session.stop_ray()
    assert not folder.exists()


@pytest.mark.parametrize("address", ["192.0.2.7:6379", "[2001:db8::1]:6379"])
def test_a_ray_that_listens_elsewhere_is_not_used(address, starts, monkeypatch):
    context = type("Context", (), {"gcs_address": address})
    monkeypatch.setattr(ray, "init", lambda **settings: None)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    with pytest.raises(RayDidNotStart, match="not on loopback alone"):
        ray_session.start_ray(2, {"num_cpus": 1.0}, None)


def test_a_cluster_keeps_its_own_address_and_token(monkeypatch):
    calls = []
    monkeypatch.setattr(ray, "init", lambda **settings: calls.append(settings))
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 64.0})
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of the cluster")
    assert ray_session.start_ray(2, {"num_cpus": 1.0}, "10.0.0.1:6379")
    assert calls == [{"address": "10.0.0.1:6379", "log_to_driver": False, "logging_level": "ERROR"}]
    assert ray_session._session is None
    assert os.environ["RAY_AUTH_TOKEN"] == "of the cluster"  # noqa: S105
    ray_session.stop_ray()


def raised(why):
    return WorkerDied("ActorDiedError", why, raised=True)


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    return Clock


def test_an_app_that_has_worked_survives_ten_minutes_of_kills(clock):
    deaths = Deaths()
    deaths.works = True
    rests = []
    while clock.now < 1000 + 590:
        for _ in range(8):  # all workers of a node at once
            rest = deaths.rest(RuntimeError("killed"))
        rests.append(rest)
        clock.now += rest + 3
    assert rests[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(rests) == 30.0
    clock.now = 1000 + 601
    with pytest.raises(WorkersDied, match=r"for 601 s .*killed"):
        deaths.rest(RuntimeError("killed"))


def test_whoever_serves_ends_the_count(clock):
    deaths = Deaths()
    deaths.works = True
    for _ in range(20):
        assert deaths.rest(RuntimeError("killed")) == 0.5
        clock.now += 100
        deaths.reset()


def test_an_app_that_never_worked_ends_the_run_quickly(clock):
    deaths = Deaths()
    with pytest.raises(WorkersDied, match="segmentation fault"):
        _die_on(deaths, clock, RuntimeError("segmentation fault"))
    assert clock.now - 1000 < 10


def test_an_app_that_raises_at_once_ends_the_run_with_its_reason(clock):
    with pytest.raises(WorkersDied, match="could not build its app: no such weights"):
        Deaths().rest(raised("no such weights"))


def test_an_app_that_raises_later_is_tried_a_few_times(clock):
    deaths = Deaths()
    deaths.works = True
    with pytest.raises(WorkersDied, match="out of GPU memory"):
        _die_on(deaths, clock, raised("out of GPU memory"))
    assert clock.now - 1000 < 10


def test_eight_workers_of_one_node_count_once(clock):
    deaths = Deaths()
    assert {deaths.rest(RuntimeError("preempted")) for _ in range(8)} == {0.5}


def _die_on(deaths, clock, error):
    for _ in range(100):
        clock.now += deaths.rest(error) + 1
