"""`fedpriv doctor`: what is there, what is not, and what ends with status 1."""

import json
import shutil
import subprocess
import sys

import pytest

from fedpriv.cli import doctor
from fedpriv.cli.main import main


def told(capsys):
    """The findings by name, and the exit status."""
    status = main(["doctor", "--json"])
    return {f["what"]: f for f in json.loads(capsys.readouterr().out)}, status


def test_this_machine_runs_fedpriv(capsys):
    findings, status = told(capsys)
    assert status == 0
    assert {*findings} >= {"python", "packages", "accelerator", "tesseract", "fonts", "cache"}
    assert sys.executable in findings["python"]["there"]
    for finding in findings.values():
        assert finding["status"] in ("ok", "absent")
        assert finding["there"]


def test_the_text_has_a_line_for_each(capsys):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if line[0] != " "].count("ok") >= 7


def test_what_is_absent_comes_with_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("FEDPRIV_DATA", raising=False)
    findings, status = told(capsys)
    assert status == 0
    assert findings["tesseract"]["status"] == "absent"
    assert "apt-get install tesseract-ocr" in findings["tesseract"]["means"]
    assert "export FEDPRIV_DATA=DIR" in findings["data sets"]["means"]


def test_the_extras_are_looked_for(monkeypatch, capsys):
    find = doctor.importlib.util.find_spec
    monkeypatch.setattr(
        doctor.importlib.util,
        "find_spec",
        lambda name, *more: None if name in ("datasets", "wandb") else find(name, *more),
    )
    findings, status = told(capsys)
    assert status == 0
    for extra, there in (("datasets", "no module datasets"), ("trackers", "no module wandb")):
        assert (findings[extra]["status"], findings[extra]["there"]) == ("absent", there)
        assert f"pip install 'fedpriv[{extra}]'" in findings[extra]["means"]


def test_a_tesseract_that_does_not_end_well_is_absent(tmp_path, monkeypatch, capsys):
    program = tmp_path / "tesseract"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    findings, status = told(capsys)
    assert (status, findings["tesseract"]["status"]) == (0, "absent")


@pytest.mark.parametrize(
    ("wanted", "says"),
    [("no-such-package-of-ours>=1", "no no-such-package-of-ours"), ("numpy<1", "expected <1")],
)
def test_a_package_that_is_needed_and_not_there_is_broken(wanted, says, monkeypatch, capsys):
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda name: [wanted])
    findings, status = told(capsys)
    assert status == 1
    assert findings["packages"]["status"] == "broken"
    assert says in findings["packages"]["there"]


def test_packages_of_extras_are_not_needed(monkeypatch):
    named = ["click>=8", "no-such-package>=1; extra == 'docs'"]
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda name: named)
    assert [one.name for one in doctor.requirements()] == ["click"]


def test_a_cache_that_cannot_be_written_is_broken(monkeypatch, capsys):
    monkeypatch.setenv("FEDPRIV_CACHE", "/proc/fedpriv")
    findings, status = told(capsys)
    assert (status, findings["cache"]["status"]) == (1, "broken")
    assert "export FEDPRIV_CACHE=DIR" in findings["cache"]["means"]


def test_a_disk_that_a_run_may_fill_is_told(monkeypatch, capsys):
    full = shutil.disk_usage("/")._replace(free=1_000_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    cache = told(capsys)[0]["cache"]
    assert (cache["status"], cache["means"]) == ("ok", "little space: see `fedpriv clean --help`")
    assert cache["there"].endswith(", 1 GB free")


def test_data_sets_are_those_in_the_folder_that_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "sroie").mkdir()
    monkeypatch.setenv("FEDPRIV_DATA", str(tmp_path))
    assert told(capsys)[0]["data sets"]["there"] == f"{tmp_path}: sroie"
    monkeypatch.setenv("FEDPRIV_DATA", str(tmp_path / "nowhere"))
    found = told(capsys)[0]["data sets"]
    assert found["status"] == "absent"
    assert found["there"] == f"FEDPRIV_DATA={tmp_path / 'nowhere'}: no such folder"


def test_a_check_that_fails_leaves_the_others(monkeypatch, capsys):
    def torch():
        raise ImportError("libcudart.so.13 is not there")

    monkeypatch.setattr(doctor, "CHECKS", (torch, doctor.python))
    findings, status = told(capsys)
    assert status == 1
    assert findings["torch"]["there"] == "ImportError: libcudart.so.13 is not there"
    assert findings["python"]["status"] == "ok"


def test_nothing_heavy_is_imported_but_torch():
    code = (
        "import sys; from fedpriv.cli.main import main; main(['doctor']); "
        "sys.exit(str([n for n in ('ray', 'flwr', 'transformers', 'hydra') if n in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"
