"""How commands end: interrupted, terminated, on a full disk, or with nobody listening."""

import errno
import io
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from folder_pages import picture, save
from toy import Faulty

from fedpriv.cli import listing
from fedpriv.cli.main import main
from fedpriv.runtime.run_folder import RunFolder

TOY = str(Path(__file__).parents[2] / "system" / "toy.yaml")


@dataclass(frozen=True)
class Signalled(Faulty):
    """The toy's client half; client 2 sends the process a signal in round 2."""

    number: int = signal.SIGINT

    def train(self, context):
        if (context.instruction.round, context.client) == (2, 2):
            os.kill(os.getpid(), self.number)
        return super().train(context)


pytestmark = pytest.mark.usefixtures("in_own_folder")


def run(*more):
    return main(["run", TOY, "rounds=3", "federation.report=false", *more])


@pytest.fixture
def heeded():
    """Ctrl-C is heeded, also where the tests were started in the background, to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_an_interrupted_run_says_how_to_go_on(number, status, capsys, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    client = ["client._target_=test_endings.Signalled", f"+client.number={int(number)}"]
    assert run(*client) == status
    folder = next(tmp_path.glob("runs/toy/*")).relative_to(tmp_path)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"interrupted; go on with: fedpriv resume {folder}"
    assert signal.getsignal(signal.SIGTERM) is before
    (folder / "config.yaml").write_text(
        (folder / "config.yaml").read_text().replace(f"number: {int(number)}", "number: 0")
    )
    assert main(["resume", str(folder), "--trust"]) == 0
    assert len(RunFolder.existing(folder).records("metrics.jsonl")) == 3


def test_what_ray_makes_of_sigterm_is_a_termination(capsys, monkeypatch):
    monkeypatch.setattr(listing.command, "callback", lambda group: sys.exit(signal.SIGTERM))
    assert main(["list"]) == 143
    assert capsys.readouterr().err == "interrupted\n"


def test_a_full_disk_is_named_with_the_folder(capsys, monkeypatch, tmp_path):
    def full(self, name, records):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RunFolder, "append", full)
    assert run() == 1
    folder = next(tmp_path.glob("runs/toy/*")).relative_to(tmp_path)
    told = f"{folder}: No space left on device; go on with: fedpriv resume {folder}"
    assert capsys.readouterr().err.splitlines()[-1] == told


class Full(io.BufferedRandom):
    def write(self, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_whatever_is_written_on_a_full_disk_is_named(capsys, monkeypatch, tmp_path):
    assert run() == 0
    (folder,) = tmp_path.glob("runs/toy/*")
    capsys.readouterr()
    usual = os.fdopen

    def opened(handle, mode="r", *more, **how):
        reads = mode in ("r", "rb")
        return usual(handle, mode, *more, **how) if reads else Full(io.FileIO(handle, "r+"))

    monkeypatch.setattr(os, "fdopen", opened)
    assert main(["report", str(folder)]) == 1
    assert re.fullmatch(rf"{folder}/\S+: No space left on device\n", capsys.readouterr().err)

    def full(self, *text, **how):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    assert main(["new", "study"]) == 1
    assert re.fullmatch(r"study/\S+: No space left on device\n", capsys.readouterr().err)


def test_an_error_is_told_without_the_name_of_its_class(capsys, tmp_path):
    assert run() == 0
    (folder,) = tmp_path.glob("runs/toy/*")
    capsys.readouterr()
    assert main(["compare", str(folder)]) == 1
    assert capsys.readouterr().err == "got 1 run folder: expected two or more to compare\n"
    (tmp_path / "file").touch()
    assert main(["report", str(tmp_path / "file" / "x")]) == 2
    assert main(["new", "file/x"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "file/x: Not a directory"


def run_on(folder, *more):
    return main(
        ["run", "kie_layoutlmv3", "data=folder", f"data.source.root={folder}", "rounds=1", *more]
    )


def test_files_that_cannot_be_used_are_mistakes(capsys, tmp_path):
    save(picture(), tmp_path / "scans" / "good.png")
    for name in ("a.png", "b.pdf"):
        (tmp_path / "scans" / name).write_bytes(b"")
    assert run_on("scans", "data.source.words=none") == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "the experiment: 2 mistakes, nothing was started"
    assert sorted(lines[1:3])[0].startswith(f"  {tmp_path}/scans/a.png: ")
    assert lines[3:] == ["  data.source.on_error=skip leaves these out"]
    assert not (tmp_path / "runs").exists()


def test_without_any_file_nothing_is_started(capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    assert run_on("empty") == 2
    assert capsys.readouterr().err.startswith(
        f"the experiment: 1 mistake, nothing was started\n  {tmp_path}/empty: no pages: expected "
        "files .png, "
    )


def test_too_few_providers_are_a_mistake(capsys, tmp_path):
    save(picture(), tmp_path / "scans" / "good.png")
    assert run_on("scans", "data.partition.clients=5", "data.source.words=none") == 2
    err = capsys.readouterr().err
    assert err.startswith(
        "the experiment: 1 mistake, nothing was started\n  clients=5, but the documents are of 1 "
    )


@pytest.fixture
def broken():
    """A stream into a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as stream:
        yield stream


def test_a_run_whose_error_output_nobody_reads_goes_on(broken, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", broken)
    assert run() == 0
    folder = capsys.readouterr().out.splitlines()[-1]
    assert (Path(folder) / "checkpoints/final.safetensors").is_file()


def test_results_that_nobody_reads_are_told_by_the_exit_status(broken, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", broken)
    assert main(["list"]) == 128 + signal.SIGPIPE
    assert capsys.readouterr().err == ""
    broken.write("more")
    broken.flush()  # as the interpreter does at its end


def test_a_run_whose_results_nobody_reads_is_finished(broken, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdout", broken)
    assert run() == 141
    assert list(tmp_path.glob("runs/toy/*/checkpoints/final.safetensors"))


def test_a_process_without_standard_streams_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert run() == 0


def test_a_report_is_named_only_where_there_is_one(capsys):
    assert run() == 0
    assert "report" not in capsys.readouterr().out
