"""log.jsonl tells what was changed in a run folder, and calls untouched what a kill has left."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from toy import federation

from fedpriv.cli.endings import explanation
from fedpriv.cli.main import main
from fedpriv.runtime import run_files, run_log
from fedpriv.runtime.run_folder import FAILURES, METRICS, Checkpoint, RunFolder
from fedpriv.runtime.run_lock import InUse
from fedpriv.runtime.verify import UNPUBLISHED, check


def lines_of(root):
    return (root / "log.jsonl").read_text().splitlines()


# What verify says


def test_a_finished_run_is_untouched(run, capsys):
    found = check(run)
    assert found.problems() == []
    assert found.notes == []
    assert found.files == len(entered(run))
    assert main(["verify", str(run)]) == 0
    assert f"{run}: untouched" in capsys.readouterr().out


def entered(root):
    """The files of a run that the log knows."""
    files = (path for path in root.rglob("*") if path.is_file())
    names = [str(path.relative_to(root)) for path in files]
    return [n for n in names if n != "log.jsonl" and not n.startswith((".lock", "tensorboard"))]


def test_every_file_that_is_changed_cut_or_gone_is_named(run, copy, capsys):
    names = [name for name in entered(run) if name not in UNPUBLISHED]
    assert {"config.yaml", "ledger.json", METRICS, FAILURES, "report.html"} < set(names)
    for name in names:
        path, whole = copy / name, (copy / name).read_bytes()
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        assert check(copy).problems() == [f"changed: {name} (other bytes of the same number)"]
        path.write_bytes(whole[:-1])
        expected = f"changed: {name} ({len(whole) - 1} bytes, not {len(whole)})"
        assert check(copy).problems() == [expected]
        path.unlink()
        assert check(copy).problems() == [f"missing: {name}"]
        path.symlink_to(run / name)
        assert len(check(copy).changed) == 1
        path.unlink()
        path.write_bytes(whole)
    (copy / "checkpoints" / "round-000099.safetensors").write_bytes(b"x")
    assert main(["verify", str(copy)]) == 1
    assert "added: checkpoints/round-000099.safetensors" in capsys.readouterr().out


def test_what_is_no_run_folder_is_said_with_status_2(tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 2
    assert "is not a run folder: it has no config.yaml" in capsys.readouterr().err


def test_no_line_of_the_log_can_be_changed_taken_out_or_moved(copy):
    lines = lines_of(copy)
    for at in range(len(lines) - 1):
        changed = [line.replace(f'"pid": {os.getpid()}', '"pid": 1') for line in lines[at : at + 1]]
        assert changed != lines[at : at + 1]
        for other in (
            [*lines[:at], *changed, *lines[at + 1 :]],
            [*lines[:at], *lines[at + 1 :]],
            [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]],
        ):
            (copy / "log.jsonl").write_text("\n".join(other) + "\n")
            assert check(copy).log
    (copy / "log.jsonl").unlink()
    assert "log.jsonl is missing" in check(copy).problems()[0]


def test_the_log_tells_who_ran_and_resumed_with_what(copy):
    federation({"1/0": "raise"}, clients=2).run(3, run_dir=copy, resume=True)
    assert check(copy).problems() == []
    commands = [line for line in map(json.loads, lines_of(copy)) if "command" in line]
    assert [c["command"] for c in commands] == ["run", "resume"]
    assert [c["settings"]["rounds"] for c in commands] == [2, 3]
    for line in commands:
        assert {"at", "pid", "by", "versions", "chain"} < line.keys()
        assert line["pid"] == os.getpid()
        assert "@" in line["by"]


# What a kill leaves


class Killed(BaseException):
    """Stands for kill -9 at this moment: nothing is cleared up after it."""


def some_writing(folder):
    folder.write_json("ledger.json", {"events": [1]})
    folder.append(METRICS, [{"round": 1}])
    folder.save(Checkpoint(1, {"w": torch.zeros(3)}), keep=1)
    folder.write_json("ledger.json", {"events": [1, 2]})
    folder.append(METRICS, [{"round": 2, "text": "x" * 50}])
    folder.save(Checkpoint(2, {"w": torch.ones(3)}), keep=1)
    folder.forget_after(1)
    folder.remove("checkpoints")


def test_killed_at_any_moment_the_folder_is_untouched(tmp_path, monkeypatch):
    """Before and after each flush, renaming and removal."""
    steps = 0
    while True:
        steps += 1
        folder = RunFolder.made(tmp_path / str(steps))
        run_log.begin(folder.path, "run", {})
        left = [steps]

        def counting(function, left=left):
            def counted(*arguments, **settings):
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
                return function(*arguments, **settings)

            return counted

        with monkeypatch.context() as patch:
            for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
                patch.setattr(owner, name, counting(getattr(owner, name)))
            patch.setattr(run_files, "append", counting(run_files.append))
            try:
                some_writing(folder)
                break
            except Killed:
                pass
        assert check(folder.path).problems() == [], steps
        some_writing(folder)  # as a resumed run writes it once more
        assert check(folder.path).problems() == [], steps
    assert steps > 30
    assert check(folder.path).problems() == []
    assert check(folder.path).notes == []


def test_an_append_that_was_cut_at_any_byte_is_a_note_and_no_change(tmp_path):
    folder = RunFolder.made(tmp_path / "run")
    run_log.begin(folder.path, "run", {})
    folder.append(METRICS, [{"round": 1}])
    start = len((folder.path / METRICS).read_bytes())
    folder.append(METRICS, [{"round": 2, "loss": 0.5}])
    whole = (folder.path / METRICS).read_bytes()
    for end in range(len(whole)):
        (folder.path / METRICS).write_bytes(whole[:end])
        found = check(folder.path)
        assert (not found.problems()) == (end >= start)
        assert len(found.notes) == (end >= start)
    (folder.path / METRICS).write_bytes(b"x" + whole[1:-1])
    assert check(folder.path).problems()


def test_a_log_whose_last_line_was_cut_at_any_byte_goes_on(copy):
    whole = (copy / "log.jsonl").read_bytes()
    last = whole[:-1].rindex(b"\n") + 1
    for end in range(last, len(whole)):
        (copy / "log.jsonl").write_bytes(whole[:end])
        assert check(copy).problems() == []
        run_log.begin(copy, "report", {})
        assert check(copy).problems() == []
        assert [json.loads(line)["command"] for line in lines_of(copy)[-1:]] == ["report"]


def test_a_write_that_came_to_its_end_cannot_be_taken_back(tmp_path):
    folder = RunFolder.made(tmp_path / "run")
    with folder.writing("run", {}):
        folder.write("ledger.json", b"{}")
        folder.write("ledger.json", b'{"events": []}')
    (folder.path / "ledger.json").write_bytes(b"{}")
    assert check(folder.path).problems() == ["changed: ledger.json (2 bytes, not 14)"]


def test_what_a_resume_took_over_stays_in_the_log(copy, capsys):
    """It is written anew, and would look as if it had been fedpriv's own from the start."""
    path = copy / "config.yaml"
    path.write_text(path.read_text().replace("rounds: 2", "rounds: 3"))
    with RunFolder(copy).writing("resume", {}):
        RunFolder(copy).write_config(RunFolder(copy).config())
    assert main(["verify", str(copy)]) == 0
    assert "resume by" in (out := capsys.readouterr().out)
    assert ", which took over changed: config.yaml (" in out


# One writer


def test_a_second_writer_is_refused_and_told_who_writes(copy, capsys):
    before = len(lines_of(copy))
    with RunFolder(copy).writing("run", {}):
        for _ in range(2):
            with pytest.raises(InUse, match=rf"written by process {os.getpid()} on .*fedpriv run"):
                federation(clients=2).run(3, run_dir=copy, resume=True)
        with RunFolder(copy).writing("attack", {}, "dlg"):  # which writes its findings only
            assert main(["report", str(copy)]) == 0  # which leaves the ledger alone
        assert f"process {os.getpid()}" in capsys.readouterr().err
        assert "changed" not in capsys.readouterr().err
        assert len(lines_of(copy)) == before + 5  # two begun, two ended, and report.html
    federation({"1/0": "raise"}, clients=2).run(3, run_dir=copy, resume=True)


def test_the_command_that_is_refused_ends_with_status_2():
    assert explanation(InUse("x is being written by process 7"), None) == (
        2,
        "x is being written by process 7",
    )


def test_the_lock_of_a_killed_process_is_free(copy):
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with RunFolder(copy).writing("run", {}):
            os.write(tell, b"x")
            signal.pause()
    os.read(ready, 1)
    with pytest.raises(InUse, match=f"process {child} on"), RunFolder(copy).writing("resume", {}):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with RunFolder(copy).writing("resume", {}):
        pass
