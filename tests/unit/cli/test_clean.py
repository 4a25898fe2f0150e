"""`fedpriv clean`: what runs leave outside their folders, and nothing else."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedpriv.cli.main import main
from fedpriv.runtime.cache import cache_folder, cache_path
from fedpriv.runtime.workers.watchdog import writers

HASH = "ab" * 32

OPEN = "import sys, time; file = open(sys.argv[1], sys.argv[2]); print(flush=True); time.sleep(99)"
"""A process that holds a file open."""


def opened(path, mode):
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN, str(path), mode], stdout=subprocess.PIPE
    )
    process.stdout.readline()
    return process


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with an entry of each kind, 1000 bytes in all, and what is not of fedpriv's."""
    monkeypatch.setenv("FEDPRIV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    folder = cache_path()
    for path, size in {
        f"examples/{HASH}/table.json": 100,
        f"examples/{HASH}/0.npy": 300,
        "examples/.k2j3.part/0.npy": 50,
        f"pretraining/{HASH}.safetensors": 250,
        f"queries/{HASH}.jsonl": 100,
        f"attacks/cdmi-{HASH[:32]}.jsonl": 100,
        f"pages/{HASH}.png": 100,
        "pages/holiday.png": 7,
        f"letters/{HASH}.txt": 7,
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(b"x" * size)
    (folder / "users").touch()
    return folder


def files(folder):
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir()}


def test_everything_of_the_cache_goes_and_nothing_else(cache, capsys):
    assert main(["clean"]) == 0
    assert files(cache) == {"pages/holiday.png", f"letters/{HASH}.txt", "users"}
    out = capsys.readouterr().out
    assert f"450 bytes  {cache / 'examples'}: 2 entries" in out
    assert out.splitlines()[-1].strip() == "1,000 bytes  removed"


def test_a_dry_run_only_shows(cache, capsys):
    before = files(cache)
    assert main(["clean", "--dry-run"]) == 0
    assert files(cache) == before
    assert capsys.readouterr().out.splitlines()[-1].strip() == "1,000 bytes  would be removed"


def test_a_cache_in_use_stays(cache, capsys):
    cache_folder()  # which this process now uses, until it ends
    before = files(cache)
    assert main(["clean"]) == 0
    assert files(cache) == before
    assert "is kept: a run or an attack is using it" in capsys.readouterr().err


def test_links_are_not_followed(cache, tmp_path):
    mine = tmp_path / "mine"
    (mine / HASH).mkdir(parents=True)
    (mine / HASH / "letter.txt").write_text("keep")
    (cache / "queries" / f"{HASH[:-1]}f").symlink_to(mine / HASH)
    (cache / "examples" / HASH / "out").symlink_to(mine)
    (cache / "attacks").rename(tmp_path / "moved")
    (cache / "attacks").symlink_to(mine)
    session = tmp_path / "fedpriv-ray-aaaaaaaa"
    session.symlink_to(mine)
    (mine / "driver").touch()

    assert main(["clean"]) == 0

    assert (mine / HASH / "letter.txt").read_text() == "keep"
    assert session.is_symlink()
    assert not (cache / "examples" / HASH).exists()


@pytest.fixture
def sessions(cache, tmp_path):
    """Folders of Ray sessions: of a dead driver, of a living one, and one that is no session."""
    made = {}
    for kind in ("dead", "alive", "foreign"):
        made[kind] = tmp_path / f"fedpriv-ray-{kind}"
        (made[kind] / "r" / "logs").mkdir(parents=True)
        (made[kind] / "r" / "logs" / "raylet.out").write_bytes(b"x" * 10)
        if kind != "foreign":
            (made[kind] / "driver").touch()
    with (made["alive"] / "driver").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield made


def test_sessions_of_ray_go_when_their_driver_is_dead(sessions, capsys):
    agent = opened(sessions["dead"] / "r" / "logs" / "agent.log", "w")

    assert main(["clean"]) == 0

    assert agent.wait(timeout=10) == -9
    assert {kind for kind, folder in sessions.items() if folder.exists()} == {"alive", "foreign"}
    told = capsys.readouterr()
    assert f"10 bytes  {sessions['dead']}" in told.out
    assert f"{sessions['alive']} is kept" in told.err


def test_the_watchdog_ends_what_writes_and_spares_what_reads(tmp_path):
    folder = tmp_path / "session"
    folder.mkdir()
    (folder / "log").touch()
    reader = opened(folder / "log", "r")
    driver = (
        "import subprocess, sys, time; from pathlib import Path\n"
        "from fedpriv.runtime.workers.watchdog import watch\n"
        "dog = watch(Path(sys.argv[1]))\n"
        f"command = [sys.executable, '-c', {OPEN!r}, sys.argv[1] + '/log', 'a']\n"
        "agent = subprocess.Popen(command, stdout=subprocess.PIPE); agent.stdout.readline()\n"
        "print(dog.pid, agent.pid, flush=True); time.sleep(99)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", driver, str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        watchdog, agent = map(int, process.stdout.readline().split())
        assert folder.exists()
        process.kill()
        process.wait()
        end = time.monotonic() + 30
        while folder.exists() or is_alive(agent) or is_alive(watchdog):
            assert time.monotonic() < end
            time.sleep(0.05)
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.wait()


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_writer_of_another_session_is_left_alone(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one-more").mkdir()
    other = opened(tmp_path / "one-more" / "log", "w")
    try:
        with (tmp_path / "one" / "log").open("w"):
            assert writers(tmp_path / "one") == []  # not this process
        assert writers(tmp_path / "one-more") == [other.pid]
    finally:
        other.kill()
        other.wait()


def test_what_a_killed_audit_left_goes_after_a_day(cache, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yesterday = time.time() - 90000
    for name in ("fedpriv-audit-old", "fedpriv-probe-old", "fedpriv-audit-new", "fedpriv-other"):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run/x").write_bytes(bytes(10))
        if not name.endswith("new"):
            for path in (tmp_path / name / "run", tmp_path / name):
                os.utime(path, (yesterday, yesterday))
    (tmp_path / "fedpriv-audit-link").symlink_to(tmp_path / "fedpriv-other")
    assert main(["clean", "--dry-run"]) == 0
    assert (tmp_path / "fedpriv-audit-old/run/x").is_file()
    assert main(["clean"]) == 0
    out, err = capsys.readouterr()
    assert out.count("10 bytes  ") == 4
    assert "fedpriv-audit-new is kept: it is less than a day old" in err
    left = sorted(path.name for path in tmp_path.glob("fedpriv-*"))
    assert left == ["fedpriv-audit-link", "fedpriv-audit-new", "fedpriv-other"]
    assert (tmp_path / "fedpriv-other/run/x").is_file()
