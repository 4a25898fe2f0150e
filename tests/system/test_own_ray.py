"""The Ray that we start: closed to other users and machines, and gone when its driver is gone."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray
from processes import environment

from fedpriv.runtime.workers import ray_session
from fedpriv.runtime.workers.watchdog import writers

pytestmark = pytest.mark.slow

LISTEN = "0A"


@ray.remote
class Resident:
    """A worker with a port of its own."""

    def pid(self):
        return os.getpid()


@pytest.fixture(scope="module")
def session(one_ray):
    resident = Resident.remote()
    ray.get(resident.pid.remote())
    yield ray_session._session
    ray.kill(resident)


def listening(pids):
    """Returns (address, port) of every TCP socket on which these processes listen."""
    sockets = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            try:
                sockets.add(os.readlink(file))
            except OSError:
                continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == LISTEN and f"socket:[{rest[5]}]" in sockets:
                address, port = local.split(":")
                found.append((address, int(port, 16)))
    return found


def test_nothing_listens_beyond_this_machine(session):
    ports = listening([*writers(session.folder), os.getpid()])
    # 127.0.0.1, plain or inside IPv6, as /proc writes it.
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    assert len(ports) >= 5  # GCS, raylet, driver, worker, agent
    assert {address for address, _ in ports} <= loopback


def test_another_user_gets_nothing_from_any_port(session):
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    ports = [port for _, port in listening([*writers(session.folder), os.getpid()])]
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    script = [sys.executable, str(Path(__file__).with_name("intruder.py"))]
    gcs = ray.get_runtime_context().gcs_address
    addresses = [f"127.0.0.1:{port}" for port in ports]
    done = subprocess.run([*script, gcs, *addresses], env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]

    tried = json.loads(done.stdout)
    assert tried.pop("uid") == 65534
    assert [name for name, result in tried.items() if result.startswith("in")] == []
    assert {tried[name] for name in ("keys", "get", "put")} == {"AuthenticationError"}
    # Every service was found on some port, and refused for want of the token.
    refused = {name.split()[0] for name, result in tried.items() if result == "UNAUTHENTICATED"}
    assert refused == {name.split()[0] for name in tried if "/" in name}
    assert "http 401" in tried.values()


def test_who_has_the_token_is_served(session):
    from ray._raylet import GcsClient

    client = GcsClient(address=ray.get_runtime_context().gcs_address)
    assert client.internal_kv_keys(b"", b"fun", 20)


def test_token_and_files_are_this_users_alone(session):
    token = session.folder / "token"
    assert stat.S_IMODE(session.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    secret = token.read_bytes()
    assert len(secret) == 64  # 256 bits, in hexadecimal
    for process in Path("/proc").glob("[0-9]*"):
        try:
            assert secret not in (process / "cmdline").read_bytes()
        except OSError:
            continue


def test_nothing_outlives_a_killed_driver(session):
    script = (
        "import ray, time; from fedpriv.runtime.workers import ray_session\n"
        "ray_session.start_ray(2, {'num_cpus': 1.0}, None)\n"
        "Worker = ray.remote(type('Worker', (), {'ready': lambda self: True}))\n"
        "workers = [Worker.remote() for _ in range(2)]\n"
        "print(all(ray.get([worker.ready.remote() for worker in workers])), flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "True\n"
    folder, watchdog = watched_by(process.pid)
    daemons = writers(folder)
    assert len(daemons) >= 6
    assert (folder / "token").read_text() != (session.folder / "token").read_text()

    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    end = time.monotonic() + 60
    while folder.exists() or writers(folder) or Path(f"/proc/{watchdog}").exists():
        assert time.monotonic() < end, f"{folder} is there, or {writers(folder)} are"
        time.sleep(0.2)
    assert not any(is_alive(pid) for pid in daemons)


def test_a_session_that_ends_leaves_nothing():
    script = (
        "import os; from fedpriv.runtime.workers import ray_session\n"
        "ray_session.start_ray(1, {'num_cpus': 1.0}, None)\n"
        "session = ray_session._session\n"
        "print(session.folder, session.watchdog.pid)\n"
        "ray_session.stop_ray()\n"
        "print(os.environ['RAY_AUTH_TOKEN'], os.environ['RAY_AUTH_MODE'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(RAY_AUTH_TOKEN="of a cluster", RAY_AUTH_MODE="disabled"),  # noqa: S106
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told, after = done.stdout.splitlines()
    folder, watchdog = told.split()
    assert not Path(folder).exists()
    assert writers(Path(folder)) == []
    assert not Path(f"/proc/{watchdog}").exists()
    assert after == "of a cluster disabled"  # as before


def watched_by(driver):
    """Returns the session's folder and the watchdog of a driver."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if len(arguments) > 5 and "watchdog.py" in arguments[3] and arguments[5] == str(driver):
            return Path(arguments[4]), int(process.name)
    raise AssertionError(f"nobody watches {driver}")


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
