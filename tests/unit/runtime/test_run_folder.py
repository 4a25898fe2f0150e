"""The run folder survives what can happen to it: a crash, a cut file, a second run."""

import json
import os
import time
from datetime import datetime
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from fedpriv.runtime import run_lock
from fedpriv.runtime.run_files import Damaged
from fedpriv.runtime.run_folder import (
    CHECKPOINTS,
    CONFIG,
    FAILURES,
    FINAL,
    METRICS,
    Checkpoint,
    NotARunFolder,
    RunFolder,
)

MODEL = {"weight": torch.tensor([[1.5, -0.0], [float("nan"), 3]]), "count": torch.tensor(2**53 + 1)}
MOMENTS = {"momentum": torch.tensor([0.25, 0.5], dtype=torch.float64)}


@pytest.fixture
def folder(tmp_path):
    return RunFolder.made(tmp_path / "run")


def checkpoint(round, seed=7, **model):
    named = {name: torch.tensor(value) for name, value in model.items()} or MODEL
    return Checkpoint(round, named, MOMENTS, {"seed": seed})


def file_of(folder, round):
    return folder.path / CHECKPOINTS / f"round-{round:06d}.safetensors"


def rounds_kept(folder):
    return sorted(int(path.stem[-6:]) for path in (folder.path / CHECKPOINTS).glob("round-*"))


def same_bits(one, other):
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and one.numpy().tobytes() == other.numpy().tobytes()
    )


# Checkpoints


def test_a_checkpoint_comes_back_as_it_was(folder):
    folder.save(checkpoint(12), keep=2)
    latest = folder.latest()
    assert latest.round == 12
    assert latest.meta == {"seed": 7}
    assert sorted(latest.model) == sorted(MODEL)
    assert sorted(latest.strategy) == sorted(MOMENTS)
    assert all(same_bits(latest.model[name], tensor) for name, tensor in MODEL.items())
    assert all(same_bits(latest.strategy[name], tensor) for name, tensor in MOMENTS.items())


def test_views_of_one_vector_and_transposed_tensors_can_be_saved(folder):
    flat = torch.arange(8.0)
    model = {"a": flat[:3], "b": flat[3:7].view(2, 2).t(), "none": flat[8:], "scalar": flat[7]}
    folder.save(Checkpoint(1, model), keep=0)
    loaded = folder.latest().model
    assert {name: tensor.tolist() for name, tensor in loaded.items()} == {
        "a": [0, 1, 2],
        "b": [[3, 5], [4, 6]],
        "none": [],
        "scalar": 7,
    }


def test_names_may_hold_slashes_and_prefixes_of_our_own(folder):
    model = {"model/x": torch.ones(1), "strategy/x": torch.zeros(1)}
    folder.save(Checkpoint(1, model, {"model/x": torch.full((1,), 5.0)}), keep=0)
    latest = folder.latest()
    assert {name: t.item() for name, t in latest.model.items()} == {"model/x": 1, "strategy/x": 0}
    assert {name: t.item() for name, t in latest.strategy.items()} == {"model/x": 5}


def test_the_same_checkpoint_is_the_same_bytes(folder, tmp_path):
    twin = RunFolder.made(tmp_path / "twin")
    for one in (folder, twin):
        one.save(checkpoint(3), keep=0)
    assert file_of(folder, 3).read_bytes() == file_of(twin, 3).read_bytes()


def test_the_newest_round_is_the_latest(folder):
    for round in (9, 10, 2, 100):
        folder.save(checkpoint(round, w=[round]), keep=0)
    assert folder.latest().round == 100
    assert folder.latest().model["w"].tolist() == [100]


@pytest.mark.parametrize(("keep", "kept"), [(1, [5]), (2, [4, 5]), (0, [1, 2, 3, 4, 5])])
def test_only_the_newest_are_kept(folder, keep, kept):
    for round in range(1, 6):
        folder.save(checkpoint(round), keep=keep)
    assert rounds_kept(folder) == kept


def test_a_new_folder_has_no_checkpoint(folder):
    assert folder.latest() is None


def test_a_newest_checkpoint_cut_at_any_byte_is_passed_over(folder):
    folder.save(checkpoint(1, w=[1]), keep=0)
    folder.save(checkpoint(2, w=[2]), keep=0)
    whole = file_of(folder, 2).read_bytes()
    for end in range(len(whole)):
        file_of(folder, 2).write_bytes(whole[:end])
        assert folder.latest().round == 1
    file_of(folder, 2).write_bytes(whole)
    assert folder.latest().round == 2


@pytest.mark.parametrize("content", [b"", bytes(100), b"\xff" * 8, b"{}"], ids=range(4))
def test_a_file_that_is_no_checkpoint_is_passed_over(folder, content):
    folder.save(checkpoint(4), keep=0)
    file_of(folder, 5).write_bytes(content)
    assert folder.latest().round == 4
    file_of(folder, 4).unlink()
    assert folder.latest() is None


def test_safetensors_of_somebody_else_are_passed_over(folder):
    folder.save(checkpoint(4), keep=0)
    save_file({"w": torch.ones(1)}, file_of(folder, 5))
    assert folder.latest().round == 4


# A crash while writing


class Crash(Exception):
    """Stands for kill -9 at this line."""


def fail(*_, **__):
    raise Crash


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_crash_while_writing_leaves_the_old_file_whole(folder, monkeypatch, moment):
    folder.write("state.json", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if moment == "fsync" else (Path, "replace")), fail)
        with pytest.raises(Crash):
            folder.write("state.json", b"new and longer")
    assert (folder.path / "state.json").read_bytes() == b"old"
    folder.write("state.json", b"newer")
    assert (folder.path / "state.json").read_bytes() == b"newer"


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_crash_while_saving_leaves_the_older_checkpoint_to_resume_from(
    folder, monkeypatch, moment
):
    folder.save(checkpoint(1), keep=1)
    with monkeypatch.context() as patch:
        patch.setattr(*((os, "fsync") if moment == "fsync" else (Path, "replace")), fail)
        with pytest.raises(Crash):
            folder.save(checkpoint(2), keep=1)
    assert folder.latest().round == 1
    folder.save(checkpoint(2), keep=1)
    assert folder.latest().round == 2
    assert rounds_kept(folder) == [2]


def test_old_checkpoints_go_only_after_the_new_one_is_there(folder, monkeypatch):
    folder.save(checkpoint(1), keep=1)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", fail)
        with pytest.raises(Crash):
            folder.save(checkpoint(2), keep=1)
    assert rounds_kept(folder) == [1, 2]


def test_what_is_written_is_on_disk_before_it_gets_its_name(folder, monkeypatch):
    happened = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: happened.append("fsync") or fsync(fd))
    monkeypatch.setattr(
        Path, "replace", lambda self, to: happened.append("rename") or replace(self, to)
    )
    folder.write("state.json", b"x")
    assert happened == ["fsync", "rename", "fsync"]


# Lines


def records(*rounds):
    return [{"round": round, "loss": round / 10, "name": "Müller"} for round in rounds]


def test_lines_come_back(folder):
    folder.append(METRICS, records(1, 2))
    folder.append(METRICS, [])
    folder.append(METRICS, records(3))
    assert folder.records(METRICS) == records(1, 2, 3)
    assert len((folder.path / METRICS).read_text("utf-8").splitlines()) == 3
    assert (folder.path / METRICS).read_bytes().isascii()


def test_no_file_no_lines(folder):
    assert folder.records(METRICS) == []


def test_a_last_line_cut_at_any_byte_is_left_out(folder):
    folder.append(METRICS, records(1, 2))
    whole = (folder.path / METRICS).read_bytes()
    second = whole.index(b"\n") + 1
    for end in range(second, len(whole) - 1):
        (folder.path / METRICS).write_bytes(whole[:end])
        assert folder.records(METRICS) == records(1)


def test_a_last_line_that_the_disk_has_made_rubbish_of_is_left_out(folder):
    folder.append(METRICS, records(1))
    with (folder.path / METRICS).open("ab") as file:
        file.write(b"\xff\x00{\xc3")
    assert folder.records(METRICS) == records(1)


def test_a_line_spoiled_in_the_middle_is_an_error_that_says_where(folder):
    folder.append(METRICS, records(1, 2, 3))
    lines = (folder.path / METRICS).read_text("utf-8").splitlines()
    (folder.path / METRICS).write_text("\n".join([lines[0], lines[1][:9], lines[2]]))
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2: not JSON$"):
        folder.records(METRICS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.characters())))
@example(["\x85", "\u2028", "\u2029", "\x1c", "\r\n", "\udcff"])
def test_any_text_fits_in_a_line(folder, texts):
    """As from the traceback of a client that quotes its document."""
    (folder.path / FAILURES).unlink(missing_ok=True)
    failures = [{"round": 1, "traceback": text} for text in texts]
    folder.append(FAILURES, failures)
    assert folder.records(FAILURES) == failures


def test_lines_of_later_rounds_are_forgotten_in_both_files(folder):
    folder.append(METRICS, records(1, 2, 3, 4))
    folder.append(FAILURES, records(2, 2, 3, 5))
    folder.forget_after(2)
    assert folder.records(METRICS) == records(1, 2)
    assert folder.records(FAILURES) == records(2, 2)
    folder.append(METRICS, records(3))
    assert folder.records(METRICS) == records(1, 2, 3)


def test_forgetting_drops_half_a_line_and_keeps_the_others_bytes(folder):
    folder.append(METRICS, records(1, 2))
    whole = (folder.path / METRICS).read_bytes()
    (folder.path / METRICS).write_bytes(whole + b'{"round": 3, "lo')
    folder.forget_after(9)
    assert (folder.path / METRICS).read_bytes() == whole
    folder.append(METRICS, records(3))
    assert folder.records(METRICS) == records(1, 2, 3)


def test_forgetting_keeps_a_whole_line_that_lacks_its_end(folder):
    folder.append(METRICS, records(1, 2))
    whole = (folder.path / METRICS).read_bytes()
    (folder.path / METRICS).write_bytes(whole[:-1])
    folder.forget_after(2)
    assert (folder.path / METRICS).read_bytes() == whole


# Folders


def test_two_runs_of_one_second_get_two_folders(tmp_path, monkeypatch):
    class Noon(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2024, 5, 1, 12, 0, 0)

    monkeypatch.setattr("fedpriv.runtime.run_folder.datetime", Noon)
    paths = [RunFolder.create(tmp_path, "toy").path for _ in range(3)]
    assert [path.name for path in paths] == [
        "2024-05-01_12-00-00",
        "2024-05-01_12-00-00_2",
        "2024-05-01_12-00-00_3",
    ]
    assert all(path.parent == tmp_path / "toy" for path in paths)
    assert all(path.is_dir() for path in paths)


def test_an_existing_run_is_opened_and_its_settings_read(folder):
    folder.write_config({"seed": 3, "name": "Übung", "deep": {"list": [1, 2.5, None]}})
    again = RunFolder.existing(str(folder.path))
    assert again.path == folder.path
    assert again.config() == {"seed": 3, "name": "Übung", "deep": {"list": [1, 2.5, None]}}
    assert list(again.config()) == ["seed", "name", "deep"]


@pytest.mark.parametrize("what", ["nothing", "an empty folder", "a file"])
def test_what_is_no_run_is_refused_with_the_reason(tmp_path, what):
    path = tmp_path / "somewhere"
    if what == "an empty folder":
        path.mkdir()
    elif what == "a file":
        path.write_text("hello")
    reason = f"it has no {CONFIG}" if what == "an empty folder" else "no such folder"
    with pytest.raises(NotARunFolder) as caught:
        RunFolder.existing(path)
    assert str(caught.value) == f"{path} is not a run folder: {reason}"
    assert isinstance(caught.value, ValueError)
    assert sorted(tmp_path.rglob("*")) == ([path] if what != "nothing" else [])


def test_json_is_written_in_one_piece_and_readable(folder):
    folder.write_json("partition.json", {"clients": {"0": ["Müller"]}})
    text = (folder.path / "partition.json").read_text("utf-8")
    assert json.loads(text) == {"clients": {"0": ["Müller"]}}
    assert "Müller" in text


@pytest.mark.parametrize("content", [b'{"a": "\xff"}', b"{", b"[]"])
def test_json_that_is_damaged_raises_or_is_noted(folder, content):
    (folder.path / "units.json").write_bytes(content)
    with pytest.raises(Damaged, match=r"/units\.json (is not JSON|holds no JSON object)"):
        folder.read_json("units.json")
    problems = []
    assert RunFolder(folder.path, problems).read_json("units.json") is None
    assert len(problems) == 1
    assert problems[0].startswith("units.json ")


# The final model


def test_the_final_model_is_the_whole_state(folder):
    shared = torch.tensor([1.0, 2.0])
    folder.save_state(FINAL, {"a": shared, "b": shared, "count": torch.tensor(3)})
    loaded = load_file(folder.path / FINAL)
    assert {name: tensor.tolist() for name, tensor in loaded.items()} == {
        "a": [1, 2],
        "b": [1, 2],
        "count": 3,
    }


@pytest.mark.parametrize(
    "tensor",
    [torch.ones(2, 3).t(), torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last)],
    ids=["transposed", "channels last"],
)
def test_a_final_model_in_another_memory_layout_can_be_saved(folder, tensor):
    folder.save_state(FINAL, {"w": tensor})
    assert load_file(folder.path / FINAL)["w"].tolist() == tensor.tolist()


def test_the_end_of_a_writer_is_awaited(tmp_path):
    """Parts of the folder have locks of their own; one that stays is waited for in vain."""
    folder = RunFolder.made(tmp_path / "run")
    with run_lock.writing(folder.path, "attack", "pmia"):
        run_lock.await_end(folder.path, 60)  # nobody writes the run itself
        began = time.monotonic()
        run_lock.await_end(folder.path, 0.3, "pmia")
        assert time.monotonic() - began >= 0.3
        assert "fedpriv attack" in run_lock.holder(folder.path, "pmia")
    run_lock.await_end(folder.path, 60, "pmia")
    assert not run_lock.holder(folder.path, "pmia")
