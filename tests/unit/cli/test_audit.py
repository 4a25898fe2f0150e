"""`fedpriv audit`, and `privacy.audit` at the end of a run."""

import json

import pytest
from experiments_run import ran, result_of

from fedpriv.cli.main import main
from fedpriv.clients import share

FEW_PAGES = (
    "data.source.providers=6",
    "data.source.documents_per_provider=2",
    "data.partition.clients=3",
)
SMALL = (
    "quickstart",
    "strategy=fl_provider_dp",
    "privacy.entropy=seed",
    "rounds=2",
    "federation.evaluate_every=2",
    *FEW_PAGES,
    "privacy.providers=2",
    "federation.report=false",
)
FEW = ("--canaries", "16384")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_an_experiment_is_measured_and_no_run_is_made(capsys, tmp_path):
    assert main(["audit", *SMALL, "strategy.mechanism.client_rate=1", *FEW]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 3
    assert out[1].startswith(
        "audit (global, 2 releases, 16384 canaries): ledger 8.00; measured at least 7."
    )
    assert out[1].endswith("(one run)")
    moved = "audit: without one supplier, a sum of real examples moved by 1 times what the ledger"
    assert out[2] == f"{moved} counts for it at most (2 tried)"
    assert not (tmp_path / "runs").exists()


def test_as_json(capsys):
    masked = ("masking=on", "privacy.epsilon=4", "strategy.mechanism.client_rate=1")
    assert main(["audit", *SMALL, *masked, *FEW, "--runs", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["runs"] == 2
    assert found["unit"] == "provider"
    assert not found["contradicted"]
    assert found["views"].keys() == {"global", "server_masked"}
    for view in found["views"].values():
        assert 3.98 < view["ledger"] <= 4
        assert 3.2 < view["sigma_fit"] <= view["ledger"]
        assert 0 < view["count"] < view["ledger"]
        assert 0 < view["one_run"] < view["ledger"]
        assert view["canaries"] == 2 * 16384


def test_too_little_noise_is_status_1(capsys, monkeypatch):
    real = share.add_gaussian
    monkeypatch.setattr(share, "add_gaussian", lambda v, s, rng: real(v, 0.7 * s, rng))
    assert main(["audit", *SMALL, *FEW]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith("ALARM: the mechanism gives away more than its ledger says")


def test_what_has_no_mechanism_is_refused(capsys):
    assert main(["audit", "quickstart", "rounds=1", *FEW_PAGES]) == 2
    told = capsys.readouterr().err
    assert "1 mistake, nothing was started" in told
    assert "strategy: FedAvg has no mechanism of privacy to audit" in told


def test_a_private_run_ends_with_its_audit_which_its_folder_keeps(capsys):
    status, folder, told = ran(
        "run", *SMALL, "privacy.audit=true", "strategy.mechanism.client_rate=1"
    )
    assert status == 0
    assert "audit (server_plain, " in told
    result = result_of(folder, "mechanism_audit")
    assert result["verdict"] == "none_shown"
    found = result["numbers"]["epsilon_lower_global"]
    assert 0.8 * found["control"] < found["value"] <= found["control"]
    assert main(["verify", str(folder.path)]) == 0
    assert main(["report", str(folder.path)]) == 0
    assert "The mechanism, measured" in (folder.path / "report.html").read_text("utf-8")
    capsys.readouterr()
    # Later, at greater length, in place of the first one.
    assert main(["audit", str(folder.path), *FEW, "--runs", "2"]) == 0
    assert result_of(folder, "mechanism_audit")["details"]["runs"] == 2
    assert main(["audit", str(folder.path), "rounds=3"]) == 2
    assert "a run has its settings" in capsys.readouterr().err


def test_moments_of_the_trained_model_do_not_reach_the_audit():
    momentum = "strategy.optimizer={name: sgd, lr: 1.0, momentum: 0.9}"
    status, folder, told = ran("run", *SMALL, momentum, "masking=on", "privacy.audit=true")
    assert status == 0
    assert "audit (server_masked, " in told
    assert result_of(folder, "mechanism_audit")["verdict"] == "none_shown"


def test_an_audit_that_cannot_be_made_is_told_before_the_training():
    status, _, told = ran("run", "quickstart", "rounds=1", *FEW_PAGES, "privacy.audit=true")
    assert status == 2
    assert "privacy.audit=true: strategy: FedAvg has no mechanism" in told
