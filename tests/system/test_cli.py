"""The command line as a user meets it."""

import json

import pytest
import yaml
from processes import TOY, finish, run, run_dir, start

from fedpriv.runtime.run_folder import RunFolder


@pytest.mark.slow
def test_quickstart_leaves_a_run_folder_and_names_it_last(tmp_path):
    small = ["rounds=2", "data.source.documents_per_provider=3", "federation.workers=1"]
    status, out, err = run("run", "quickstart", *small, cwd=tmp_path)

    assert status == 0, err
    folder = tmp_path / run_dir(out)
    rounds = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [r["round"] for r in rounds] == [1, 2]
    for record in rounds:
        assert record["clients"] == {"sampled": 6, "answered": 6, "failed": 0, "missing": 0}
        assert isinstance(record["loss"], float)
        assert 0 <= record["f1"] <= 1
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["seed"] == 0
    assert config["data"]["source"]["documents_per_provider"] == 3
    assert set(config["versions"]) >= {"python", "fedpriv", "torch", "flwr", "ray"}
    partition = json.loads((folder / "partition.json").read_text())
    assert len(partition["clients"]) == 6
    assert (folder / "checkpoints" / "final.safetensors").stat().st_size > 100_000
    assert list((folder / "tensorboard").glob("events*"))
    report = (folder / "report.html").read_text()
    assert "quickstart" in report
    # What a person sees on the way, one line a round.
    assert "round 1/2" in err
    assert "round 2/2" in err


def test_the_run_says_at_its_end_what_failed(tmp_path):
    faults = "client.faults={2/3: raise, 3/1: 'nan'}"
    status, out, _ = run("run", TOY, faults, cwd=tmp_path)

    assert status == 0
    assert "round 2: client 3 failed (OutOfLuck)" in out
    assert "round 3: client 1 failed (FloatingPointError)" in out
    failures = (tmp_path / run_dir(out) / "failures.jsonl").read_text()
    assert "the invoice of ACME Ltd could not be read" in failures


def test_a_wrong_experiment_starts_nothing(tmp_path):
    status, out, err = run("run", TOY, "strategy.clip_nrom=1", "roundz=3", cwd=tmp_path)

    assert status == 2
    assert out == ""
    assert "2 mistakes, nothing was started" in err
    assert "strategy.clip_nrom: fedpriv.strategies.fedavg.FedAvg takes no 'clip_nrom'" in err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


def test_more_clients_than_providers_is_a_message_and_not_a_traceback(tmp_path):
    status, _, err = run("run", "quickstart", "data.partition.clients=25", cwd=tmp_path)

    assert status == 2
    assert "clients=25, but the documents are of 18 providers" in err
    assert "Traceback" not in err


def test_a_round_without_enough_answers_ends_the_run_or_is_refused(tmp_path):
    faults = "client.faults={2/0: raise, 2/1: raise}"
    few = ["federation.min_clients=7", faults]
    status, out, err = run("run", TOY, *few, cwd=tmp_path)
    assert status == 0, err
    assert "refused, because too few clients answered: round 2" in out

    status, _, err = run("run", TOY, *few, "federation.max_refused=1", cwd=tmp_path)
    assert status == 1
    assert "the last round did not count. Round 2: 6 of 8 clients answered" in err


def test_every_combination_is_run_as_a_table(tmp_path):
    words = ("run", TOY, "-m", "seed=0,1", "rounds=1,2", "data.clients=7", "runs=elsewhere")
    status, out, err = run(*words, cwd=tmp_path)
    assert status == 0, err
    folder = tmp_path / run_dir(out)
    table = json.loads((folder / "results.json").read_text("utf-8"))
    assert [(row["row"], row["seed"]) for row in table["rows"]] == [
        ("rounds=1", 0),
        ("rounds=2", 0),
        ("rounds=1", 1),
        ("rounds=2", 1),
    ]
    assert [column["path"] for column in table["columns"]] == ["accuracy", "loss", "train_loss"]
    for row in table["rows"]:
        last = RunFolder.existing(folder / row["run"]).records("metrics.jsonl")[-1]
        assert last["round"] == int(row["row"][-1])
        assert row["values"]["accuracy"] == last["accuracy"]
    assert table["title"] == "toy data.clients=7"
    assert "elsewhere" not in json.dumps(table)
    page = (folder / "report.html").read_text("utf-8")
    assert "rounds=2" in page
    assert [line.split()[0] for line in out.splitlines()[1:3]] == ["rounds=1", "rounds=2"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("seed=0,0",), "seed=0,0: expected whole numbers, all different, such as seed=0,1,2"),
        (("seed=a,b",), "seed=a,b: expected whole numbers"),
        (("workers=1,2",), "workers=: expected how many runs at a time, one number"),
        (("rounds=1,none",), "rounds=none"),
    ],
)
def test_combinations_that_cannot_be_run_are_refused_before_any_is(words, told, tmp_path):
    status, _, err = run("run", TOY, "-m", *words, cwd=tmp_path)
    assert status == 2
    assert told in err
    assert not (tmp_path / "runs").exists()


def test_list_names_what_can_be_run_and_swapped(tmp_path):
    status, out, _ = run("list", cwd=tmp_path)
    assert status == 0
    assert "quickstart" in out
    assert "sroie_kie" in out
    assert "strategy= centralised, centralised_dp, " in out


def test_the_report_can_be_written_again(tmp_path):
    _, out, _ = run("run", TOY, "rounds=1", cwd=tmp_path)
    folder = run_dir(out)
    (tmp_path / folder / "report.html").unlink()
    status, out, _ = run("report", str(folder), cwd=tmp_path)
    assert status == 0
    assert (tmp_path / run_dir(out)).is_file()


def test_reports_are_redacted_and_compared(tmp_path):
    runs = [str(run_dir(run("run", TOY, "rounds=1", f"seed={n}", cwd=tmp_path)[1])) for n in (0, 1)]
    status, out, _ = run("report", runs[0], "--redacted", cwd=tmp_path)
    assert (status, out.strip()) == (0, f"{runs[0]}/report-redacted.html")
    assert "This is a redacted report" in (tmp_path / out.strip()).read_text("utf-8")
    status, out, _ = run("compare", *runs, "-o", "both.html", cwd=tmp_path)
    assert (status, out.splitlines()[-1]) == (0, "both.html")
    assert "2 runs" in (tmp_path / "both.html").read_text("utf-8")


@pytest.mark.slow
def test_modules_beside_the_user_are_found_but_shadow_nothing(tmp_path):
    (tmp_path / "json.py").write_text("raise ImportError('shadowed')\n")
    (tmp_path / "my_models.py").write_text("from toy import Net\n\n\nclass Mine(Net):\n    pass\n")
    workers = "federation.workers=1"
    mine = ["model._target_=my_models.Mine", "rounds=1", workers]
    status, _, err = finish(start("run", TOY, *mine, cwd=tmp_path))
    assert status == 0, err
