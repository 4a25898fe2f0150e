"""Commands on a run folder: in use, changed by others, or none; and how runs end by status."""

from pathlib import Path

import pytest
from processes import TOY

from fedpriv.cli.main import main
from fedpriv.runtime import run_lock, verify

QUIET = ("rounds=1", "federation.report=false")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_report_of_a_run_in_use_is_written_and_says_what_waits(copy, capsys):
    (copy / "report.html").unlink()
    with run_lock.writing(copy, "resume"):
        assert main(["report", str(copy)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [str(copy / "report.html")]
    assert "is being written by process" in err
    assert "ε of its ledger is computed when it ends" in err
    assert (copy / "report.html").is_file()


def test_a_report_names_the_files_that_were_changed_on_the_page_and_in_the_terminal(copy, capsys):
    metrics = copy / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"round": 1', '"round":  1'))
    assert main(["report", str(copy)]) == 0
    assert "metrics.jsonl" in capsys.readouterr().err
    page = (copy / "report.html").read_text("utf-8")
    assert "metrics.jsonl" in page.partition("Could not be read")[2]


def test_verify_says_that_somebody_is_writing(copy, capsys):
    with run_lock.writing(copy, "resume"):
        main(["verify", str(copy)])
    assert "is writing: this may be out of date already" in capsys.readouterr().err


def test_verify_takes_run_folders_only(tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 2
    assert f"{tmp_path} is not a run folder: it has no config.yaml" in capsys.readouterr().err


def test_an_error_that_a_changed_folder_may_explain_names_what_was_changed(
    copy, capsys, monkeypatch
):
    def stumbles(*_, **__):
        raise KeyError("f1")

    monkeypatch.setattr("fedpriv.report.build.write_report", stumbles)
    with pytest.raises(KeyError):  # nothing was changed, so that the mistake is fedpriv's
        main(["report", str(copy)])
    (copy / "partition.json").write_text("{}")
    assert main(["report", str(copy)]) == 1
    err = capsys.readouterr().err
    assert "KeyError: 'f1'" in err
    assert f"{copy} is not as fedpriv wrote it, which may be why" in err
    assert verify.check(copy).problems()[0] in err


def test_a_run_in_which_no_round_counted_ends_with_status_1(capsys):
    faults = "client.faults={1/0: raise}"
    few = ("federation.min_clients=8", "federation.max_refused=5", faults)
    assert main(["run", TOY, *QUIET, *few]) == 1
    out = capsys.readouterr().out
    assert "refused, because too few clients answered: round 1" in out
    assert "round 1: client 0 failed (OutOfLuck)" in out


def test_a_private_run_with_refused_rounds_says_how_to_count_them(capsys):
    private = str(Path(TOY).with_name("private.yaml"))
    faults = "client.faults={" + ", ".join(f"1/0/{n}: raise" for n in range(8)) + "}"
    assert main(["run", private, *QUIET, faults, "federation.max_refused=5"]) == 1
    told = "to count rounds in which clients are missing, set strategy.threshold below 1"
    assert told in capsys.readouterr().out


def test_a_run_whose_attack_is_refused_ends_with_status_3(capsys):
    attacked = ("+attack._target_=toy_attacks.Guess", "+attack.refuse=true")
    assert main(["run", TOY, *QUIET, *attacked]) == 3
    out = capsys.readouterr().out.splitlines()
    assert "not applicable: the toy does not want to" in out
    assert (Path(out[-1]) / "checkpoints" / "final.safetensors").is_file()


def test_several_runs_at_once_make_no_attack(capsys, tmp_path):
    words = ("-m", "seed=0,1", "+attack._target_=toy_attacks.Guess")
    assert main(["run", TOY, *QUIET, *words]) == 2
    assert "attack: an experiment with an attack runs without -m" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
